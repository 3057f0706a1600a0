import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createJobQueue, jobProcess, jobThread } from './index.ts'

type Job = { do: 'answer' | 'abort' | 'nothing'; text?: string }

const THREAD = `
import { parentPort } from 'node:worker_threads'
parentPort.on('message', (job) => {
  if (job.do === 'answer') parentPort.postMessage({ text: job.text })
  else if (job.do === 'abort') throw new Error('the thread ends')
})`
const PROCESS = `
process.on('message', (job) => {
  if (job.do === 'answer') process.send({ text: job.text, environment: Object.keys(process.env) })
  else if (job.do === 'abort') process.abort()
})`

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'skein-jobs-'))
})
afterAll(() => rmSync(folder, { recursive: true }))

describe.each([
  ['thread', THREAD, jobThread],
  ['process', PROCESS, jobProcess],
] as const)('jobs in a %s', (name, source, runnerOf) => {
  const queueOf = (maxJobMs = 20_000) => {
    const script = join(folder, `${name}.mjs`)
    writeFileSync(script, source)
    return createJobQueue<Job, { text: string; environment?: string[] }>(
      { what: 'text', maxJobMs, maxWaitingOfOwner: 2, maxWaiting: 3 },
      runnerOf(pathToFileURL(script), 64),
    )
  }

  test('are answered one after the other', async () => {
    const queue = queueOf()
    const answers = await Promise.all(['a', 'b'].map((text) => queue.run({ do: 'answer', text }, 'one')))
    expect(answers.map(({ text }) => text)).toEqual(['a', 'b'])
  })

  test('that end their runner are refused, and the next one is answered', async () => {
    const queue = queueOf()
    await expect(queue.run({ do: 'abort' }, 'one')).rejects.toThrow('the text takes too much memory to parse')
    expect(await queue.run({ do: 'answer', text: 'next' }, 'one')).toMatchObject({ text: 'next' })
  })

  test('that take too long are refused, and the next one is answered', async () => {
    const queue = queueOf(2000)
    const long = queue.run({ do: 'nothing' }, 'one')
    const next = queue.run({ do: 'answer', text: 'next' }, 'one')
    await expect(long).rejects.toThrow('the text takes too long to parse')
    expect(await next).toMatchObject({ text: 'next' })
  })

  test('of one owner wait up to a limit, and another owner has its turn', async () => {
    const queue = queueOf()
    const order: string[] = []
    const run = async (text: string, owner: string) => {
      await queue.run({ do: 'answer', text }, owner)
      order.push(text)
    }
    const all = [run('first', 'one'), run('second', 'one'), run('third', 'one')]
    await expect(run('fourth', 'one')).rejects.toThrow('too many texts are being parsed')
    await Promise.all([...all, run('other', 'two')])
    expect(order).toEqual(['first', 'second', 'other', 'third'])
  })
})

test('a process for jobs has no environment, and does not keep its parent alive', async () => {
  const script = join(folder, 'parent.mjs')
  writeFileSync(join(folder, 'child.mjs'), PROCESS)
  const jobs = pathToFileURL(join(import.meta.dirname, 'index.ts')).href
  writeFileSync(
    script,
    `import { createJobQueue, jobProcess } from '${jobs}'
const queue = createJobQueue({ what: 'text', maxJobMs: 20000, maxWaitingOfOwner: 1, maxWaiting: 1 }, jobProcess(new URL('child.mjs', import.meta.url), 64))
const { environment } = await queue.run({ do: 'answer' }, 'one')
console.log(JSON.stringify(environment))`,
  )
  const parent = spawn(process.execPath, [script], { env: { SECRET: 'a' }, stdio: ['ignore', 'pipe', 'inherit'] })
  let output = ''
  parent.stdout.on('data', (part: Buffer) => (output += part.toString()))
  const [code] = (await once(parent, 'exit')) as [number]
  // The channel to the parent is the only variable.
  expect([code, (JSON.parse(output) as string[]).filter((key) => !key.startsWith('NODE_CHANNEL_'))]).toEqual([0, []])
})
