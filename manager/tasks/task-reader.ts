/**
 * Reads tasks: those that are asked for at the same time in one statement, and those that were read before only if they have changed. A
 * task whose run is at a worker of this manager is answered from memory for a moment, because clients poll it until the run has ended.
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import { GroupCommit } from '#core/database/index.ts'
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs } from '#core/time.ts'
import { isUnderWay } from '../model/lifecycle.ts'
import type { Cluster } from '../placement/cluster.ts'
import { findTasks, findVersions } from '../store/tasks.ts'
import type { KnownTask, TaskRecord } from '../store/tasks.ts'

/** Tasks in one statement, each with a result of up to 256 KiB. */
const MAX_BATCH = 32
const MAX_BATCHES_AT_A_TIME = 4
const MAX_QUEUED = 10_000
/** Another manager writes to a task of this one only when it takes over its worker or forces a stop. That is seen after this time. */
const MAX_AGE_MS = 250
/** Characters of the tasks that are kept, and of one besides its fields. */
const MAX_KEPT_CHARS = 16 * 1024 * 1024
const KEPT_CHARS = 512

/** `readMs`: when it was known to be current. */
type Kept = KnownTask & { readMs: number }
/** A read that began before the last change of its task. */
type Reading = { isOutdated: boolean }

export type TaskReaderDeps = {
  database: Pick<Database, 'db'>
  cluster: Pick<Cluster, 'holds'>
  logger: Logger
  nowMs?: () => number
}

export class TaskReader {
  readonly #cluster: TaskReaderDeps['cluster']
  readonly #nowMs: () => number
  readonly #tasks: GroupCommit<number, KnownTask | undefined>
  readonly #versions: GroupCommit<number, string | undefined>
  readonly #kept = new BoundedCache<number, Kept>({
    maxSize: MAX_KEPT_CHARS,
    sizeOf: ({ task }) => KEPT_CHARS + JSON.stringify(task).length,
  })
  readonly #reading = new Map<number, Set<Reading>>()

  constructor({ database: { db }, cluster, logger, nowMs = monotonicMs }: TaskReaderDeps) {
    this.#cluster = cluster
    this.#nowMs = nowMs
    const queueOf = <T>(item: string, find: (keys: readonly number[]) => Promise<Map<number, T>>) =>
      new GroupCommit<number, T | undefined>({
        name: 'the reader of tasks',
        item,
        logger,
        maxItems: MAX_BATCH,
        maxQueuedItems: MAX_QUEUED,
        maxInFlight: MAX_BATCHES_AT_A_TIME,
        commit: async ({ items }) => {
          const found = await find([...new Set(items)])
          return items.map((key) => found.get(key))
        },
      })
    this.#tasks = queueOf('a task', (keys) => findTasks(db, keys))
    this.#versions = queueOf('the version of a task', (keys) => findVersions(db, keys))
  }

  /** The task as it is in the database. One that is kept is read again only if it has changed. */
  async read(key: number): Promise<TaskRecord | undefined> {
    const reading: Reading = { isOutdated: false }
    const readings = this.#reading.get(key) ?? new Set()
    this.#reading.set(key, readings.add(reading))
    try {
      const known = await this.#readKnown(key, reading)
      return known?.task
    } finally {
      readings.delete(reading)
      if (readings.size === 0 && this.#reading.get(key) === readings) this.#reading.delete(key)
    }
  }

  async #readKnown(key: number, reading: Reading): Promise<KnownTask | undefined> {
    const kept = this.#kept.get(key)
    if (kept !== undefined) {
      const readMs = this.#nowMs()
      const version = await this.#versions.submit(key)
      if (version === kept.version) {
        if (!reading.isOutdated) kept.readMs = readMs
        return kept
      }
    }
    const readMs = this.#nowMs()
    const known = await this.#tasks.submit(key)
    if (known === undefined) this.#kept.delete(key)
    else if (!reading.isOutdated) this.#kept.set(key, { ...known, readMs })
    return known
  }

  /** The task while its run is at a worker of this manager, as it was read a moment ago; undefined: it must be read. */
  recall(key: number): TaskRecord | undefined {
    const kept = this.#kept.get(key)
    if (kept === undefined || !isUnderWay(kept.task.state) || this.#nowMs() - kept.readMs >= MAX_AGE_MS)
      return undefined
    const { run_id: runId } = kept.task
    return runId !== null && this.#cluster.holds(runId) ? kept.task : undefined
  }

  /** Must be called after the commit of a change of their states in this process, before anyone is notified. */
  forget(keys: Iterable<number>): void {
    for (const key of keys) {
      this.#kept.delete(key)
      for (const reading of this.#reading.get(key) ?? []) reading.isOutdated = true
    }
  }
}
