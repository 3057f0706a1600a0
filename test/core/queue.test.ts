/** Readers of queues that are tables: told over the bus, and finding by themselves what nobody told them of. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createLocalBus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { hintQueue, startQueueReader } from '#core/changelog/index.ts'
import { monotonicMs } from '#core/time.ts'
import { sql } from '#core/sql.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'
import { until } from '../harness/until.ts'

let own: TestDatabase

beforeAll(async () => {
  own = await createTestDatabase()
})
afterAll(() => own[Symbol.asyncDispose]())

const bus = createLocalBus()
let queues = 0

/** A queue whose reader takes two rows at a time; `looks` counts how often it was looked for rows. */
async function aQueue(intervalMs: number, takeFails: () => boolean = () => false) {
  queues += 1
  const table = `queue_${queues}`
  const { database } = own
  await sql`CREATE TABLE ${sql.raw(table)} (key bigint GENERATED ALWAYS AS IDENTITY, due_at timestamptz NOT NULL DEFAULT now())`.execute(
    database.db,
  )
  const add = (dueInSeconds = 0) =>
    sql`INSERT INTO ${sql.raw(table)} (due_at) VALUES (now() + make_interval(secs => ${dueInSeconds}))`.execute(
      database.db,
    )
  const taken: number[] = []
  const errors: unknown[] = []
  let looks = 0
  const db: Database['db'] = {
    query: (statement) => {
      if (statement.text.includes('is_due')) looks += 1
      return database.db.query(statement)
    },
  }
  const reader = startQueueReader({
    database: { ...database, db },
    bus,
    table,
    intervalMs,
    async take() {
      if (takeFails()) throw new Error('not now')
      const { rows } = await sql<{ key: number }>`DELETE FROM ${sql.raw(table)} WHERE key IN (
        SELECT key FROM ${sql.raw(table)} WHERE due_at <= now() ORDER BY key LIMIT 2) RETURNING key`.execute(
        database.db,
      )
      taken.push(...rows.map(({ key }) => key))
      return rows.length === 2
    },
    onError: (error) => errors.push(error),
  })
  const untilTaken = (count: number) => until(() => (taken.length >= count ? true : undefined), `${count} rows`)
  return { table, add, taken, errors, reader, looks: () => looks, untilTaken }
}

test('a hint makes the reader take all rows at once, and readers of other queues stay idle', async () => {
  const hourMs = 3_600_000
  const [queue, other] = [await aQueue(hourMs), await aQueue(hourMs)]
  await until(() => (queue.looks() === 1 && other.looks() === 1 ? true : undefined), 'both have looked once')
  for (let row = 0; row < 5; row++) await queue.add()
  hintQueue(bus, queue.table)
  await queue.untilTaken(5)
  expect(queue.taken.toSorted((left, right) => left - right)).toEqual([1, 2, 3, 4, 5])
  expect(other.looks()).toBe(1)
  await Promise.all([queue.reader.stop(), other.reader.stop()])
})

test('rows without a hint are found, also those that become due later', async () => {
  const queue = await aQueue(10)
  await queue.add()
  await queue.add(0.3)
  await queue.untilTaken(2)
  await queue.reader.stop()
})

test('an empty queue is read less and less often, one with a waiting row as often as before', async () => {
  const [empty, waiting] = [await aQueue(20), await aQueue(20)]
  await waiting.add(3600)
  const beganMs = monotonicMs()
  await until(() => (monotonicMs() - beganMs > 1500 && waiting.looks() >= 20 ? true : undefined), 'many rounds')
  // 20, 40, 80, 160 and then 200 ms apart; the other 20.
  const passedMs = monotonicMs() - beganMs
  expect(empty.looks()).toBeLessThanOrEqual(7 + passedMs / 200)
  await Promise.all([empty.reader.stop(), waiting.reader.stop()])
})

test('a round that fails is logged and repeated', async () => {
  let failures = 0
  const queue = await aQueue(10, () => failures++ < 1)
  await queue.add()
  await queue.untilTaken(1)
  expect(queue.errors).toHaveLength(1)
  await queue.reader.stop()
})

test('nothing is taken after a stop', async () => {
  const queue = await aQueue(10)
  await queue.reader.stop()
  const looks = queue.looks()
  await queue.add()
  hintQueue(bus, queue.table)
  await new Promise((resolve) => setTimeout(resolve, 100))
  expect(queue.looks()).toBe(looks)
})
