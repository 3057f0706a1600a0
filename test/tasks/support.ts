/** What the tests of tasks share: a database, a manager and workers in this process, over real HTTP and real gRPC. */
import { randomBytes } from 'node:crypto'
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { createLocalBus } from '#core/bus/index.ts'
import { readConfig } from '#core/config/index.ts'
import { createDatabase, migrate, readMigrations } from '#core/database/index.ts'
import type { Database, DatabaseAddress } from '#core/database/index.ts'
import { startEmbeddedPostgres } from '#postgres/embedded/index.ts'
import { createHttpApp, createMetrics } from '#http/index.ts'
import type { HttpApp } from '#http/index.ts'
import { createKeyring } from '#core/keyring/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { STREAM_SETTINGS, createStreams } from '#core/streams/index.ts'
import { Readiness } from '#core/readiness/index.ts'
import { MANAGER_SETTINGS, startManager } from '#manager/index.ts'
import type { Manager, ManagerTiming, TaskAccess } from '#manager/index.ts'
import { runProxy } from '../proxy/running-proxy.ts'
import type { RunningProxy } from '../proxy/running-proxy.ts'
import { WORKER_SETTINGS, startWorker } from '#worker/index.ts'
import type { Worker } from '#worker/index.ts'
import { shiftedClock } from '../../tools/shifted-clock.ts'
import { requireDeclaredLocations } from '../harness/declared.ts'
import { until as untilTrue } from '../harness/until.ts'

const level = process.env['SKEIN_TEST_LOG'] === undefined ? 'silent' : 'debug'
export const logger = createLogger({ name: 'test', level })

/**
 * The intervals of the product, twenty times faster. Not those of sessions and leases: who shares two cores is silent for a
 * second now and then, and is not to lose its runs to others for that.
 */
export const FAST: ManagerTiming = {
  heartbeatIntervalMs: 1_000,
  minLeaseMs: 20_000,
  sweepIntervalMs: 50,
  leaseWriteIntervalMs: 50,
  runCheckMarginMs: 3_000,
  placementCheckMs: 1_500,
  stopDeadlineMs: 1_000,
  foreignRunPollMs: 50,
  recordAfterMs: 50,
  messageIntervalMs: 20,
}

/** For tests of what happens when a lease ends. */
export const SHORT_LEASE: Partial<ManagerTiming> = { heartbeatIntervalMs: 500, minLeaseMs: 4_000 }

export type TestDatabase = { database: Database; address: DatabaseAddress; close(): Promise<void> }

export async function startDatabase(): Promise<TestDatabase> {
  const folder = temporaryFolder('skein-tasks-')
  const server = await startEmbeddedPostgres({
    dataDir: folder,
    log: () => undefined,
    unsafe: true,
    environment: shiftedClock(),
  })
  const client = new pg.Client(server.connection)
  await client.connect()
  await migrate(client, await readMigrations(join(import.meta.dirname, '../../migrations')), logger)
  await client.end()
  const database = createDatabase({ address: server.connection, maxConnections: 10, applicationName: 'test', logger })
  return {
    database,
    address: server.connection,
    async close() {
      await database.close()
      await server.stop()
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}

export function temporaryFolder(prefix: string): string {
  const folder = mkdtempSync(join(tmpdir(), prefix))
  chmodSync(folder, 0o755)
  return folder
}

/** No authorisation: every request is one of the operator. */
export const OPEN_ACCESS: TaskAccess = {
  authenticate: () => Promise.resolve(undefined),
  can: () => Promise.resolve(true),
  require: () => Promise.reject(new Error('no principal')),
  domains: () => Promise.resolve('all'),
  requireChannel: () => Promise.reject(new Error('no principal')),
  requireCommands: () => Promise.reject(new Error('no principal')),
  findUser: () => Promise.resolve(undefined),
  quotas: { ofDomainId: () => undefined },
}

export const masterKey = randomBytes(32)

export type TestManager = Manager & { app: HttpApp; close(): Promise<void> }

export async function startTestManager(
  database: Database,
  options: {
    timing?: Partial<ManagerTiming>
    grpcPort?: number
    access?: TaskAccess
    environment?: Record<string, string>
    /** In place of one of its own. */
    proxy?: RunningProxy
  } = {},
): Promise<TestManager> {
  const { SKEIN_GRPC_TLS_CERT: cert, SKEIN_GRPC_TLS_KEY: key } = options.environment ?? {}
  const tls = cert === undefined || key === undefined ? {} : { SKEIN_GRPC_TLS_CERT: cert, SKEIN_GRPC_TLS_KEY: key }
  const proxy = options.proxy ?? (await runProxy({ environment: tls }))
  const config = readConfig(MANAGER_SETTINGS, {
    SKEIN_MANAGER_GRPC_PORT: String(options.grpcPort ?? 0),
    ...proxy.managerEnvironment,
    ...options.environment,
  })
  const manager = await startManager({
    config,
    database,
    bus: createLocalBus(),
    keyring: createKeyring(masterKey),
    access: options.access ?? OPEN_ACCESS,
    streams: createStreams(readConfig(STREAM_SETTINGS, options.environment ?? {})),
    dataDir: join(tmpdir(), 'skein-test-manager'),
    logger,
    timing: { ...FAST, ...options.timing },
  })
  const app = createHttpApp({
    logger,
    health: {
      build: { version: '0', commit: 'none', buildTime: 'now' },
      metrics: createMetrics(),
      readiness: new Readiness(),
      serviceOf: () => 'manager',
    },
    maxBodyBytes: 1024 * 1024,
    corsOrigins: [],
    trustProxy: [],
    keyring: createKeyring(masterKey),
    authenticate: () => Promise.resolve(),
  })
  requireDeclaredLocations(app)
  await manager.routes(app)
  await app.ready()
  proxy.uploads = manager.readUpload
  return Object.assign(manager, {
    app,
    async close() {
      await app.close()
      await manager.stop()
      if (options.proxy === undefined) await proxy[Symbol.asyncDispose]()
    },
  })
}

export type TestWorker = Worker & { close(): Promise<void> }

export async function startTestWorker(
  manager: { grpcAddress: string; workerToken: string },
  options: {
    slots?: number
    labels?: string
    folder?: string
    name?: string
    leaseCheckMs?: number
    environment?: Record<string, string>
  } = {},
): Promise<TestWorker> {
  const folder = options.folder ?? temporaryFolder('skein-worker-')
  const config = readConfig(WORKER_SETTINGS, {
    SKEIN_DATA_DIR: folder,
    SKEIN_WORKER_MANAGER: manager.grpcAddress,
    SKEIN_WORKER_TOKEN: manager.workerToken,
    SKEIN_WORKER_SLOTS: String(options.slots ?? 2),
    SKEIN_WORKER_LABELS: options.labels ?? '',
    SKEIN_WORKER_NAME: options.name ?? 'test worker',
    SKEIN_WORKER_DRAIN: '500ms',
    ...options.environment,
  })
  const worker = await startWorker({
    readiness: new Readiness(),
    config,
    logger,
    version: '0.0.0',
    timing: { reconnectMinMs: 20, reconnectMaxMs: 200, leaseCheckMs: options.leaseCheckMs ?? 100 },
  })
  return Object.assign(worker, {
    async close() {
      await worker.stop()
      if (options.folder === undefined) rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
    },
  })
}

/** Makes invocations wait that nobody runs: a worker that fits has left, and may be back until its lease ends. */
export async function leaveWorker(
  manager: { grpcAddress: string; workerToken: string },
  labels: string,
): Promise<void> {
  await (await startTestWorker(manager, { name: 'gone', labels })).close()
}

export function exampleModule(name: string): Buffer {
  return readFileSync(join(import.meta.dirname, `../../examples/${name}/${name}.wasm`))
}

/** Waits for a condition; fails with the last value after the deadline. */
export async function until<T>(
  what: string,
  probe: () => Promise<T>,
  isTrue: (value: T) => boolean,
  deadlineMs = 30_000,
): Promise<T> {
  let last: T | undefined
  const { value } = await untilTrue(
    async () => {
      const value = (last = await probe())
      return isTrue(value) && { value }
    },
    () => `${what}; last seen ${JSON.stringify(last)}`,
    deadlineMs,
  )
  return value
}

type Answer = { status: number; body: Record<string, unknown>; headers: Record<string, unknown> }

/** A client of the manager's HTTP face. */
export function clientOf(app: HttpApp) {
  async function call(
    method: 'GET' | 'POST' | 'PUT' | 'DELETE',
    url: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<Answer> {
    const response = await app.inject({
      method,
      url,
      headers,
      ...(body === undefined ? {} : { payload: body as object }),
    })
    const isJson = String(response.headers['content-type'] ?? '').startsWith('application/json') && response.body !== ''
    return {
      status: response.statusCode,
      body: isJson ? (response.json() as Record<string, unknown>) : { text: response.body },
      headers: response.headers,
    }
  }
  return {
    call,
    get: (url: string) => call('GET', url),
    post: (url: string, body?: unknown, headers?: Record<string, string>) => call('POST', url, body, headers),
    put: (url: string, body?: unknown) => call('PUT', url, body),
    delete: (url: string) => call('DELETE', url),
    async upload(taskId: string, bytes: Buffer, field = 'file', headers: Record<string, string> = {}): Promise<Answer> {
      const form = new FormData()
      form.append(field, new Blob([new Uint8Array(bytes)]), 'module.wasm')
      const encoded = new Response(form)
      const response = await app.inject({
        method: 'PUT',
        url: `/tasks/${taskId}/upload`,
        headers: { ...headers, 'content-type': encoded.headers.get('content-type') ?? '' },
        payload: Buffer.from(await encoded.arrayBuffer()),
      })
      return {
        status: response.statusCode,
        body: response.json() as Record<string, unknown>,
        headers: response.headers,
      }
    },
    /** A task with the module of an example. */
    async task(example: string, fields: Record<string, unknown> = {}): Promise<string> {
      const created = await call('POST', '/tasks', { name: example, ...fields })
      if (created.status !== 201) throw new Error(`the task was refused: ${JSON.stringify(created.body)}`)
      const id = String(created.body['id'])
      const uploaded = await this.upload(id, exampleModule(example))
      if (uploaded.status !== 200) throw new Error(`the module was refused: ${JSON.stringify(uploaded.body)}`)
      return id
    },
    results: (id: string) => call('GET', `/tasks/${id}/results`).then((answer) => answer.body),
    /** The results of a task once it has ended. */
    ended(id: string, deadlineMs?: number) {
      return until(
        `the end of task ${id}`,
        () => this.results(id),
        ({ state }) => ![0, 1, 2, 7].includes(Number(state)),
        deadlineMs,
      )
    },
  }
}

/** What most tests of tasks need: a manager over a database of its own, a worker that has joined, and a client. */
export async function startSite() {
  const db = await startDatabase()
  const manager = await startTestManager(db.database)
  const worker = await startTestWorker(manager)
  const close = async () => {
    await worker.close()
    await manager.close()
    await db.close()
  }
  return { db, manager, worker, client: clientOf(manager.app), close }
}
