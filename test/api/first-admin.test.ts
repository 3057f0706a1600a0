// decision 48: the first platform administrator
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { IDENTITY_SETTINGS, startIdentity } from '#api/identity/index.ts'
import { createLocalBus } from '#core/bus/index.ts'
import { readConfig } from '#core/config/index.ts'
import { createKeyring } from '#core/keyring/index.ts'
import { sql } from '#core/sql.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase, silentLogger } from '../harness/database.ts'

let database: TestDatabase
let dataDir: string
beforeEach(async () => {
  database = await createTestDatabase()
  dataDir = mkdtempSync(join(tmpdir(), 'skein-first-admin-'))
})
afterEach(async () => {
  await database[Symbol.asyncDispose]()
  rmSync(dataDir, { recursive: true, force: true })
})

const KEYRING = createKeyring(Buffer.alloc(32, 7))
const ORIGIN = { address: '127.0.0.1', requestId: 'test' }

/** A start of the room over the test's database and data folder. */
async function start(environment: Record<string, string> = {}) {
  const identity = await startIdentity({
    config: readConfig(IDENTITY_SETTINGS, environment),
    database: database.database,
    bus: createLocalBus(),
    keyring: KEYRING,
    logger: silentLogger,
    dataDir,
  })
  return {
    firstAdmin: identity.firstAdmin,
    logIn: (login: string, secret: string) => identity.tokens.issue({ identity: login, secret }, ORIGIN),
    [Symbol.asyncDispose]: () => identity.stop(),
  }
}

async function admins(): Promise<{ email: string; username: string }[]> {
  const { rows } = await sql<{ email: string; username: string }>`SELECT email, username FROM users
    WHERE role = 'admin'`.execute(database.database.db)
  return rows
}

const secretFile = () => join(dataDir, 'admin-secret')

test('the first administrator is created at the first start from the settings, and no file is written', async () => {
  await using room = await start({
    SKEIN_ADMIN_EMAIL: 'root@example.com',
    SKEIN_ADMIN_USERNAME: 'root',
    SKEIN_ADMIN_SECRET: 'a chosen secret',
  })
  expect(await admins()).toEqual([{ email: 'root@example.com', username: 'root' }])
  expect(room.firstAdmin).toEqual({ username: 'root', secretFile: undefined, createdSecret: undefined })
  expect(() => statSync(secretFile())).toThrow('ENOENT')
  await expect(room.logIn('root@example.com', 'a chosen secret')).resolves.toMatchObject({ access_type: 'Bearer' })
})

test('without a secret a random one is created, shown once, and kept in the data folder for its owner only', async () => {
  // An older file with a wider mode.
  writeFileSync(secretFile(), 'old', { mode: 0o644 })
  {
    await using room = await start()
    const { createdSecret } = room.firstAdmin
    expect(createdSecret?.length).toBeGreaterThanOrEqual(20)
    expect(room.firstAdmin.secretFile).toBe(secretFile())
    expect(readFileSync(secretFile(), 'utf8')).toBe(`${createdSecret}\n`)
    expect(statSync(secretFile()).mode & 0o777).toBe(0o600)
    await expect(room.logIn('admin', createdSecret ?? '')).resolves.toMatchObject({ access_type: 'Bearer' })
    for (const guess of ['admin', 'password', '12345678', ''])
      await expect(room.logIn('admin', guess)).rejects.toThrow()
  }
  await using again = await start()
  expect(again.firstAdmin).toMatchObject({ createdSecret: undefined, secretFile: secretFile() })
})

test('a later start changes nothing, whatever the settings are', async () => {
  await (await start({ SKEIN_ADMIN_SECRET: 'the first secret' }))[Symbol.asyncDispose]()
  await using room = await start({ SKEIN_ADMIN_USERNAME: 'second', SKEIN_ADMIN_SECRET: 'the second secret' })
  expect(await admins()).toHaveLength(1)
  await expect(room.logIn('admin', 'the first secret')).resolves.toMatchObject({ access_type: 'Bearer' })
  await expect(room.logIn('admin', 'the second secret')).rejects.toMatchObject({ kind: 'unauthenticated' })
})

test('an existing user is never promoted: the start fails with one line and a remedy', async () => {
  await sql`INSERT INTO users (id, name, email, username, secret_hash)
    VALUES (gen_random_uuid(), 'Jane', 'jane@example.com', 'admin', '')`.execute(database.database.db)
  await expect(start()).rejects.toMatchObject({
    kind: 'invalid_state',
    message: expect.stringMatching(/"admin".*SKEIN_ADMIN_EMAIL and SKEIN_ADMIN_USERNAME[^\n]*$/) as string,
  })
  expect(await admins()).toEqual([])
  expect(() => statSync(secretFile())).toThrow('ENOENT')
  await using room = await start({ SKEIN_ADMIN_USERNAME: 'root', SKEIN_ADMIN_SECRET: 'a chosen secret' })
  expect(room.firstAdmin.username).toBe('root')
})

test.each([
  ['SKEIN_ADMIN_EMAIL', 'no address'],
  ['SKEIN_ADMIN_USERNAME', 'two words'],
  ['SKEIN_ADMIN_SECRET', 'short'],
])('an invalid %s is named, and its value is not repeated if it is secret', async (name, value) => {
  const failure: unknown = await start({ [name]: value }).catch((error: unknown) => error)
  expect(failure).toMatchObject({ kind: 'malformed', message: expect.stringContaining(name) as string })
  expect((failure as Error).message).not.toContain('short')
  expect(await admins()).toEqual([])
})

test('one of several nodes that start together creates the administrator and all of them run', async () => {
  const rooms = await Promise.all([start(), start(), start()])
  const made = rooms.filter((room) => room.firstAdmin.createdSecret !== undefined)
  expect(made).toHaveLength(1)
  expect(await admins()).toHaveLength(1)
  expect(readFileSync(secretFile(), 'utf8').trim()).toBe(made[0]?.firstAdmin.createdSecret)
  for (const room of rooms) {
    await expect(room.logIn('admin', made[0]?.firstAdmin.createdSecret ?? '')).resolves.toBeDefined()
    await room[Symbol.asyncDispose]()
  }
})
