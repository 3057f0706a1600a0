import { expect, test } from 'vitest'
import { createLocalBus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { startCommandReader } from './command-runs.ts'
import type { CommandFate, CommandRun } from './command-runs.ts'

type Transition = { text: string; values: readonly unknown[] }

/** A queue of commands in memory, which knows the statements of the reader by their first words. */
function queueOf(domains: readonly number[]) {
  const due = new Map(domains.map((domainKey, index) => [index + 1, domainKey]))
  const written: Transition[] = []
  const failures: Error[] = []
  const query = async ({ text, values = [] }: { text: string; values?: readonly unknown[] }) => {
    if (text.includes('AS is_due')) return { rows: due.size === 0 ? [] : [{ is_due: true }] }
    if (!text.startsWith('WITH turns')) {
      written.push({ text, values })
      return { rows: [] }
    }
    const busy = new Set(values.find((value) => Array.isArray(value)) as number[])
    const taken = [...due].filter(([, domainKey]) => !busy.has(domainKey)).slice(0, 50)
    for (const [commandKey] of taken) due.delete(commandKey)
    return { rows: taken.map(([commandKey, domainKey]) => ({ commandKey, domainKey, taskKey: null, runKey: null })) }
  }
  const db = { query }
  const database = {
    db,
    async transaction(work: (tx: unknown) => Promise<unknown>) {
      const failure = failures.shift()
      if (failure !== undefined) throw failure
      return await work(db)
    },
  }
  return {
    written,
    failures,
    start(work: (commands: readonly CommandRun[]) => Promise<CommandFate[]>) {
      const errors: unknown[] = []
      const reader = startCommandReader({
        database: database as unknown as Database,
        bus: createLocalBus(),
        intervalMs: 5,
        work,
        record: () => Promise.resolve(),
        onChanged: () => undefined,
        onError: (error) => errors.push(error),
      })
      return { ...reader, errors }
    },
  }
}

const none = (commands: readonly CommandRun[]) => commands.map((): CommandFate => ({ to: 'none' }))

test('a slow command of one domain delays none of another, and the end waits for it', async () => {
  const slow = Promise.withResolvers<void>()
  const looked: number[] = []
  const queue = queueOf([1, 1, 2, 3])
  const reader = queue.start(async (commands) => {
    const domains = new Set(commands.map(({ domainKey }) => domainKey))
    expect(domains.size).toBe(1)
    looked.push(...domains)
    if (domains.has(1)) await slow.promise
    return none(commands)
  })
  const deletions = () => queue.written.filter(({ text }) => text.startsWith('DELETE')).length
  await expect.poll(deletions).toBe(2)
  expect(looked.toSorted((left, right) => left - right)).toEqual([1, 2, 3])
  let isStopped = false
  const stopped = reader.stop().then(() => (isStopped = true))
  await new Promise((resolve) => setTimeout(resolve, 20))
  expect(isStopped).toBe(false)
  slow.resolve()
  await stopped
  expect(deletions()).toBe(3)
})

test('no more are taken while commands of 16 domains are under way', async () => {
  const waiting: (() => void)[] = []
  const queue = queueOf(Array.from({ length: 60 }, (_, index) => index))
  let begun = 0
  const reader = queue.start(async (commands) => {
    begun += 1
    await new Promise<void>((resolve) => waiting.push(resolve))
    return none(commands)
  })
  await expect.poll(() => begun).toBe(50)
  for (let left = 50; left > 16; left--) waiting.shift()?.()
  await new Promise((resolve) => setTimeout(resolve, 50))
  expect(begun).toBe(50)
  waiting.shift()?.()
  await expect.poll(() => begun).toBe(60)
  for (const resolve of waiting) resolve()
  await reader.stop()
})

const OUTAGE = new Error('Connection terminated unexpectedly')
const REFUSED = Object.assign(new Error('unsupported Unicode escape sequence'), { code: '22P05' })

test.each([[OUTAGE], [REFUSED, OUTAGE]])('an outage changes no result (%#)', async (...failures) => {
  const queue = queueOf([1])
  queue.failures.push(...failures)
  const reader = queue.start((commands) =>
    Promise.resolve(
      commands.map((): CommandFate => ({ to: 'end', status: 'succeeded', isDelivered: true, result: '7' })),
    ),
  )
  await expect.poll(() => reader.errors).toEqual(failures)
  await reader.stop()
  // It is taken again later.
  expect(queue.written).toEqual([])
})
