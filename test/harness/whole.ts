/** The whole product as `npm start` runs it: a process of its own, on free ports, in a folder that outlives it. */
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { chmodSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { endLeftOvers } from '#worker/isolation/index.ts'
import { COMPILE_CACHE } from './compile-cache.ts'
import { freePorts } from './ports.ts'
import { until } from './until.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const READY_DEADLINE_MS = 120_000
const END_DEADLINE_MS = 30_000

/** The data folder and the ports of an installation that is started again and again. */
export type Installation = Disposable & {
  readonly dataDir: string
  readonly environment: Record<string, string>
  readonly base: string
}

export type Answer = { status: number; text: string; json: <T>() => T }

export type Whole = AsyncDisposable & {
  readonly pid: number
  /** Everything that was printed, both streams. */
  output(): string
  call(
    method: string,
    path: string,
    options?: { body?: unknown; authorization?: string; headers?: Record<string, string> },
  ): Promise<Answer>
  kill(signal: NodeJS.Signals): void
  /** Resolves when the process has ended, with its exit code or signal. */
  readonly ended: Promise<number | NodeJS.Signals>
  /** Resolves when nothing is printed any more: the process has ended, and so has all that it started. */
  readonly silent: Promise<void>
}

export async function createInstallation(environment: Record<string, string> = {}): Promise<Installation> {
  const dataDir = mkdtempSync(join(tmpdir(), 'skein-whole-'))
  // Readable, so that the embedded server may run as another user where the tests run as root.
  chmodSync(dataDir, 0o755)
  const [http, manager, grpc, proxy] = (await freePorts(4)).map(String) as [string, string, string, string]
  return {
    dataDir,
    base: `http://127.0.0.1:${http}`,
    environment: {
      SKEIN_DATA_DIR: dataDir,
      SKEIN_HTTP_PORT: http,
      SKEIN_MANAGER_HTTP_PORT: manager,
      SKEIN_MANAGER_GRPC_PORT: grpc,
      SKEIN_PROXY_PORT: proxy,
      SKEIN_PROXY_ADDRESS: `127.0.0.1:${proxy}`,
      SKEIN_COAP_PORT: '0',
      SKEIN_MQTT_PORT: '0',
      SKEIN_MQTTS_PORT: '0',
      SKEIN_SERVICE_PORTS: 'false',
      SKEIN_USERS_UNIQUE_NAMES: 'false',
      SKEIN_ADMIN_SECRET: 'the-first-admin',
      // Twenty times faster than the product's own, so that a lost worker is found within a test.
      SKEIN_WORKER_HEARTBEAT: '250ms',
      SKEIN_WORKER_LEASE: '2s',
      ...environment,
    },
    [Symbol.dispose]() {
      // As the next start of its worker would, which an installation that was killed last does not have.
      endLeftOvers(join(dataDir, 'worker'))
      rmSync(dataDir, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}

/** What `npm start` runs. */
const EVERYTHING = ['programs/run.ts', 'all']

/** Whether this is the command line of a worker, from its sources or a build of them. */
export const isWorkerCommand = (command: string) => /\/worker\.[jt]s\b/.test(command)

/** Starts the program without waiting for it to be ready. */
export function launch(installation: Installation, program: string | readonly string[] = EVERYTHING): Whole {
  const child: ChildProcess = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', ...[program].flat()], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...COMPILE_CACHE, ...installation.environment },
  })
  let text = ''
  child.stdout?.on('data', (chunk: Buffer) => (text += chunk.toString()))
  child.stderr?.on('data', (chunk: Buffer) => (text += chunk.toString()))
  const ended = new Promise<number | NodeJS.Signals>((resolve) =>
    child.once('exit', (code, signal) => resolve(code ?? signal ?? 1)),
  )
  const silent = new Promise<void>((resolve) => child.once('close', () => resolve()))
  return {
    pid: child.pid as number,
    ended,
    silent,
    output: () => text,
    kill: (signal) => void child.kill(signal),
    async call(method, path, { body, authorization, headers } = {}) {
      const response = await fetch(`${installation.base}${path}`, {
        method,
        headers: {
          ...(body === undefined || body instanceof FormData ? {} : { 'content-type': 'application/json' }),
          ...(authorization === undefined ? {} : { authorization }),
          ...headers,
        },
        ...(body === undefined ? {} : { body: body instanceof FormData ? body : JSON.stringify(body) }),
        signal: AbortSignal.timeout(20_000),
      })
      const answer = await response.text()
      return { status: response.status, text: answer, json: <T>() => JSON.parse(answer) as T }
    },
    async [Symbol.asyncDispose]() {
      child.kill('SIGTERM')
      const killer = setTimeout(() => child.kill('SIGKILL'), END_DEADLINE_MS)
      await ended
      clearTimeout(killer)
    },
  }
}

export async function startWhole(installation: Installation, program?: string | readonly string[]): Promise<Whole> {
  const whole = launch(installation, program)
  let hasEnded = false
  void whole.ended.then(() => (hasEnded = true))
  await until(
    () => {
      if (hasEnded) throw new Error(`ended while starting: ${whole.output()}`)
      return whole.output().includes('is running')
    },
    'the banner',
    READY_DEADLINE_MS,
  )
  return whole
}

/** Processes below `pid`, itself first (Linux). */
export function familyOf(pid: number): number[] {
  const parents = new Map<number, number>()
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8')
      parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]))
    } catch {
      // It ended between the listing and the look.
    }
  }
  const family = [pid]
  for (const parent of family) for (const [child, its] of parents) if (its === parent) family.push(child)
  return family
}

export function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
  } catch {
    return ''
  }
}
