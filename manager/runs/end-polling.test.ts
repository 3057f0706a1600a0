import { expect, test } from 'vitest'
import type { Database } from '#core/database/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { RunEndings } from '../writer/endings.ts'
import { startEndPolling } from './end-polling.ts'

test('a poll waits for the one before', { timeout: 60_000 }, async () => {
  const endings = new RunEndings()
  endings.on(1, () => undefined)
  const polls: (() => void)[] = []
  const query = () => new Promise((resolve) => polls.push(() => resolve({ rows: [] })))
  const polling = startEndPolling({
    database: { db: { query } } as unknown as Database,
    endings,
    logger: createLogger({ name: 'test', level: 'silent' }),
    intervalMs: 1,
  })
  await expect.poll(() => polls.length, { timeout: 30_000 }).toBe(1)
  await new Promise((resolve) => setTimeout(resolve, 30))
  expect(polls).toHaveLength(1)
  polls[0]?.()
  await expect.poll(() => polls.length, { timeout: 30_000 }).toBe(2)
  polling.stop()
})

test('who needs the end alone reads no results, with one statement for all of them', { timeout: 60_000 }, async () => {
  const endings = new RunEndings()
  const ended = new Set<number>()
  for (let runKey = 1; runKey <= 1000; runKey++) endings.onEnd(runKey, () => void ended.add(runKey))
  let reads = 0
  endings.on(1000, () => void (reads += 1))
  const statements: { text: string; keys: number[] }[] = []
  const query = ({ text, values }: { text: string; values: [number[]] }) => {
    const [keys] = values
    statements.push({ text, keys })
    return Promise.resolve({ rows: keys.map((key) => ({ key, results: null, result_digest: null })) })
  }
  const polling = startEndPolling({
    database: { db: { query } } as unknown as Database,
    endings,
    logger: createLogger({ name: 'test', level: 'silent' }),
    intervalMs: 1,
  })
  await expect.poll(() => ended.size, { timeout: 30_000 }).toBe(1000)
  polling.stop()
  expect(reads).toBe(1)
  expect(statements.map(({ keys }) => keys.length)).toEqual([999, 1])
  expect(statements.map(({ text }) => text.includes('results'))).toEqual([false, true])
})
