/**
 * A worker's session as this manager sees it: what the worker offers, what it holds, when it was last heard of. What
 * the manager wants to tell it is gathered and sent as one message per kind when a batch has been committed.
 */
import { monotonicMs } from '#core/time.ts'
import type { AssignedModule, ModulePeer } from '../model/module.ts'
import type { HeldRun, RunIdentity } from '../model/run.ts'
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
  isDraining: boolean
  epoch: number
  cachedDigests: readonly string[]
  /** Where it gives modules to others of its site; empty: it does not. */
  peerAddress: string
}

/** A run with the workers of the site that can give its module. */
export type NewAssignment = { run: HeldRun; peers: readonly ModulePeer[] }

export type Receipt = { run: RunIdentity; recorded: boolean }

/** Says things to a worker; how they travel is the business of `dispatch/`. */
export type WorkerLink = {
  assign(assignments: readonly NewAssignment[]): void
  acknowledge(receipts: readonly Receipt[]): void
  cancel(runs: readonly RunIdentity[]): void
  drain(isAsked: boolean): void
  prefetch(module: AssignedModule, peers: readonly ModulePeer[]): void
  /** Tells the worker to leave and to register anew later. */
  goAway(reason: string): void
  /** Nothing is sent any more. */
  close(): void
}

/** Digests remembered per worker; what is beyond counts as not cached, which costs a fetch at most. */
const MAX_CACHED_DIGESTS = 1_000

/** Between two heartbeats lies a whole interval, in which every worker that got an assignment has said so. */
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
  /** Runs by id; a run is in here from the commit of its assignment to the commit of its end. */
  readonly runs = new Map<string, HeldRun>()
  readonly cachedDigests: Set<string>
  /** It was told to get them and has not said that it has. */
  readonly awaitedDigests = new Set<string>()
  /** Runs whose component it transpiles, 0, or that wait for it, with their places; of the last heartbeat. */
  preparing: ReadonlyMap<string, number> = new Map()
  /** Domains whose components it gave back because too many wait; until the next heartbeat. */
  readonly crowdedDomains = new Set<string | null>()
  /** Its owner asked for it. */
  isDrainAsked: boolean
  /** It says so itself, as it does before it ends. */
  saysDraining = false
  isAlive = true
  isSuspect = false
  lastPlaced = 0
  /** Placed in a batch that is not committed yet. */
  reserved = 0
  /** Runs that were stopped and whose slot the worker has not freed yet count until it says so. */
  lastBeatMs: number
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
    this.epoch = facts.epoch
    this.peerAddress = facts.peerAddress
    this.isDrainAsked = facts.isDraining
    this.freeSlots = facts.slots
    this.cachedDigests = new Set(facts.cachedDigests.slice(0, MAX_CACHED_DIGESTS))
    this.lastBeatMs = nowMs
    this.#link = link
  }

  get held(): number {
    return this.runs.size + this.reserved
  }

  get isDraining(): boolean {
    return this.isDrainAsked || this.saysDraining
  }

  /** Tells the worker to drain or to take work again. */
  askDrain(isAsked: boolean): void {
    this.isDrainAsked = isAsked
    this.#link.drain(isAsked)
  }

  /**
   * Gathers an assignment; `flush` sends it. The fence must be committed. `peers` had the module, or were told to get it,
   * before this worker: of several that are told at the same moment the first asks nobody, and nobody waits in a circle.
   */
  assign(run: HeldRun, peers: readonly ModulePeer[] = []): void {
    this.runs.set(run.id, run)
    run.unconfirmedSince = this.#beats
    run.sentMs = monotonicMs()
    this.#assignments.push({ run, peers })
    this.rememberDigest(run.digest)
  }

  /** The worker has it: it says so, or speaks of its course. */
  confirm({ id, fence }: RunIdentity): void {
    const run = this.runs.get(id)
    if (run?.fence === fence) run.unconfirmedSince = undefined
  }

  /** A heartbeat came: gathers again what was sent two of them ago and was not confirmed; a worker takes it once. */
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

  /** Tells the worker to stop these runs; those it holds stay until it says that they ended. */
  cancel(runs: readonly RunIdentity[]): void {
    this.#link.cancel(runs)
  }

  goAway(reason: string): void {
    this.#link.goAway(reason)
  }

  /** It is void: the worker is told nothing any more. */
  close(): void {
    this.isAlive = false
    this.#link.close()
  }

  /** Asks the worker to get a module before it needs it. */
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

  /** Sends what was gathered: receipts first, because they free the worker's spool. */
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
