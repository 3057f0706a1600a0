/**
 * Readiness: a running program reports whether it can serve requests. Checks read their result from memory. Slow checks run in the
 * background (`probe.ts`), so that a load balancer never waits for a dependency.
 */
import type { Logger } from '../logging/index.ts'
import type { Lifecycle } from '../program/index.ts'
import { formatTime, monotonicMs } from '../time.ts'

/** One thing that a program depends on. */
export type Check = {
  /** A short word, unique in a program. */
  name: string
  /** Whether the program is `unavailable` while the check fails. Otherwise it is `degraded`. */
  isRequired: boolean
  /** Returns the reason of a failure, or undefined. It does not wait or throw. The reason contains no address and no secret. */
  read: () => string | undefined
}

export type ReadinessStatus = 'ready' | 'degraded' | 'unavailable'

export type CheckState = {
  status: ReadinessStatus
  /** Absent while the status is `ready`. */
  reason?: string
  /** RFC 3339: when the status began. */
  since: string
}

export type ReadinessReport = { status: ReadinessStatus; checks: Record<string, CheckState> }

/** The interval at which all checks are read, so that `since` and the log are correct without requests. */
const REFRESH_MS = 250

/** Some parts become ready after the program has started: a check that has not succeeded yet is logged after this time. */
const START_GRACE_MS = 10_000

export class Readiness {
  readonly #checks: Check[] = []
  readonly #states = new Map<string, CheckState>()

  add(...checks: readonly Check[]): void {
    this.#checks.push(...checks)
  }

  /** The state of every check now. The worst one is the state of the program. */
  read(): ReadinessReport {
    const checks: Record<string, CheckState> = {}
    for (const check of this.#checks) {
      const reason = check.read()
      const status = reason === undefined ? 'ready' : check.isRequired ? 'unavailable' : 'degraded'
      const known = this.#states.get(check.name)
      const since = known?.status === status ? known.since : formatTime(new Date())
      const state: CheckState = reason === undefined ? { status, since } : { status, reason, since }
      this.#states.set(check.name, state)
      checks[check.name] = state
    }
    const statuses = new Set(Object.values(checks).map(({ status }) => status))
    const status = statuses.has('unavailable') ? 'unavailable' : statuses.has('degraded') ? 'degraded' : 'ready'
    return { status, checks }
  }
}

/**
 * Starts the readiness checks of a program and logs each change after the start, which reports its own failures. The program is
 * `unavailable` while it stops.
 */
export async function startReadiness(life: Lifecycle, logger: Logger): Promise<Readiness> {
  const readiness = new Readiness()
  readiness.add({
    name: 'program',
    isRequired: true,
    read: () => (life.isStopping ? 'the program is stopping' : undefined),
  })
  let startedMs: number | undefined
  const logged = new Map<string, ReadinessStatus>()
  const refresh = () => {
    const { checks } = readiness.read()
    if (life.isStarting) return
    startedMs ??= monotonicMs()
    const isGrace = monotonicMs() - startedMs < START_GRACE_MS
    for (const [check, { status, reason }] of Object.entries(checks)) {
      if (reason !== undefined && isGrace && !logged.has(check)) continue
      const before = logged.get(check) ?? 'ready'
      logged.set(check, status)
      if (status === before || life.isStopping) continue
      if (reason === undefined) logger.info({ check }, `${check}: ready again`)
      else logger.warn({ check, status }, `${check}: ${reason}`)
    }
  }
  await life.start('readiness', () => {
    const timer = setInterval(refresh, REFRESH_MS)
    return Promise.resolve({ value: undefined, stop: () => Promise.resolve(clearInterval(timer)) })
  })
  return readiness
}
