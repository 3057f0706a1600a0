/** The server process: started in its own session, watched until it is ready, stopped in three steps. */
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { spawnIdentity } from './account.ts'
import type { Account } from './account.ts'
import { isLeftoverConflict, programFailure, spawnFailure } from './failures.ts'
import { sendSignal } from '#core/processes.ts'
import { readLines } from './server-log.ts'

export type PostmasterExit = { code: number | null; signal: string | null }

export type Postmaster = {
  pid: number
  exited: Promise<PostmasterExit>
  stop(deadlineMs?: number): Promise<void>
}

export type PostmasterOptions = {
  file: string
  clusterDir: string
  args: string[]
  account: Account
  environment: Record<string, string>
  log: (line: string) => void
  /** The process exists; it needs a while to become ready. */
  onSpawn: (() => void) | undefined
  signal: AbortSignal | undefined
}

/** The server failed because an earlier one had not ended completely; a retry may succeed. */
export class LeftoverConflict extends Error {}

/** This is enough to recover 1 GB of write-ahead log from a slow disk. The server logs its progress. */
const READY_DEADLINE_MS = 600_000
const READY_POLL_MS = 2
const STOP_DEADLINE_MS = 30_000
const QUIT_DEADLINE_MS = 5000
const OUTPUT_DEADLINE_MS = 500
const MAX_REMEMBERED_LINES = 40

/** Servers that are stopped when this process exits without stopping them (an uncaught error, `process.exit`). */
const running = new Set<number>()
process.on('exit', () => {
  for (const pid of running) sendSignal(pid, 'SIGINT')
})

/** Resolves when the server accepts connections. Throws LeftoverConflict, or a ServiceError with advice. */
export async function startPostmaster(options: PostmasterOptions): Promise<Postmaster> {
  options.signal?.throwIfAborted()
  const child = spawn(options.file, ['-D', options.clusterDir, ...options.args], {
    ...spawnIdentity(options.account),
    cwd: '/',
    env: options.environment,
    // Its own session: Ctrl-C at the terminal reaches only Skein, which stops the server last.
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const lastLines: string[] = []
  readLines(child.stderr, (line) => {
    if (lastLines.push(line) > MAX_REMEMBERED_LINES) lastLines.shift()
    options.log(line)
  })
  const exited = new Promise<PostmasterExit>((resolve, reject) => {
    child.on('error', (error) => reject(spawnFailure(error, options.file)))
    // `close` rather than `exit`, because the output is complete then. A killed server writes none, and its backends may keep
    // the pipe open for long.
    child.on('exit', (code, signal) => {
      if (signal !== null) return resolve({ code, signal })
      const timer = setTimeout(() => resolve({ code, signal }), OUTPUT_DEADLINE_MS)
      child.on('close', () => {
        clearTimeout(timer)
        resolve({ code, signal })
      })
    })
  })
  const { pid } = child
  if (pid === undefined) {
    await exited
    throw new ServiceError('unavailable', 'the embedded PostgreSQL has no process id')
  }
  running.add(pid)
  options.onSpawn?.()
  const ended = { isTrue: false }
  void exited.finally(() => {
    ended.isTrue = true
    running.delete(pid)
  })
  const stop = (deadlineMs = STOP_DEADLINE_MS) => stopServer(pid, exited, deadlineMs)
  try {
    await waitUntilReady(options.clusterDir, pid, () => ended.isTrue, options.signal)
  } catch (error) {
    await stop()
    throw error
  }
  if (ended.isTrue) {
    const output = lastLines.join('\n')
    if (isLeftoverConflict(output)) throw new LeftoverConflict(output)
    throw programFailure('the embedded PostgreSQL did not start', output)
  }
  return { pid, exited, stop }
}

/** Line eight of `postmaster.pid` becomes `ready`. Unlike the log, it does not depend on settings. */
async function waitUntilReady(
  clusterDir: string,
  pid: number,
  hasEnded: () => boolean,
  signal: AbortSignal | undefined,
): Promise<void> {
  const until = monotonicMs() + READY_DEADLINE_MS
  while (!hasEnded() && !isReady(clusterDir, pid)) {
    if (monotonicMs() > until) {
      throw new ServiceError('timeout', `the embedded PostgreSQL was not ready within ${READY_DEADLINE_MS / 1000} s`)
    }
    await sleep(READY_POLL_MS, signal)
  }
}

function isReady(clusterDir: string, pid: number): boolean {
  try {
    const lines = readFileSync(join(clusterDir, 'postmaster.pid'), 'utf8').split('\n')
    return lines[0] === String(pid) && lines[7]?.trim() === 'ready'
  } catch {
    return false
  }
}

/** Fast shutdown first (rolls back transactions and writes everything), then an immediate shutdown, then SIGKILL. */
async function stopServer(pid: number, exited: Promise<PostmasterExit>, deadlineMs: number): Promise<void> {
  for (const [signal, stepDeadlineMs] of [
    ['SIGINT', deadlineMs],
    ['SIGQUIT', QUIT_DEADLINE_MS],
    ['SIGKILL', QUIT_DEADLINE_MS],
  ] as const) {
    if (!running.has(pid)) return
    sendSignal(pid, signal)
    if (await settledWithin(exited, stepDeadlineMs)) return
  }
}

async function settledWithin(exited: Promise<PostmasterExit>, deadlineMs: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), deadlineMs)
  })
  try {
    return await Promise.race([exited.then(() => true), late])
  } finally {
    clearTimeout(timer)
  }
}
