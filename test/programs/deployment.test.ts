// The services of docker-compose.yml as processes of this machine, with the environment that the file gives them: what is
// tested is that these settings are enough for the parts to find and to trust each other. Names and ports are moved to
// loopback; HAProxy stands before the nodes as in the file. The reverse proxy and everything that a container engine does are
// left out.
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { X509Certificate } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect as connectTcp } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect as connectTls } from 'node:tls'
import mqtt from 'mqtt'
import { afterAll, beforeAll, expect, it, test } from 'vitest'
import { startEmbeddedPostgres } from '#postgres/embedded/index.ts'
import type { EmbeddedPostgres } from '#postgres/embedded/index.ts'
import { RedisServer, hasRedisServer } from '../core/redis-server.ts'
import { openEvents } from '../harness/event-stream.ts'
import { freePort, freePorts } from '../harness/ports.ts'
import { until } from '../harness/until.ts'
import { ROOT, environmentOf, prepare, readCompose } from './deployment-files.ts'
import type { Prepared } from './deployment-files.ts'

const START_DEADLINE_MS = 60_000
const HAPROXY = '/usr/sbin/haproxy'
const compose = readCompose()
/** Inside of the containers: what is moved to a free port of this machine. */
const PORT_SETTINGS = {
  SKEIN_HTTP_PORT: '8080',
  SKEIN_COAP_PORT: '5683',
  SKEIN_MQTT_PORT: '1883',
  SKEIN_MQTTS_PORT: '8883',
  SKEIN_MANAGER_HTTP_PORT: '7070',
  SKEIN_MANAGER_GRPC_PORT: '7071',
  SKEIN_PROXY_PORT: '7072',
}

type Running = { child: ChildProcess; output: () => string }
const running = new Map<string, Running>()
let prepared: Prepared
let postgres: EmbeddedPostgres
let folder: string
let redis: RedisServer | undefined
let ports: Map<string, number>
/** Of the second node and the second manager, which have the same inside of their containers. */
const secondPorts = new Map<string, number>()

/** The port of this machine for one inside of the container of `name`. */
function portOf(name: string, inside: string): number | undefined {
  return (name.endsWith('-2') ? secondPorts.get(inside) : undefined) ?? ports.get(inside)
}

function moved(text: string, name = ''): string {
  return (
    text
      .replaceAll(
        /\b(api-\d|manager(?:-\d)?|proxy|127\.0\.0\.1):(\d+)/g,
        (_all, host: string, port: string) => `localhost:${portOf(host === '127.0.0.1' ? name : host, port) ?? port}`,
      )
      // The addresses of the proxies in SKEIN_TRUST_PROXY.
      .replaceAll(/\b172\.30\.77\.\d+/g, '127.0.0.1')
      .replaceAll(/^\d+$/g, (port) => String(ports.get(port) ?? port))
      .replaceAll(/\/run\/secrets\/(\w+)/g, (_all, secret: string) =>
        join(prepared.folder, compose.secrets[secret]?.file ?? secret),
      )
      .replace(/^\/var\/lib\/skein(?=\/)/, () => join(folder, name))
  )
}

function start(name: string): void {
  const service = compose.services[name]
  if (service === undefined) throw new Error(`docker-compose.yml has no service ${name}`)
  const dataDir = join(folder, name)
  mkdirSync(dataDir)
  const entries = Object.entries(environmentOf(service, prepared.variables)).map(([key, value]) => [key, moved(value)])
  const given = Object.fromEntries(entries) as Record<string, string>
  // To a loopback address a worker speaks TLS only where its token names the certificate, so that is how it is joined here.
  const token = given['SKEIN_WORKER_MANAGER'] === undefined ? {} : { SKEIN_WORKER_TOKEN: pinnedToken() }
  const { host, port, user, password, database } = postgres.connection
  // Where there is no Redis here, the hints between the programs are left out.
  if (redis === undefined) delete given['SKEIN_REDIS_URL']
  const child = spawn(process.execPath, (service.command ?? []).slice(1), {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...given,
      ...Object.fromEntries(Object.entries(PORT_SETTINGS).map(([key, inside]) => [key, String(portOf(name, inside))])),
      ...(redis === undefined || given['SKEIN_REDIS_URL'] === undefined ? {} : { SKEIN_REDIS_URL: redis.url }),
      ...token,
      SKEIN_DATA_DIR: dataDir,
      NODE_COMPILE_CACHE: join(folder, 'compile-cache'),
      ...(given['SKEIN_DATABASE_URL'] === undefined
        ? {}
        : {
            SKEIN_DATABASE_URL: `postgres://${user}:${password}@localhost:${port}/${database}?host=${encodeURIComponent(host)}`,
            SKEIN_DATABASE_UNSAFE: 'true',
          }),
    },
  })
  let output = ''
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()))
  running.set(name, { child, output: () => output })
}

/** `<fingerprint of the certificate>.<join token>`, as the manager shows it to a person. */
function pinnedToken(): string {
  const certificate = new X509Certificate(readFileSync(join(prepared.folder, 'deploy/certs/cluster.pem')))
  return `${certificate.fingerprint256.replaceAll(':', '')}.${prepared.variables['SKEIN_WORKER_TOKEN']}`
}

/** Waits for the service's own health check, as the container engine would. */
async function untilHealthy(name: string): Promise<void> {
  const test = compose.services[name]?.healthcheck?.test ?? []
  const args = test.slice(2).map((argument) => moved(argument, name))
  await until(
    async () => {
      const { child } = running.get(name) as Running
      if (child.exitCode !== null) throw new Error(`${name} ended with ${child.exitCode}`)
      const check = spawn(process.execPath, args, { cwd: ROOT, stdio: 'ignore' })
      return await new Promise<boolean>((resolve) => check.once('exit', (code) => resolve(code === 0)))
    },
    `${name} is healthy`,
    START_DEADLINE_MS,
  ).catch((error: unknown) => {
    throw new Error(`${String(error)}: ${running.get(name)?.output() ?? ''}`)
  })
}

const at = (port: string) => `http://localhost:${ports.get(port)}`

async function call(method: string, url: string, token: string | undefined, body?: unknown): Promise<Response> {
  return await fetch(url, {
    method,
    headers: {
      ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
      ...(body === undefined || body instanceof FormData ? {} : { 'Content-Type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: body instanceof FormData ? body : JSON.stringify(body) }),
    signal: AbortSignal.timeout(START_DEADLINE_MS),
  })
}

beforeAll(async () => {
  prepared = await prepare('localhost')
  folder = mkdtempSync(join(tmpdir(), 'skein-deployment-'))
  chmodSync(folder, 0o755)
  const insides = Object.values(PORT_SETTINGS)
  const found = await freePorts(2 * insides.length)
  ports = new Map(insides.map((inside, index) => [inside, found[index] as number]))
  insides.forEach((inside, index) => secondPorts.set(inside, found[insides.length + index] as number))
  redis = hasRedisServer() ? await RedisServer.start() : undefined
  postgres = await startEmbeddedPostgres({ dataDir: join(folder, 'postgres'), log: () => undefined, unsafe: true })
  // In the order of depends_on.
  for (const name of ['api-1', 'api-2', 'proxy', 'manager-1', 'manager-2', 'worker-1']) {
    start(name)
    await untilHealthy(name)
  }
}, 4 * START_DEADLINE_MS)

afterAll(async () => {
  for (const { child } of running.values()) child.kill('SIGTERM')
  await Promise.all(
    [...running.values()].map(({ child }) =>
      until(() => child.exitCode !== null || child.signalCode !== null, 'the program has stopped', 30_000),
    ),
  )
  await postgres.stop()
  await redis?.[Symbol.asyncDispose]()
  prepared[Symbol.dispose]()
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
})

it('the programs of the deployment find and trust each other: a task of the administrator runs', async () => {
  expect((await call('GET', `${at('7070')}/workers`, undefined)).status).toBe(401)
  const { SKEIN_ADMIN_USERNAME: identity, SKEIN_ADMIN_SECRET: secret } = prepared.variables
  const login = await call('POST', `${at('8080')}/users/tokens/issue`, undefined, { identity, secret })
  const { access_token: token } = (await login.json()) as { access_token: string }
  const domain = await call('POST', `${at('8080')}/domains`, token, { name: 'plant' })
  const { id: domainId } = (await domain.json()) as { id: string }

  const created = await call('POST', `${at('7070')}/tasks`, token, { name: 'add', domain_id: domainId })
  const { id } = (await created.json()) as { id: string }
  const form = new FormData()
  form.append('file', new Blob([readFileSync(join(ROOT, 'examples/add/add.wasm'))]), 'add.wasm')
  expect((await call('PUT', `${at('7070')}/tasks/${id}/upload`, token, form)).status).toBe(200)
  const invoked = await call('POST', `${at('7070')}/tasks/${id}/invoke`, token, { inputs: [20, 22] })
  expect(await invoked.json()).toMatchObject({ results: [42], state: 3 })
})

it('a message at one node of the platform reaches the followers of the other', async () => {
  const { SKEIN_ADMIN_USERNAME: identity, SKEIN_ADMIN_SECRET: secret } = prepared.variables
  const login = await call('POST', `${at('8080')}/users/tokens/issue`, undefined, { identity, secret })
  const { access_token: token } = (await login.json()) as { access_token: string }
  const { id: domainId } = (await (
    await call('POST', `${at('8080')}/domains`, token, { name: 'two nodes' })
  ).json()) as {
    id: string
  }
  const channel = await call('POST', `${at('8080')}/${domainId}/channels`, token, { name: 'channel' })
  const path = `/m/${domainId}/c/${((await channel.json()) as { id: string }).id}`
  const second = `http://localhost:${secondPorts.get('8080')}`
  await using reader = await openEvents(`${second}${path}/live`, { authorization: `Bearer ${token}` })
  expect(reader.status).toBe(200)
  expect((await call('POST', `${at('8080')}${path}`, token, [{ n: 'a', v: 1 }])).status).toBe(202)
  const { data } = await until(() => reader.events[0], 'the message arrives')
  expect(data['payload']).toMatchObject([{ n: 'a', v: 1 }])
})

it('the manager reaches the proxy over TLS', async () => {
  const { SKEIN_ADMIN_USERNAME: identity, SKEIN_ADMIN_SECRET: secret } = prepared.variables
  const login = await call('POST', `${at('8080')}/users/tokens/issue`, undefined, { identity, secret })
  const { access_token: token } = (await login.json()) as { access_token: string }
  const { domains } = (await (await call('GET', `${at('8080')}/domains`, token)).json()) as {
    domains: { id: string }[]
  }
  const task = { name: 'remote', domain_id: domains[0]?.id, image_url: '127.0.0.1:1/nowhere:1' }
  const { id } = (await (await call('POST', `${at('7070')}/tasks`, token, task)).json()) as { id: string }
  const refused = (await (await call('POST', `${at('7070')}/tasks/${id}/start`, token)).json()) as { message: string }
  // The sentence is the proxy's own: it was asked, and does not go to private addresses.
  expect(refused.message).toContain('SKEIN_PROXY_HTTP_HOSTS')
})

test.skipIf(!existsSync(HAPROXY))(
  'the load balancer of MQTT leads to a node that can serve, and the node sees the device',
  async () => {
    const port = await freePort()
    const text = readFileSync(join(ROOT, 'deploy/haproxy.cfg'), 'utf8')
    // Both nodes are on this machine, so each has a port of its own for its check too.
    const config = text
      .replace('bind :8883', `bind 127.0.0.1:${port}`)
      .replace('bind 127.0.0.1:8404', `bind 127.0.0.1:${await freePort()}`)
      .replaceAll(
        /server (\S+) (\S+:8883)$/gm,
        (_all, name: string, address: string) =>
          `server ${name} ${moved(address).replace('localhost', '127.0.0.1')} check port ${portOf(name, '8080')}`,
      )
      .replace('check port 8080 ', '')
    const file = join(folder, 'haproxy.cfg')
    writeFileSync(file, config)
    const haproxy = spawn(HAPROXY, ['-db', '-f', file], { stdio: 'ignore' })
    try {
      const { SKEIN_ADMIN_USERNAME: identity, SKEIN_ADMIN_SECRET: secret } = prepared.variables
      const login = await call('POST', `${at('8080')}/users/tokens/issue`, undefined, { identity, secret })
      const { access_token: token } = (await login.json()) as { access_token: string }
      const made = await call('POST', `${at('8080')}/domains`, token, { name: 'devices' })
      const { id: domainId } = (await made.json()) as { id: string }
      const answer = await call('POST', `${at('8080')}/${domainId}/clients`, token, { name: 'device' })
      const device = (await answer.json()) as { id: string; credentials: { secret: string } }
      const connect = async () => {
        const socket = connectTcp({ port, host: '127.0.0.1', localAddress: '127.0.0.5' })
        const isOpen = await new Promise<boolean>((resolve) =>
          socket.once('connect', () => resolve(true)).on('error', () => resolve(false)),
        )
        if (!isOpen) return undefined
        const stream = connectTls({ socket, rejectUnauthorized: false })
        const login = { username: device.id, password: device.credentials.secret }
        const client = new mqtt.MqttClient(() => stream, { ...login, clientId: 'device', reconnectPeriod: 0 })
        client.on('error', () => undefined)
        const isConnected = await new Promise<boolean>((resolve) =>
          client.once('connect', () => resolve(true)).once('close', () => resolve(false)),
        )
        if (!isConnected) client.end(true)
        return isConnected ? client : undefined
      }
      const first = await until(connect, 'the device is connected')
      const path = `/${domainId}/clients/${device.id}/sessions`
      const second = `http://localhost:${secondPorts.get('8080')}`
      const { sessions } = (await (await call('GET', second + path, token)).json()) as { sessions: object[] }
      expect(sessions).toMatchObject([{ client_identifier: 'device', address: '127.0.0.5' }])
      first.end(true)
      // Wherever the device was, the other node takes it.
      const { child } = running.get('api-1') as Running
      child.kill('SIGKILL')
      await until(() => child.signalCode !== null, 'the node is gone')
      const again = await until(connect, 'the device is connected to the other node')
      again.end(true)
    } finally {
      const ended = new Promise((resolve) => haproxy.once('exit', resolve))
      haproxy.kill('SIGKILL')
      await ended
    }
  },
)

it('no program writes a secret into its log', () => {
  const secrets = [
    'POSTGRES_PASSWORD',
    'REDIS_PASSWORD',
    'SKEIN_SECRET_KEY',
    'SKEIN_ADMIN_SECRET',
    'SKEIN_WORKER_TOKEN',
    'SKEIN_PROXY_TOKEN',
  ].map((name) => prepared.variables[name] ?? '')
  for (const [name, { output }] of running) {
    expect(output(), name).not.toBe('')
    expect(
      secrets.filter((secret) => output().includes(secret)),
      name,
    ).toEqual([])
  }
})
