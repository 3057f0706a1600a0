/** Schema changes beside running nodes and between versions (mechanisms section 7). */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, expect, inject, test } from 'vitest'
import { MIGRATIONS_FOLDER, migrate, readMigrations } from '#core/database/index.ts'
import type { Migration } from '#core/database/index.ts'
import type { ServiceError } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import { silentLogger } from '../harness/database.ts'
import { until } from '../harness/until.ts'

const NODES = `CREATE TABLE nodes (id text PRIMARY KEY, migration integer NOT NULL, seen_at timestamptz NOT NULL DEFAULT now());`
const FIRST = `-- expand: nodes\n${NODES}`
const SECOND = '-- expand: rooms\nCREATE TABLE rooms (id integer);'
const CONTRACT = '-- contract: rooms are gone\nDROP TABLE rooms;'

let admin: pg.Client
let folder: string
let name: string
const clients: pg.Client[] = []

beforeAll(async () => {
  admin = new pg.Client(inject('postgres'))
  await admin.connect()
})
beforeEach(async () => {
  name = `test_${newId().replaceAll('-', '')}`
  await admin.query(`CREATE DATABASE ${name}`)
  folder = await mkdtemp(join(tmpdir(), 'skein-migrations-'))
  return async () => {
    await Promise.all(clients.splice(0).map((client) => client.end()))
    await admin.query(`DROP DATABASE ${name} WITH (FORCE)`)
    await rm(folder, { recursive: true })
  }
})
afterAll(() => admin.end())

async function connect(): Promise<pg.Client> {
  const client = new pg.Client({ ...inject('postgres'), database: name })
  client.on('error', () => undefined)
  await client.connect()
  clients.push(client)
  return client
}

/** The texts as the files of a version. */
async function version(...texts: string[]): Promise<Migration[]> {
  await rm(folder, { recursive: true })
  folder = await mkdtemp(join(tmpdir(), 'skein-migrations-'))
  await Promise.all(texts.map((text, index) => writeFile(join(folder, `000${index + 1}_step.sql`), text)))
  return await readMigrations(folder)
}

test('two processes that start at the same time migrate once', async () => {
  const migrations = await version(FIRST, SECOND)
  const both = await Promise.all([connect(), connect()])
  await Promise.all(both.map((client) => migrate(client, migrations, silentLogger)))
  const { rows } = await both[0].query('SELECT number FROM migrations ORDER BY number')
  expect(rows).toEqual([{ number: 1 }, { number: 2 }])
})

test('a process waits for another one that migrates for a limited time', async () => {
  const [holder, waiter] = await Promise.all([connect(), connect()])
  const migrations = await version(FIRST, SECOND)
  const working = migrate(
    holder,
    [{ ...(migrations[0] as Migration), sql: `${NODES} SELECT pg_sleep(30)` }],
    silentLogger,
  )
  const ended = expect(working).rejects.toMatchObject({ kind: 'unavailable' })
  await until(
    async () =>
      (await admin.query(`SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)' AND pid <> pg_backend_pid()`))
        .rows.length > 0,
    'the other process migrates',
  )
  await expect(migrate(waiter, migrations, silentLogger, 50)).rejects.toMatchObject({ kind: 'unavailable' })
  await admin.query(
    `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)' AND pid <> pg_backend_pid()`,
  )
  await ended
  // The process that was killed in the middle left nothing behind.
  await migrate(waiter, migrations, silentLogger)
  expect((await waiter.query('SELECT count(*) FROM migrations')).rows).toEqual([{ count: '2' }])
})

test('a database with only additions by newer versions is used unchanged', async () => {
  const client = await connect()
  await migrate(
    client,
    await version(FIRST, SECOND, '-- expand: halls\nCREATE TABLE halls (id integer);'),
    silentLogger,
  )
  const before = (await client.query('SELECT * FROM migrations ORDER BY number')).rows
  expect(before.map(({ kind }: { kind: string }) => kind)).toEqual(['expand', 'expand', 'expand'])
  await migrate(client, await version(FIRST), silentLogger)
  expect((await client.query('SELECT * FROM migrations ORDER BY number')).rows).toEqual(before)
})

test('a database from which a newer version removed something is refused in one line with the migration', async () => {
  const client = await connect()
  await migrate(
    client,
    await version(FIRST, SECOND, CONTRACT, '-- expand: halls\nCREATE TABLE halls (id integer);'),
    silentLogger,
  )
  for (const older of [[FIRST], [FIRST, SECOND]]) {
    await expect(migrate(client, await version(...older), silentLogger)).rejects.toMatchObject({
      kind: 'invalid_state',
      message:
        'a newer version of Skein removed from the database what this one uses (migration 3 "step"): start that version, or restore a backup from before the upgrade',
    })
  }
})

test('a database with another text of its migrations is refused', async () => {
  const client = await connect()
  await migrate(client, await version(FIRST, SECOND), silentLogger)
  const other = await version(FIRST, `${SECOND}\n-- changed`)
  await expect(migrate(client, other, silentLogger)).rejects.toMatchObject({ kind: 'invalid_state' })
})

test('a database of an older build is refused in one line with a remedy, and is unchanged', async () => {
  const client = await connect()
  await migrate(client, await version(FIRST, SECOND), silentLogger)
  const ledger = 'SELECT number, name, digest FROM migrations ORDER BY number'
  const before = (await client.query(ledger)).rows
  const refusal = await migrate(client, await readMigrations(MIGRATIONS_FOLDER), silentLogger).catch(
    (error: unknown) => error as ServiceError,
  )
  expect(refusal).toMatchObject({ kind: 'invalid_state' })
  expect((refusal as ServiceError).message).toBe(
    'the database was created by an older or unreleased build of Skein and cannot be upgraded; export its messages with that build (skein messages export), then set SKEIN_DATA_DIR to a new folder, or SKEIN_DATABASE_URL to an empty database',
  )
  expect((await client.query(ledger)).rows).toEqual(before)
  expect((await client.query(`SELECT to_regclass('users') AS users`)).rows).toEqual([{ users: null }])
})

test('a failed migration is rolled back completely, keeps those before it, and is named', async () => {
  const client = await connect()
  const broken = await version(FIRST, `${SECOND} SELECT nonsense;`)
  await expect(migrate(client, broken, silentLogger)).rejects.toThrow(/^migration 2 "step" failed .*nonsense/)
  await migrate(client, await version(FIRST, SECOND), silentLogger)
  expect((await client.query('SELECT number FROM migrations ORDER BY number')).rows).toEqual([
    { number: 1 },
    { number: 2 },
  ])
})

test('objects that older nodes use are removed only when none of these nodes is alive', async () => {
  const client = await connect()
  await migrate(client, await version(FIRST, SECOND), silentLogger)
  await client.query(`INSERT INTO nodes (id, migration) VALUES ('api-old', 2)`)
  const next = await version(FIRST, SECOND, CONTRACT)
  await expect(migrate(client, next, silentLogger)).rejects.toThrow('stop api-old first')
  expect((await client.query(`SELECT to_regclass('rooms') AS rooms`)).rows).toEqual([{ rooms: 'rooms' }])
  await client.query(`UPDATE nodes SET seen_at = now() - interval '1 minute'`)
  await migrate(client, next, silentLogger)
  expect((await client.query(`SELECT to_regclass('rooms') AS rooms`)).rows).toEqual([{ rooms: null }])
})

test('files with a gap, a repeated number or no kind are refused before any change', async () => {
  await version(FIRST, SECOND)
  await writeFile(join(folder, '0004_gap.sql'), SECOND)
  await expect(readMigrations(folder)).rejects.toThrow('0004_gap.sql must have number 3')
  await rm(join(folder, '0004_gap.sql'))
  await writeFile(join(folder, '0002_again.sql'), SECOND)
  await expect(readMigrations(folder)).rejects.toThrow('numbers have no gap and no repetition')
  await expect(version('CREATE TABLE rooms (id integer);')).rejects.toThrow('-- expand: why')
})
