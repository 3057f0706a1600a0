/**
 * One PostgreSQL for a whole test run (without fsync: the fault suites have servers of their own), with a template that
 * holds the migrated schema. A test file copies the template, so that files run in parallel and share nothing. It is the embedded
 * server, or that of SKEIN_TEST_POSTGRES.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { chmodSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import type { TestProject } from 'vitest/node'
import { MIGRATIONS_FOLDER, migrate, readMigrations } from '#core/database/index.ts'
import { startEmbeddedPostgres } from '#postgres/embedded/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { startOtherPostgres } from './other-postgres.ts'
import { shiftedClock } from '../../tools/shifted-clock.ts'

/** `database` is for statements about other databases. */
export type TestServer = { host: string; port: number; user: string; password: string; database: string }

export const TEMPLATE_DATABASE = 'skein_template'

declare module 'vitest' {
  interface ProvidedContext {
    postgres: TestServer
  }
}

const MAX_CLOCK_DIFFERENCE_SECONDS = 3600

/** A clock that was set for the tests must be set for PostgreSQL too, or they live on different days. */
async function requireOurTime(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ seconds: number }>('SELECT extract(epoch FROM now())::float8 AS seconds')
  const differenceSeconds = Math.abs((rows[0]?.seconds ?? 0) - Date.now() / 1000)
  if (differenceSeconds > MAX_CLOCK_DIFFERENCE_SECONDS)
    throw new Error(`PostgreSQL and the tests have clocks that differ by ${Math.round(differenceSeconds)} s`)
}

type SharedServer = { users: number; starting: Promise<{ server: TestServer; stop(): Promise<void> }> }
/** vitest loads this file once a project; the projects of a run share one server. */
const run = globalThis as { skeinTestServer?: SharedServer }

/** Called by vitest once before the run of each project; returns the way to end it. */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const shared = (run.skeinTestServer ??= { users: 0, starting: startServer() })
  shared.users += 1
  const { server, stop } = await shared.starting
  project.provide('postgres', server)
  return async () => {
    shared.users -= 1
    if (shared.users > 0) return
    delete run.skeinTestServer
    await stop()
  }
}

async function startServer(): Promise<{ server: TestServer; stop(): Promise<void> }> {
  const folder = mkdtempSync(join(tmpdir(), 'skein-test-'))
  chmodSync(folder, 0o755)
  const binaries = process.env['SKEIN_TEST_POSTGRES']
  const server =
    binaries === undefined
      ? await startEmbeddedPostgres({
          dataDir: folder,
          log: () => undefined,
          unsafe: true,
          settings: { max_connections: '400' },
          environment: shiftedClock(),
        })
      : await startOtherPostgres(binaries, folder, shiftedClock())
  const { host, port, user, password, database } = server.connection
  const admin = new pg.Client(server.connection)
  await admin.connect()
  await requireOurTime(admin)
  await admin.query(`CREATE DATABASE ${TEMPLATE_DATABASE}`)
  await admin.end()
  const template = new pg.Client({ ...server.connection, database: TEMPLATE_DATABASE })
  await template.connect()
  await migrate(template, await readMigrations(MIGRATIONS_FOLDER), createLogger({ name: 'test', level: 'silent' }))
  await template.end()
  return {
    server: { host, port, user, password, database },
    async stop() {
      await server.stop()
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}
