// README, the tour: every step works on a fresh installation, also on a PostgreSQL server of one's own (SKEIN_TEST_POSTGRES)
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { COMPILE_CACHE } from '../harness/compile-cache.ts'
import { shiftedClock } from '../../tools/shifted-clock.ts'
import { startOtherPostgres } from '../harness/other-postgres.ts'
import type { OtherServer } from '../harness/other-postgres.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { ROOT } from './deployment-files.ts'

const TOUR_DEADLINE_MS = 90_000

const binaries = process.env['SKEIN_TEST_POSTGRES']
let folder: string | undefined
let server: OtherServer | undefined
let installation: Installation
let whole: Whole

/** Settings for a database of that server, made as docs/guides/external-database.md says. */
async function makeDatabase({ connection }: OtherServer): Promise<Record<string, string>> {
  const client = new pg.Client(connection)
  await client.connect()
  await client.query(`CREATE DATABASE skein TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'`)
  await client.end()
  const { host, port, user, password } = connection
  return {
    SKEIN_DATABASE_URL: `postgres://${user}:${password}@localhost/skein?host=${encodeURIComponent(host)}&port=${port}`,
    SKEIN_SECRET_KEY: randomBytes(32).toString('base64'),
    // A server of tests has fsync off.
    SKEIN_DATABASE_UNSAFE: 'true',
  }
}

beforeAll(async () => {
  if (binaries !== undefined) {
    folder = mkdtempSync(join(tmpdir(), 'skein-tour-'))
    server = await startOtherPostgres(binaries, folder, shiftedClock())
  }
  installation = await createInstallation(server === undefined ? {} : await makeDatabase(server))
  whole = await startWhole(installation)
})
afterAll(async () => {
  await whole?.[Symbol.asyncDispose]()
  installation?.[Symbol.dispose]()
  await server?.stop()
  if (folder !== undefined) rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
})

test('the tour runs to its end', async () => {
  const { SKEIN_MANAGER_HTTP_PORT: managerPort } = installation.environment
  const { stdout } = await promisify(execFile)(process.execPath, ['tools/tour.ts'], {
    cwd: ROOT,
    env: {
      ...COMPILE_CACHE,
      PATH: process.env['PATH'],
      SKEIN_URL: installation.base,
      SKEIN_MANAGER_URL: `http://127.0.0.1:${managerPort}`,
    },
    timeout: TOUR_DEADLINE_MS,
  })
  expect(stdout).toContain('Send a measurement')
  expect(stdout).toContain('20 + 22 = 42')
  expect(whole.output()).not.toContain('was not tested with')
  if (server !== undefined) expect(whole.output()).toContain('PostgreSQL at')
})
