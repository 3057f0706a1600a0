// task-manager.md section 6: workers of one site give modules to each other, so that the proxy sends each of them once
import { execFileSync } from 'node:child_process'
import { rmSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { hostOf, portOf } from '#proto/index.ts'
import { startRegistry, wasmOf } from '../proxy/misbehaving-registry.ts'
import type { TestRegistry } from '../proxy/misbehaving-registry.ts'
import { runProxy } from '../proxy/running-proxy.ts'
import type { RunningProxy } from '../proxy/running-proxy.ts'
import { clientOf, startDatabase, startTestManager, startTestWorker, temporaryFolder, until } from './support.ts'
import type { TestDatabase, TestManager } from './support.ts'

const WORKERS = 10
const MODULE_BYTES = 1024 * 1024
const folder = temporaryFolder('skein-sites-')

/** What passes between workers or manager and the proxy, and how much of it came from the proxy. */
async function startRelay(target: string) {
  let receivedBytes = 0
  const server = createServer((near) => {
    const far = connect({ host: hostOf(target), port: Number(portOf(target)) })
    far.on('data', (data: Buffer) => (receivedBytes += data.length))
    near.pipe(far).pipe(near)
    for (const socket of [near, far]) {
      socket.on('error', () => undefined)
      socket.on('close', () => void near.destroy(void far.destroy()))
    }
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    get receivedBytes() {
      return receivedBytes
    },
    close: () => server.close(),
  }
}

let db: TestDatabase
let registry: TestRegistry
let proxy: RunningProxy
let relay: Awaited<ReturnType<typeof startRelay>>
let manager: TestManager
const opened = new AsyncDisposableStack()

/** Manager, proxy and workers speak TLS; workers show certificates that the manager issued. */
beforeAll(async () => {
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')]
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', '/CN=manager']
  execFileSync('openssl', ['req', '-x509', ...kind, '-keyout', key, '-out', cert], { stdio: 'ignore' })
  const tls = { SKEIN_GRPC_TLS_CERT: cert, SKEIN_GRPC_TLS_KEY: key }
  db = await startDatabase()
  registry = await startRegistry()
  proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}`, ...tls } })
  relay = await startRelay(proxy.address)
  manager = await startTestManager(db.database, {
    proxy,
    environment: { SKEIN_PROXY_ADDRESS: relay.address, ...tls },
    // Ten workers in one process: none of them is to lose its session because the others are at work.
    timing: { heartbeatIntervalMs: 2_000, minLeaseMs: 60_000 },
  })
}, 60_000)

afterAll(async () => {
  await opened.disposeAsync()
  await manager.close()
  relay.close()
  await proxy[Symbol.asyncDispose]()
  await registry[Symbol.asyncDispose]()
  await db.close()
  rmSync(folder, { recursive: true, force: true })
})

async function joinSite(site: string, environment: Record<string, string> = { SKEIN_WORKER_PEER_PORT: '0' }) {
  const worker = await startTestWorker(manager, { labels: `site=${site}`, name: site, slots: 1, environment })
  opened.defer(() => worker.close())
  return worker.id
}

/** Tells workers of a site to get its module, and waits until each of them says that it has it. */
async function bring(site: string, workers: readonly string[]): Promise<void> {
  const { moduleDigest: digest } = registry.module(site, 'latest', wasmOf(MODULE_BYTES, site.charCodeAt(0)))
  const client = clientOf(manager.app)
  // Workers on a busy machine may be between two sessions.
  await until(
    'all workers being told',
    () => client.post('/modules', { reference: `${site}:latest`, workers }),
    ({ status, body }) => status === 202 && body['workers'] === workers.length,
    60_000,
  )
  for (const id of workers) {
    await until(
      'the module at every worker',
      async () => (await client.get(`/workers/${id}`)).body['cached_modules'] as string[],
      (cached) => cached.includes(digest),
      60_000,
    )
  }
}

test('ten workers of one site receive a module from outside once, whichever worker fetches it', async () => {
  const workers: string[] = []
  for (let index = 0; index < WORKERS; index++) workers.push(await joinSite('north'))
  const before = relay.receivedBytes
  await bring('north', workers.slice(0, 1))
  await bring('north', workers)
  expect(relay.receivedBytes - before).toBeGreaterThan(MODULE_BYTES)
  expect(relay.receivedBytes - before).toBeLessThan(2 * MODULE_BYTES)
}, 180_000)

test('ten workers that receive a run at the same moment fetch its module once, and none waits in a circle', async () => {
  const workers: string[] = []
  for (let index = 0; index < WORKERS; index++) workers.push(await joinSite('south'))
  registry.module('south', 'latest', wasmOf(MODULE_BYTES, 'S'.charCodeAt(0)))
  const client = clientOf(manager.app)
  const before = relay.receivedBytes
  const { body } = await client.post('/tasks', {
    name: 'south',
    image_url: 'south:latest',
    labels: { site: 'south' },
    broadcast: true,
  })
  await client.post(`/tasks/${String(body['id'])}/start`, {})
  const ended = await until(
    'a result of every worker',
    async () =>
      (await client.get(`/tasks/${String(body['id'])}/results`)).body['results'] as { state: number }[] | null,
    (results) => results?.length === WORKERS && results.every(({ state }) => state > 2),
    60_000,
  )
  expect(ended).toHaveLength(WORKERS)
  expect(relay.receivedBytes - before).toBeGreaterThan(MODULE_BYTES)
  expect(relay.receivedBytes - before).toBeLessThan(2 * MODULE_BYTES)
}, 180_000)

test('workers without a port of their own ask the proxy, each for itself', async () => {
  const workers = [await joinSite('alone', {}), await joinSite('alone', {})]
  const before = relay.receivedBytes
  await bring('alone', workers)
  expect(relay.receivedBytes - before).toBeGreaterThan(2 * MODULE_BYTES)
}, 180_000)

test('a port for a site without a name is refused with a remedy', async () => {
  const starting = startTestWorker(manager, { environment: { SKEIN_WORKER_PEER_PORT: '0' } })
  await expect(starting).rejects.toThrow('add site=<name> to SKEIN_WORKER_LABELS')
})
