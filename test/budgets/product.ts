/**
 * The product as `npm start` runs it, in the process of the test: platform, task manager and module proxy, one worker over gRPC, every
 * protocol on a port, and a PostgreSQL of its own. Between worker and manager stands a relay that counts frames.
 */
import { rmSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { CoapServer } from '#api/adapters/coap/index.ts'
import { MIGRATIONS_FOLDER, createDatabase } from '#core/database/index.ts'
import { startEmbeddedPostgres } from '#postgres/embedded/index.ts'
import { createMetrics, listen } from '#http/index.ts'
import { migrate, readMigrations } from '#core/database/index.ts'
import pg from 'pg'
import { silentLogger as logger } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'
import { startTaskManager } from '../harness/task-manager.ts'
import { until } from '../harness/until.ts'
import { startPlant } from '../messages/support.ts'
import type { Device, Plant } from '../messages/support.ts'
import { startNode } from '../mqtt/support.ts'
import { runProxy } from '../proxy/running-proxy.ts'
import { exampleModule, startTestWorker, temporaryFolder } from '../tasks/support.ts'
import { shiftedClock } from '../../tools/shifted-clock.ts'
import { FrameRelay } from './frame-relay.ts'

/** As in the product; the harness has it faster. */
const TAIL_INTERVAL_MS = 1_000
const MAX_BODY_BYTES = 1024 * 1024
const HOST = '127.0.0.1'
/** Nothing but what an operation does writes to the log: neither the vacuum of tables nor a checkpoint. */
const QUIET_SERVER = { autovacuum: 'off', checkpoint_timeout: '1h' }

export type Product = AsyncDisposable & {
  readonly address: pg.ClientConfig
  readonly relay: FrameRelay
  readonly plant: Plant
  readonly ports: { http: number; mqtt: number; coap: number }
  /** Connected both ways to `channelId`. */
  readonly device: Device
  readonly channelId: string
  /** Of the domain of the plant, with a module that adds. */
  readonly taskId: string
}

async function startServer(stack: AsyncDisposableStack): Promise<TestDatabase> {
  const folder = temporaryFolder('skein-budgets-')
  stack.defer(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }))
  const server = await startEmbeddedPostgres({
    dataDir: folder,
    log: () => undefined,
    unsafe: true,
    settings: QUIET_SERVER,
    environment: shiftedClock(),
  })
  stack.defer(() => server.stop())
  const address = server.connection
  const client = new pg.Client(address)
  await client.connect()
  await migrate(client, await readMigrations(MIGRATIONS_FOLDER), logger)
  await client.end()
  const database = createDatabase({ address, maxConnections: 2, applicationName: 'budgets', logger })
  stack.defer(() => database.close())
  return { address, database, [Symbol.asyncDispose]: () => Promise.resolve() }
}

export async function startProduct(): Promise<Product> {
  const stack = new AsyncDisposableStack()
  const database = await startServer(stack)
  const proxy = stack.use(await runProxy())
  const started = Promise.withResolvers<{ grpcAddress: string; workerToken: string }>()
  const plant = stack.use(
    await startPlant({
      database,
      tailIntervalMs: TAIL_INTERVAL_MS,
      alsoServes: async (...platform) => {
        const manager = await startTaskManager(...platform, { environment: proxy.managerEnvironment })
        proxy.uploads = manager.readUpload
        started.resolve(manager)
        return manager.routes
      },
    }),
  )
  const { grpcAddress, workerToken } = await started.promise
  const relay = stack.use(await FrameRelay.start(grpcAddress))
  const worker = await startTestWorker({ grpcAddress: relay.address, workerToken }, { slots: availableParallelism() })
  stack.defer(() => worker.close())
  const http = await listen(plant.api.app, {
    host: HOST,
    ports: [{ port: 0, isOptional: false, setting: 'TEST' }],
    logger,
    budget: plant.api.infrastructure.streams.budget,
  })
  stack.defer(() => http.stop(0))
  const mqtt = await startNode(plant.api, { roundMs: TAIL_INTERVAL_MS })
  stack.defer(() => mqtt.stop())
  const { devices, messages } = plant.api.api
  const coap = await CoapServer.start({
    host: HOST,
    port: 0,
    gate: devices.gate,
    topics: devices.topics,
    messages,
    maxBodyBytes: MAX_BODY_BYTES,
    metrics: createMetrics([]),
    logger,
  })
  stack.defer(() => coap.stop())
  const httpPort = http.ports[0] as number
  const { channelId, ...device } = await plant.newConnectedDevice()
  const taskId = await newTask(plant, httpPort)
  return {
    address: database.address,
    relay,
    plant,
    ports: { http: httpPort, mqtt: mqtt.port, coap: coap.port },
    device,
    channelId,
    taskId,
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  }
}

async function newTask({ owner, domainId }: Plant, port: number): Promise<string> {
  const made = await owner.call('POST', '/tasks', { name: 'add', inputs: [20, 22], domain_id: domainId })
  const { id } = made.json<{ id: string }>()
  const form = new FormData()
  form.append('file', new Blob([new Uint8Array(exampleModule('add'))]), 'module.wasm')
  const headers = { authorization: `Bearer ${owner.accessToken}` }
  const given = await fetch(`http://${HOST}:${port}/tasks/${id}/upload`, { method: 'PUT', headers, body: form })
  if (!given.ok) throw new Error(await given.text())
  await until(
    async () => (await owner.call('POST', `/tasks/${id}/invoke`, { inputs: [20, 22] })).status === 200,
    'a run',
  )
  return id
}
