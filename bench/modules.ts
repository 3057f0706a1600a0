/**
 * Modules: a hundred workers ask a proxy for the same module at once, all on this machine and its disk; and the time that
 * a cached image adds to the start of a task.
 */
import { fork, spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { createTicketSigner } from '#proto/index.ts'
import { Secret } from '#core/config/index.ts'
import { ProxyClient } from '../manager/modules/proxy-client.ts'
import { load, prepareRequest } from './http-load.ts'
import type { Orders, Took } from './module-workers.ts'
import { cpuMs, newDataDir, removeDataDir, startPlatform } from './platform.ts'
import { median, milliseconds, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

const WORKERS = 100
/** In production each worker is a process; this number is enough for two and more cores. */
const PROCESSES = 20
const MODULE_BYTES = 20_000_000
const ROUNDS = 3
const ASKED_ONCE = '1 manifest, 1 blob'
const TARGET_LAST_MS = 5_000
const TARGET_CACHED_MS = 5
const PROXY_TOKEN = randomBytes(24).toString('base64url')
const START_LOAD_MS = 3_000

export async function benchModules(): Promise<void> {
  const rows = [...(await fanOut()), ...(await inDataDir(cachedStart))]
  printTable(
    `Modules: ${WORKERS} workers x ${MODULE_BYTES / 1e6} MB from one proxy, and starts with a cached image`,
    rows,
  )
}

const digestOf = (bytes: Uint8Array) => `sha256:${createHash('sha256').update(bytes).digest('hex')}`

/** A registry with one artifact `m:latest`, which counts its requests. */
async function startRegistry(module: Buffer) {
  const config = Buffer.from('{}')
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.manifest.v1+json',
      config: { mediaType: 'application/vnd.wasm.config.v0+json', digest: digestOf(config), size: config.length },
      layers: [{ mediaType: 'application/wasm', digest: digestOf(module), size: module.length }],
    }),
  )
  const counts = { manifests: 0, blobs: 0 }
  const server = createServer((request, response) => {
    const isManifest = request.url?.includes('/manifests/') === true
    if (request.url === '/v2/') return void response.end('{}')
    counts[isManifest ? 'manifests' : 'blobs'] += 1
    const type = isManifest ? 'application/vnd.oci.image.manifest.v1+json' : 'application/octet-stream'
    const body = isManifest ? manifest : module
    response.writeHead(200, { 'content-type': type, 'content-length': body.length }).end(body)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    counts,
    [Symbol.asyncDispose]: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

async function startProxy(dataDir: string, registry: string) {
  const child = spawn(process.execPath, ['programs/proxy.ts'], {
    cwd: join(import.meta.dirname, '..'),
    env: {
      SKEIN_DATA_DIR: dataDir,
      SKEIN_PROXY_PORT: '0',
      SKEIN_PROXY_TOKEN: PROXY_TOKEN,
      PROXY_REGISTRY_URL: registry,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  const address = await new Promise<string>((resolve, reject) => {
    void exited.then(() => reject(new Error('the proxy exited before it was ready')))
    createInterface({ input: child.stdout }).on('line', (line) => {
      const said = JSON.parse(line) as { msg: string; address?: string }
      if (said.msg === 'module proxy is ready' && said.address !== undefined) resolve(said.address)
    })
  })
  return {
    address,
    pid: child.pid ?? 0,
    async [Symbol.asyncDispose]() {
      child.kill()
      await exited
    },
  }
}

type Spent = { lastMs: number; cpuMsPerModule: number }

/** A process of this bench that sends one message when it is ready, and one after `go`. */
async function startChild(file: string, args: readonly string[], first?: Orders) {
  const child = fork(join(import.meta.dirname, file), args)
  const said = () =>
    new Promise<unknown>((resolve, reject) => {
      child.once('message', resolve)
      child.once('exit', () => reject(new Error(`${file} exited before it answered`)))
    })
  if (first !== undefined) child.send(first)
  const ready = await said()
  return {
    pid: child.pid ?? 0,
    ready,
    async go<T>(): Promise<T> {
      const answer = said()
      child.send('go')
      return (await answer) as T
    },
    [Symbol.dispose]: () => child.disconnect(),
  }
}

/**
 * The time of this machine for the same bytes to the same number of files by the same number of processes over bare TCP.
 * Rejects when the bytes differ.
 */
async function floorOf(dataDir: string, module: Buffer): Promise<Spent> {
  using stack = new DisposableStack()
  const path = join(dataDir, 'module')
  writeFileSync(path, module)
  const server = stack.use(await startChild('bare-files.ts', ['serve', path]))
  const folder = join(dataDir, 'floor')
  const children = await Promise.all(
    Array.from({ length: PROCESSES }, (_, index) =>
      startChild('bare-files.ts', [
        'bring',
        `${server.ready as number}`,
        join(folder, String(index)),
        String(WORKERS / PROCESSES),
      ]),
    ),
  )
  for (const child of children) stack.use(child)
  const [beganMs, spentMs] = [performance.now(), cpuMs(server.pid).own]
  const brought = await Promise.all(children.map((child) => child.go<{ digests: string[]; cpuMs: number }>()))
  const lastMs = performance.now() - beganMs
  const cpu = brought.reduce((sum, child) => sum + child.cpuMs, cpuMs(server.pid).own - spentMs)
  rmSync(folder, { recursive: true })
  const digest = digestOf(module)
  if (brought.some(({ digests }) => digests.some((found) => found !== digest))) {
    throw new Error('the bytes of the floor differ')
  }
  return { lastMs, cpuMsPerModule: cpu / WORKERS }
}

/** The measurements of one round. */
type FanOut = {
  floor: Spent
  lastMs: number
  medianMs: number
  proxyMs: number
  workerMs: number
  resolveMs: number
  asked: string
}

/** Each round with processes, folders and a module of its own. */
async function fanOut(): Promise<Row[]> {
  // Warms up first: the first use of memory by the machine costs more than the rest.
  await inDataDir((dataDir) => floorOf(dataDir, newModule()))
  const rounds: FanOut[] = []
  for (let round = 0; round < ROUNDS; round++) rounds.push(await inDataDir(fanOutOnce))
  const of = (value: (round: FanOut) => number) => median(rounds.map(value))
  const lastMs = of((round) => round.lastMs)
  const cpuMsPerModule = of((round) => round.proxyMs + round.workerMs)
  const [floorMs, floorCpuMs] = [of(({ floor }) => floor.lastMs), of(({ floor }) => floor.cpuMsPerModule)]
  return [
    {
      name: 'last worker has it',
      figure: `${milliseconds(lastMs)} (each round ${rounds.map((round) => Math.round(round.lastMs)).join(', ')}; half have it after ${milliseconds(of((round) => round.medianMs))})`,
      ratio: `${(lastMs / floorMs).toFixed(1)} x bare TCP to files, ${milliseconds(floorMs)}`,
      target: milliseconds(TARGET_LAST_MS),
      isReached: lastMs < TARGET_LAST_MS,
    },
    {
      name: 'CPU per module, proxy and worker',
      figure: `${milliseconds(cpuMsPerModule)} (${milliseconds(of((round) => round.proxyMs))} of the proxy, ${milliseconds(of((round) => round.workerMs))} of the worker)`,
      ratio: `${(cpuMsPerModule / floorCpuMs).toFixed(1)} x bare TCP to files, ${milliseconds(floorCpuMs)}`,
    },
    {
      name: 'requests at the registry',
      figure: [...new Set(rounds.map((round) => round.asked))].join('; '),
      target: ASKED_ONCE,
      isReached: rounds.every((round) => round.asked === ASKED_ONCE),
    },
    { name: 'a cached tag is resolved in', figure: milliseconds(of((round) => round.resolveMs)) },
  ]
}

const newModule = () => Buffer.concat([Buffer.from('\0asm\x01\0\0\0', 'latin1'), randomBytes(MODULE_BYTES - 8)])

async function inDataDir<T>(work: (dataDir: string) => Promise<T>): Promise<T> {
  const dataDir = newDataDir()
  try {
    return await work(dataDir)
  } finally {
    removeDataDir(dataDir)
  }
}

/** The worker's code for downloads, each with a connection and a folder of its own, in several processes. */
async function fanOutOnce(dataDir: string): Promise<FanOut> {
  const module = newModule()
  const floor = await floorOf(dataDir, module)
  await using registry = await startRegistry(module)
  await using proxy = await startProxy(dataDir, registry.host)
  const manager = new ProxyClient(proxy.address, undefined, new Secret(PROXY_TOKEN))
  const resolve = () => manager.resolve('m', null, { signatures: 'off', keys: [] })
  const found = await resolve()
  const resolveMs: number[] = []
  for (let index = 0; index < 200; index++) {
    const beganMs = performance.now()
    await resolve()
    resolveMs.push(performance.now() - beganMs)
  }
  manager.close()

  const signer = createTicketSigner(PROXY_TOKEN)
  const expires = Math.floor(Date.now() / 1000) + 3600
  const orders: Orders = Array.from({ length: WORKERS }, (_, index) => {
    const { digest, reference } = found
    const workerId = `0197a1a2-0000-7000-8000-${String(index).padStart(12, '0')}`
    const ticket = signer.sign({ reader: `worker:${workerId}`, digest, reference }, expires)
    const wanted = { digest, reference, ticket, sizeBytes: MODULE_BYTES, sourceAddress: proxy.address, peers: [] }
    return { folder: join(dataDir, 'workers', String(index)), wanted }
  })
  const perProcess = WORKERS / PROCESSES
  const children = await Promise.all(
    Array.from({ length: PROCESSES }, (_, index) =>
      startChild('module-workers.ts', [], orders.slice(index * perProcess, (index + 1) * perProcess)),
    ),
  )
  using stack = new DisposableStack()
  for (const child of children) stack.use(child)
  const [beganMs, spentMs] = [performance.now(), cpuMs(proxy.pid).own]
  const took = await Promise.all(children.map((child) => child.go<Took>()))
  const lastMs = performance.now() - beganMs
  const tookMs = took.flatMap((workers) => workers.tookMs)
  const proxyMs = (cpuMs(proxy.pid).own - spentMs) / WORKERS
  const workerMs = took.reduce((sum, workers) => sum + workers.cpuMs, 0) / WORKERS
  const { manifests, blobs } = registry.counts
  return {
    floor,
    lastMs,
    medianMs: median(tookMs),
    proxyMs,
    workerMs,
    resolveMs: median(resolveMs),
    asked: `${manifests} manifest, ${blobs} blob`,
  }
}

/** Starts the same module, uploaded and as an image, one after the other. */
async function cachedStart(dataDir: string): Promise<Row[]> {
  await using registry = await startRegistry(readFileSync(join(import.meta.dirname, '../examples/add/add.wasm')))
  await using platform = await startPlatform(dataDir, { PROXY_REGISTRY_URL: `http://${registry.host}` })
  const uploaded = await platform.call<{ id: string }>('POST', '/tasks', { name: 'add', inputs: [1, 2] })
  await platform.upload(uploaded.id, 'examples/add/add.wasm')
  const image = await platform.call<{ id: string }>('POST', '/tasks', { name: 'add', inputs: [1, 2], image_url: 'm' })
  const medians: number[] = []
  for (const { id } of [uploaded, image]) {
    const headers = { 'Content-Type': 'application/json' }
    const request = prepareRequest('POST', `/tasks/${id}/invoke`, headers, JSON.stringify({ inputs: [20, 22] }))
    const options = { port: platform.port, requests: [request], connections: 1, status: 200 }
    await load({ ...options, durationMs: START_LOAD_MS / 3 })
    medians.push(median((await load({ ...options, durationMs: START_LOAD_MS })).latenciesMs))
  }
  const [uploadMs = NaN, imageMs = NaN] = medians
  return [
    {
      name: 'a cached image adds to a start',
      figure: `${milliseconds(imageMs - uploadMs)} (${milliseconds(imageMs)} instead of ${milliseconds(uploadMs)})`,
      target: milliseconds(TARGET_CACHED_MS),
      isReached: imageMs - uploadMs < TARGET_CACHED_MS,
    },
  ]
}
