/**
 * docs/guides/join-a-worker.md: the configurations of nginx, HAProxy and Caddy, as the guide has them, between a manager and a worker whose
 * run has 5 MB of results. A proxy that is not installed is skipped by name.
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import wabt from 'wabt'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createKeyring } from '#core/keyring/index.ts'
import { prepareGrpcTls } from '#manager/index.ts'
import { freePorts } from '../harness/ports.ts'
import { until } from '../harness/until.ts'
import { runProxy } from '../proxy/running-proxy.ts'
import { clientOf, masterKey, startDatabase, startTestManager, startTestWorker } from '../tasks/support.ts'
import type { TestDatabase } from '../tasks/support.ts'

const GUIDE = join(import.meta.dirname, '..', '..', 'docs', 'guides', 'join-a-worker.md')
const NGINX = '/usr/sbin/nginx'
const STREAM_MODULE = '/usr/lib/nginx/modules/ngx_stream_module.so'
const HAPROXY = '/usr/sbin/haproxy'
const CADDY = '/usr/bin/caddy'
const LINE_BYTES = 50_000
const LINES = 100
const OUTPUT_BYTES = LINE_BYTES * LINES
/** What nginx logs when it ends a stream that is larger than `client_max_body_size`. */
const TOO_LARGE = 'client intended to send too large'
/** After the first one, the result was sent from its beginning again. */
const ENDED_SESSIONS = 3

const has = {
  nginx: existsSync(NGINX),
  stream: existsSync(NGINX) && existsSync(STREAM_MODULE),
  haproxy: existsSync(HAPROXY),
  caddy: existsSync(CADDY),
}

let db: TestDatabase
let module: Buffer
let folder: string
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'skein-front-'))
  db = await startDatabase()
  // A command of WASI preview 1 that writes zero bytes: `fd_write` with the vector at 0.
  const text = `(module
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 2)
    (data (i32.const 0) "\\10\\00\\00\\00\\50\\c3\\00\\00")
    (func (export "_start") (local $left i32)
      (local.set $left (i32.const ${LINES}))
      (memory.fill (i32.const 16) (i32.const 120) (i32.const ${LINE_BYTES}))
      (loop $again
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
        (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))`
  module = Buffer.from((await wabt()).parseWat('loud.wat', text, { bulk_memory: true }).toBinary({}).buffer)
})
afterAll(async () => {
  await db.close()
  rmSync(folder, { recursive: true, force: true })
})

test.runIf(process.env['CI'] === 'true')('the proxies are installed where tests decide', () => {
  expect(has).toEqual({ nginx: true, stream: true, haproxy: true, caddy: true })
})

/** The block of the guide that begins with this comment. */
function blockOf(name: string): string {
  const blocks = readFileSync(GUIDE, 'utf8').split(/^```.*$/m)
  const block = blocks.find((text) => text.startsWith(`\n# ${name}`))
  if (block === undefined) throw new Error(`the guide has no block ${name}`)
  return block
}

/** The ports of the manager and of its modules. */
type Ports = { '7071': number; '7072': number }

/** The block with other ports: it listens on those of `front` on loopback, and leads to those of `back`. */
function between(block: string, front: Ports, back: Ports): string {
  const moved = block.replaceAll(
    /(?:(listen |bind :|http:\/\/:)|(?:manager|127\.0\.0\.1):)(707[12])/g,
    (_all, listening: string | undefined, port: keyof Ports) =>
      listening === undefined ? `127.0.0.1:${back[port]}` : `${listening.replace(/:$/, '')}127.0.0.1:${front[port]}`,
  )
  expect(moved.replaceAll(/^\s*#.*$/gm, '')).not.toMatch(/\b707[12]\b/)
  return moved
}

/** The programs with what they need around the block: one process in the foreground, which writes in the folder of the test only. */
const PROGRAMS = {
  stream: {
    file: 'nginx.conf',
    around: (block: string) => `load_module ${STREAM_MODULE};\n${NGINX_ALONE}\n${block}`,
    command: (file: string) => [NGINX, '-p', folder, '-c', file],
  },
  nginx: {
    file: 'nginx.conf',
    around: (block: string) => `${NGINX_ALONE}\nhttp {\naccess_log off;\n${NGINX_FOLDERS}\n${block}\n}`,
    command: (file: string) => [NGINX, '-p', folder, '-c', file],
  },
  haproxy: {
    file: 'haproxy.cfg',
    around: (block: string) => block,
    command: (file: string) => [HAPROXY, '-db', '-f', file],
  },
  caddy: {
    file: 'Caddyfile',
    around: (block: string) => block.replace('{', '{\n  admin off'),
    command: (file: string) => [CADDY, 'run', '--adapter', 'caddyfile', '--config', file],
  },
} as const
const NGINX_ALONE = 'daemon off; master_process off; pid nginx.pid; error_log stderr; events {}'
const NGINX_FOLDERS = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
  .map((name) => `${name}_temp_path ${name};`)
  .join(' ')

type Front = AsyncDisposable & { log(): string }

async function startFront(name: keyof typeof PROGRAMS, block: string, ports: Ports): Promise<Front> {
  const { file, around, command } = PROGRAMS[name]
  const path = join(folder, file)
  writeFileSync(path, around(block))
  const [program = '', ...args] = command(path)
  const child = spawn(program, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: process.env['PATH'], HOME: folder },
  })
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()))
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (output += chunk.toString()))
  for (const port of Object.values(ports))
    await until(
      () => {
        if (child.exitCode !== null) throw new Error(`${program} ended: ${output}`)
        return answers(port)
      },
      () => `${program} listens: ${output}`,
    )
  return {
    log: () => output,
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await ended
    },
  }
}

const answers = (port: number) =>
  new Promise<boolean>((resolve) => {
    const socket = connect({ port, host: '127.0.0.1' })
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
    socket.once('connect', () => socket.destroy())
  })

/**
 * A manager with its modules, the proxy before both, and a worker that knows the proxy alone. On an address that is not loopback, the manager
 * makes its certificate.
 */
async function startSite(name: keyof typeof PROGRAMS, host: string, block: string) {
  const stack = new AsyncDisposableStack()
  const [manager7071 = 0, modules7072 = 0] = await freePorts(2)
  const front: Ports = { '7071': manager7071, '7072': modules7072 }
  const files = { host, insecure: false, tlsCert: undefined, tlsKey: undefined }
  const tls = await prepareGrpcTls(files, db.database, createKeyring(masterKey))
  const proxy = stack.use(await runProxy(tls === undefined ? {} : { tls }))
  const environment = { SKEIN_HOST: host, SKEIN_PROXY_ADDRESS: `127.0.0.1:${front['7072']}` }
  const manager = await startTestManager(db.database, { environment, proxy })
  stack.defer(() => manager.close())
  const back: Ports = { '7071': portOf(manager.grpcAddress), '7072': portOf(proxy.address) }
  const started = stack.use(await startFront(name, between(block, front, back), front))
  const { workerToken } = manager
  const worker = await startTestWorker({ grpcAddress: `127.0.0.1:${front['7071']}`, workerToken })
  stack.defer(() => worker.close())
  const client = clientOf(manager.app)
  const { body } = await client.post('/tasks', { name: 'loud', max_output_bytes: OUTPUT_BYTES })
  const id = String(body['id'])
  expect((await client.upload(id, module)).status).toBe(200)
  expect((await client.post(`/tasks/${id}/start`)).status).toBe(200)
  return {
    log: () => started.log(),
    results: () => client.results(id),
    ended: () => client.ended(id),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  }
}

const portOf = (address: string) => Number(address.split(':').at(-1))

async function expectAll(site: { ended(): Promise<Record<string, unknown>> }): Promise<void> {
  const { results } = (await site.ended()) as { results?: { stdout: string } }
  expect(results?.stdout.length).toBe(OUTPUT_BYTES)
}

describe('a worker whose run writes 5 MB', () => {
  test.skipIf(!has.stream)('is passed through by nginx with TLS (needs libnginx-mod-stream)', async () => {
    await using site = await startSite('stream', '0.0.0.0', blockOf('nginx with TLS'))
    await expectAll(site)
  })

  test.skipIf(!has.haproxy)('is passed through by HAProxy with TLS (needs haproxy)', async () => {
    await using site = await startSite('haproxy', '0.0.0.0', blockOf('HAProxy with TLS'))
    await expectAll(site)
  })

  test.skipIf(!has.nginx)('is served by nginx without TLS (needs nginx)', async () => {
    await using site = await startSite('nginx', '127.0.0.1', blockOf('nginx without TLS'))
    await expectAll(site)
    expect(site.log()).not.toContain(TOO_LARGE)
  })

  test.skipIf(!has.nginx)(
    'loses its sessions with the default limit of nginx, and its result never arrives (needs nginx)',
    async () => {
      const block = blockOf('nginx without TLS').replaceAll(/^.*client_max_body_size.*$/gm, '')
      await using site = await startSite('nginx', '127.0.0.1', block)
      await until(() => site.log().split(TOO_LARGE).length > ENDED_SESSIONS, 'nginx ends sessions')
      expect(await site.results()).toMatchObject({ state: 2, results: null })
    },
  )

  test.skipIf(!has.caddy)('is served by Caddy without TLS (needs caddy)', async () => {
    await using site = await startSite('caddy', '127.0.0.1', blockOf('Caddy without TLS'))
    await expectAll(site)
  })
})
