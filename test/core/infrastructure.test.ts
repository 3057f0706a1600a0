/** The infrastructure of a process on a given database: its key, its sign of life, and databases that refuse (decision 48, contract section 15). */
import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { readConfig } from '#core/config/index.ts'
import { readBuildInfo } from '#core/build-info.ts'
import { INFRASTRUCTURE_SETTINGS, startInfrastructure } from '#infrastructure/index.ts'
import { createLifecycle } from '#core/program/index.ts'
import { sql } from '#core/sql.ts'
import { createTestDatabase, silentLogger } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'

let own: TestDatabase
let dataDir: string
beforeAll(async () => {
  own = await createTestDatabase()
  dataDir = mkdtempSync(join(tmpdir(), 'skein-infrastructure-'))
})
afterAll(async () => {
  await own[Symbol.asyncDispose]()
  rmSync(dataDir, { recursive: true })
})

const KEY = randomBytes(32).toString('base64')

/** Starts and stops the infrastructure as a process would; what it threw, or undefined. */
async function start(environment: Record<string, string>, during: () => Promise<void> = () => Promise.resolve()) {
  const life = createLifecycle(silentLogger)
  const isOutside = environment['SKEIN_DATABASE_URL'] !== undefined
  try {
    const config = readConfig(INFRASTRUCTURE_SETTINGS, {
      SKEIN_DATA_DIR: dataDir,
      SKEIN_DATABASE_UNSAFE: 'true',
      SKEIN_SECRET_KEY: KEY,
      ...environment,
    })
    await startInfrastructure(life, {
      config,
      logger: silentLogger,
      kind: 'test',
      maxConnections: 2,
      ...(isOutside ? {} : { address: own.address }),
    })
    await during()
    return undefined
  } catch (error) {
    return (error as Error).message
  } finally {
    await life.stop()
  }
}

const nodes = async () => (await sql<{ kind: string }>`SELECT kind FROM nodes`.execute(own.database.db)).rows

test('a process is in the list of nodes while it runs', async () => {
  expect(
    await start({}, async () => {
      expect(await nodes()).toEqual([{ kind: 'test' }])
    }),
  ).toBeUndefined()
  expect(await nodes()).toEqual([])
})

test('a secret key other than that of the database is refused in one sentence', async () => {
  expect(await start({})).toBeUndefined()
  expect(await start({ SKEIN_SECRET_KEY: randomBytes(32).toString('base64') })).toBe(
    'the database uses another secret key; start with its SKEIN_SECRET_KEY or its data folder, or set SKEIN_SECRET_KEY_PREVIOUS to its key to rotate it',
  )
  expect(await start({})).toBeUndefined()
})

const address = (change: { user?: string; password?: string; database?: string } = {}) => {
  const { host, port, user, password, database } = { ...own.address, ...change }
  return `postgres://${user}:${encodeURIComponent(password)}@localhost/${database}?host=${encodeURIComponent(host)}&port=${port}`
}

test('an external database is used if its address is valid', async () => {
  expect(await start({ SKEIN_DATABASE_URL: address() })).toBeUndefined()
})

test.each([
  [
    'a wrong password',
    () => address({ password: 'hunter2' }),
    /^the database of SKEIN_DATABASE_URL rejected the connection \(password authentication failed.*check its user, password/,
  ],
  [
    'a database that is not there',
    () => address({ database: 'nowhere' }),
    /^the database of SKEIN_DATABASE_URL rejected the connection \(database "nowhere" does not exist\)/,
  ],
  [
    'a port that nobody listens on',
    () => 'postgres://a:hunter2@localhost:9/a',
    /^the database of SKEIN_DATABASE_URL is unreachable \(connect ECONNREFUSED .*\); check that the server is running/,
  ],
  [
    'a host that does not exist',
    () => 'postgres://a:hunter2@nowhere.invalid/a',
    /^the database of SKEIN_DATABASE_URL is unreachable \(.*nowhere\.invalid\)/,
  ],
  [
    'an address of something else',
    () => 'mysql://a:hunter2@localhost/a',
    /^SKEIN_DATABASE_URL must be an address such as postgres:/,
  ],
  ['no address', () => 'hunter2', /^SKEIN_DATABASE_URL must be an address such as postgres:/],
])('%s is an error in one sentence with a remedy, without the password', async (_what, url, sentence) => {
  const refusal = await start({ SKEIN_DATABASE_URL: url() })
  expect(refusal).toMatch(sentence)
  expect(refusal).not.toContain('hunter2')
  expect(refusal?.split('\n')).toHaveLength(1)
})

test('the build contains its version and commit', () => {
  const { version, commit, buildTime } = readBuildInfo()
  expect(version).toMatch(/^\d+\.\d+\.\d+/)
  expect(commit).toMatch(/^[0-9a-f]{40}$|^unknown$/)
  expect(Number.isNaN(Date.parse(buildTime))).toBe(false)
})
