/** The product as a process of its own that says how long its main thread was busy, and a tenant in it with everything that devices need. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePorts } from '../../harness/ports.ts'
import { until } from '../../harness/until.ts'
import { createInstallation } from '../../harness/whole.ts'
import type { ProbeOrder, ProbeReport } from './probe.ts'

const ROOT = join(import.meta.dirname, '..', '..', '..')
const READY_DEADLINE_MS = 120_000
const END_DEADLINE_MS = 30_000
const ASK_DEADLINE_MS = 60_000
/** Long: an answer divides what the main thread does into shorter turns, of which the shortest are not counted. */
const HEALTH_PAUSE_MS = 250

export type Sent = { method: string; path: string; body?: string | Buffer; headers?: Record<string, string> }

export type Measured = ProbeReport & {
  /** The longest that `/health` took meanwhile; depends on what else the machine does. */
  healthMs: number
}

export type Platform = AsyncDisposable & {
  readonly base: string
  readonly ports: { http: number; grpc: number; mqtt: number; coap: number }
  readonly workerToken: string
  readonly bearer: string
  readonly domainId: string
  readonly clientId: string
  readonly clientSecret: string
  readonly channelId: string
  /** Gives status and text; a connection that is closed early is status 0. */
  send(sent: Sent): Promise<{ status: number; text: string }>
  /** What the main thread did while `work` was done. */
  measure(work: () => Promise<unknown>): Promise<Measured>
}

export async function startPlatform(): Promise<Platform> {
  const [mqtt = 0, coap = 0] = await freePorts(2)
  const installation = await createInstallation({
    SKEIN_MQTT_PORT: String(mqtt),
    SKEIN_COAP_PORT: String(coap),
    SKEIN_WORKER_HEARTBEAT: '10s',
    SKEIN_WORKER_LEASE: '60s',
  })
  const child = fork(join(ROOT, 'programs', 'all.ts'), {
    cwd: ROOT,
    execArgv: ['--import', join(import.meta.dirname, 'probe.ts')],
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...installation.environment },
  })
  let output = ''
  child.stdout?.on('data', (chunk: Buffer) => (output += chunk.toString()))
  child.stderr?.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const ended = once(child, 'exit')
  let hasEnded = false
  void ended.then(() => (hasEnded = true))
  await until(
    () => {
      if (hasEnded) throw new Error(`ended while starting: ${output}`)
      return output.includes('is running')
    },
    'the banner',
    READY_DEADLINE_MS,
  )

  async function order(what: ProbeOrder['order']): Promise<unknown> {
    if (hasEnded) throw new Error(`the platform has ended: ${output.slice(-2000)}`)
    child.send({ order: what } satisfies ProbeOrder)
    const [answer] = (await once(child, 'message', { signal: AbortSignal.timeout(ASK_DEADLINE_MS) })) as [unknown]
    return answer
  }

  async function send({ method, path, body, headers }: Sent): Promise<{ status: number; text: string }> {
    try {
      const response = await fetch(`${installation.base}${path}`, {
        method,
        headers: headers ?? {},
        ...(body === undefined ? {} : { body }),
        signal: AbortSignal.timeout(ASK_DEADLINE_MS),
      })
      return { status: response.status, text: await response.text() }
    } catch (error) {
      if (hasEnded) throw new Error(`the platform has ended: ${output.slice(-2000)}`, { cause: error })
      return { status: 0, text: String(error) }
    }
  }

  /** Asks again and again until the work is done; gives the longest time that an answer took. */
  async function watchHealth(done: Promise<unknown>): Promise<number> {
    let longestMs = 0
    let isDone = false
    const end = () => (isDone = true)
    const ended = done.then(end, end)
    do {
      const beganMs = performance.now()
      await send({ method: 'GET', path: '/health' })
      longestMs = Math.max(longestMs, performance.now() - beganMs)
      await Promise.race([ended, sleep(HEALTH_PAUSE_MS, undefined, { ref: false })])
    } while (!isDone)
    return longestMs
  }

  async function measure(work: () => Promise<unknown>): Promise<Measured> {
    await order('begin')
    const done = work()
    const [healthMs] = await Promise.all([watchHealth(done), done])
    return { ...((await order('end')) as ProbeReport), healthMs }
  }

  const json = async <T>(method: string, path: string, body: unknown, authorization?: string): Promise<T> => {
    const headers = { 'content-type': 'application/json', ...(authorization === undefined ? {} : { authorization }) }
    const { status, text } = await send({ method, path, body: JSON.stringify(body), headers })
    if (status >= 300) throw new Error(`${method} ${path}: ${status} ${text}`)
    return (text === '' ? undefined : JSON.parse(text)) as T
  }
  const { access_token: token } = await json<{ access_token: string }>('POST', '/users/tokens/issue', {
    identity: 'admin@example.com',
    secret: 'the-first-admin',
  })
  const bearer = `Bearer ${token}`
  const domain = await json<{ id: string }>('POST', '/domains', { name: 'plant', alias: 'plant' }, bearer)
  const client = await json<{ id: string; credentials: { secret: string } }>(
    'POST',
    `/${domain.id}/clients`,
    { name: 'pump' },
    bearer,
  )
  const channel = await json<{ id: string }>('POST', `/${domain.id}/channels`, { name: 'vibration' }, bearer)
  await json(
    'POST',
    `/${domain.id}/channels/connect`,
    { client_ids: [client.id], channel_ids: [channel.id], types: ['publish', 'subscribe'] },
    bearer,
  )
  const { environment, dataDir } = installation
  return {
    base: installation.base,
    ports: {
      http: Number(environment['SKEIN_HTTP_PORT']),
      grpc: Number(environment['SKEIN_MANAGER_GRPC_PORT']),
      mqtt,
      coap,
    },
    workerToken: readFileSync(join(dataDir, 'worker-token'), 'utf8').trim(),
    bearer,
    domainId: domain.id,
    clientId: client.id,
    clientSecret: client.credentials.secret,
    channelId: channel.id,
    send,
    measure,
    async [Symbol.asyncDispose]() {
      child.kill('SIGTERM')
      const killer = setTimeout(() => child.kill('SIGKILL'), END_DEADLINE_MS)
      await ended
      clearTimeout(killer)
      installation[Symbol.dispose]()
    },
  }
}
