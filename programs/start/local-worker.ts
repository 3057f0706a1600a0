/**
 * The worker of `npm start`: a process of its own that joins over gRPC like any other. It is launched first, because its
 * loading takes as long as that of the rest, and gets the address of the manager last. It exits with its parent in every
 * case, and is restarted when it dies.
 */
import { fork } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import type { Environment } from '#core/config/index.ts'
import { entryPoint } from '#core/installation.ts'
import type { Logger } from '#core/logging/index.ts'
import { STARTED } from '#core/program/index.ts'
import type { ParentMessage } from '#core/program/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'

const FIRST_PAUSE_MS = 250
const MAX_PAUSE_MS = 30_000
/** A worker that ran this long is restarted at once when it dies. */
const STABLE_MS = 60_000
/** A worker reports its isolation right after it joined. */
const ISOLATION_DEADLINE_MS = 5_000
/** A worker drains its runs when it is stopped; after this deadline it is killed. */
const STOP_DEADLINE_MS = 15_000

export type LocalWorker = {
  /** Tells it which manager to join, now and after every restart. */
  join(manager: string, token: string): void
  /** Isolation level of its guests, reported after it joined; undefined after the deadline. */
  isolation(): Promise<string | undefined>
  /** The start of this program is over: the worker writes its log. */
  programStarted(): void
  stop(): Promise<void>
}

export function launchLocalWorker({ environment, logger }: { environment: Environment; logger: Logger }): LocalWorker {
  const stopping = new AbortController()
  let child: ChildProcess | undefined
  const isolation = Promise.withResolvers<string>()
  let settings: Record<string, string> | undefined
  let isStarting = true
  const sendSettings = (receiver: ChildProcess | undefined) => {
    if (settings !== undefined) receiver?.send({ settings, isStarting } satisfies ParentMessage)
  }

  const launch = (): Promise<string> => {
    // A process group of its own: Ctrl-C reaches only the parent, which stops the worker in its own order. The channel
    // notifies the worker when the parent dies.
    const started = fork(entryPoint('programs/worker.ts'), {
      env: environment as NodeJS.ProcessEnv,
      detached: true,
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    })
    sendSettings(started)
    started.on('message', (message) => {
      const { isolation: level } = message as { isolation?: unknown }
      if (typeof level === 'string') isolation.resolve(level)
    })
    child = started
    return new Promise((resolve) => {
      started.once('error', (error) => resolve(error.message))
      started.once('exit', (code, signal) => resolve(signal === null ? `exit code ${code}` : signal))
    })
  }

  async function supervise(): Promise<void> {
    let pauseMs = FIRST_PAUSE_MS
    while (!stopping.signal.aborted) {
      const sinceMs = monotonicMs()
      const reason = await launch()
      child = undefined
      if (stopping.signal.aborted) return
      if (monotonicMs() - sinceMs > STABLE_MS) pauseMs = FIRST_PAUSE_MS
      logger.warn({ reason, pauseMs }, 'the local worker exited; restarting it')
      await sleep(pauseMs, stopping.signal).catch(() => undefined)
      pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)
    }
  }

  const running = supervise()
  return {
    join(manager, token) {
      settings = { SKEIN_WORKER_MANAGER: manager, SKEIN_WORKER_TOKEN: token }
      sendSettings(child)
    },
    programStarted() {
      isStarting = false
      child?.send(STARTED, () => undefined)
    },
    // The manager learns of the join before this process does.
    isolation() {
      const late = () => undefined
      return Promise.race([isolation.promise, sleep(ISOLATION_DEADLINE_MS, stopping.signal).then(late, late)])
    },
    async stop() {
      stopping.abort()
      child?.kill('SIGTERM')
      const killer = setTimeout(() => child?.kill('SIGKILL'), STOP_DEADLINE_MS)
      await running
      clearTimeout(killer)
    },
  }
}
