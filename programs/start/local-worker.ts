/**
 * The worker of `npm start`: a process of its own that joins over gRPC like any other. It is launched first, because
 * loading it takes as long as loading the rest, and told last where the manager is. It leaves with its parent, however that
 * ends, and is started again when it dies.
 */
import { fork } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import type { Environment } from '#core/config/index.ts'
import { entryPoint } from '#core/installation.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'

const FIRST_PAUSE_MS = 250
const MAX_PAUSE_MS = 30_000
/** A worker that ran so long starts again at once when it dies. */
const STABLE_MS = 60_000
/** A worker that has joined says its isolation at once. */
const ISOLATION_DEADLINE_MS = 5_000
/** A worker drains its runs when it is asked to stop; beyond this it is killed. */
const STOP_DEADLINE_MS = 15_000

export type LocalWorker = {
  /** Tells it where to join, now and after every start of its own. */
  join(manager: string, token: string): void
  /** Isolation of its guests, said once it has joined; undefined when that takes too long. */
  isolation(): Promise<string | undefined>
  stop(): Promise<void>
}

export function launchLocalWorker({ environment, logger }: { environment: Environment; logger: Logger }): LocalWorker {
  const stopping = new AbortController()
  let child: ChildProcess | undefined
  const isolation = Promise.withResolvers<string>()
  let settings: Record<string, string> | undefined

  const launch = (): Promise<string> => {
    // A group of its own: Ctrl-C reaches us alone, and we stop the worker in our order. The channel tells it when we die.
    const started = fork(entryPoint('programs/worker.ts'), {
      env: environment as NodeJS.ProcessEnv,
      detached: true,
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    })
    if (settings !== undefined) started.send(settings)
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
      child?.send(settings)
    },
    // The manager hears that it joined before we do.
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
