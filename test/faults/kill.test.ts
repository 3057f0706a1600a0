// Whatever is killed, whenever: an acknowledged message is stored once, and every started task ends.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { commandOf, createInstallation, familyOf, isWorkerCommand, startWhole } from '../harness/whole.ts'

let installation: Installation
beforeEach(async () => {
  installation = await createInstallation()
})
afterEach(() => installation[Symbol.dispose]())

type Setup = { token: string; domainId: string; channelId: string; secret: string; taskId: string }

async function setUp(whole: Whole): Promise<Setup> {
  const login = await whole.call('POST', '/users/tokens/issue', {
    body: { identity: 'admin', secret: 'the-first-admin' },
  })
  const token = `Bearer ${login.json<{ access_token: string }>().access_token}`
  const domainId = (await whole.call('POST', '/domains', { body: { name: 'faults' }, authorization: token })).json<{
    id: string
  }>().id
  const client = (
    await whole.call('POST', `/${domainId}/clients`, { body: { name: 'device' }, authorization: token })
  ).json<{ id: string; credentials: { secret: string } }>()
  const channelId = (await whole.call('POST', `/${domainId}/channels`, { body: {}, authorization: token })).json<{
    id: string
  }>().id
  await whole.call('POST', `/${domainId}/channels/connect`, {
    body: { client_ids: [client.id], channel_ids: [channelId] },
    authorization: token,
  })
  const taskId = (await whole.call('POST', '/tasks', { body: { name: 'add', inputs: [1, 2] } })).json<{ id: string }>()
    .id
  const file = new FormData()
  file.append('file', new Blob([readFileSync(join(import.meta.dirname, '../../examples/add/add.wasm'))]), 'add.wasm')
  expect((await whole.call('PUT', `/tasks/${taskId}/upload`, { body: file })).status).toBe(200)
  return { token, domainId, channelId, secret: client.credentials.secret, taskId }
}

/** Publishes and starts tasks until it is stopped, and records what was acknowledged. */
function traffic(whole: () => Whole, { domainId, channelId, secret, taskId }: Setup) {
  const acknowledged: number[] = []
  const started: string[] = []
  let next = 0
  let isOver = false
  async function publisher(): Promise<void> {
    while (!isOver) {
      const value = next++
      const sent = whole().call('POST', `/m/${domainId}/c/${channelId}`, {
        body: [{ n: 'v', v: value }],
        authorization: `Client ${secret}`,
        headers: { 'idempotency-key': `value-${value}` },
      })
      const answer = await sent.catch(() => undefined)
      if (answer?.status === 202) acknowledged.push(value)
      else await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
  async function starter(): Promise<void> {
    while (!isOver) {
      const answer = await whole()
        .call('POST', `/tasks/${taskId}/invoke`, { body: { inputs: [next, 1] } })
        .catch(() => undefined)
      if (answer?.status === 200) started.push(answer.json<{ run_id: string }>().run_id)
      else await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
  const loops = [publisher(), publisher(), publisher(), publisher(), starter(), starter()]
  return {
    acknowledged,
    started,
    async stop() {
      isOver = true
      await Promise.all(loops)
    },
  }
}

/** Values of the channel, oldest first. */
async function stored(whole: Whole, { domainId, channelId, secret }: Setup): Promise<number[]> {
  const values: number[] = []
  for (;;) {
    const page = await whole.call('GET', `/m/${domainId}/c/${channelId}?limit=1000&offset=${values.length}&dir=asc`, {
      authorization: `Client ${secret}`,
    })
    const { messages } = page.json<{ messages: { value: number }[] }>()
    values.push(...messages.map((message) => message.value))
    if (messages.length < 1000) return values
  }
}

async function requireNothingLost(whole: Whole, setup: Setup, acknowledged: readonly number[]): Promise<void> {
  const values = await stored(whole, setup)
  const known = new Set(values)
  expect(
    acknowledged.filter((value) => !known.has(value)),
    'acknowledged but not stored',
  ).toEqual([])
  expect(values.length, 'a value is stored twice').toBe(known.size)
}

/** Every run of the task, page by page: the ones that a blow interrupted may stand anywhere. */
async function requireAllRunsEnded(whole: Whole, { taskId }: Setup): Promise<void> {
  await until(
    async () => {
      for (let offset = 0; ; offset += 100) {
        const page = await whole.call('GET', `/tasks/${taskId}/runs?limit=100&offset=${offset}`)
        const { runs } = page.json<{ runs: { state: number }[] }>()
        if (!runs.every((run) => run.state >= 3 && run.state !== 7)) return false
        if (runs.length < 100) return true
      }
    },
    'the end of every run',
    60_000,
  )
}

/** Lets traffic run, breaks something, lets it run on, and checks what is there. */
async function whileTrafficRuns(strike: (whole: Whole) => Promise<Whole>): Promise<void> {
  let whole = await startWhole(installation)
  await using stack = new AsyncDisposableStack()
  stack.defer(async () => await whole[Symbol.asyncDispose]())
  const setup = await setUp(whole)
  const load = traffic(() => whole, setup)
  stack.defer(() => load.stop())
  await until(() => load.acknowledged.length > 200 && load.started.length > 20, 'traffic before the blow', 60_000)
  whole = await strike(whole)
  const before = { messages: load.acknowledged.length, runs: load.started.length }
  await until(
    () => load.acknowledged.length > before.messages + 50 && load.started.length > before.runs + 5,
    'traffic after the blow',
    60_000,
  )
  await load.stop()
  await requireNothingLost(whole, setup, load.acknowledged)
  await requireAllRunsEnded(whole, setup)
}

test('kill -9 of the main process loses nothing that was acknowledged', async () => {
  await whileTrafficRuns(async (whole) => {
    whole.kill('SIGKILL')
    await whole.ended
    return await startWhole(installation)
  })
})

test('kill -9 of the postmaster alone is recovered without a restart', async () => {
  await whileTrafficRuns(async (whole) => {
    const postmaster = familyOf(whole.pid).find((pid) => commandOf(pid).includes(`-D ${installation.dataDir}`))
    expect(postmaster).toBeDefined()
    process.kill(postmaster as number, 'SIGKILL')
    return whole
  })
})

test('kill -9 of every process at once loses nothing that was acknowledged', async () => {
  await whileTrafficRuns(async (whole) => {
    for (const pid of familyOf(whole.pid).toReversed()) {
      try {
        process.kill(pid, 'SIGKILL')
      } catch {
        // It ended by itself when its parent did.
      }
    }
    await whole.ended
    return await startWhole(installation)
  })
})

test('kill -9 of the worker alone gives its runs to the next one', async () => {
  await whileTrafficRuns((whole) => {
    const worker = familyOf(whole.pid).find((pid) => isWorkerCommand(commandOf(pid)))
    expect(worker).toBeDefined()
    process.kill(worker as number, 'SIGKILL')
    return Promise.resolve(whole)
  })
})

test('Ctrl-C under load stops in order with exit code 0', async () => {
  await whileTrafficRuns(async (whole) => {
    whole.kill('SIGINT')
    expect(await whole.ended, whole.output()).toBe(0)
    return await startWhole(installation)
  })
})
