/**
 * The session of a worker at this manager: its capacity, its runs, its last heartbeat. Messages to the worker are
 * collected and sent as one message per kind after the commit of a batch.
 */
import { monotonicMs } from '#core/time.ts'
import type { AssignedModule, ModulePeer } from '../model/module.ts'
import type { AssignedRun, RunIdentity, RunSpec } from '../model/run.ts'
import { BudgetedRuns } from './budgeted-runs.ts'
import type { WorkerMeasured } from './metrics.ts'
import type { WorkerView } from './placement.ts'

export type WorkerFacts = {
  key: number
  id: string
  name: string
  domainId: string | null
  labels: Readonly<Record<string, string>>
  runtimes: readonly string[]
  isPlatformOnly: boolean
  memoryBytes: number
  slots: number
  backlog: number
  /** The memory of runs that it holds at once; undefined: only its slots limit them. */
  runMemoryBytes?: number | undefined
  isDraining: boolean
  epoch: number
  cachedDigests: readonly string[]
  /** Address at which it serves modules to its site; empty: it does not. */
  peerAddress: string
  /** Offline tasks that it has from earlier sessions; undefined: it takes none. */
  offlineTasks?: number | undefined
}

/** A task for whose ticks a worker is asked, or whose ticks it starts. */
export type OfflineOffer = {
  /** Changes with every change of the task. */
  version: string
  schedule: string
  timezone: string
  isCaughtUp: boolean
  firstTickMs: number
  /** 0: a manager starts its ticks, until the worker is ready. */
  fence: number
  run: { spec: RunSpec; digest: string }
}

/** What is known of the offline tasks of a worker in its session. */
export type OfflineSession = {
  /** Tasks that it had when the session began. */
  readonly held: number
  /** Versions that it has on disk with their modules, by task id. */
  readonly ready: Map<string, string>
  /** What was sent last; undefined: nothing. */
  sent: string | undefined
  sentMs: number
}

/** A run with the peers that can serve its module. */
export type NewAssignment = { run: AssignedRun; peers: readonly ModulePeer[] }

export type Receipt = { run: RunIdentity; recorded: boolean }

/** Sends messages to a worker; `dispatch/` implements the transport. */
export type WorkerLink = {
  assign(assignments: readonly NewAssignment[]): void
  acknowledge(receipts: readonly Receipt[]): void
  cancel(runs: readonly RunIdentity[]): void
  drain(isAsked: boolean): void
  offline(tasks: readonly OfflineOffer[]): void
  prefetch(module: AssignedModule, peers: readonly ModulePeer[]): void
  /** Tells the worker to disconnect and to register again later. */
  goAway(reason: string): void
  /** Ends all sending. */
  close(): void
}

/** Digests stored per worker; further ones count as not cached, which costs a fetch at most. */
const MAX_CACHED_DIGESTS = 1_000

/** Two heartbeats are a whole interval apart, in which every worker has confirmed its assignments. */
const BEATS_BEFORE_REPEAT = 2

export class WorkerSession implements WorkerView {
  readonly key: number
  readonly id: string
  readonly name: string
  readonly domainId: string | null
  readonly labels: Readonly<Record<string, string>>
  readonly runtimes: readonly string[]
  readonly isPlatformOnly: boolean
  readonly memoryBytes: number
  readonly slots: number
  readonly backlog: number
  readonly epoch: number
  readonly peerAddress: string
  /** undefined: it takes no offline tasks. */
  readonly offline: OfflineSession | undefined
  /** Runs by id, from the commit of their assignment to the commit of their end. */
  readonly runs: Map<string, AssignedRun>
  readonly runMemoryBytes: number | undefined
  readonly #budgeted: BudgetedRuns | undefined
  readonly cachedDigests: Set<string>
  /** Digests whose prefetch was requested and not confirmed. */
  readonly awaitedDigests = new Set<string>()
  /** Queue positions of runs whose component is being transpiled (0) or waits for it, from the last heartbeat. */
  preparing: ReadonlyMap<string, number> = new Map()
  /** Domains whose components it rejected because too many were waiting; cleared by the next heartbeat. */
  readonly crowdedDomains = new Set<string | null>()
  /** An administrator requested the drain. */
  isDrainAsked: boolean
  /** Calls of `sendDrain`: what was read from the row before one must not be applied after it. */
  drainCalls = 0
  /** The worker accepts no runs: on request, because it will exit, or without room for results. */
  saysDraining = false
  isAlive = true
  isSuspect = false
  lastPlaced = 0
  /** The number of runs that were placed in a batch that is not committed yet. */
  reserved = 0
  /** Their memory. */
  #reservedBytes = 0
  /** Stopped runs whose slot the worker has not freed still count until it confirms. */
  lastBeatMs: number
  /** The figures of the last heartbeat. */
  measured: WorkerMeasured | undefined
  freeSlots: number
  readonly #link: WorkerLink
  #beats = 0
  #assignments: NewAssignment[] = []
  #receipts: Receipt[] = []

  constructor(facts: WorkerFacts, nowMs: number, link: WorkerLink) {
    this.key = facts.key
    this.id = facts.id
    this.name = facts.name
    this.domainId = facts.domainId
    this.labels = facts.labels
    this.runtimes = facts.runtimes
    this.isPlatformOnly = facts.isPlatformOnly
    this.memoryBytes = facts.memoryBytes
    this.slots = facts.slots
    this.backlog = facts.backlog
    this.runMemoryBytes = facts.runMemoryBytes
    this.#budgeted = facts.runMemoryBytes === undefined ? undefined : new BudgetedRuns()
    this.runs = this.#budgeted ?? new Map()
    this.epoch = facts.epoch
    this.peerAddress = facts.peerAddress
    this.offline =
      facts.offlineTasks === undefined
        ? undefined
        : { held: facts.offlineTasks, ready: new Map(), sent: undefined, sentMs: nowMs }
    this.isDrainAsked = facts.isDraining
    this.freeSlots = facts.slots
    this.cachedDigests = new Set(facts.cachedDigests.slice(0, MAX_CACHED_DIGESTS))
    this.lastBeatMs = nowMs
    this.#link = link
  }

  get held(): number {
    return this.runs.size + this.reserved
  }

  get heldBytes(): number {
    return this.#budgeted === undefined ? 0 : this.#budgeted.bytes + this.#reservedBytes
  }

  /** Counts a run that is placed and not assigned yet. */
  reserve(memoryBytes: number): void {
    this.reserved += 1
    this.#reservedBytes += memoryBytes
  }

  unreserve(memoryBytes: number): void {
    this.reserved -= 1
    this.#reservedBytes -= memoryBytes
  }

  get isDraining(): boolean {
    return this.isDrainAsked || this.saysDraining
  }

  /** Tells the worker to drain or to resume. */
  sendDrain(isAsked: boolean): void {
    this.isDrainAsked = isAsked
    this.drainCalls++
    this.#link.drain(isAsked)
  }

  /**
   * Collects an assignment; `flush` sends it. The fence must be committed. `peers` had the module, or were asked to fetch
   * it, before this worker: of several simultaneous assignments the first has no peers, so there is no circular wait.
   */
  assign(run: AssignedRun, peers: readonly ModulePeer[] = []): void {
    this.runs.set(run.id, run)
    run.unconfirmedSince = this.#beats
    run.sentMs = monotonicMs()
    this.#assignments.push({ run, peers })
    this.rememberDigest(run.digest)
  }

  /** The worker has confirmed the run, explicitly or by a report about it. */
  confirm({ id, fence }: RunIdentity): void {
    const run = this.runs.get(id)
    if (run?.fence === fence) run.unconfirmedSince = undefined
  }

  /** Runs on a heartbeat. Collects the assignments of two heartbeats ago again if they were not confirmed; a worker ignores duplicates. */
  repeatUnconfirmed(): void {
    this.#beats += 1
    for (const run of this.runs.values()) {
      const since = run.unconfirmedSince
      if (since === undefined || this.#beats - since < BEATS_BEFORE_REPEAT) continue
      this.assign(run)
      run.sentMs = undefined
    }
  }

  acknowledge(receipt: Receipt): void {
    this.#receipts.push(receipt)
  }

  /** Tells the worker to stop these runs; they stay in `runs` until it confirms their end. */
  cancel(runs: readonly RunIdentity[]): void {
    this.#link.cancel(runs)
  }

  goAway(reason: string): void {
    this.#link.goAway(reason)
  }

  /** The session is void: nothing more is sent to the worker. */
  close(): void {
    this.isAlive = false
    this.#link.close()
  }

  /** All offline tasks of the worker: those that are missing are no longer its own. */
  sendOffline(tasks: readonly OfflineOffer[]): void {
    this.#link.offline(tasks)
  }

  /** Tells the worker to fetch a module before it is needed. */
  prefetch(module: AssignedModule, peers: readonly ModulePeer[]): void {
    const { digest } = module
    if (!this.cachedDigests.has(digest) && this.awaitedDigests.size < MAX_CACHED_DIGESTS)
      this.awaitedDigests.add(digest)
    this.#link.prefetch(module, peers)
  }

  rememberDigest(digest: string): void {
    this.awaitedDigests.delete(digest)
    if (this.cachedDigests.size < MAX_CACHED_DIGESTS) this.cachedDigests.add(digest)
  }

  /** Sends the collected messages: acknowledgements first, because they free the worker's spool. */
  flush(): void {
    const [receipts, assignments] = [this.#receipts, this.#assignments]
    if (receipts.length > 0) {
      this.#receipts = []
      this.#link.acknowledge(receipts)
    }
    if (assignments.length > 0) {
      this.#assignments = []
      this.#link.assign(assignments)
    }
  }
}
