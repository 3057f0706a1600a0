/**
 * Which worker a run goes to (task-manager.md section 3, rule 9): filter, then score. Pure: no clock, no database; the
 * caller says what the workers look like and counts what it has placed.
 */
import type { RunNeeds } from '../model/needs.ts'

export type WorkerView = {
  id: string
  /** Platform workers have none. */
  domainId: string | null
  labels: Readonly<Record<string, string>>
  runtimes: readonly string[]
  /** It runs no task of a domain. */
  isPlatformOnly: boolean
  memoryBytes: number
  isAlive: boolean
  /** Missed two beats or its stream broke: keeps its runs, gets no new ones. */
  isSuspect: boolean
  isDraining: boolean
  slots: number
  /** Runs it takes beyond its slots. */
  backlog: number
  /** Domains whose components it transpiles no more of for now. */
  crowdedDomains?: ReadonlySet<string | null>
  /** Runs that it holds, placed ones included. */
  held: number
  /** Rises with each placement, over all workers; decides ties. */
  lastPlaced: number
}

/** Work that may wait at a worker before its slots: enough to hide a round trip, little enough to stay fair. */
export const BACKLOG_TARGET_MS = 100

/**
 * Why the worker cannot run it at all, as a sentence, or undefined. Says nothing about how busy it is.
 */
export function refusalOf(needs: RunNeeds, worker: WorkerView): string | undefined {
  if (needs.workerId !== null && needs.workerId !== worker.id) return `the task is pinned to worker ${needs.workerId}`
  if (worker.domainId !== null && worker.domainId !== needs.domainId) return 'it runs the tasks of its own domain only'
  if (worker.isPlatformOnly && needs.domainId !== null) {
    return 'it runs no task of a domain: its guests have the isolation level process and share a user with the files of the platform, which other machines can reach; install bubblewrap or run the worker as root (SKEIN_WORKER_ISOLATION)'
  }
  if (!worker.isAlive) return 'it is dead'
  if (worker.isSuspect) return 'it has not been heard of for two heartbeats'
  if (worker.isDraining) return 'it is draining'
  // What a module from a registry is, is known to its worker alone.
  const mayBeComponent = needs.runtime === null || needs.runtime === 'component'
  if (mayBeComponent && worker.crowdedDomains?.has(needs.domainId) === true)
    return 'too many components of the domain wait there to be transpiled'
  for (const [name, value] of Object.entries(needs.labels)) {
    if (worker.labels[name] !== value) return `its label ${name} is ${worker.labels[name] ?? 'not set'}, not ${value}`
  }
  if (needs.runtime !== null && !worker.runtimes.includes(needs.runtime)) {
    return `it does not run ${needs.runtime} modules, only ${worker.runtimes.join(', ')}`
  }
  if (worker.memoryBytes < needs.memoryBytes) {
    return `it has ${worker.memoryBytes} bytes of memory, the task needs ${needs.memoryBytes}`
  }
  return undefined
}

/**
 * How many runs more the worker takes of a task whose runs last `expectedMs` (undefined: nobody knows). Beyond its
 * slots it takes only what is short, and only as much as is expected to wait no longer than BACKLOG_TARGET_MS.
 */
export function capacityFor(worker: WorkerView, expectedMs: number | undefined): number {
  const waiting =
    expectedMs === undefined || expectedMs > BACKLOG_TARGET_MS
      ? 0
      : Math.min(worker.backlog, worker.slots * Math.floor(BACKLOG_TARGET_MS / Math.max(expectedMs, 0.01)))
  return Math.max(worker.slots + waiting - worker.held, 0)
}

/** What is known about a run and one worker beyond the filter. */
export type PlacementFacts = {
  expectedMs: number | undefined
  hasModule: boolean
  /** Failures of this task on this worker of late. */
  recentFailures: number
}

const MISSING_MODULE_PENALTY = 0.5
const FAILURE_PENALTY = 0.5
const MAX_COUNTED_FAILURES = 4

/** Lower is better: load first, a module that must be fetched and recent failures on top of it. */
export function penaltyOf(worker: WorkerView, facts: PlacementFacts): number {
  return (
    worker.held / Math.max(worker.slots, 1) +
    (facts.hasModule ? 0 : MISSING_MODULE_PENALTY) +
    FAILURE_PENALTY * Math.min(facts.recentFailures, MAX_COUNTED_FAILURES)
  )
}

/**
 * The worker with room and the lowest penalty among candidates that passed the filter; ties go to the one that was
 * chosen longest ago. Undefined: all are full.
 */
export function choose<W extends WorkerView>(
  candidates: readonly W[],
  factsOf: (worker: W) => PlacementFacts,
): W | undefined {
  let best: W | undefined
  let bestPenalty = Infinity
  for (const worker of candidates) {
    const facts = factsOf(worker)
    if (capacityFor(worker, facts.expectedMs) === 0) continue
    const penalty = penaltyOf(worker, facts)
    if (
      best === undefined ||
      penalty < bestPenalty ||
      (penalty === bestPenalty && worker.lastPlaced < best.lastPlaced)
    ) {
      best = worker
      bestPenalty = penalty
    }
  }
  return best
}
