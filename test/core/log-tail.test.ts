/** The tail of a log: nothing is missed, nothing is held up, and staleness is known (mechanisms section 2). */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createDatabase } from '#core/database/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { TAIL_STALE_MS, startLogTail } from '#core/changelog/index.ts'
import type { LogRow, LogTailOptions } from '#core/changelog/index.ts'
import { sql } from '#core/sql.ts'
import { createTestDatabase, silentLogger } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'
import { Relay } from './relay.ts'
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

/** A log of its own and its tail, with what was handed on. */
async function followedLog(options: Partial<LogTailOptions> = {}) {
  logs += 1
  const log = `log_${logs}`
  await sql`CREATE TABLE ${sql.raw(log)} (
    xid xid8 NOT NULL DEFAULT position_xid(), seq bigint GENERATED ALWAYS AS IDENTITY, note text NOT NULL,
    PRIMARY KEY (xid, seq))`.execute(database.db)
  const notes: string[] = []
  let resets = 0
  const tail = await startLogTail({
    database,
    table: { name: log, columns: ['note'] },
    logger: silentLogger,
    onRows: (rows: readonly LogRow[]) => notes.push(...rows.map((row) => String(row['note']))),
    onReset: () => {
      resets += 1
    },
    intervalMs: 10,
    ...options,
  })
  return {
    log,
    tail,
    notes,
    resets: () => resets,
    arrived: (note: string) => until(() => notes.includes(note), `${note} arrives`),
    [Symbol.asyncDispose]: () => tail.stop(),
  }
}

/** A transaction that stays open until the test ends it. */
function openTransaction() {
  const finish = Promise.withResolvers<void>()
  const began = Promise.withResolvers<Transaction>()
  const ended = database.transaction(async (tx) => {
    began.resolve(tx)
    await finish.promise
  })
  return {
    tx: began.promise,
    async commit() {
      finish.resolve()
      await ended
    },
  }
}

test('the tail delivers each committed row once and in order, and none that was committed before it began', async () => {
  await using followed = await followedLog()
  const expected = Array.from({ length: 50 }, (_, index) => `note ${index}`)
  for (const note of expected) await append(database.db, followed.log, note)
  await append(database.db, followed.log, 'last')
  await followed.arrived('last')
  expect(followed.notes).toEqual([...expected, 'last'])

  const late: string[] = []
  const second = await startLogTail({
    database,
    table: { name: followed.log, columns: ['note'] },
    logger: silentLogger,
    onRows: (rows) => late.push(...rows.map((row) => String(row['note']))),
    onReset: () => late.push('reset'),
    intervalMs: 10,
  })
  await append(database.db, followed.log, 'after')
  await until(() => late.length > 0, 'a row arrives')
  expect(late).toEqual(['after'])
  await second.stop()
})

test('a row of a long transaction that commits late with a lower position is delivered after its commit', async () => {
  await using followed = await followedLog()
  const long = openTransaction()
  await append(await long.tx, followed.log, 'early number, late commit')
  await append(database.db, followed.log, 'quick')
  await followed.arrived('quick')
  expect(followed.notes).toEqual(['quick'])
  await long.commit()
  await followed.arrived('early number, late commit')
  expect(followed.notes).toHaveLength(2)
})

test('a long transaction neither delays nor repeats the rows of others', async () => {
  await using followed = await followedLog()
  const long = openTransaction()
  await append(await long.tx, followed.log, 'long')
  for (let index = 0; index < 20; index++) {
    await append(database.db, followed.log, `quick ${index}`)
    await followed.arrived(`quick ${index}`)
  }
  await long.commit()
  await followed.arrived('long')
  expect(new Set(followed.notes).size).toBe(followed.notes.length)
  expect(followed.notes).toHaveLength(21)
})

test('a transaction that is rolled back delivers nothing', async () => {
  await using followed = await followedLog()
  await database
    .transaction(async (tx) => {
      await append(tx, followed.log, 'rolled back')
      throw new Error('changed my mind')
    })
    .catch(() => undefined)
  await append(database.db, followed.log, 'kept')
  await followed.arrived('kept')
  expect(followed.notes).toEqual(['kept'])
})

test('many rows of many concurrent transactions all arrive', async () => {
  await using followed = await followedLog()
  const work = Array.from({ length: 40 }, (_, transaction) =>
    database.transaction(async (tx) => {
      for (let row = 0; row < 25; row++) await append(tx, followed.log, `${transaction}.${row}`)
    }),
  )
  await Promise.all(work)
  await until(() => followed.notes.length === 1000, 'all rows arrive')
  expect(new Set(followed.notes).size).toBe(1000)
})

test('more rows than the limit make the consumer clear its cache, and the tail continues', async () => {
  await using followed = await followedLog({ maxRows: 100 })
  await sql`INSERT INTO ${sql.raw(followed.log)} (note) SELECT 'bulk' FROM generate_series(1, 101)`.execute(database.db)
  await until(() => followed.resets() === 1, 'the consumer is told')
  await append(database.db, followed.log, 'after')
  await followed.arrived('after')
  expect(followed.notes).toEqual(['after'])
})

test('the tail reads at once when woken, long before its interval', async () => {
  await using followed = await followedLog({ intervalMs: 3_600_000 })
  await append(database.db, followed.log, 'woken')
  followed.tail.wake()
  await followed.arrived('woken')
})

test('a consumer that throws gets the same rows again', async () => {
  const seen: string[] = []
  await using followed = await followedLog({
    onRows: (rows) => {
      seen.push(...rows.map((row) => String(row['note'])))
      if (seen.length === 1) throw new Error('a bug of the consumer')
    },
  })
  await append(database.db, followed.log, 'twice')
  await until(() => seen.length === 2, 'the row comes again')
  expect(seen).toEqual(['twice', 'twice'])
})

test('a killed connection is replaced, no row is lost, and the consumer clears its cache', async () => {
  await using followed = await followedLog()
  await sql`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = ${`skein ${followed.log} tail`}`.execute(
    database.db,
  )
  await append(database.db, followed.log, 'after the cut')
  await followed.arrived('after the cut')
  expect(followed.resets()).toBe(1)
  expect(followed.tail.isFresh()).toBe(true)
})

test('the tail is not fresh 900 ms after the loss of the database, and fresh again when it is back', async () => {
  await using relay = await Relay.start(own.address)
  const away = createDatabase({
    address: relay.address,
    maxConnections: 1,
    applicationName: 'away',
    logger: silentLogger,
  })
  await using followed = await followedLog({ database: away })
  await until(() => followed.tail.isFresh(), 'fresh')
  relay.cut()
  await append(database.db, followed.log, 'while away')
  await until(() => !followed.tail.isFresh(), 'stale', TAIL_STALE_MS * 10)
  relay.repair()
  await followed.arrived('while away')
  await until(() => followed.tail.isFresh(), 'fresh again')
  expect(followed.resets()).toBe(1)
  await followed.tail.stop()
  await away.close()
})

test('the tail is not fresh when the server hangs without closing the connection', async () => {
  await using relay = await Relay.start(own.address)
  const hung = createDatabase({
    address: relay.address,
    maxConnections: 1,
    applicationName: 'hung',
    logger: silentLogger,
  })
  await using followed = await followedLog({ database: hung })
  relay.freeze()
  await until(() => !followed.tail.isFresh(), 'stale', TAIL_STALE_MS * 10)
  relay.repair()
  await append(database.db, followed.log, 'after the freeze')
  await followed.arrived('after the freeze')
  await followed.tail.stop()
  await hung.close()
})

test('a stop ends the connection', async () => {
  const followed = await followedLog()
  await followed.tail.stop()
  await until(async () => {
    const { rows } =
      await sql`SELECT 1 FROM pg_stat_activity WHERE application_name = ${`skein ${followed.log} tail`}`.execute(
        database.db,
      )
    return rows.length === 0
  }, 'the connection is gone')
})
