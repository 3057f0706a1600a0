import { expect, test } from 'vitest'
import type { Database } from '#core/database/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { RunEndings } from '../writer/endings.ts'
import { startEndPolling } from './end-polling.ts'

test('a poll waits for the one before', async () => {
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
  await expect.poll(() => polls.length).toBe(1)
  await new Promise((resolve) => setTimeout(resolve, 30))
  expect(polls).toHaveLength(1)
  polls[0]?.()
  await expect.poll(() => polls.length).toBe(2)
  polling.stop()
})
