/** A follower of a log: each row takes effect exactly once, in order, whatever dies (mechanisms section 2). */
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Database, Transaction } from '#core/database/index.ts'
import {
  LOG_START,
  beginAtEnd,
  findPosition,
  readSettled,
  settledEnd,
  startLogFollower,
} from '#core/changelog/index.ts'
import type { LogFollowerOptions, LogRow } from '#core/changelog/index.ts'
import { sql } from '#core/sql.ts'
import { createTestDatabase, silentLogger } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'
import { until } from '../harness/until.ts'

let own: TestDatabase
let database: Database
let logs = 0

beforeAll(async () => {
  own = await createTestDatabase()
  database = own.database
})
afterAll(() => own[Symbol.asyncDispose]())

const append = (db: Database['db'] | Transaction, log: string, note: string) =>
  sql`INSERT INTO ${sql.raw(log)} (note) VALUES (${note})`.execute(db)

/** A log and the table in which its consumer counts each note. */
async function aLog() {
  logs += 1
  const log = `log_${logs}`
  await sql`CREATE TABLE ${sql.raw(log)} (
    xid xid8 NOT NULL DEFAULT position_xid(), seq bigint GENERATED ALWAYS AS IDENTITY, note text NOT NULL,
    PRIMARY KEY (xid, seq))`.execute(database.db)
  await sql`CREATE TABLE ${sql.raw(`${log}_effects`)} (id bigint GENERATED ALWAYS AS IDENTITY, note text)`.execute(
    database.db,
  )
  const follow = (options: Partial<LogFollowerOptions> = {}) =>
    startLogFollower({
      database,
      table: { name: log, columns: ['note'] },
      consumer: log,
      logger: silentLogger,
      intervalMs: 10,
      maxRows: 7,
      apply,
      ...options,
    })
  async function apply(tx: Transaction, rows: readonly LogRow[]): Promise<void> {
    for (const row of rows)
      await sql`INSERT INTO ${sql.raw(`${log}_effects`)} (note) VALUES (${row['note']})`.execute(tx)
  }
  const effects = async () =>
    (
      await sql<{ note: string }>`SELECT note FROM ${sql.raw(`${log}_effects`)} ORDER BY id`.execute(database.db)
    ).rows.map(({ note }) => note)
  const arrived = (count: number) =>
    until(async () => ((await effects()).length >= count ? true : undefined), `${count} effects`)
  return { log, follow, apply, effects, arrived }
}

const notes = (count: number) => Array.from({ length: count }, (_, index) => `note ${index}`)

test('a consumer that accepts part of a page gets the rest, and nothing twice', async () => {
  const { log, follow, apply, effects, arrived } = await aLog()
  for (const note of notes(20)) await append(database.db, log, note)
  const follower = follow({
    async apply(tx, rows) {
      await apply(tx, rows.slice(0, 3))
      return Math.min(3, rows.length)
    },
  })
  await arrived(20)
  await follower.stop()
  expect(await effects()).toEqual(notes(20))
})

test('a consumer that begins at the end receives no earlier records, and keeps its stored position', async () => {
  const { log, follow, effects, arrived } = await aLog()
  for (const note of notes(3)) await append(database.db, log, note)
  await until(async () => {
    const [end, rows] = [
      await settledEnd(database.db),
      await readSettled(database.db, { name: log, columns: ['note'] }, LOG_START, 10),
    ]
    return end.xid > 0n && rows.length === 3
  }, 'the order is final')
  await beginAtEnd(database.db, log)
  const follower = follow()
  await append(database.db, log, 'later')
  await arrived(1)
  await beginAtEnd(database.db, log)
  await append(database.db, log, 'still later')
  await arrived(2)
  await follower.stop()
  expect(await effects()).toEqual(['later', 'still later'])
})

test('a follower applies earlier and later records, page by page, in order and once', async () => {
  const { log, follow, effects, arrived } = await aLog()
  for (const note of notes(20)) await append(database.db, log, note)
  const follower = follow()
  await arrived(20)
  await append(database.db, log, 'later')
  await arrived(21)
  expect(await effects()).toEqual([...notes(20), 'later'])
  await follower.stop()
  const again = follow()
  await append(database.db, log, 'after a restart')
  await arrived(22)
  expect(await effects()).toEqual([...notes(20), 'later', 'after a restart'])
  await again.stop()
})

test('a failure after the effect rolls back both effect and position: the effect occurs once', async () => {
  const { log, follow, apply, effects, arrived } = await aLog()
  for (const note of notes(10)) await append(database.db, log, note)
  let failures = 0
  const follower = follow({
    intervalMs: 1,
    apply: async (tx, rows) => {
      await apply(tx, rows)
      failures += 1
      if (failures <= 3) throw new Error('died after the effect')
    },
  })
  await arrived(10)
  expect(await effects()).toEqual(notes(10))
  expect(failures).toBeGreaterThan(3)
  await follower.stop()
})

test('a connection killed during an effect does not change the final result', async () => {
  const { log, follow, apply, effects, arrived } = await aLog()
  for (const note of notes(5)) await append(database.db, log, note)
  let kills = 0
  const follower = follow({
    intervalMs: 1,
    apply: async (tx, rows) => {
      await apply(tx, rows)
      if (kills < 2) {
        kills += 1
        const { rows: own_ } = await sql<{ pid: number }>`SELECT pg_backend_pid() AS pid`.execute(tx)
        await sql`SELECT pg_terminate_backend(${own_[0]?.pid}, 5000)`.execute(database.db)
      }
    },
  })
  await arrived(5)
  expect(await effects()).toEqual(notes(5))
  expect(kills).toBe(2)
  await follower.stop()
})

test('each row takes effect once with several followers of one name on several nodes', async () => {
  const { log, follow, effects, arrived } = await aLog()
  const followers = [follow({ intervalMs: 1 }), follow({ intervalMs: 1 }), follow({ intervalMs: 1 })]
  for (const note of notes(40)) await append(database.db, log, note)
  await arrived(40)
  await append(database.db, log, 'last')
  await arrived(41)
  expect(await effects()).toEqual([...notes(40), 'last'])
  await Promise.all(followers.map((follower) => follower.stop()))
})

test('consumers of different names follow the same log independently', async () => {
  const { log, follow, effects, arrived } = await aLog()
  await append(database.db, log, 'one')
  const followers = [follow({ consumer: `${log} a` }), follow({ consumer: `${log} b` })]
  await arrived(2)
  expect(await effects()).toEqual(['one', 'one'])
  await Promise.all(followers.map((follower) => follower.stop()))
  expect(await findPosition(database.db, `${log} a`)).toEqual(await findPosition(database.db, `${log} b`))
})

test('a follower waits for a transaction that may still commit a lower position, to keep the order final', async () => {
  const { log, follow, effects, arrived } = await aLog()
  const finish = Promise.withResolvers<void>()
  const began = Promise.withResolvers<void>()
  const long = database.transaction(async (tx) => {
    await append(tx, log, 'first by position')
    began.resolve()
    await finish.promise
  })
  await began.promise
  await append(database.db, log, 'second by position')
  // What a round reads, without waiting to see that a follower does nothing.
  expect(await readSettled(database.db, { name: log, columns: ['note'] }, LOG_START, 10)).toEqual([])
  const follower = follow({ intervalMs: 1 })
  finish.resolve()
  await long
  await arrived(2)
  expect(await effects()).toEqual(['first by position', 'second by position'])
  await follower.stop()
})

test('a follower reads at once when woken, and a stop waits for the running round', async () => {
  const { log, follow, apply, effects, arrived } = await aLog()
  const release = Promise.withResolvers<void>()
  let isApplying = false
  const follower = follow({
    intervalMs: 3_600_000,
    apply: async (tx, rows) => {
      isApplying = true
      await release.promise
      await apply(tx, rows)
    },
  })
  await append(database.db, log, 'woken')
  await until(() => {
    follower.wake()
    return isApplying
  }, 'the round runs')
  const stopped = follower.stop()
  release.resolve()
  await stopped
  await arrived(1)
  expect(await effects()).toEqual(['woken'])
})
