/** The platform in the test's own process, over a database of its own, spoken to through `inject`: no port is opened. */
import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { IDENTITY_SETTINGS, PROVISIONING_SETTINGS, startApi } from '#api/index.ts'
import type { Api, ConsumerTimes, NotificationTimes, RuleTimes } from '#api/index.ts'
import { readConfig } from '#core/config/index.ts'
import type { Database, DatabaseAddress } from '#core/database/index.ts'
import { INFRASTRUCTURE_SETTINGS, startInfrastructure } from '#infrastructure/index.ts'
import type { Infrastructure } from '#infrastructure/index.ts'
import { createHttpApp, createMetrics } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import { newId } from '#core/ids.ts'
import { createLifecycle } from '#core/program/index.ts'
import type { Lifecycle } from '#core/program/index.ts'
import { createTestDatabase, silentLogger } from './database.ts'
import { requireDeclaredLocations } from './declared.ts'
import { SEALED_COLUMNS } from '#api/config.ts'
import { ARCHIVE_SETTINGS } from '../../api/messages/archive/config.ts'

const MAX_BODY_BYTES = 1024 * 1024

export type TestResponse = {
  status: number
  headers: Record<string, string | number | string[] | undefined>
  text: string
  /** The parsed body. Tests know what they asked for, so it is typed as they read it. */
  json: <T = Record<string, unknown>>() => T
}

export type Caller = (
  method: string,
  url: string,
  body?: unknown,
  headers?: Record<string, string>,
) => Promise<TestResponse>

export type TestApi = AsyncDisposable & {
  readonly app: HttpApp
  readonly api: Api
  /** Of this process; `database` is the test's own. */
  readonly infrastructure: Infrastructure
  readonly database: Database
  readonly address: DatabaseAddress
  /** A request without credentials. */
  readonly anonymous: Caller
  /** A request as the platform administrator. */
  readonly admin: Caller
  /** Registers a user, and returns their requests, id and tokens. */
  newUser(): Promise<TestUser>
  as(authorization: string): Caller
}

export type TestUser = {
  call: Caller
  id: string
  username: string
  secret: string
  accessToken: string
  refreshToken: string
}

export type TestApiOptions = {
  environment?: Record<string, string>
  /** SKEIN_TRUST_PROXY. */
  trustProxy?: readonly string[]
  tailIntervalMs?: number
  eventHeartbeatMs?: number
  notificationTimes?: NotificationTimes
  consumerTimes?: ConsumerTimes
  ruleTimes?: RuleTimes
  database?: Awaited<ReturnType<typeof createTestDatabase>>
  /** Routes of another room that are answered here too. */
  alsoServes?: (life: Lifecycle, api: Api, infrastructure: Infrastructure) => Promise<RoutePlugin>
}

const ADMIN = {
  SKEIN_ADMIN_EMAIL: 'admin@example.com',
  SKEIN_ADMIN_USERNAME: 'admin',
  SKEIN_ADMIN_SECRET: 'the-first-admin',
}
/** One key for every test process, so that several nodes can share a database. */
const SECRET_KEY = randomBytes(32).toString('base64')

export async function startTestApi(options: TestApiOptions = {}): Promise<TestApi> {
  const own = options.database === undefined ? await createTestDatabase() : undefined
  const { address, database: outside } = options.database ?? (own as Awaited<ReturnType<typeof createTestDatabase>>)
  const dataDir = mkdtempSync(join(tmpdir(), 'skein-api-'))
  const environment = {
    ...ADMIN,
    SKEIN_DATA_DIR: dataDir,
    SKEIN_SECRET_KEY: SECRET_KEY,
    SKEIN_DATABASE_UNSAFE: 'true',
    ...options.environment,
  }
  const config = readConfig({ ...INFRASTRUCTURE_SETTINGS, ...IDENTITY_SETTINGS }, environment)
  const life = createLifecycle(silentLogger)
  const infrastructure = await startInfrastructure(life, {
    config,
    logger: silentLogger,
    kind: 'test',
    maxConnections: 8,
    address,
    sealed: SEALED_COLUMNS,
  })
  const api = await startApi(life, {
    infrastructure,
    config,
    provisioning: readConfig(PROVISIONING_SETTINGS, environment),
    archive: readConfig(ARCHIVE_SETTINGS, environment),
    tailIntervalMs: options.tailIntervalMs ?? 25,
    ...(options.notificationTimes === undefined ? {} : { notificationTimes: options.notificationTimes }),
    ...(options.consumerTimes === undefined ? {} : { consumerTimes: options.consumerTimes }),
    ...(options.ruleTimes === undefined ? {} : { ruleTimes: options.ruleTimes }),
    ...(options.eventHeartbeatMs === undefined ? {} : { eventHeartbeatMs: options.eventHeartbeatMs }),
  })
  const app = createHttpApp({
    logger: silentLogger,
    health: {
      build: infrastructure.build,
      metrics: createMetrics(),
      readiness: infrastructure.readiness,
      serviceOf: () => 'test',
    },
    maxBodyBytes: MAX_BODY_BYTES,
    corsOrigins: [],
    trustProxy: options.trustProxy ?? [],
    keyring: infrastructure.keyring,
    authenticate: api.authenticate,
    newerUrl: api.newerUrl,
  })
  requireDeclaredLocations(app)
  await api.routes(app)
  await (
    await options.alsoServes?.(life, api, infrastructure)
  )?.(app)
  await app.ready()

  const as =
    (authorization: string | undefined): Caller =>
    async (method, url, body, headers = {}) => {
      const response = await app.inject({
        method: method as 'GET',
        url,
        headers: {
          ...(authorization === undefined ? {} : { authorization }),
          ...(body === undefined || typeof body === 'string' ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(body === undefined ? {} : { payload: typeof body === 'string' ? body : JSON.stringify(body) }),
      })
      return {
        status: response.statusCode,
        headers: response.headers,
        text: response.body,
        json: <T>() => response.json() as T,
      }
    }
  const anonymous = as(undefined)

  async function logIn(identity: string, secret: string): Promise<{ access_token: string; refresh_token: string }> {
    const response = await anonymous('POST', '/users/tokens/issue', { identity, secret })
    if (response.status !== 201) throw new Error(`login failed: ${response.text}`)
    return response.json()
  }
  const { access_token: adminToken } = await logIn(environment.SKEIN_ADMIN_USERNAME, environment.SKEIN_ADMIN_SECRET)

  return {
    app,
    api,
    infrastructure,
    database: outside,
    address,
    anonymous,
    admin: as(`Bearer ${adminToken}`),
    as,
    async newUser() {
      const mark = newId().slice(0, 8)
      const username = `user-${mark}`
      const secret = `secret-of-${mark}`
      const created = await anonymous('POST', '/users', {
        first_name: `First ${mark}`,
        last_name: `Last ${mark}`,
        email: `${username}@example.com`,
        credentials: { username, secret },
      })
      if (created.status !== 201) throw new Error(`registration failed: ${created.text}`)
      const tokens = await logIn(username, secret)
      return {
        call: as(`Bearer ${tokens.access_token}`),
        id: created.json<{ id: string }>().id,
        username,
        secret,
        accessToken: tokens.access_token,
        refreshToken: tokens.refresh_token,
      }
    },
    async [Symbol.asyncDispose]() {
      await app.close()
      await life.stop()
      await own?.[Symbol.asyncDispose]()
      rmSync(dataDir, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}
