/** What a process sees of a database that refuses, breaks, hangs or is away (mechanisms sections 2 and 5). */
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createDatabase, refusing, translateDatabaseError } from '#core/database/index.ts'
import type { Database, DatabaseAddress } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import { createTestDatabase, silentLogger } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'
import { Relay } from './relay.ts'
import { until } from '../harness/until.ts'

let own: TestDatabase
let database: Database
const uncaught: unknown[] = []
const onUncaught = (error: unknown) => uncaught.push(error)

beforeAll(async () => {
  process.on('uncaughtException', onUncaught)
  own = await createTestDatabase()
  database = own.database
  await sql`CREATE TABLE rooms (id integer CONSTRAINT rooms_pkey PRIMARY KEY, stored_at timestamptz, size bigint)`.execute(
    database.db,
  )
})
afterAll(async () => {
  await own[Symbol.asyncDispose]()
  process.removeListener('uncaughtException', onUncaught)
  expect(uncaught).toEqual([])
})

const connectTo = (address: DatabaseAddress, options: Partial<Parameters<typeof createDatabase>[0]> = {}) =>
  createDatabase({ address, maxConnections: 2, applicationName: 'test', logger: silentLogger, ...options })

const refusalOf = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error: unknown) => error,
  )

async function kill(pid: number): Promise<void> {
  await sql`SELECT pg_terminate_backend(${pid}, 5000)`.execute(database.db)
}

const backendOf = async (db: Database['db']) =>
  (await sql<{ pid: number }>`SELECT pg_backend_pid() AS pid`.execute(db)).rows[0]?.pid ?? 0

test('a query reads int8 as a checked integer and timestamptz as UTC text with microseconds', async () => {
  const { rows } = await sql<{ n: number; at: string }>`
    SELECT 9007199254740991::bigint AS n, timestamptz '2026-11-21 03:04:05.123456+02' AS at`.execute(database.db)
  expect(rows[0]).toEqual({ n: 9007199254740991, at: '2026-11-21 01:04:05.123456+00' })
  await expect(sql`SELECT 9007199254740992::bigint AS n`.execute(database.db)).rejects.toThrow('2^53')
})

test('a query reads an array of int8 as checked integers', async () => {
  const read = async (text: string) =>
    (await sql<{ found: unknown }>`SELECT ${text}::bigint[] AS found`.execute(database.db)).rows[0]?.found
  expect(await read('{1,NULL,-9007199254740991}')).toEqual([1, null, -9007199254740991])
  expect(await read('{}')).toEqual([])
  await expect(read('{9007199254740993}')).rejects.toThrow('2^53')
})

test('a backend killed between two statements of a transaction is one error, and the next transaction works', async () => {
  const refusal = await refusalOf(
    database.transaction(async (tx) => {
      await kill(await backendOf(tx))
      // The transaction is busy elsewhere when the connection breaks under it.
      await new Promise((resolve) => setImmediate(resolve))
      await sql`SELECT 1`.execute(tx)
    }),
  )
  expect(kindOf(refusal)).toBe('unavailable')
  expect(await database.transaction((tx) => backendOf(tx))).toBeGreaterThan(0)
})

test('a backend killed during a statement is one error, and the process continues', async () => {
  let pid = 0
  const refused = refusalOf(
    database.transaction(async (tx) => {
      pid = await backendOf(tx)
      await sql`SELECT pg_sleep(30)`.execute(tx)
    }),
  )
  await until(() => pid > 0, 'the statement runs')
  await kill(pid)
  expect(kindOf(await refused)).toBe('unavailable')
})

test('idle connections killed behind the pool are replaced without an error', async () => {
  await using other = await createTestDatabase()
  await sql`SELECT 1`.execute(other.database.db)
  await sql`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = ${other.address.database}`.execute(
    database.db,
  )
  await until(async () => (await refusalOf(sql`SELECT 1`.execute(other.database.db))) === undefined, 'served again')
})

test('a server that ends the connections of a closing pool causes no error', async () => {
  const warnings: unknown[] = []
  const logger = { ...silentLogger, warn: (warning: unknown) => void warnings.push(warning) } as typeof silentLogger
  const other = connectTo(own.address, { logger })
  await sql`SELECT 1`.execute(other.db)
  const broken = () => other.pool.emit('error', new Error('terminating connection due to administrator command'))
  broken()
  const closing = other.close()
  broken()
  await closing
  expect(warnings).toHaveLength(1)
})

test('a transaction in a deadlock is repeated, and both opponents take effect', async () => {
  await sql`INSERT INTO rooms (id, size) VALUES (1, 0), (2, 0)`.execute(database.db)
  const bothLocked = Promise.withResolvers<void>()
  let locked = 0
  const raise = (first: number, second: number) =>
    database.transaction(async (tx) => {
      await sql`UPDATE rooms SET size = size + 1 WHERE id = ${first}`.execute(tx)
      locked += 1
      if (locked === 2) bothLocked.resolve()
      await bothLocked.promise
      await sql`UPDATE rooms SET size = size + 1 WHERE id = ${second}`.execute(tx)
    })
  await Promise.all([raise(1, 2), raise(2, 1)])
  const { rows } = await sql<{ size: number }>`SELECT size FROM rooms WHERE id IN (1, 2)`.execute(database.db)
  expect(rows).toEqual([{ size: 2 }, { size: 2 }])
})

test('a transaction that PostgreSQL keeps rejecting with a retry fails as unavailable, not as a bug', async () => {
  let attempts = 0
  const refusal = await refusalOf(
    database.transaction(async (tx) => {
      attempts += 1
      await sql`DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001'; END $$`.execute(tx)
    }),
  )
  expect(kindOf(refusal)).toBe('unavailable')
  expect(attempts).toBe(4)
})

test('the name of a violated constraint decides the message of the error', async () => {
  const insert = () => sql`INSERT INTO rooms (id) VALUES (7)`.execute(database.db)
  await insert()
  const taken = () => new ServiceError('conflict', 'the room exists')
  await expect(refusing({ rooms_pkey: taken }, insert())).rejects.toThrow('the room exists')
  const other = await refusalOf(refusing({ rooms_other: taken }, insert()))
  expect(kindOf(other)).toBe('internal')
})

test('a pool without a free connection fails within its deadline', async () => {
  // Its own connection is made within it, on a busy machine too.
  const small = connectTo(own.address, { maxConnections: 1, connectDeadlineMs: 1500 })
  const release = Promise.withResolvers<void>()
  const holder = small.transaction(() => release.promise)
  const refusal = await refusalOf(small.transaction((tx) => backendOf(tx)))
  expect(refusal).toMatchObject({ kind: 'unavailable', retryAfterSeconds: 2 })
  release.resolve()
  await holder
  expect(await small.transaction((tx) => backendOf(tx))).toBeGreaterThan(0)
  await small.close()
})

test('a statement that exceeds its time limit is a timeout, which the server enforces', async () => {
  const quick = connectTo(own.address, { statementDeadlineMs: 100 })
  expect(kindOf(await refusalOf(quick.transaction((tx) => sql`SELECT pg_sleep(30)`.execute(tx))))).toBe('timeout')
  await quick.close()
})

test('a server that accepts and never answers is unavailable within the deadline', async () => {
  const sockets: Socket[] = []
  const silent = createServer((socket) => void sockets.push(socket.on('error', () => undefined)))
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
  const { port } = silent.address() as AddressInfo
  const hung = connectTo({ ...own.address, host: '127.0.0.1', port }, { connectDeadlineMs: 100 })
  expect(kindOf(await refusalOf(hung.transaction((tx) => backendOf(tx))))).toBe('unavailable')
  expect(kindOf(await refusalOf(hung.dedicated('alone')))).toBe('unavailable')
  await hung.close()
  for (const socket of sockets) socket.destroy()
  await new Promise((resolve) => silent.close(resolve))
})

test('a server that stops responding during a statement is a timeout, and no request waits forever', async () => {
  await using relay = await Relay.start(own.address)
  const relayed = connectTo(relay.address, { maxConnections: 1, statementDeadlineMs: 100, silenceGraceMs: 100 })
  const refusal = await refusalOf(
    relayed.transaction(async (tx) => {
      await backendOf(tx)
      relay.freeze()
      await backendOf(tx)
    }),
  )
  expect(kindOf(refusal)).toBe('timeout')
  relay.repair()
  // The connection that fell silent is not given to the next caller.
  expect(await relayed.transaction((tx) => backendOf(tx))).toBeGreaterThan(0)
  await relayed.close()
})

test('an address without a listener is unavailable at once, with the reason', async () => {
  const free = createServer()
  await new Promise<void>((resolve) => free.listen(0, '127.0.0.1', resolve))
  const { port } = free.address() as AddressInfo
  await new Promise((resolve) => free.close(resolve))
  for (const host of ['127.0.0.1', 'localhost']) {
    const away = connectTo({ ...own.address, host, port })
    const refusal = await refusalOf(away.dedicated('alone'))
    expect(refusal).toMatchObject({ kind: 'unavailable', message: 'the database is not available' })
    await away.close()
  }
})

test('a missing file is not an unavailable database', async () => {
  const missing = await refusalOf(readFile('/nowhere/at/all'))
  expect(kindOf(translateDatabaseError(missing))).toBe('internal')
})

test('a snapshot sees one state despite other commits, writes nothing, and leaves its connection unchanged', async () => {
  await using stack = new AsyncDisposableStack()
  const one = connectTo(own.address, { maxConnections: 1 })
  stack.defer(() => one.close())
  const count = (db: Database['db']) =>
    sql<{ n: number }>`SELECT count(*) AS n FROM rooms WHERE id >= 900`.execute(db).then(({ rows }) => rows[0]?.n)
  const seen = await one.snapshot(async (tx) => {
    const before = await count(tx)
    await sql`INSERT INTO rooms (id) VALUES (900)`.execute(database.db)
    return [before, await count(tx)]
  }, 5000)
  expect(seen).toEqual([0, 0])
  expect(
    await refusalOf(one.snapshot((tx) => sql`INSERT INTO rooms (id) VALUES (901)`.execute(tx), 5000)),
  ).toBeDefined()
  expect(kindOf(await refusalOf(one.snapshot((tx) => sql`SELECT pg_sleep(5)`.execute(tx), 20)))).toBe('timeout')
  // The same connection, outside of any transaction and with the time that requests have.
  await sql`INSERT INTO rooms (id) VALUES (902)`.execute(one.db)
  expect(await count(database.db)).toBe(2)
  const { rows } = await sql<{ statement_timeout: string }>`SHOW statement_timeout`.execute(one.db)
  expect(rows[0]?.statement_timeout).not.toBe('20ms')
})

test('a snapshot whose connection is killed is one error, and the next one works', async () => {
  const one = connectTo(own.address, { maxConnections: 1 })
  const refusal = await refusalOf(one.snapshot(async (tx) => kill(await backendOf(tx)).then(() => backendOf(tx)), 5000))
  expect(kindOf(refusal)).toBe('unavailable')
  expect(await one.snapshot(backendOf, 5000)).toBeGreaterThan(0)
  await one.close()
})
