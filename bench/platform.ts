/** A complete Skein for a bench: all programs as a process of its own, on free ports, in a new folder. */
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '..')
const START_DEADLINE_MS = 60_000

export type Platform = AsyncDisposable & {
  readonly port: number
  readonly dataDir: string
  /** Time from the start of the process to the banner. */
  readonly readyMs: number
  readonly pid: number
  call<T>(method: string, path: string, body?: unknown, authorization?: string): Promise<T>
  upload(taskId: string, file: string, authorization?: string): Promise<void>
}

export function newDataDir(): string {
  return mkdtempSync(join(tmpdir(), 'skein-bench-'))
}

export async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise<void>((resolve) => server.close(() => resolve()))
  return port
}

/** All processes are pinned to the first two cores, so that figures of different machines compare. */
function command(): { file: string; prefix: string[] } {
  return existsSync('/usr/bin/taskset')
    ? { file: '/usr/bin/taskset', prefix: ['-c', '0,1', process.execPath] }
    : { file: process.execPath, prefix: [] }
}

export async function startPlatform(
  dataDir: string = newDataDir(),
  environment: Record<string, string> = {},
): Promise<Platform> {
  const [port, managerPort, grpcPort, proxyPort] = [
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
  ]
  const { file, prefix } = command()
  const began = performance.now()
  const child: ChildProcess = spawn(file, [...prefix, 'programs/run.ts', 'all'], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'inherit'],
    env: {
      ...process.env,
      NODE_COMPILE_CACHE: join(ROOT, 'node_modules/.cache/node'),
      SKEIN_DATA_DIR: dataDir,
      SKEIN_HTTP_PORT: String(port),
      SKEIN_MANAGER_HTTP_PORT: String(managerPort),
      SKEIN_MANAGER_GRPC_PORT: String(grpcPort),
      SKEIN_PROXY_PORT: String(proxyPort),
      SKEIN_PROXY_ADDRESS: `127.0.0.1:${proxyPort}`,
      SKEIN_COAP_PORT: '0',
      SKEIN_MQTT_PORT: '0',
      SKEIN_MQTTS_PORT: '0',
      SKEIN_SERVICE_PORTS: 'false',
      SKEIN_USERS_UNIQUE_NAMES: 'false',
      SKEIN_LOG_LEVEL: 'warn',
      ...environment,
    },
  })
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  await new Promise<void>((resolve, reject) => {
    let text = ''
    const timer = setTimeout(() => {
      child.kill('SIGTERM')
      reject(new Error(`not ready: ${text}`))
    }, START_DEADLINE_MS)
    child.stdout?.on('data', (chunk: Buffer) => {
      text += chunk.toString()
      if (!text.includes('is running')) return
      clearTimeout(timer)
      resolve()
    })
    child.once('exit', () => reject(new Error(`exited while starting: ${text}`)))
  })
  const readyMs = performance.now() - began
  const base = `http://127.0.0.1:${port}`

  return {
    port,
    dataDir,
    readyMs,
    pid: child.pid as number,
    async call<T>(method: string, path: string, body?: unknown, authorization?: string): Promise<T> {
      const response = await fetch(`${base}${path}`, {
        method,
        headers: {
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...(authorization === undefined ? {} : { authorization }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      })
      const text = await response.text()
      if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`)
      return (text === '' ? undefined : JSON.parse(text)) as T
    },
    async upload(taskId, path, authorization) {
      const body = new FormData()
      body.append('file', new Blob([readFileSync(join(ROOT, path))]), 'module.wasm')
      const response = await fetch(`${base}/tasks/${taskId}/upload`, {
        method: 'PUT',
        headers: authorization === undefined ? {} : { authorization },
        body,
      })
      if (!response.ok) throw new Error(`upload: ${response.status} ${await response.text()}`)
    },
    async [Symbol.asyncDispose]() {
      child.kill('SIGTERM')
      await ended
    },
  }
}

export function removeDataDir(dataDir: string): void {
  rmSync(dataDir, { recursive: true, force: true, maxRetries: 5 })
}

/** The process and all below it (Linux). */
export function familyOf(pid: number): number[] {
  const parents = new Map<number, number>()
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8')
      parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]))
    } catch {
      // The process ended between the listing and the look.
    }
  }
  const family = [pid]
  for (const parent of family) for (const [child, its] of parents) if (its === parent) family.push(child)
  return family
}

/** Memory of all processes together (Linux). */
export function memoryMiB(pid: number): number {
  return Object.values(memoryMiBByRole(pid)).reduce((sum, each) => sum + each, 0)
}

/** Memory of all processes of the platform by their role: the proportional set size, which counts a shared page once (Linux). */
export function memoryMiBByRole(pid: number): Record<string, number> {
  return sumByRole(pid, (member) => {
    const [, kibibytes = 0] = /^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${member}/smaps_rollup`, 'utf8')) ?? []
    return Number(kibibytes) / 1024
  })
}

/** The size of a page of memory (Linux). */
const PAGE_BYTES = 4096

/**
 * Memory of all processes of the platform that they do not share. Unlike the proportional set size, it is a counter of the kernel: reading it while
 * the platform is measured does not stop its processes.
 */
export function privateMemoryMiB(pid: number): number {
  const byRole = sumByRole(pid, (member) => {
    const [, resident = 0, shared = 0] = readFileSync(`/proc/${member}/statm`, 'utf8').split(' ').map(Number)
    return ((resident - shared) * PAGE_BYTES) / 1024 / 1024
  })
  return Object.values(byRole).reduce((sum, each) => sum + each, 0)
}

/** The tick of the kernel's clock that counts CPU time (Linux). */
const TICK_MS = 10

/** `ended`: of its child processes that have ended. */
function ownCpuMs(pid: number): { own: number; ended: number } {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  // utime, stime, cutime and cstime (proc_pid_stat(5)).
  const [user, system, endedUser, endedSystem] = fields.slice(11, 15).map((ticks) => Number(ticks) * TICK_MS)
  return { own: (user ?? 0) + (system ?? 0), ended: (endedUser ?? 0) + (endedSystem ?? 0) }
}

/** CPU time of the process (`own`) and of its child processes (`below`) (Linux). */
export function cpuMs(pid: number): { own: number; below: number } {
  let [own, below] = [0, 0]
  for (const member of familyOf(pid)) {
    try {
      const { own: used } = ownCpuMs(member)
      if (member === pid) own += used
      else below += used
    } catch {
      // The process ended.
    }
  }
  return { own, below }
}

/** Matched against the command line; all other processes are the platform itself. */
const ROLES = [
  ['PostgreSQL', /^postgres: |\/bin\/postgres\0/],
  ['runners', /runner\/entry/],
  ['worker', /\/worker\.[jt]s\b/],
  ['processes of the platform', /\/api-process\.[jt]s\b/],
] as const

/** CPU time of all processes of the platform by their role, with that of child processes that have ended (Linux). */
export function cpuMsByRole(pid: number): Record<string, number> {
  return sumByRole(pid, (member) => {
    const { own, ended } = ownCpuMs(member)
    return own + ended
  })
}

function sumByRole(pid: number, valueOf: (member: number) => number): Record<string, number> {
  const sums: Record<string, number> = {}
  for (const member of familyOf(pid)) {
    try {
      const command = readFileSync(`/proc/${member}/cmdline`, 'utf8')
      const role = ROLES.find(([, pattern]) => pattern.test(command))?.[0] ?? 'platform and manager'
      sums[role] = (sums[role] ?? 0) + valueOf(member)
    } catch {
      // The process ended, or is not ours to look at.
    }
  }
  return sums
}

export type Device = { id: string; secret: string }

const PASSWORD = 'bench-password'

/** The `Authorization` header of a user that `prepareDevices` created. */
export async function logIn(platform: Pick<Platform, 'call'>, identity: string): Promise<string> {
  const { access_token: token } = await platform.call<{ access_token: string }>('POST', '/users/tokens/issue', {
    identity,
    secret: PASSWORD,
  })
  return `Bearer ${token}`
}

/** Creates a user, a domain, a channel and devices that can publish to it. */
export async function prepareDevices(
  platform: Pick<Platform, 'call'>,
  count: number,
): Promise<{ owner: string; token: string; domainId: string; channelId: string; devices: Device[] }> {
  const name = `bench-${Date.now()}`
  await platform.call('POST', '/users', {
    first_name: name,
    last_name: name,
    email: `${name}@example.com`,
    credentials: { username: name, secret: PASSWORD },
  })
  const token = await logIn(platform, name)
  const domain = await platform.call<{ id: string }>('POST', '/domains', { name }, token)
  const channel = await platform.call<{ id: string }>('POST', `/${domain.id}/channels`, { name }, token)
  const { clients } = await platform.call<{ clients: { id: string; credentials: { secret: string } }[] }>(
    'POST',
    `/${domain.id}/clients/bulk`,
    Array.from({ length: count }, (_, index) => ({ name: `device-${index}` })),
    token,
  )
  await platform.call(
    'POST',
    `/${domain.id}/channels/connect`,
    { client_ids: clients.map((client) => client.id), channel_ids: [channel.id], types: ['publish', 'subscribe'] },
    token,
  )
  return {
    owner: name,
    token,
    domainId: domain.id,
    channelId: channel.id,
    devices: clients.map((client) => ({ id: client.id, secret: client.credentials.secret })),
  }
}
