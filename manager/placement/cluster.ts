/**
 * The workers with a session at this manager, and the choice among them. They are in memory only: all of it is rebuilt from the database
 * and from the workers' Hello.
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import type { ModulePeer } from '../model/module.ts'
import type { AssignedRun } from '../model/run.ts'
import { BACKLOG_TARGET_MS, capacityFor, isLong, selectWorker, unfitReason } from './placement.ts'
import { hashNeeds, memoryClassBytes } from '../model/needs.ts'
import type { RunNeeds } from '../model/needs.ts'
import { Sites } from './sites.ts'
import type { WorkerSession } from './worker-session.ts'

/** Statistics of the runs of one task. */
type TaskMemory = { expectedMs: number | undefined; failures: Map<number, number> }

type KnownNeeds = { needs: RunNeeds; expectedMs: number | undefined; isStored: boolean }

/** Weight of the newest run in the expected duration of a task. */
const DURATION_WEIGHT = 0.2
const MAX_CACHED_TASKS = 20_000
const MAX_CACHED_NEEDS = 5_000
const MAX_CACHED_FUNCTIONS = 20_000
/** No worker is reserved. */
const NO_WORKERS: ReadonlySet<WorkerSession> = new Set()

export class Cluster {
  readonly #sessions = new Map<number, WorkerSession>()
  readonly #names = new Map<string, Set<WorkerSession>>()
  readonly #sites = new Sites()
  readonly #touched = new Set<WorkerSession>()
  readonly #tasks: BoundedCache<number, TaskMemory>
  readonly #needs: BoundedCache<string, KnownNeeds>
  /** Expected duration of a function of a module, in milliseconds, for tasks that have not run yet; per needs. */
  readonly #functions: BoundedCache<string, number>
  /** Workers that pass the filter, per needs; cleared when a worker joins, leaves or changes. */
  readonly #candidates = new Map<string, WorkerSession[]>()
  #placements = 0
  /** Tasks of several domains, or of a domain and of none, use the workers of the platform. */
  isShared = false
  /** The domain of the first run. */
  #firstDomain: { id: string | null } | undefined

  /** A cache allocates its capacity when it is created: code with thousands of clusters passes smaller limits. */
  constructor({ maxTasks = MAX_CACHED_TASKS, maxNeeds = MAX_CACHED_NEEDS, maxFunctions = MAX_CACHED_FUNCTIONS } = {}) {
    this.#tasks = new BoundedCache({ maxEntries: maxTasks })
    this.#needs = new BoundedCache({ maxEntries: maxNeeds })
    this.#functions = new BoundedCache({ maxEntries: maxFunctions })
  }

  get sessions(): Iterable<WorkerSession> {
    return this.#sessions.values()
  }

  get size(): number {
    return this.#sessions.size
  }

  find(workerKey: number): WorkerSession | undefined {
    return this.#sessions.get(workerKey)
  }

  /** All sessions of workers with this name. */
  named(name: string): ReadonlySet<WorkerSession> {
    return this.#names.get(name) ?? NO_WORKERS
  }

  /** True while a worker of this manager has the run. */
  holds(runId: string): boolean {
    for (const session of this.#sessions.values()) if (session.runs.has(runId)) return true
    return false
  }

  add(session: WorkerSession): void {
    this.#sessions.set(session.key, session)
    this.#names.getOrInsertComputed(session.name, () => new Set()).add(session)
    this.#sites.add(session)
    this.changed()
  }

  /** Removes this session; a newer one of the same worker stays. */
  remove(session: WorkerSession): void {
    session.close()
    const namesakes = this.#names.get(session.name)
    if (namesakes?.delete(session) === true && namesakes.size === 0) this.#names.delete(session.name)
    this.#sites.remove(session)
    if (this.#sessions.get(session.key) === session) this.#sessions.delete(session.key)
    this.changed()
  }

  /** Must be called when a worker became suspect, started to drain, or the like. */
  changed(): void {
    this.#candidates.clear()
  }

  /** Stores the needs of a hash; returns the hash. */
  storeNeeds(needs: RunNeeds): string {
    const hash = hashNeeds(needs)
    if (!this.#needs.has(hash)) this.#needs.set(hash, { needs, expectedMs: undefined, isStored: false })
    // This is known at the first start of a second domain, before the tasks are counted again.
    this.#firstDomain ??= { id: needs.domainId }
    if (this.#firstDomain.id !== needs.domainId) this.isShared = true
    return hash
  }

  knowsNeeds(hash: string): boolean {
    return this.#needs.has(hash)
  }

  /** True once the needs of the hash are committed, so that other managers can read them. */
  areNeedsStored(hash: string): boolean {
    return this.#needs.get(hash)?.isStored ?? false
  }

  markNeedsStored(hash: string): void {
    const known = this.#needs.get(hash)
    if (known !== undefined) known.isStored = true
  }

  /**
   * Reserves capacity for one run on the best worker; the caller assigns or releases it. Undefined: no worker has
   * capacity, except workers that are `reserved` for others.
   */
  place(
    needsHash: string,
    { taskKey, digest, spec }: Pick<AssignedRun, 'taskKey' | 'digest' | 'spec'>,
    reserved: ReadonlySet<WorkerSession> = NO_WORKERS,
  ): WorkerSession | undefined {
    const task = this.#tasks.get(taskKey)
    const expectedMs = this.#expectedMs({ taskKey, needs: needsHash, digest, spec })
    const fitting = this.candidates(needsHash)
    const open = reserved.size === 0 ? fitting : fitting.filter((session) => !reserved.has(session))
    const memoryBytes = this.memoryOf(needsHash)
    const chosen = selectWorker(open, (session) => ({
      expectedMs,
      memoryBytes,
      hasModule: session.cachedDigests.has(digest),
      recentFailures: task?.failures.get(session.key) ?? 0,
    }))
    if (chosen === undefined) return undefined
    chosen.reserve(memoryBytes)
    chosen.lastPlaced = ++this.#placements
    return chosen
  }

  #expectedMs(run: Pick<AssignedRun, 'taskKey' | 'needs' | 'digest' | 'spec'>): number | undefined {
    return this.#tasks.get(run.taskKey)?.expectedMs ?? this.#functions.get(functionKeyOf(run))
  }

  /** Whether it may hold a slot for long: it is not known to be short. */
  mayBeLong(run: Pick<AssignedRun, 'taskKey' | 'needs' | 'digest' | 'spec'>): boolean {
    return isLong(this.#expectedMs(run))
  }

  /** Releases the capacity that `place` reserved for a run of this memory. */
  release(session: WorkerSession, memoryBytes: number): void {
    session.unreserve(memoryBytes)
  }

  /** The memory that `place` reserves for a run with these needs. */
  memoryOf(needsHash: string): number {
    return this.#needs.get(needsHash)?.needs.memoryBytes ?? 0
  }

  /** Turns a reservation into an assignment; sent by `flush`. */
  assign(session: WorkerSession, run: AssignedRun): void {
    session.unreserve(memoryClassBytes(run.spec.memory_limit_bytes))
    session.assign(run, session.cachedDigests.has(run.digest) ? [] : this.peersOf(session, run.digest))
    this.#touched.add(session)
  }

  touch(session: WorkerSession): void {
    this.#touched.add(session)
  }

  /** Sends the collected messages of the last batch, one per worker and kind. */
  flush(): void {
    for (const session of this.#touched) session.flush()
    this.#touched.clear()
  }

  /** Peers that the worker can request a module from before the source. */
  peersOf(session: WorkerSession, digest: string): ModulePeer[] {
    return this.#sites.peersOf(session, digest)
  }

  /** Number of runs with these needs that the worker, one of the candidates, accepts now. */
  roomOn(session: WorkerSession, needsHash: string): number {
    const known = this.#needs.get(needsHash)
    return capacityFor(session, known?.expectedMs, known?.needs.memoryBytes)
  }

  /** Runs of the domain at the workers of this manager. */
  heldBy(domainId: string): number {
    let held = 0
    for (const session of this.#sessions.values())
      for (const run of session.runs.values()) if (run.spec.domain_id === domainId) held += 1
    return held
  }

  /** The domain whose runs have these needs, null for none; undefined: the needs are unknown here. */
  domainOf(needsHash: string): string | null | undefined {
    return this.#needs.get(needsHash)?.needs.domainId
  }

  /** Undefined: they are unknown here. */
  needsOf(needsHash: string): RunNeeds | undefined {
    return this.#needs.get(needsHash)?.needs
  }

  candidates(needsHash: string): readonly WorkerSession[] {
    const found = this.#candidates.get(needsHash)
    if (found !== undefined) return found
    const needs = this.#needs.get(needsHash)?.needs
    if (needs === undefined) return []
    const fitting = [...this.#sessions.values()].filter((session) => unfitReason(needs, session) === undefined)
    this.#candidates.set(needsHash, fitting)
    return fitting
  }

  /**
   * Updates the statistics with an ended run: the duration of runs of the task, its function and its needs, and failures of the
   * worker.
   */
  recordEnd(
    run: Pick<AssignedRun, 'taskKey' | 'needs' | 'digest' | 'spec'>,
    session: WorkerSession | undefined,
    durationMs: number | null,
    failed: boolean,
  ): void {
    let task = this.#tasks.get(run.taskKey)
    if (task === undefined) {
      task = { expectedMs: undefined, failures: new Map() }
      this.#tasks.set(run.taskKey, task)
    }
    if (durationMs !== null) {
      task.expectedMs = smooth(task.expectedMs, durationMs)
      const needs = this.#needs.get(run.needs)
      if (needs !== undefined) needs.expectedMs = smooth(needs.expectedMs, durationMs)
      const key = functionKeyOf(run)
      this.#functions.set(key, smooth(this.#functions.get(key), durationMs))
    }
    if (session === undefined) return
    if (failed) task.failures.set(session.key, (task.failures.get(session.key) ?? 0) + 1)
    else task.failures.delete(session.key)
  }
}

function functionKeyOf({ needs, digest, spec }: Pick<AssignedRun, 'needs' | 'digest' | 'spec'>): string {
  return `${needs} ${digest} ${spec.function ?? spec.called ?? spec.task_name}`
}

/** A long run counts fully at once, because a short estimate makes runs wait behind it. */
function smooth(before: number | undefined, durationMs: number): number {
  if (before === undefined || durationMs > BACKLOG_TARGET_MS) return durationMs
  return before + DURATION_WEIGHT * (durationMs - before)
}
