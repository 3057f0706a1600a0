/**
 * Two or more builds of the product side by side: each commit has a worktree of its own, with the packages of its lock file, and is
 * started as `npm start` does. The working tree runs where it is.
 */
import { execFile, spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import { createCaller } from '../http-caller.ts'
import type { Call } from '../http-caller.ts'
import { familyOf, freePort } from '../platform.ts'

const ROOT = join(import.meta.dirname, '../..')
/** The working tree in place of a commit. */
export const WORKING_TREE = '.'
const READY_DEADLINE_MS = 90_000
const READY_POLL_MS = 10
const STOP_DEADLINE_MS = 20_000
const LOG_TAIL_CHARACTERS = 2000
const CACHES = new Set(['.cache'])

export type Build = { name: string; folder: string }

export type RunningBuild = AsyncDisposable & {
  readonly pid: number
  readonly port: number
  readonly mqttPort: number
  /** From the start of the command to the first answer of `/health`. */
  readonly readyMs: number
  readonly call: Call
}

const run = promisify(execFile)
const git = async (...args: string[]) => (await run('git', args, { cwd: ROOT })).stdout.trim()

/** What is removed or ended, in reverse order, however the comparison ends. */
export type Cleanup = Pick<AsyncDisposableStack, 'defer' | 'use'>

/**
 * Compares builds in a folder that is removed afterwards, also if the comparison is interrupted or exceeds the deadline. Returns the status with
 * which the process should exit at once: the load of an interrupted job may still wait.
 */
export async function withBuilds(
  { commits, deadlineMs }: { commits: readonly string[]; deadlineMs: number },
  compare: (builds: readonly Build[], folder: string, cleanup: Cleanup) => Promise<void>,
): Promise<number> {
  const cleanup = new AsyncDisposableStack()
  const interrupted = Promise.withResolvers<never>()
  const interrupt = (reason: string) => () => interrupted.reject(new Error(reason))
  const onSignal = interrupt('interrupted')
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal).on('SIGHUP', onSignal)
  const timer = setTimeout(interrupt('the comparison takes too long'), deadlineMs)
  const work = async () => {
    const folder = mkdtempSync(join(tmpdir(), 'skein-against-'))
    // Started by root, a build runs PostgreSQL as another user.
    chmodSync(folder, 0o755)
    cleanup.defer(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }))
    await compare(await prepareBuilds(folder, commits, cleanup), folder, cleanup)
  }
  try {
    await Promise.race([work(), interrupted.promise])
    return 0
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\nstopping the builds and removing their folders\n`)
    return 1
  } finally {
    clearTimeout(timer)
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal).off('SIGHUP', onSignal)
    await cleanup.disposeAsync()
  }
}

/** Checks the commits out into the folder. Rejects if one is unknown. */
async function prepareBuilds(folder: string, commits: readonly string[], cleanup: Cleanup): Promise<Build[]> {
  const builds: Build[] = []
  for (const commit of commits) {
    if (commit === WORKING_TREE) builds.push({ name: 'working tree', folder: ROOT })
    else builds.push(await checkOut(folder, commit, builds.length, cleanup))
  }
  return builds
}

async function checkOut(folder: string, commit: string, index: number, cleanup: Cleanup): Promise<Build> {
  const id = await git('rev-parse', '--verify', '--end-of-options', `${commit}^{commit}`)
  const name = id.slice(0, 8)
  const build = { name, folder: join(folder, `${name}-${index}`) }
  cleanup.defer(async () => {
    rmSync(build.folder, { recursive: true, force: true, maxRetries: 5 })
    await git('worktree', 'prune')
  })
  await git('worktree', 'add', '--detach', '--force', build.folder, id)
  const lock = lockOf(build.folder)
  const same = (await installedWorktrees()).find((other) => lockOf(other) === lock)
  if (same === undefined) await install(build, cleanup)
  else {
    linkPackages(join(same, 'node_modules'), join(build.folder, 'node_modules'))
    await prepare(build, cleanup)
  }
  return build
}

/** The worktrees of this repository whose packages are installed; that of another build of this comparison is among them. */
async function installedWorktrees(): Promise<string[]> {
  const lines = (await git('worktree', 'list', '--porcelain')).split('\n')
  const folders = lines.flatMap((line) => (line.startsWith('worktree ') ? [line.slice('worktree '.length)] : []))
  return folders.filter((folder) => existsSync(join(folder, 'node_modules/.package-lock.json')))
}

const lockOf = (folder: string) => readFileSync(join(folder, 'package-lock.json'), 'utf8')

/** Each package is a link, so that every build has a compile cache of its own. */
function linkPackages(from: string, to: string): void {
  mkdirSync(to)
  for (const name of readdirSync(from)) if (!CACHES.has(name)) symlinkSync(join(from, name), join(to, name))
}

async function install(build: Build, cleanup: Cleanup): Promise<void> {
  process.stdout.write(`${build.name}: its lock file is another one, installing its packages\n`)
  await npm(build, ['ci', '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error'], cleanup)
}

/** The last step of `npm ci`, in builds that have one. */
async function prepare(build: Build, cleanup: Cleanup): Promise<void> {
  await npm(build, ['run', 'prepare', '--if-present', '--loglevel=error'], cleanup)
}

async function npm(build: Build, args: readonly string[], cleanup: Cleanup): Promise<void> {
  const child = spawn('npm', args, { cwd: build.folder, stdio: 'ignore', detached: true })
  const ended = once(child, 'exit')
  cleanup.defer(() => killGroup(child))
  const [code] = (await ended) as [number | null]
  if (code !== 0) throw new Error(`npm ${args[0]} failed in ${build.name} with ${code}`)
}

/** The command of `npm start` without npm: with its flags, and the Node.js of the packages first on the path. */
function startCommand(folder: string): string {
  const { scripts } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as {
    scripts: { start: string }
  }
  return scripts.start
}

/** Starts the build with this data folder; `cleanup` stops it if the caller does not. */
export async function startBuild(
  build: Build,
  dataDir: string,
  cleanup: Cleanup,
  environment: Readonly<Record<string, string>> = {},
): Promise<RunningBuild> {
  const [port, managerPort, grpcPort, proxyPort, mqttPort] = [
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
  ]
  const logFile = `${dataDir}.log`
  const log = openSync(logFile, 'a')
  const began = performance.now()
  const child = spawn('sh', ['-c', startCommand(build.folder)], {
    cwd: build.folder,
    stdio: ['ignore', log, log],
    detached: true,
    env: {
      ...process.env,
      PATH: [join(build.folder, 'node_modules/.bin'), process.env['PATH']].join(delimiter),
      SKEIN_DATA_DIR: dataDir,
      SKEIN_HTTP_PORT: String(port),
      SKEIN_MANAGER_HTTP_PORT: String(managerPort),
      SKEIN_MANAGER_GRPC_PORT: String(grpcPort),
      SKEIN_PROXY_PORT: String(proxyPort),
      SKEIN_PROXY_ADDRESS: `127.0.0.1:${proxyPort}`,
      SKEIN_MQTT_PORT: String(mqttPort),
      SKEIN_MQTTS_PORT: '0',
      SKEIN_COAP_PORT: '0',
      SKEIN_SERVICE_PORTS: 'false',
      SKEIN_USERS_UNIQUE_NAMES: 'false',
      ...environment,
    },
  })
  let stopping: Promise<void> | undefined
  const stop = () => (stopping ??= stopFamily(child))
  cleanup.defer(stop)
  const call = createCaller(port)
  while (!(await call('GET', '/health').then(Boolean, () => false))) {
    const text = () => readFileSync(logFile, 'utf8').slice(-LOG_TAIL_CHARACTERS)
    if (hasExited(child)) throw new Error(`${build.name} ended while starting: ${text()}`)
    if (performance.now() - began > READY_DEADLINE_MS) throw new Error(`${build.name} is not ready: ${text()}`)
    await pause(READY_POLL_MS)
  }
  return {
    pid: child.pid as number,
    port,
    mqttPort,
    readyMs: performance.now() - began,
    call,
    [Symbol.asyncDispose]: stop,
  }
}

/** Ends the process and, after a deadline, everything that it started. */
async function stopFamily(child: ChildProcess): Promise<void> {
  const { pid } = child
  if (pid === undefined || hasExited(child)) return
  const family = familyOf(pid)
  const exited = once(child, 'exit')
  child.kill('SIGTERM')
  await Promise.race([exited, pause(STOP_DEADLINE_MS, undefined, { ref: false })])
  killGroup(child)
  // PostgreSQL and isolated workers have groups of their own. They end with the process that started them, unless it had to be killed.
  const end = performance.now() + STOP_DEADLINE_MS
  while (performance.now() < end && family.some(isAlive)) {
    if (!hasExited(child)) for (const member of family) kill(member)
    await pause(READY_POLL_MS)
  }
}

const hasExited = ({ exitCode, signalCode }: ChildProcess) => exitCode !== null || signalCode !== null

function killGroup(child: ChildProcess): void {
  if (child.pid !== undefined && !hasExited(child)) kill(-child.pid)
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended.
  }
}

const isAlive = (pid: number) => existsSync(`/proc/${pid}`)
