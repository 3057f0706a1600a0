/** Plans that a connection keeps: of which statements, for how long, and that nobody else is planned by them. */
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { createDatabase, executeKept } from '#core/database/index.ts'
import type { Database, Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { createTestDatabase, silentLogger as logger } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'

let own: TestDatabase
/** Has one connection, so that whatever is asked is asked of the same. */
let database: Database

beforeAll(async () => {
  own = await createTestDatabase()
  database = createDatabase({ address: own.address, maxConnections: 1, applicationName: 'test', logger })
  await sql`CREATE TABLE rooms (id integer CONSTRAINT rooms_pkey PRIMARY KEY);
    INSERT INTO rooms SELECT generate_series(1, 100)`.execute(database.db)
})
afterEach(() => {
  vi.restoreAllMocks()
})
afterAll(async () => {
  await database.close()
  await own[Symbol.asyncDispose]()
})

const roomsAbove = (db: Queryable, id: number) =>
  executeKept(db, sql<{ rooms: number }>`SELECT count(*) AS rooms FROM rooms WHERE id > ${id}`)

/** How often the statement with this in its text was run by a plan of its own, and by the one that is kept. */
async function plansOf(text: string) {
  const { rows } = await sql<{ custom: number; kept: number }>`
    SELECT custom_plans AS custom, generic_plans AS kept FROM pg_prepared_statements
     WHERE statement LIKE ${`%${text}%`} AND statement NOT LIKE '%pg_prepared_statements%'`.execute(database.db)
  return rows
}

test('a statement of parts is planned once for all values', async () => {
  const counts = await database.snapshot(
    async (tx) => {
      const found = await Promise.all([90, 50, 100].map((id) => roomsAbove(tx, id)))
      return found.map(({ rows }) => rows[0]?.rooms)
    },
    5000,
    'kept',
  )
  expect(counts).toEqual([10, 50, 0])
  expect(await plansOf('FROM rooms WHERE id >')).toEqual([{ custom: 0, kept: 3 }])
})

test('outside of a transaction that keeps plans the same statement has no name', async () => {
  expect((await database.snapshot((tx) => roomsAbove(tx, 90), 5000)).rows).toEqual([{ rooms: 10 }])
  expect((await roomsAbove(database.db, 90)).rows).toEqual([{ rooms: 10 }])
  expect(await plansOf('FROM rooms WHERE id >')).toEqual([{ custom: 0, kept: 3 }])
  const { rows } = await sql<{ plan_cache_mode: string }>`SHOW plan_cache_mode`.execute(database.db)
  expect(rows).toEqual([{ plan_cache_mode: 'auto' }])
})

test('a plan that is old is made anew from the tables as they are', async () => {
  await sql`CREATE TABLE halls (id integer) WITH (autovacuum_enabled = false);
    PREPARE halls_of (integer) AS SELECT * FROM halls WHERE id = $1`.execute(database.db)
  const explain = sql<{ 'QUERY PLAN': string }>`EXPLAIN EXECUTE halls_of(1)`
  // The clock stands still, so that no slow machine makes a plan old.
  const nowMs = performance.now()
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => nowMs)
  const plan = async () => (await database.snapshot((tx) => explain.execute(tx), 5000, 'kept')).rows
  const ofEmpty = await plan()
  await sql`INSERT INTO halls SELECT generate_series(1, 20000)`.execute(database.db)
  expect(await plan()).toEqual(ofEmpty)
  clock.mockImplementation(() => nowMs + 60_000)
  const ofMany = await plan()
  expect(ofMany).not.toEqual(ofEmpty)
  // A connection that has made plans for long keeps them longer.
  await sql`INSERT INTO halls SELECT generate_series(1, 20000)`.execute(database.db)
  clock.mockImplementation(() => nowMs + 60_000 + 30_000)
  expect(await plan()).toEqual(ofMany)
  clock.mockImplementation(() => nowMs + 60_000 + 60_001)
  expect(await plan()).not.toEqual(ofMany)
})

test('a statement that fails refuses the whole read, and the connection goes on', async () => {
  const read = database.snapshot(
    (tx) => Promise.all([roomsAbove(tx, 1), executeKept(tx, sql`SELECT 1 / (${0}::integer)`)]),
    5000,
    'kept',
  )
  await expect(read).rejects.toThrow()
  expect((await database.snapshot((tx) => roomsAbove(tx, 90), 5000, 'kept')).rows).toEqual([{ rooms: 10 }])
})
