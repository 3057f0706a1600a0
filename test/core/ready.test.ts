// `GET /ready` of programs that run alone, while what they depend on is taken away and comes back: PostgreSQL, Redis, the module
// proxy, workers, and the program itself.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { ReadinessReport } from '#core/readiness/index.ts'
import { Relay } from './relay.ts'
import { RedisServer, hasRedisServer } from './redis-server.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'
import { freePorts } from '../harness/ports.ts'
import { until } from '../harness/until.ts'
import { launch } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'

const DEADLINE_MS = 60_000
const PROGRAMS = ['api', 'manager', 'proxy', 'worker'] as const
type Program = (typeof PROGRAMS)[number]

let database: TestDatabase
let relay: Relay
let redis: RedisServer | undefined
const dataDir = mkdtempSync(join(tmpdir(), 'skein-ready-'))
const ports = {} as Record<'api' | 'manager' | 'proxy' | 'grpc', string>
const running = new Map<Program, Whole>()

beforeAll(async () => {
  database = await createTestDatabase()
  relay = await Relay.start(database.address)
  redis = hasRedisServer() ? await RedisServer.start() : undefined
  const [api = 0, manager = 0, proxy = 0, grpc = 0] = await freePorts(4)
  Object.assign(ports, { api: `${api}`, manager: `${manager}`, proxy: `${proxy}`, grpc: `${grpc}` })
  for (const name of ['api', 'manager', 'proxy'] as const) {
    running.set(name, launch(installationOf(name), `programs/${name}.ts`))
    await until(async () => (await ready(name)).code > 0, `${name} answers`, DEADLINE_MS)
  }
})

afterAll(async () => {
  await Promise.all([...running.values()].map((program) => program[Symbol.asyncDispose]()))
  await redis?.[Symbol.asyncDispose]()
  await relay[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
  rmSync(dataDir, { recursive: true, force: true, maxRetries: 5 })
})

function installationOf(name: Program): Installation {
  const { user, password, host, port, database: base } = relay.address
  return {
    dataDir,
    base: `http://127.0.0.1:${name === 'worker' ? 0 : ports[name]}`,
    environment: {
      SKEIN_DATA_DIR: dataDir,
      ...(name === 'api' || name === 'manager'
        ? {
            SKEIN_DATABASE_URL: `postgres://${user}:${password}@${host}:${port}/${base}`,
            SKEIN_DATABASE_UNSAFE: 'true',
            SKEIN_SECRET_KEY: Buffer.alloc(32, 7).toString('base64'),
            SKEIN_ADMIN_SECRET: 'the-first-admin',
            SKEIN_HTTP_PORT: ports.api,
            SKEIN_SERVICE_PORTS: 'false',
            SKEIN_COAP_PORT: '0',
            SKEIN_MQTT_PORT: '0',
            SKEIN_MQTTS_PORT: '0',
            SKEIN_STOP_DELAY: '3s',
            ...(redis === undefined ? {} : { SKEIN_REDIS_URL: redis.url }),
          }
        : {}),
      SKEIN_MANAGER_HTTP_PORT: ports.manager,
      SKEIN_MANAGER_GRPC_PORT: ports.grpc,
      SKEIN_PROXY_PORT: ports.proxy,
      SKEIN_PROXY_ADDRESS: `127.0.0.1:${ports.proxy}`,
      SKEIN_PROXY_MANAGER_URL: `http://127.0.0.1:${ports.manager}`,
      SKEIN_WORKER_MANAGER: `127.0.0.1:${ports.grpc}`,
      SKEIN_WORKER_TOKEN: 'a-worker-token-of-the-test',
      SKEIN_WORKER_DRAIN: '50ms',
      SKEIN_WORKER_SLOTS: '1',
    },
    [Symbol.dispose]: () => undefined,
  }
}

/** The answer of a program; code 0: none. */
async function ready(name: 'api' | 'manager' | 'proxy'): Promise<{ code: number } & ReadinessReport> {
  const none = { code: 0, status: 'unavailable' as const, checks: {} }
  return await fetch(`http://127.0.0.1:${ports[name]}/ready`, { signal: AbortSignal.timeout(5_000) }).then(
    async (response) => ({ code: response.status, ...((await response.json()) as ReadinessReport) }),
    () => none,
  )
}

const lacking = ({ code, status, checks }: { code: number } & ReadinessReport) => ({
  code,
  status,
  lacks: Object.keys(checks).filter((name) => checks[name]?.status !== 'ready'),
})

/** Waits until a program lacks exactly this. */
async function untilLacks(name: 'api' | 'manager' | 'proxy', code: number, lacks: string[]): Promise<ReadinessReport> {
  const status = code === 503 ? 'unavailable' : lacks.length > 0 ? 'degraded' : 'ready'
  let last: Awaited<ReturnType<typeof ready>> | undefined
  await until(
    async () => {
      last = await ready(name)
      return JSON.stringify(lacking(last)) === JSON.stringify({ code, status, lacks })
    },
    `${name} lacks ${lacks.join(', ') || 'nothing'}`,
    DEADLINE_MS,
  ).catch((error: unknown) => {
    throw new Error(`${String(error)}; it answered ${JSON.stringify(last)}`)
  })
  return last as ReadinessReport
}

test('without a worker the task manager is degraded, and ready when one joins', async () => {
  await untilLacks('api', 200, [])
  await untilLacks('proxy', 200, [])
  const { checks } = await untilLacks('manager', 200, ['workers'])
  expect(checks['workers']).toMatchObject({
    status: 'degraded',
    reason: expect.stringContaining('no worker') as string,
  })
  running.set('worker', launch(installationOf('worker'), 'programs/worker.ts'))
  await untilLacks('manager', 200, [])
})

test('without the database no program is ready, and all report it at once until it is back', async () => {
  relay.cut()
  for (const name of ['api', 'manager'] as const) {
    const { checks } = await untilLacks(name, 503, ['database', 'changelog'])
    // A reason is for strangers too.
    expect(JSON.stringify(checks)).not.toMatch(/127\.0\.0\.1|postgres:|\d{4,5}\b(?!-)\/test_/)
    expect(checks['database']?.since).toMatch(/^\d{4}-\d\d-\d\dT/)
  }
  // What runs where the database is not needed lacks only the task manager.
  await untilLacks('proxy', 200, ['manager'])
  const first = (await ready('api')).checks['database']?.since
  expect((await ready('api')).checks['database']?.since).toBe(first)
  relay.repair()
  for (const name of ['api', 'manager', 'proxy'] as const) await untilLacks(name, 200, [])
})

test('a frozen database is treated like an unavailable one', async () => {
  relay.freeze()
  await untilLacks('api', 503, ['database', 'changelog'])
  relay.cut()
  relay.repair()
  await untilLacks('api', 200, [])
})

test.runIf(hasRedisServer())('without Redis nodes are degraded', async () => {
  await redis?.kill()
  for (const name of ['api', 'manager'] as const) await untilLacks(name, 200, ['redis'])
  await redis?.begin()
  for (const name of ['api', 'manager'] as const) await untilLacks(name, 200, [])
})

test('without the module proxy the task manager is degraded', async () => {
  await running.get('proxy')?.[Symbol.asyncDispose]()
  await untilLacks('manager', 200, ['proxy'])
  running.set('proxy', launch(installationOf('proxy'), 'programs/proxy.ts'))
  await untilLacks('manager', 200, [])
})

test('HEAD is answered like GET, and other methods are refused', async () => {
  const url = `http://127.0.0.1:${ports.api}/ready`
  const head = await fetch(url, { method: 'HEAD' })
  expect([head.status, await head.text(), head.headers.get('cache-control')]).toEqual([200, '', 'no-store'])
  const post = await fetch(url, { method: 'POST' })
  expect([post.status, post.headers.get('allow')]).toEqual([405, 'GET, HEAD'])
})

test('a program that stops reports it and continues to serve for SKEIN_STOP_DELAY', async () => {
  const api = running.get('api')
  api?.kill('SIGTERM')
  const { checks } = await untilLacks('api', 503, ['program'])
  expect(checks['program']?.reason).toBe('the program is stopping')
  // Who did not notice yet is served.
  expect((await fetch(`http://127.0.0.1:${ports.api}/health`)).status).toBe(200)
  expect(await api?.ended).toBe(0)
  expect((await ready('api')).code).toBe(0)
})
