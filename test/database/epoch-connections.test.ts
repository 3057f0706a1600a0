/**
 * While the COMMIT that begins an epoch of positions waits for a synchronous standby, and while the commit probe does: connections
 * that give up and are made again leave no server processes behind.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ensurePositionEpoch } from '#core/changelog/index.ts'
import { MIGRATIONS_FOLDER, createDatabase, migrate, readMigrations } from '#core/database/index.ts'
import type { DatabaseOptions } from '#core/database/index.ts'
import { startCommitProbe } from '#infrastructure/commit-probe.ts'
import { createLogger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { until } from '../harness/until.ts'
import { HAS_DEBIAN_POSTGRES, startStandbyPair } from './standby-pair.ts'
import type { StandbyPair } from './standby-pair.ts'

const logger = createLogger({ name: 'test', level: 'silent' })
const folder = mkdtempSync(join(tmpdir(), 'skein-epoch-connections-'))
const ATTEMPTS = 12
const CONNECT_DEADLINE_MS = 300
let pair: StandbyPair
let admin: pg.Client

const isRunnable = HAS_DEBIAN_POSTGRES || process.env['CI'] !== undefined

describe.skipIf(!isRunnable)('a primary without its standby (needs the package postgresql-15)', () => {
  beforeAll(async () => {
    pair = await startStandbyPair(folder)
    admin = new pg.Client(pair.primary)
    admin.on('error', () => undefined)
    await admin.connect()
    await migrate(admin, await readMigrations(MIGRATIONS_FOLDER), logger)
    await admin.query("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
    await admin.query('SELECT pg_reload_conf()')
  })
  afterAll(async () => {
    await admin.end()
    await pair.stop()
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  })

  const open = (
    applicationName: string,
    onConnect: (client: pg.ClientBase) => Promise<void> = beginEpoch,
    options: Partial<DatabaseOptions> = {},
  ) =>
    createDatabase({
      address: pair.primary as { host: string; port: number; user: string; password: string; database: string },
      maxConnections: 2,
      applicationName,
      logger,
      connectDeadlineMs: CONNECT_DEADLINE_MS,
      onConnect,
      ...options,
    })
  const beginEpoch = async (client: pg.ClientBase) => void (await ensurePositionEpoch(client))

  async function backends(applicationName: string): Promise<number> {
    const { rows } = await admin.query<{ count: number }>(
      'SELECT count(*)::int AS count FROM pg_stat_activity WHERE application_name = $1',
      [applicationName],
    )
    return rows[0]?.count ?? 0
  }

  async function withoutStandby(work: () => Promise<void>): Promise<void> {
    await pair.stopStandby()
    try {
      await work()
    } finally {
      await pair.startStandby()
    }
  }

  test('an epoch whose COMMIT waits holds one server process, however often connections are made again', async () => {
    const name = 'skein epoch'
    const database = open(name)
    await withoutStandby(async () => {
      // As after a promotion. Unlogged, so this COMMIT needs no standby.
      await admin.query('SET synchronous_commit = local; DELETE FROM position_epoch; RESET synchronous_commit')
      for (let attempt = 0; attempt < ATTEMPTS; attempt++)
        await expect(database.dedicated(name)).rejects.toMatchObject({ kind: 'unavailable' })
      for (let attempt = 0; attempt < ATTEMPTS; attempt++)
        await expect(sql`SELECT 1`.execute(database.db)).rejects.toThrow()
      await until(async () => (await backends(name)) <= 1, 'one connection waits')
    })
    await until(
      () =>
        sql`SELECT 1`.execute(database.db).then(
          () => true,
          () => false,
        ),
      'connections are accepted again',
    )
    await database.close()
  })

  test('the commit probe keeps its connection while its COMMIT waits', async () => {
    const database = open('skein probe test', () => Promise.resolve())
    let asked = 0
    const db: typeof database.db = {
      query(statement) {
        asked += 1
        return database.db.query(statement)
      },
    }
    const probe = startCommitProbe({
      database: { ...database, db },
      logger,
      intervalMs: 10,
      stalledMs: 100,
      silenceMs: 50,
    })
    const pids = async () =>
      (await admin.query(`SELECT pid FROM pg_stat_activity WHERE application_name = 'skein commit probe'`)).rows
    await until(async () => (await backends('skein commit probe')) === 1, 'the probe is connected')
    await withoutStandby(async () => {
      await until(() => !probe.canCommit(), 'COMMIT is known to wait')
      const before = await pids()
      const askedBefore = asked
      await until(() => asked > askedBefore + 5, 'several silences')
      expect(await pids()).toEqual(before)
      expect(probe.canCommit()).toBe(false)
    })
    await until(() => probe.canCommit(), 'COMMIT is answered again')
    await probe.stop()
    await database.close()
  })

  test('changes are refused while COMMIT is known to wait, and hold no more server processes', async () => {
    const name = 'skein refused changes'
    let canCommit = true
    const database = open(name, () => Promise.resolve(), {
      canCommit: () => canCommit,
      maxConnections: 3,
      connectDeadlineMs: 10_000,
      statementDeadlineMs: 1000,
      silenceGraceMs: 100,
    })
    const change = () => database.transaction((tx) => sql`SELECT pg_logical_emit_message(true, 'test', '')`.execute(tx))
    const write = () =>
      sql`INSERT INTO nodes (id, kind, version, migration) VALUES (${name}, 'test', '1', 1)`.execute(database.db)
    const writeWithin = () =>
      sql`WITH gone AS (DELETE FROM nodes WHERE id = ${name} RETURNING id) SELECT id FROM gone`.execute(database.db)
    const readLocked = () => sql`SELECT id FROM nodes WHERE id = ${name} FOR UPDATE SKIP LOCKED`.execute(database.db)
    const refused = { kind: 'unavailable', retryAfterSeconds: 5 }
    await withoutStandby(async () => {
      // Given up by the pool; the server process stays.
      await expect(change()).rejects.toMatchObject({ kind: 'timeout' })
      await expect(write()).rejects.toMatchObject({ message: 'the database did not answer in time' })
      expect(await backends(name)).toBe(2)
      canCommit = false
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        await expect(change()).rejects.toMatchObject(refused)
        await expect(write()).rejects.toMatchObject(refused)
        await expect(writeWithin()).rejects.toMatchObject(refused)
        await expect(readLocked()).resolves.toBeDefined()
        await expect(sql`SELECT 1`.execute(database.db)).resolves.toBeDefined()
      }
      // The third one reads.
      expect(await backends(name)).toBe(3)
    })
    canCommit = true
    await until(async () => (await backends(name)) <= 1, 'the server processes that waited have ended')
    await expect(change()).resolves.toBeDefined()
    await database.close()
  })

  test('a start waits until a standby answers', async () => {
    const database = open('skein waiting start', () => Promise.resolve())
    await withoutStandby(async () => {
      const probe = startCommitProbe({ database, logger, intervalMs: 10, stalledMs: 100 })
      const stopping = new AbortController()
      await expect(probe.committed(200, stopping.signal)).rejects.toMatchObject({ kind: 'timeout' })
      const waiting = probe.committed(60_000, stopping.signal)
      stopping.abort(new Error('stopped'))
      await expect(waiting).rejects.toThrow('stopped')
      await probe.stop()
    })
    const probe = startCommitProbe({ database, logger })
    await probe.committed(60_000, new AbortController().signal)
    await probe.stop()
    await database.close()
  })
})
