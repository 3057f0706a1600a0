/** SKEIN_DATABASE_HA and SKEIN_DATABASE_REPLICA_URL, on a primary and a standby. */
import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { readConfig } from '#core/config/index.ts'
import { INFRASTRUCTURE_SETTINGS, startInfrastructure } from '#infrastructure/index.ts'
import type { Infrastructure } from '#infrastructure/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { createLifecycle } from '#core/program/index.ts'
import { sql } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'
import { until } from '../harness/until.ts'
import { HAS_DEBIAN_POSTGRES, startStandbyPair } from './standby-pair.ts'
import type { StandbyPair } from './standby-pair.ts'

const logger = createLogger({ name: 'test', level: 'silent' })
const KEY = randomBytes(32).toString('base64')
const folder = mkdtempSync(join(tmpdir(), 'skein-replication-'))
let pair: StandbyPair
let admin: pg.Client
let replay: pg.Client

/** On a user's machine without Debian's server the tests are skipped; in CI its absence is a failure. */
const isRunnable = HAS_DEBIAN_POSTGRES || process.env['CI'] !== undefined

describe.skipIf(!isRunnable)('a primary and a standby (needs the package postgresql-15)', () => {
  beforeAll(async () => {
    pair = await startStandbyPair(folder)
    admin = new pg.Client(pair.primary)
    replay = new pg.Client(pair.standby)
    for (const client of [admin, replay]) {
      client.on('error', () => undefined)
      await client.connect()
    }
    await admin.query('CREATE TABLE things (id bigint PRIMARY KEY)')
  })
  afterAll(async () => {
    await replay.end().catch(() => undefined)
    await admin.end()
    await pair.stop()
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  })
  beforeEach(() => configure({ synchronous_commit: 'on', synchronous_standby_names: 'standby' }))

  async function configure(settings: Record<string, string>): Promise<void> {
    for (const [name, value] of Object.entries(settings)) await admin.query(`ALTER SYSTEM SET ${name} = '${value}'`)
    await admin.query('SELECT pg_reload_conf()')
    await until(async () => {
      const { rows } = await admin.query('SELECT current_setting($1) AS value', [Object.keys(settings).at(-1)])
      return (rows[0] as { value: string }).value === Object.values(settings).at(-1)
    }, 'the server has read its settings')
  }

  /** Starts what every program starts; what it threw, or undefined. */
  async function start(
    environment: Record<string, string>,
    during: (infrastructure: Infrastructure) => Promise<void> = () => Promise.resolve(),
  ): Promise<string | undefined> {
    const life = createLifecycle(logger)
    try {
      const config = readConfig(INFRASTRUCTURE_SETTINGS, {
        SKEIN_DATA_DIR: folder,
        SKEIN_DATABASE_URL: pair.urlOf('primary'),
        SKEIN_DATABASE_UNSAFE: 'true',
        SKEIN_SECRET_KEY: KEY,
        ...environment,
      })
      await during(await startInfrastructure(life, { config, logger, kind: 'test', maxConnections: 4 }))
      return undefined
    } catch (error) {
      return (error as Error).message
    } finally {
      await life.stop()
    }
  }

  const HA = { SKEIN_DATABASE_HA: 'true' }

  test.each(['off', 'local', 'remote_write'])('synchronous_commit=%s is refused', async (level) => {
    await configure({ synchronous_commit: level })
    expect(await start(HA)).toBe(
      `the database server has synchronous_commit=${level}; SKEIN_DATABASE_HA requires on or remote_apply`,
    )
    expect(await start({})).toBeUndefined()
  })

  test('a server without synchronous standbys is refused at the start, and by a connection that is made later', async () => {
    const fault =
      'synchronous_standby_names of the database server is empty; SKEIN_DATABASE_HA requires synchronous standbys'
    await configure({ synchronous_standby_names: '' })
    expect(await start(HA)).toBe(fault)
    await configure({ synchronous_standby_names: 'standby' })
    const failed = await start(HA, async ({ database }) => {
      await sql`SELECT 1`.execute(database.db)
      await configure({ synchronous_standby_names: '' })
      await admin.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'skein test'`)
      await expect(database.dedicated('another')).rejects.toMatchObject({ kind: 'unavailable', message: fault })
      await configure({ synchronous_standby_names: 'standby' })
      await (await database.dedicated('another')).end()
    })
    expect(failed).toBeUndefined()
  })

  test('both settings require a server of one’s own, and an address', async () => {
    const embedded = { SKEIN_DATABASE_URL: '' }
    expect(await start({ ...embedded, ...HA })).toContain('SKEIN_DATABASE_HA requires SKEIN_DATABASE_URL')
    const replica = { SKEIN_DATABASE_REPLICA_URL: pair.urlOf('standby') }
    expect(await start({ ...embedded, ...replica })).toContain('SKEIN_DATABASE_REPLICA_URL requires SKEIN_DATABASE_URL')
    const wrong = await start({ SKEIN_DATABASE_REPLICA_URL: 'mysql://user:hunter2@host/skein' })
    expect(wrong).toContain('SKEIN_DATABASE_REPLICA_URL must be an address such as postgres://')
    expect(wrong).not.toContain('hunter2')
  })

  test('a COMMIT without a standby is known to wait, and ends when a standby is back', async () => {
    const failed = await start(HA, async ({ canCommit, readiness, database }) => {
      await until(() => Promise.resolve(canCommit()), 'COMMIT is answered')
      await replay.end()
      await pair.stopStandby()
      const written = sql`INSERT INTO things (id) VALUES (1)`.execute(database.db)
      await until(() => Promise.resolve(!canCommit()), 'COMMIT is known to wait')
      expect(readiness.read().checks['commit']).toMatchObject({ status: 'unavailable' })
      await pair.startStandby()
      replay = new pg.Client(pair.standby)
      replay.on('error', () => undefined)
      await replay.connect()
      await written
      await until(() => Promise.resolve(canCommit()), 'COMMIT is answered again')
    })
    expect(failed).toBeUndefined()
  })

  describe('reads on a replica', () => {
    const replica = () => ({ ...HA, SKEIN_DATABASE_REPLICA_URL: pair.urlOf('standby') })
    const seen = ({ history }: Infrastructure, id: number) =>
      history.snapshot(async (tx) => {
        const { rows } = await sql<{ standby: boolean; found: boolean }>`
          SELECT pg_is_in_recovery() AS standby, EXISTS (SELECT FROM things WHERE id = ${id}) AS found`.execute(tx)
        return rows[0]
      }, 5000)

    test('are served by the standby, and include earlier commits', async () => {
      const failed = await start(replica(), async (infrastructure) => {
        for (let id = 100; id < 150; id++) {
          await sql`INSERT INTO things (id) VALUES (${id})`.execute(infrastructure.database.db)
          expect(await seen(infrastructure, id)).toEqual({ standby: true, found: true })
        }
        const connection = await infrastructure.history.dedicated('an export')
        const { rows } = await connection.query('SELECT pg_is_in_recovery() AS standby, max(id) AS id FROM things')
        expect(rows).toEqual([{ standby: true, id: 149 }])
        await connection.end()
      })
      expect(failed).toBeUndefined()
    })

    test('wait for a standby that is slightly behind, and use the primary when it stays behind', async () => {
      const failed = await start(replica(), async (infrastructure) => {
        const { database, readiness } = infrastructure
        expect(await seen(infrastructure, 0)).toMatchObject({ standby: true })
        await replay.query('SELECT pg_wal_replay_pause()')
        await sql`INSERT INTO things (id) VALUES (200)`.execute(database.db)
        const read = seen(infrastructure, 200)
        await new Promise((resolve) => setTimeout(resolve, 100))
        await replay.query('SELECT pg_wal_replay_resume()')
        expect(await read).toEqual({ standby: true, found: true })
        await replay.query('SELECT pg_wal_replay_pause()')
        await sql`INSERT INTO things (id) VALUES (201)`.execute(database.db)
        expect(await seen(infrastructure, 201)).toEqual({ standby: false, found: true })
        expect(readiness.read().checks['replica']).toMatchObject({
          status: 'degraded',
          reason: 'the replica of the database is too far behind',
        })
        await replay.query('SELECT pg_wal_replay_resume()')
        await until(async () => (await seen(infrastructure, 201))?.standby === true, 'the standby serves reads again')
        expect(readiness.read().checks['replica']).toMatchObject({ status: 'ready' })
      })
      expect(failed).toBeUndefined()
    })

    test('use the primary while the standby is unavailable, and when the address is not that of a standby', async () => {
      // Without a synchronous standby, so that the standby may be away.
      await configure({ synchronous_standby_names: '' })
      const replicaAlone = { SKEIN_DATABASE_REPLICA_URL: pair.urlOf('standby') }
      const failed = await start(replicaAlone, async (infrastructure) => {
        expect(await seen(infrastructure, 0)).toMatchObject({ standby: true })
        await replay.end()
        await pair.stopStandby()
        const beganMs = monotonicMs()
        for (let reads = 0; reads < 20; reads++)
          expect(await seen(infrastructure, 0)).toEqual({ standby: false, found: false })
        // Only the first read looked for the standby.
        expect(monotonicMs() - beganMs).toBeLessThan(20_000)
        const connection = await infrastructure.history.dedicated('an export')
        await connection.end()
        await pair.startStandby()
        replay = new pg.Client(pair.standby)
        replay.on('error', () => undefined)
        await replay.connect()
        await until(async () => (await seen(infrastructure, 0))?.standby === true, 'the standby serves reads again')
      })
      expect(failed).toBeUndefined()
      await start({ SKEIN_DATABASE_REPLICA_URL: pair.urlOf('primary') }, async (infrastructure) => {
        expect(await seen(infrastructure, 0)).toMatchObject({ standby: false })
        expect(infrastructure.readiness.read().checks['replica']).toMatchObject({
          reason: 'SKEIN_DATABASE_REPLICA_URL leads to no standby',
        })
      })
    })
  })
})
