/**
 * The choice of a worker for a run (task-manager.md section 3, rule 9): filter, then score. Pure, without clock and
 * database; the caller supplies the state of the workers and counts its placements.
 */
import type { RunNeeds } from '../model/needs.ts'
import { HTTP_RUNTIME, STATE_RUNTIME } from '#guests/wasm/index.ts'

const MAYBE_COMPONENTS: ReadonlySet<string> = new Set(['component', STATE_RUNTIME, HTTP_RUNTIME])

export type WorkerView = {
  id: string
  /** Undefined for platform workers. */
  domainId: string | null
  labels: Readonly<Record<string, string>>
  runtimes: readonly string[]
  /** It accepts no tasks of domains. */
  isPlatformOnly: boolean
  memoryBytes: number
  isAlive: boolean
  /** It missed two heartbeats or lost its stream: it keeps its runs and gets no new ones. */
  isSuspect: boolean
  isDraining: boolean
  slots: number
  /** Runs that it accepts beyond its slots. */
  backlog: number
  /** The memory of runs that it holds at once; undefined: only its slots limit them. */
  runMemoryBytes?: number | undefined
  /** Memory of the runs that it holds, including placed ones; 0 for a worker without such a limit. */
  heldBytes?: number
  /** Domains whose components it currently rejects, because too many wait for transpilation. */
  crowdedDomains?: ReadonlySet<string | null>
  /** Runs that it holds, including placed ones. */
  held: number
  /** Increases with each placement, over all workers; decides ties. */
  lastPlaced: number
}

/** Work that can be queued at a worker beyond its slots: enough to hide a round trip, little enough to stay fair. */
export const BACKLOG_TARGET_MS = 100

/** The reason why the worker cannot run it, as a sentence, or undefined. Independent of its load. */
export function unfitReason(needs: RunNeeds, worker: WorkerView): string | undefined {
  if (needs.workerId !== null && needs.workerId !== worker.id) return `the task is pinned to worker ${needs.workerId}`
  if (worker.domainId !== null && worker.domainId !== needs.domainId) return 'it runs the tasks of its own domain only'
  if (worker.isPlatformOnly && needs.domainId !== null) {
    return 'it accepts no tasks of domains: its guests have isolation level process and share a user with the files of the platform, which other machines can reach; install bubblewrap or run the worker as root (SKEIN_WORKER_ISOLATION)'
  }
  if (!worker.isAlive) return 'it is dead'
  if (worker.isSuspect) return 'it has missed two heartbeats'
  if (worker.isDraining) return 'it is draining'
  // The type of a module from a registry, with state or with a grant for HTTP, is only known to its worker.
  const mayBeComponent = needs.runtime === null || MAYBE_COMPONENTS.has(needs.runtime)
  if (mayBeComponent && worker.crowdedDomains?.has(needs.domainId) === true)
    return 'components of the domain are waiting for transpilation on it, or it is still fetching a module of the domain'
  for (const [name, value] of Object.entries(needs.labels)) {
    if (worker.labels[name] !== value) return `its label ${name} is ${worker.labels[name] ?? 'not set'}, not ${value}`
  }
  if (needs.runtime === HTTP_RUNTIME && !worker.runtimes.includes(HTTP_RUNTIME))
    return 'it sends no HTTP requests of guests, which the task grants: SKEIN_WORKER_HTTP is false there, or its version is older'
  if (needs.runtime !== null && !worker.runtimes.includes(needs.runtime)) {
    return `it does not run ${needs.runtime} modules, only ${worker.runtimes.join(', ')}`
  }
  if (worker.memoryBytes < needs.memoryBytes) {
    return `it has ${worker.memoryBytes} bytes of memory, the task requires ${needs.memoryBytes}`
  }
  return undefined
}

/** Whether runs that last `expectedMs` (undefined: unknown) are not short: they do not wait behind others at a worker. */
export function isLong(expectedMs: number | undefined): boolean {
  return expectedMs === undefined || expectedMs > BACKLOG_TARGET_MS
}

/**
 * Slots of a worker of the platform that runs of one domain can hold for long: all but one, so that runs of another domain find a slot; both
 * of them where there is only one. A worker of a domain is its own.
 */
export function longRunsOfDomain({ domainId, slots }: Pick<WorkerView, 'domainId' | 'slots'>): number {
  return domainId === null && slots > 1 ? slots - 1 : Infinity
}

/**
 * How many more runs the worker accepts of a task whose runs last `expectedMs` (undefined: unknown) and take `memoryBytes` each. Beyond its
 * slots it accepts only short runs, and only as many as are expected to wait at most BACKLOG_TARGET_MS.
 */
export function capacityFor(worker: WorkerView, expectedMs: number | undefined, memoryBytes = 0): number {
  const waiting = isLong(expectedMs)
    ? 0
    : Math.min(worker.backlog, worker.slots * Math.floor(BACKLOG_TARGET_MS / Math.max(expectedMs ?? 0, 0.01)))
  const room = Math.max(worker.slots + waiting - worker.held, 0)
  return worker.runMemoryBytes === undefined ? room : Math.min(room, memoryRoom(worker, memoryBytes))
}

/** How many more runs of this memory the worker can hold at once, if it limits their memory. */
export function memoryRoom({ runMemoryBytes = Infinity, heldBytes = 0 }: WorkerView, memoryBytes: number): number {
  return Math.max(Math.floor((runMemoryBytes - heldBytes) / Math.max(memoryBytes, 1)), 0)
}

/** Facts about a run and one worker besides the filter. */
export type PlacementFacts = {
  expectedMs: number | undefined
  memoryBytes?: number
  hasModule: boolean
  /** Recent failures of this task on this worker. */
  recentFailures: number
}

const MISSING_MODULE_PENALTY = 0.5
const FAILURE_PENALTY = 0.5
const MAX_COUNTED_FAILURES = 4

/** Lower is better: load first, plus penalties for a module that must be fetched and for recent failures. */
export function penaltyOf(worker: WorkerView, facts: PlacementFacts): number {
  return (
    worker.held / Math.max(worker.slots, 1) +
    (facts.hasModule ? 0 : MISSING_MODULE_PENALTY) +
    FAILURE_PENALTY * Math.min(facts.recentFailures, MAX_COUNTED_FAILURES)
  )
}

/**
 * The worker with capacity and the lowest penalty among candidates that passed the filter; ties go to the least recently
 * chosen. Undefined: all are full.
 */
export function selectWorker<W extends WorkerView>(
  candidates: readonly W[],
  factsOf: (worker: W) => PlacementFacts,
): W | undefined {
  let best: W | undefined
  let bestPenalty = Infinity
  for (const worker of candidates) {
    const facts = factsOf(worker)
    if (capacityFor(worker, facts.expectedMs, facts.memoryBytes) === 0) continue
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
