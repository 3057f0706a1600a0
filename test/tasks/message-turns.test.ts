/** Messages of domains are taken in turn: what is in progress of one domain, however long it takes, leaves room for another one. Counted, never timed. */
import { randomUUID } from 'node:crypto'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { createLocalBus } from '#core/bus/index.ts'
import { sql } from '#core/sql.ts'
import { hintMessages, startMessageReader } from '#queues/index.ts'
import type { QueuedMessage } from '#queues/index.ts'
import { startDatabase, until } from './support.ts'
import type { TestDatabase } from './support.ts'

const MESSAGES = 10_000
/** The room of one domain. */
const MAX_OF_DOMAIN = 50

let db: TestDatabase
const bus = createLocalBus()
let reader: Awaited<ReturnType<typeof startReader>> | undefined

beforeAll(async () => {
  db = await startDatabase()
}, 60_000)

afterEach(async () => {
  await reader?.stop()
  reader = undefined
  await sql`DELETE FROM tasks`.execute(db.database.db)
})

afterAll(async () => {
  await db.close()
})

/** A domain with a task. */
async function newTask(): Promise<number> {
  const { db: pool } = db.database
  const [domain, task] = [randomUUID(), randomUUID()]
  await sql`INSERT INTO domains (id, name, route) VALUES (${domain}, ${domain}, ${domain})`.execute(pool)
  const { rows } = await sql<{ key: number }>`
    INSERT INTO tasks (id, name, domain_key, domain_id, inputs, env, labels, priority, timeout_ms, memory_limit_bytes, backoff_ms, on_lost, metadata)
    SELECT ${task}, 'add', key, id, '[]', '{}', '{}', 0, 60000, 16777216, 1000, 'requeue', '{}' FROM domains WHERE id = ${domain} RETURNING key`.execute(
    pool,
  )
  return rows[0]?.key ?? 0
}

async function queue(task: number, count: number): Promise<void> {
  await sql`INSERT INTO task_messages (task_key, origin, message)
    SELECT ${task}, 'message ' || gen_random_uuid(), '{"channel_id":"c","subtopic":"","publisher":null,"records":[]}' FROM generate_series(1, ${count})`.execute(
    db.database.db,
  )
  hintMessages(bus)
}

const left = async (task: number) =>
  (
    await sql<{ rows: number }>`SELECT count(*)::int AS rows FROM task_messages WHERE task_key = ${task}`.execute(
      db.database.db,
    )
  ).rows[0]?.rows

/** The starts of messages of a task that is held do not end before they are released. */
function startReader({ held, refused }: { held?: number; refused?: number }) {
  const released = Promise.withResolvers<void>()
  const steps: QueuedMessage[][] = []
  const errors: unknown[] = []
  let inProgress = 0
  let most = 0
  const running = startMessageReader({
    database: db.database,
    bus,
    intervalMs: 20,
    async start(messages) {
      steps.push([...messages])
      const ofHeld = messages.filter(({ taskKey }) => taskKey === held).length
      inProgress += ofHeld
      most = Math.max(most, inProgress)
      if (ofHeld > 0) await released.promise
      inProgress -= ofHeld
      return messages.map(({ taskKey }) => (taskKey === refused ? 'retry' : { started: 1, dropped: 0, reason: '' }))
    },
    onDropped: async () => undefined,
    onError: (error) => errors.push(error),
  })
  return {
    steps,
    errors,
    count: (task: number) => steps.flat().filter(({ taskKey }) => taskKey === task).length,
    most: () => most,
    release: () => released.resolve(),
    async stop() {
      released.resolve()
      await running.stop()
    },
  }
}

test('beside 10,000 waiting messages of one domain, of which none ends, each message of another is taken at once', async () => {
  const [flooded, other] = [await newTask(), await newTask()]
  await queue(flooded, MESSAGES)
  reader = startReader({ held: flooded })
  const { count, most, steps, errors, release } = reader
  await until(
    'its share is in progress',
    async () => count(flooded),
    (messages) => messages === MAX_OF_DOMAIN,
  )
  for (let message = 1; message <= 5; message++) {
    await queue(other, 1)
    await until(
      'it is taken, and settled',
      async () => [count(other), await left(other)],
      ([messages, rows]) => messages === message && rows === 0,
    )
  }
  // Nothing more of the other domain was taken for them, and nothing of it has ended.
  expect(most()).toBe(MAX_OF_DOMAIN)
  expect(await left(flooded)).toBe(MESSAGES)
  release()
  await until(
    'all are started',
    () => left(flooded),
    (rows) => rows === 0,
    60_000,
  )
  expect(count(flooded)).toBe(MESSAGES)
  expect(most()).toBeLessThanOrEqual(MAX_OF_DOMAIN)
  // In the order in which they were queued.
  const keys = steps.flat().flatMap(({ taskKey, key }) => (taskKey === flooded ? [key] : []))
  expect(keys).toEqual(keys.toSorted((one, another) => one - another))
  expect(errors).toEqual([])
}, 120_000)

test('a step of two domains has as many messages of each, although one of them came with ten thousand before', async () => {
  const [flooded, other] = [await newTask(), await newTask()]
  await queue(flooded, MESSAGES)
  await queue(other, 12)
  reader = startReader({ held: flooded })
  const { count, steps } = reader
  await until(
    'both are taken',
    async () => [count(flooded), count(other)],
    ([many, few]) => many === MAX_OF_DOMAIN && few === 12,
  )
  const [first = []] = steps
  expect(first.filter(({ taskKey }) => taskKey === other)).toHaveLength(12)
  expect(first.filter(({ taskKey }) => taskKey === flooded)).toHaveLength(13)
}, 60_000)

test('messages that are refused for now are tried a share at a time, and those of others go on', async () => {
  const [refused, other] = [await newTask(), await newTask()]
  await queue(refused, MESSAGES)
  reader = startReader({ refused })
  const { count } = reader
  await until(
    'a share of them was tried',
    async () => count(refused),
    (messages) => messages >= MAX_OF_DOMAIN,
  )
  await queue(other, 1)
  await until(
    'the other is settled',
    () => left(other),
    (rows) => rows === 0,
  )
  await until(
    'they are tried again, or the next ones',
    async () => count(refused),
    (messages) => messages > MAX_OF_DOMAIN,
  )
  // A share each second: all that waits would be tried in that time otherwise.
  expect(count(refused)).toBeLessThan(MESSAGES / 10)
  expect(await left(refused)).toBe(MESSAGES)
}, 60_000)
