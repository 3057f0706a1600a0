/**
 * The workers whose sessions this manager holds, and the choice among them. Memory only: everything in here comes back
 * from the database and from what the workers say in their Hello.
 */
import { LRUCache } from 'lru-cache'
import type { ModulePeer } from '../model/module.ts'
import type { HeldRun } from '../model/run.ts'
import { BACKLOG_TARGET_MS, capacityFor, choose, refusalOf } from './placement.ts'
import { hashNeeds } from '../model/needs.ts'
import type { RunNeeds } from '../model/needs.ts'
import { Sites } from './sites.ts'
import type { WorkerSession } from './worker-session.ts'

/** What is remembered about the runs of one task. */
type TaskMemory = { expectedMs: number | undefined; failures: Map<number, number> }

type KnownNeeds = { needs: RunNeeds; expectedMs: number | undefined; isStored: boolean }

/** Weight of the newest run in the expected duration of a task. */
const DURATION_WEIGHT = 0.2
const REMEMBERED_TASKS = 20_000
const REMEMBERED_NEEDS = 5_000

export class Cluster {
  readonly #sessions = new Map<number, WorkerSession>()
  readonly #sites = new Sites()
  readonly #touched = new Set<WorkerSession>()
  readonly #tasks: LRUCache<number, TaskMemory>
  readonly #needs: LRUCache<string, KnownNeeds>
  /** Per needs, who passed the filter; emptied whenever a worker comes, goes or changes. */
  readonly #candidates = new Map<string, WorkerSession[]>()
  #placements = 0

  /** The room of a cache is taken when it is made: whoever makes thousands of clusters says less. */
  constructor({ maxTasks = REMEMBERED_TASKS, maxNeeds = REMEMBERED_NEEDS } = {}) {
    this.#tasks = new LRUCache({ max: maxTasks })
    this.#needs = new LRUCache({ max: maxNeeds })
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

  add(session: WorkerSession): void {
    this.#sessions.set(session.key, session)
    this.#sites.add(session)
    this.changed()
  }

  /** Removes this very session; a newer one of the same worker stays. */
  remove(session: WorkerSession): void {
    session.close()
    this.#sites.remove(session)
    if (this.#sessions.get(session.key) === session) this.#sessions.delete(session.key)
    this.changed()
  }

  /** To be called when a worker became suspect, began to drain, or the like. */
  changed(): void {
    this.#candidates.clear()
  }

  /** Keeps the needs behind a hash; answers the hash. */
  learnNeeds(needs: RunNeeds): string {
    const hash = hashNeeds(needs)
    if (!this.#needs.has(hash)) this.#needs.set(hash, { needs, expectedMs: undefined, isStored: false })
    return hash
  }

  knowsNeeds(hash: string): boolean {
    return this.#needs.has(hash)
  }

  /** True once the needs behind the hash are committed, so that other managers can read them. */
  areNeedsStored(hash: string): boolean {
    return this.#needs.get(hash)?.isStored ?? false
  }

  markNeedsStored(hash: string): void {
    const known = this.#needs.get(hash)
    if (known !== undefined) known.isStored = true
  }

  /**
   * Reserves room for one run at the best worker; the caller assigns or releases it. Undefined: nobody has room.
   */
  place(needsHash: string, taskKey: number, digest: string): WorkerSession | undefined {
    const task = this.#tasks.get(taskKey)
    const chosen = choose(this.candidates(needsHash), (session) => ({
      expectedMs: task?.expectedMs,
      hasModule: session.cachedDigests.has(digest),
      recentFailures: task?.failures.get(session.key) ?? 0,
    }))
    if (chosen === undefined) return undefined
    chosen.reserved += 1
    chosen.lastPlaced = ++this.#placements
    return chosen
  }

  release(session: WorkerSession): void {
    session.reserved -= 1
  }

  /** Turns a reservation into an assignment; sent by `flush`. */
  assign(session: WorkerSession, run: HeldRun): void {
    session.reserved -= 1
    session.assign(run, session.cachedDigests.has(run.digest) ? [] : this.peersOf(session, run.digest))
    this.#touched.add(session)
  }

  touch(session: WorkerSession): void {
    this.#touched.add(session)
  }

  /** Sends what the last batch gathered, one message per worker and kind. */
  flush(): void {
    for (const session of this.#touched) session.flush()
    this.#touched.clear()
  }

  /** Whom the worker may ask for a module before it asks the source. */
  peersOf(session: WorkerSession, digest: string): ModulePeer[] {
    return this.#sites.peersOf(session, digest)
  }

  /** Runs of these needs that could be placed now. */
  roomFor(needsHash: string): number {
    const known = this.#needs.get(needsHash)
    let room = 0
    for (const session of this.candidates(needsHash)) room += capacityFor(session, known?.expectedMs)
    return room
  }

  candidates(needsHash: string): readonly WorkerSession[] {
    const found = this.#candidates.get(needsHash)
    if (found !== undefined) return found
    const needs = this.#needs.get(needsHash)?.needs
    if (needs === undefined) return []
    const fitting = [...this.#sessions.values()].filter((session) => refusalOf(needs, session) === undefined)
    this.#candidates.set(needsHash, fitting)
    return fitting
  }

  /** Learns from an ended run: how long runs of the task and of its needs last, and whether the worker failed it. */
  learnEnd(
    run: { taskKey: number; needs: string },
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
    }
    if (session === undefined) return
    if (failed) task.failures.set(session.key, (task.failures.get(session.key) ?? 0) + 1)
    else task.failures.delete(session.key)
  }
}

/** A long run counts at once, because a short expectation lets runs wait behind it. */
function smooth(before: number | undefined, durationMs: number): number {
  if (before === undefined || durationMs > BACKLOG_TARGET_MS) return durationMs
  return before + DURATION_WEIGHT * (durationMs - before)
}
