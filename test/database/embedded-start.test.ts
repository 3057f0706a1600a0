/** The embedded PostgreSQL in ordinary times (mechanisms section 5): start, start again, refuse what cannot be served. */
import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import pg from 'pg'
import { checkServerSafety, startEmbeddedPostgres } from '#postgres/embedded/index.ts'
import { isRoot, query, startProgram, temporaryFolder } from './embedded-support.ts'

const log = () => {}

describe('a data folder', () => {
  it('is created by the first start and found by the next one', async () => {
    using folder = temporaryFolder()
    const dataDir = join(folder.path, 'data')
    const first = await startEmbeddedPostgres({ dataDir, log })
    await query(first.connection, 'CREATE TABLE kept (n int)', 'INSERT INTO kept VALUES (7)')
    await first.stop()

    const second = await startEmbeddedPostgres({ dataDir, log })
    expect(await query(second.connection, 'SELECT n FROM kept')).toEqual([{ n: 7 }])
    expect(second.connection).toEqual(first.connection)
    expect(second.dataDir).toBe(dataDir)
    expect(second.notices).toEqual([])
    await second.stop()
    await second.stop()
    expect(await second.exited).toEqual({ code: 0, signal: null })
  })

  it('has checksums, sorts by code point and supports trigram search in any alphabet', async () => {
    using folder = temporaryFolder()
    const server = await startEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true })
    const [row] = await query(
      server.connection,
      'CREATE EXTENSION pg_trgm',
      `SELECT current_setting('data_checksums') AS checksums, datlocprovider AS provider, datlocale AS locale,
              pg_encoding_to_char(encoding) AS encoding, similarity('pump', 'pumps') > 0.5 AS similar, datcollate AS collation,
              similarity('датчик', 'ДАТЧИКИ') > 0.5 AS cyrillic, cardinality(show_trgm('温度')) > 0 AS chinese
         FROM pg_database WHERE datname = current_database()`,
    )
    expect(row).toEqual({
      checksums: 'on',
      provider: 'b',
      locale: 'C.UTF-8',
      collation: 'C',
      encoding: 'UTF8',
      similar: true,
      cyrillic: true,
      chinese: true,
    })
    await server.stop()
  })

  it('has the database of initdb as its own, and no other', async () => {
    using folder = temporaryFolder()
    const server = await startEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true })
    const [row] = await query(
      server.connection,
      `SELECT array_agg(datname::text) AS databases, array_agg(shobj_description(oid, 'pg_database')) AS comments
         FROM pg_database WHERE NOT datistemplate`,
    )
    expect(row).toEqual({ databases: ['skein'], comments: [null] })
    await server.stop()
  })

  it('gives socket and password to the starter only, and opens no TCP port', async () => {
    using folder = temporaryFolder()
    const server = await startEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true })
    const modeOf = (path: string) => statSync(path).mode & 0o777
    expect(modeOf(join(folder.path, 'postgres.password'))).toBe(0o600)
    expect(modeOf(join(folder.path, 'postgres'))).toBe(0o700)
    expect(modeOf(server.connection.host)).toBe(0o700)
    expect(modeOf(join(server.connection.host, '.s.PGSQL.5432'))).toBe(0o700)
    expect(await query(server.connection, 'SHOW listen_addresses')).toEqual([{ listen_addresses: '' }])
    await expect(query({ ...server.connection, password: 'guess' }, 'SELECT 1')).rejects.toMatchObject({
      code: '28P01',
    })
    await server.stop()
  })

  it('is served by a process in a session of its own, so that Ctrl-C reaches Skein alone', async () => {
    using folder = temporaryFolder()
    const server = await startEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true })
    const [session, group] = execFileSync('ps', ['-o', 'sess=,pgid=', '-p', String(server.pid)], { encoding: 'utf8' })
      .trim()
      .split(/\s+/)
    expect([session, group]).toEqual([String(server.pid), String(server.pid)])
    await server.stop()
  })

  it('survives the loss of its password file', async () => {
    using folder = temporaryFolder()
    const first = await startEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true })
    await first.stop()
    rmSync(join(folder.path, 'postgres.password'))
    const second = await startEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true })
    expect(second.connection.password).not.toBe(first.connection.password)
    expect(await query(second.connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }])
    await second.stop()
  })

  it('may have a comma, a quote and a space in its name, and a path too long for a socket', async () => {
    using folder = temporaryFolder()
    const odd = await startEmbeddedPostgres({ dataDir: join(folder.path, `da ta,"x"`), log, unsafe: true })
    expect(await query(odd.connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }])
    await odd.stop()

    const long = await startEmbeddedPostgres({ dataDir: join(folder.path, 'd'.repeat(90)), log, unsafe: true })
    expect(Buffer.byteLength(long.connection.host)).toBeLessThan(90)
    expect(await query(long.connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }])
    await long.stop()
    rmSync(long.connection.host, { recursive: true })
  })

  it('that an interrupted start left unfinished is created again by the next one', async () => {
    using folder = temporaryFolder()
    const abort = new AbortController()
    const reason = new Error('stopping')
    const cut = startEmbeddedPostgres({
      dataDir: folder.path,
      unsafe: true,
      signal: abort.signal,
      log: (line) => line.startsWith('creating a new database') && setImmediate(() => abort.abort(reason)),
    })
    await expect(cut).rejects.toBe(reason)
    const server = await startEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true })
    expect(await query(server.connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }])
    await server.stop()
  })
})

describe('one Skein per data folder', () => {
  it('refuses a second one and names the process that holds the folder', async () => {
    using folder = temporaryFolder()
    await using holder = await startProgram({ dataDir: folder.path, unsafe: true })
    await expect(startEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true })).rejects.toMatchObject({
      kind: 'invalid_state',
      message: expect.stringContaining(`in use by another Skein process (pid ${holder.pid})`) as string,
    })
    expect(await query(holder.said.connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }])
  })

  it('refuses a second server of the same process', async () => {
    using folder = temporaryFolder()
    const server = await startEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true })
    await expect(startEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true })).rejects.toMatchObject({
      kind: 'invalid_state',
      message: expect.stringContaining(`this process (pid ${process.pid})`) as string,
    })
    await server.stop()
  })

  it('admits exactly one of several simultaneous first starts', async () => {
    using folder = temporaryFolder()
    const programs = await Promise.all([1, 2, 3].map(() => startProgram({ dataDir: folder.path, unsafe: true })))
    const refused = programs.filter(({ said }) => said.kind !== undefined)
    const served = programs.filter(({ said }) => said.kind === undefined)
    expect(refused.map(({ said }) => said.kind)).toEqual(['invalid_state', 'invalid_state'])
    expect(served).toHaveLength(1)
    for (const program of programs) await program[Symbol.asyncDispose]()
  })
})

describe('a folder that cannot be served', () => {
  it.each([
    ['99', /newer PostgreSQL 99/],
    ['14', /created by PostgreSQL 14.*start the version of Skein that created it/],
  ])('is refused with one sentence when it was made by version %s', async (version, message) => {
    using folder = temporaryFolder()
    const first = await startEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true })
    await first.stop()
    const file = join(folder.path, 'postgres', 'cluster', 'PG_VERSION')
    const own = readFileSync(file)
    writeFileSync(file, `${version}\n`)
    await expect(startEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true })).rejects.toMatchObject({
      kind: 'invalid_state',
      message: expect.stringMatching(message) as string,
    })
    writeFileSync(file, own)
    const again = await startEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true })
    await again.stop()
  })

  it('is refused when a file is in the way', async () => {
    using folder = temporaryFolder()
    writeFileSync(join(folder.path, 'data'), '')
    await expect(startEmbeddedPostgres({ dataDir: join(folder.path, 'data', 'x'), log })).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('a file exists in its place') as string,
    })
  })

  it('that is unusable does not hide that the platform has no binaries', async () => {
    using folder = temporaryFolder()
    const start = startEmbeddedPostgres({ dataDir: folder.path, log, binariesDir: folder.path })
    await expect(start).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('set SKEIN_DATABASE_URL') as string,
    })
  })
})

// Other user ids can be taken on by root alone; as an ordinary user every other test here is that user's.
describe.runIf(isRoot)('an ordinary user', () => {
  /** `daemon`, who has a name everywhere. */
  const USER_ID = 1

  it('runs the server under its own id', async () => {
    using folder = temporaryFolder()
    const dataDir = join(folder.path, 'data')
    chmodSync(folder.path, 0o777)
    await using program = await startProgram({ dataDir, unsafe: true }, USER_ID)
    expect(statSync(join(dataDir, 'postgres', 'cluster')).uid).toBe(USER_ID)
    expect(await query(program.said.connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }])
  })

  it('is refused a folder of another user, with the id of that user', async () => {
    using folder = temporaryFolder()
    const dataDir = join(folder.path, 'data')
    mkdirSync(dataDir, { mode: 0o777 })
    chownSync(dataDir, 34_567, 34_567)
    await using program = await startProgram({ dataDir, unsafe: true }, USER_ID)
    expect(program.said.kind).toBe('invalid_state')
    expect(program.said.message).toContain('belongs to user id 34567, and Skein runs as 1;')
  })

  it('gets an error if the parent of the folder is not writable', async () => {
    using folder = temporaryFolder()
    await using program = await startProgram({ dataDir: join(folder.path, 'data'), unsafe: true }, USER_ID)
    expect(program.said).toMatchObject({ kind: 'unavailable', message: expect.stringContaining('permission denied') })
  })

  it('gets the error that PostgreSQL requires a name for its id', async () => {
    using folder = temporaryFolder()
    chmodSync(folder.path, 0o777)
    await using program = await startProgram({ dataDir: join(folder.path, 'data'), unsafe: true }, 23_456)
    expect(program.said).toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('user id 23456 has no name'),
    })
  })

  it('finds its folder usable after root has started Skein on it', async () => {
    using folder = temporaryFolder()
    const dataDir = join(folder.path, 'data')
    mkdirSync(dataDir)
    chownSync(dataDir, USER_ID, USER_ID)
    const byRoot = await startEmbeddedPostgres({ dataDir, log, unsafe: true })
    await query(byRoot.connection, 'CREATE TABLE kept (n int)')
    await byRoot.stop()
    await using program = await startProgram({ dataDir, unsafe: true }, USER_ID)
    expect(await query(program.said.connection, 'SELECT count(*)::int AS n FROM kept')).toEqual([{ n: 0 }])
  })
})

describe('a server that would lose acknowledged messages', () => {
  it('is refused unless the setting accepts it', async () => {
    using folder = temporaryFolder()
    const unsafe = await startEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true })
    const client = new pg.Client(unsafe.connection)
    await client.connect()
    await expect(checkServerSafety(client, false)).rejects.toMatchObject({
      kind: 'invalid_state',
      message: expect.stringContaining('has fsync, full_page_writes, synchronous_commit off') as string,
    })
    await checkServerSafety(client, true)
    await client.end()
    await unsafe.stop()

    const safe = await startEmbeddedPostgres({ dataDir: folder.path, log })
    const other = new pg.Client(safe.connection)
    await other.connect()
    await checkServerSafety(other, false)
    await other.query('SET synchronous_commit = off')
    await expect(checkServerSafety(other, false)).rejects.toMatchObject({
      message: expect.stringContaining('has synchronous_commit off') as string,
    })
    await other.end()
    await safe.stop()
  })

  it('cannot be made of a safe one by ALTER SYSTEM', async () => {
    using folder = temporaryFolder()
    const first = await startEmbeddedPostgres({ dataDir: folder.path, log })
    await query(first.connection, 'ALTER SYSTEM SET fsync = off')
    await first.stop()
    const second = await startEmbeddedPostgres({ dataDir: folder.path, log })
    expect(await query(second.connection, 'SHOW fsync')).toEqual([{ fsync: 'on' }])
    await second.stop()
  })
})
