/** What the tests of messages share: the platform's rooms on a database of their own, a domain, devices and channels. */
import { randomBytes } from 'node:crypto'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { httpMessageRoutes } from '#api/adapters/http/index.ts'
import { createDevices } from '#api/devices/index.ts'
import { IDENTITY_SETTINGS, startIdentity } from '#api/identity/index.ts'
import { startMessages } from '#api/messages/index.ts'
import type { Messages, MessagesDeps } from '#api/messages/index.ts'
import { createLocalBus } from '#core/bus/index.ts'
import { readConfig } from '#core/config/index.ts'
import { createDatabase, migrate, readMigrations } from '#core/database/index.ts'
import type { Database } from '#core/database/index.ts'
import { startEmbeddedPostgres } from '#core/database/embedded/index.ts'
import { createHttpApp, createMetrics } from '#core/http/index.ts'
import type { HttpApp } from '#core/http/index.ts'
import { newId } from '#core/ids.ts'
import { createKeyring } from '#core/keyring/index.ts'
import { createLogger } from '#core/logging/index.ts'

export const logger = createLogger({ name: 'test', level: 'silent' })

const ADMIN = { email: 'admin@example.com', username: 'admin', secret: 'correct horse battery' }

export type TestDatabase = { database: Database; dataDir: string; close(): Promise<void> }

/** A server of its own, so that its connections can be killed without hurting another test. */
export async function startDatabase(): Promise<TestDatabase> {
  const folder = mkdtempSync(join(tmpdir(), 'skein-messages-'))
  chmodSync(folder, 0o755)
  const server = await startEmbeddedPostgres({ dataDir: folder, log: () => undefined, unsafe: true })
  const client = new pg.Client(server.connection)
  await client.connect()
  await migrate(client, await readMigrations(join(import.meta.dirname, '../../migrations')), logger)
  await client.end()
  const database = createDatabase({ address: server.connection, maxConnections: 8, applicationName: 'test', logger })
  return {
    database,
    dataDir: folder,
    async close() {
      await database.close()
      await server.stop()
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}

export type Device = { id: string; secret: string }

export type Platform = {
  app: HttpApp
  database: Database
  messages: Messages
  /** Of the platform's administrator. */
  token: string
  domainId: string
  /** Registers another user and returns its token. */
  newUser(): Promise<string>
  newChannel(): Promise<string>
  newDevice(): Promise<Device>
  connect(device: Device, channelId: string, types?: readonly string[]): Promise<void>
  /** A device connected both ways to a channel of its own. */
  newConnectedDevice(): Promise<Device & { channelId: string }>
  [Symbol.asyncDispose](): Promise<void>
}

export async function startPlatform(
  options: Partial<MessagesDeps> & { maxBodyBytes?: number } = {},
): Promise<Platform> {
  const { maxBodyBytes = 1024 * 1024, ...messagesOptions } = options
  const { database, dataDir, close } = await startDatabase()
  const keyring = createKeyring(randomBytes(32))
  const config = readConfig(IDENTITY_SETTINGS, {
    SKEIN_ADMIN_EMAIL: ADMIN.email,
    SKEIN_ADMIN_USERNAME: ADMIN.username,
    SKEIN_ADMIN_SECRET: ADMIN.secret,
    SKEIN_USERS_UNIQUE_NAMES: 'false',
  })
  const identity = await startIdentity({ config, database, bus: createLocalBus(), keyring, logger, dataDir })
  const devices = createDevices({ database, keyring, identity })
  const messages = await startMessages({ database, logger, hasRoom: () => true, ...messagesOptions })
  const app = createHttpApp({
    logger,
    health: {
      build: { version: 'test', commit: 'test', buildTime: 'test' },
      metrics: createMetrics(),
      serviceOf: () => 'test',
    },
    maxBodyBytes,
    corsOrigins: [],
    trustProxy: [],
    authenticate: (request) => identity.authenticate(request),
  })
  await identity.routes(app)
  await devices.routes(app)
  await httpMessageRoutes({ messages, gate: devices.gate, tokens: identity.tokens })(app)
  await app.ready()

  async function post<T>(url: string, payload: object, bearer?: string): Promise<T> {
    const headers = bearer === undefined ? {} : { authorization: `Bearer ${bearer}` }
    const response = await app.inject({ method: 'POST', url, payload, headers })
    if (response.statusCode >= 300) throw new Error(`${url}: ${response.statusCode} ${response.body}`)
    return (response.body === '' ? undefined : response.json()) as T
  }
  const logIn = async (username: string, secret: string) =>
    (await post<{ access_token: string }>('/users/tokens/issue', { username, password: secret })).access_token

  const token = await logIn(ADMIN.username, ADMIN.secret)
  const { id: domainId } = await post<{ id: string }>('/domains', { name: 'plant', alias: 'plant' }, token)

  const platform: Platform = {
    app,
    database,
    messages,
    token,
    domainId,
    async newUser() {
      const username = `user-${newId().slice(0, 8)}`
      const user = { first_name: 'A', last_name: 'B', email: `${username}@example.com` }
      await post('/users', { ...user, credentials: { username, secret: 'a long password' } })
      return await logIn(username, 'a long password')
    },
    async newChannel() {
      return (await post<{ id: string }>(`/${domainId}/channels`, { name: 'channel' }, token)).id
    },
    async newDevice() {
      const client = await post<{ id: string; credentials: { secret: string } }>(
        `/${domainId}/clients`,
        { name: 'client' },
        token,
      )
      return { id: client.id, secret: client.credentials.secret }
    },
    async connect(device, channelId, types = ['publish', 'subscribe']) {
      await post(`/${domainId}/channels/connect`, { client_ids: [device.id], channel_ids: [channelId], types }, token)
    },
    async newConnectedDevice() {
      const [device, channelId] = [await platform.newDevice(), await platform.newChannel()]
      await platform.connect(device, channelId)
      return { ...device, channelId }
    },
    async [Symbol.asyncDispose]() {
      await app.close()
      await messages.close()
      await identity.stop()
      await close()
    },
  }
  return platform
}
