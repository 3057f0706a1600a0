/** Positions rise for ever: beyond restarts and crashes of the server, and in a database that was moved to another one. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { MIGRATIONS_FOLDER, createDatabase, migrate, readMigrations } from '#core/database/index.ts'
import type { Database, DatabaseAddress } from '#core/database/index.ts'
import { startEmbeddedPostgres } from '#postgres/embedded/index.ts'
import type { EmbeddedPostgres } from '#postgres/embedded/index.ts'
import { ensurePositionEpoch, startLogFollower, startLogTail } from '#core/changelog/index.ts'
import type { LogRow } from '#core/changelog/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { until } from '../harness/until.ts'

const logger = createLogger({ name: 'test', level: 'silent' })
const NEXT_POSITION = 'SELECT position_xid()::text AS xid'

const folder = mkdtempSync(join(tmpdir(), 'skein-epochs-'))
let server: EmbeddedPostgres

/** Safe: a server that loses commits in a crash may lose an epoch, and begin it again. */
const start = (name: string) => startEmbeddedPostgres({ dataDir: join(folder, name), log: () => undefined })

beforeAll(async () => {
  server = await start('first')
  await withClient(server.connection, async (client) =>
    migrate(client, await readMigrations(MIGRATIONS_FOLDER), logger),
  )
})
afterAll(async () => {
  await server.stop()
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
})

async function withClient<T>(connection: pg.ClientConfig, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client(connection)
  client.on('error', () => undefined)
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end().catch(() => undefined)
  }
}

/** Whether an epoch begins with a connection that is made now, and a position after that. */
const connectNow = (connection: pg.ClientConfig = server.connection) =>
  withClient(connection, async (client) => {
    const began = await ensurePositionEpoch(client)
    const { rows } = await client.query<{ xid: string }>(NEXT_POSITION)
    return { began, xid: BigInt(rows[0]?.xid ?? 0) }
  })

const openDatabase = (address: DatabaseAddress): Database =>
  createDatabase({
    address,
    maxConnections: 4,
    applicationName: 'test',
    logger,
    onConnect: async (client) => void (await ensurePositionEpoch(client)),
  })

test('an epoch begins once for each start of the server, with any number of concurrent connections', async () => {
  const first = await connectNow()
  expect(await connectNow()).toMatchObject({ began: false })
  await server.stop()
  server = await start('first')
  const several = await Promise.all(Array.from({ length: 5 }, () => connectNow()))
  expect(several.filter(({ began }) => began)).toHaveLength(1)
  for (const { xid } of several) expect(xid).toBeGreaterThan(first.xid)
})

test('an epoch begins after a crash, although the postmaster is the same', async () => {
  const before = await connectNow()
  await withClient(server.connection, async (client) => {
    const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
    process.kill(rows[0]?.pid ?? 0, 'SIGKILL')
    await expect(client.query('SELECT pg_sleep(60)')).rejects.toThrow()
  })
  // A connection that comes before the postmaster has noticed is ended with the others.
  const after = await until(async () => {
    const now = await connectNow().catch(() => undefined)
    return now?.began === true ? now : undefined
  }, 'the server has recovered')
  expect(after.xid).toBeGreaterThan(before.xid)
})

test('an epoch begins above the stored ones, although the clock was set back', async () => {
  const ahead = (await connectNow()).xid + 10n ** 15n
  await withClient(server.connection, (client) =>
    client.query(`INSERT INTO consumers (name, xid, seq) VALUES ('ahead', $1, 1)`, [ahead.toString()]),
  )
  await server.stop()
  server = await start('first')
  expect((await connectNow()).xid).toBeGreaterThan(ahead)
  await withClient(server.connection, (client) => client.query(`DELETE FROM consumers WHERE name = 'ahead'`))
})

test('the snapshot in positions agrees with PostgreSQL about the transaction of each position', async () => {
  await connectNow()
  await withClient(server.connection, (running) =>
    withClient(server.connection, async (client) => {
      await client.query('CREATE TABLE seen (xid xid8 DEFAULT position_xid(), real xid8 DEFAULT pg_current_xact_id())')
      await running.query('BEGIN; INSERT INTO seen DEFAULT VALUES')
      await client.query('INSERT INTO seen DEFAULT VALUES')
      const now = await client.query<{ now: string; positions: string }>(
        'SELECT pg_current_snapshot()::text AS now, position_snapshot()::text AS positions',
      )
      await running.query('COMMIT')
      await client.query('INSERT INTO seen DEFAULT VALUES')
      const { rows } = await client.query(
        `SELECT pg_visible_in_snapshot(real, $1::pg_snapshot) AS really, pg_visible_in_snapshot(xid, $2::pg_snapshot) AS shifted
           FROM seen ORDER BY xid`,
        [now.rows[0]?.now, now.rows[0]?.positions],
      )
      expect(rows).toEqual([
        { really: false, shifted: false },
        { really: true, shifted: true },
        { really: false, shifted: false },
      ])
    }),
  )
})

test('the owner of an external database requires no other rights', async () => {
  await withClient(server.connection, async (client) => {
    await client.query("CREATE ROLE owner LOGIN PASSWORD 'owner'")
    await client.query('CREATE DATABASE owned OWNER owner')
    await client.query('CREATE EXTENSION IF NOT EXISTS pg_trgm')
  })
  const connection = { ...server.connection, user: 'owner', password: 'owner', database: 'owned' }
  await withClient(connection, async (client) => migrate(client, await readMigrations(MIGRATIONS_FOLDER), logger))
  expect(await connectNow(connection)).toMatchObject({ began: true })
})

test('consumers and caches continue in another server with lower ids', async () => {
  await using here = openDatabaseFor(server)
  await sql`CREATE TABLE notes (
    xid xid8 NOT NULL DEFAULT position_xid(), seq bigint GENERATED BY DEFAULT AS IDENTITY, note text NOT NULL,
    PRIMARY KEY (xid, seq))`.execute(here.database.db)
  await sql`CREATE TABLE effects (id bigint GENERATED BY DEFAULT AS IDENTITY, note text)`.execute(here.database.db)
  await withClient(server.connection, async (client) => {
    for (let used = 0; used < 3000; used++) await client.query('SELECT pg_current_xact_id()')
  })
  const append = (database: Database, note: string) =>
    sql`INSERT INTO notes (note) VALUES (${note})`.execute(database.db)
  await append(here.database, 'one')
  await append(here.database, 'two')
  const done = follow(here.database)
  await until(async () => (await effects(here.database)).length === 2, 'the effects')
  await done.stop()
  await append(here.database, 'three')

  const other = await start('second')
  try {
    await withClient(other.connection, async (client) => {
      await migrate(client, await readMigrations(MIGRATIONS_FOLDER), logger)
      await client.query(`CREATE TABLE notes (
        xid xid8 NOT NULL DEFAULT position_xid(), seq bigint GENERATED BY DEFAULT AS IDENTITY (START 100), note text NOT NULL,
        PRIMARY KEY (xid, seq))`)
      await client.query('CREATE TABLE effects (id bigint GENERATED BY DEFAULT AS IDENTITY (START 100), note text)')
      for (const table of ['notes', 'effects', 'consumers']) {
        const { rows } = await sql<{ rows: string }>`
          SELECT coalesce(json_agg(t), '[]')::text AS rows FROM ${sql.raw(table)} t`.execute(here.database.db)
        const into = `INSERT INTO ${table} SELECT * FROM json_populate_recordset(NULL::${table}, $1::json)`
        await client.query(into, [rows[0]?.rows])
      }
    })
    await using there = openDatabaseFor(other)
    const ids = async (from: Database) =>
      Number((await sql<{ xid: string }>`SELECT pg_current_xact_id()::text AS xid`.execute(from.db)).rows[0]?.xid)
    expect(await ids(there.database)).toBeLessThan(await ids(here.database))
    const told: string[] = []
    const tail = await startLogTail({
      database: there.database,
      table: { name: 'notes', columns: ['note'] },
      logger,
      onRows: (rows: readonly LogRow[]) => told.push(...rows.map((row) => String(row['note']))),
      onReset: () => undefined,
    })
    await append(there.database, 'four')
    const going = follow(there.database)
    await until(async () => (await effects(there.database)).length === 4 && told.length === 1, 'what is new')
    await append(there.database, 'five')
    await until(async () => (await effects(there.database)).length === 5 && told.length === 2, 'what is newer')
    await going.stop()
    await tail.stop()
    expect(await effects(there.database)).toEqual(['one', 'two', 'three', 'four', 'five'])
    expect(told).toEqual(['four', 'five'])
  } finally {
    await other.stop()
  }
})

function openDatabaseFor({ connection }: EmbeddedPostgres) {
  const database = openDatabase(connection)
  return { database, [Symbol.asyncDispose]: () => database.close() }
}

const follow = (database: Database) =>
  startLogFollower({
    database,
    table: { name: 'notes', columns: ['note'] },
    consumer: 'notes',
    logger,
    intervalMs: 10,
    maxRows: 7,
    apply: async (tx, rows) => {
      for (const row of rows) await sql`INSERT INTO effects (note) VALUES (${row['note']})`.execute(tx)
    },
  })

async function effects({ db }: Database): Promise<string[]> {
  const { rows } = await sql<{ note: string }>`SELECT note FROM effects ORDER BY id`.execute(db)
  return rows.map(({ note }) => note)
}
