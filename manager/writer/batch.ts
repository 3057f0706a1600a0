/**
 * One transaction of the run writer: its connection, its placements, its pending task states, and its effects after the
 * commit. Steps write through it; none of them commits.
 */
import type { Client } from 'pg'
import { managedEntry } from '#api/identity/index.ts'
import type { Actor } from '#api/identity/index.ts'
import { sendCorked } from '#core/database/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs } from '#core/time.ts'
import { TASK_STATE, type TaskState } from '#proto/index.ts'
import type { TaskQuotas } from '../access/access.ts'
import type { RefusedMessages } from '#queues/index.ts'
import type { RunCause } from '../model/cause.ts'
import { MAX_QUEUED_RUNS, MIN_QUEUE_SHARE } from '../model/limits.ts'
import type { Cluster } from '../placement/cluster.ts'
import { longRunsOfDomain } from '../placement/placement.ts'
import { memoryOf } from '../placement/budgeted-runs.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import type { ManagerTiming } from '../model/timing.ts'
import type { AmountQuotas } from '../store/amount-quotas.ts'
import { writeRecords, type ManagerRecord } from '../store/journal.ts'
import { noteTasks } from '../store/notes.ts'
import type { AssignedRun } from '../model/run.ts'
import { refusalOf } from './counted-quota.ts'
import type { CountedQuotas } from './counted-quota.ts'
import type { DelayedRuns } from './delayed-runs.ts'
import type { RunEndings } from './endings.ts'
import type { FairShares } from './fair-shares.ts'
import type { RunQueues } from './queues.ts'
import type { ModuleCatalogue } from '../store/catalogue.ts'
import type { KnownTasks } from './known-tasks.ts'
import type { UnrecordedRuns } from './unrecorded-runs.ts'

/** Of domains by id: how much state their tasks have. */
export type StateQuotas = Pick<AmountQuotas, 'ready' | 'require' | 'changed'>

export type WriterContext = {
  managerId: string
  cluster: Cluster
  queues: RunQueues
  /** Turns of domains in the claims of this manager. */
  shares: FairShares
  quotas: TaskQuotas
  /** What runs of domains used and stored. */
  counted: CountedQuotas
  /** The state of the tasks of domains. */
  amounts: StateQuotas
  endings: RunEndings
  unrecorded: Pick<UnrecordedRuns, 'find' | 'finish' | 'startOver'>
  delayed: Pick<DelayedRuns, 'add'>
  modules: ModuleCatalogue
  tasks: KnownTasks
  timing: ManagerTiming
  /** The time when the manager began, on the monotonic clock: workers have not come back before a lease has passed. */
  beganMs: number
  logger: Logger
  random: () => number
  /** Called after the commit of a batch that changed the states of these tasks, before anyone is notified. */
  onTasksChanged?: (keys: Iterable<number>) => void
  /** Called after the commit of each batch. */
  onCommitted?: () => void
  /** Called after the commit of a batch with publications of tasks. */
  onPublished?: () => void
  /** Called after the commit of a batch with ends of runs that had messages of triggers, with those that became dead letters. */
  onSettled?: (refused: readonly RefusedMessages[]) => void
}

/** A run that its worker has had for longer is long, whatever others of its task last. */
const LONG_MS = 1_000
/** No worker is reserved. */
const NO_WORKERS: ReadonlySet<WorkerSession> = new Set()

type TaskChange = { runKey: number; state: TaskState; durationMs: number | null }

/** `held`: runs at workers, as they are after this batch. */
type RunsOfDomain = { held: number; queued: number }

export class RunBatch {
  readonly context: WriterContext
  readonly #client: Client
  readonly #afterCommit: (() => void)[] = []
  readonly #work: Promise<unknown>[] = []
  /** Statements of this turn of the event loop. */
  #unsent: (() => Promise<unknown>)[] = []
  #hasBegun = false
  #isCommitted = false
  #isCommitSent = false
  readonly #reserved: { session: WorkerSession; needsHash: string; memoryBytes: number }[] = []
  readonly #freed: { session: WorkerSession; memoryBytes: number }[] = []
  readonly #ofDomains = new Map<string, RunsOfDomain>()
  readonly #freedRuns = new Set<string>()
  /** Long runs by worker and domain. They are counted after the batch has freed what ends in it. */
  readonly #longRuns = new Map<WorkerSession, Map<string | null | undefined, { held: number; placed: number }>>()
  /** Queued runs by domain, null for none; undefined: runs whose domain is not known here. Counted when the queue is full. */
  #queuedOf: Map<string | null | undefined, number> | undefined
  readonly #groups = new Set<string>()
  readonly #tasks = new Map<number, TaskChange>()
  readonly #records: ManagerRecord[] = []

  constructor(client: Client, context: WriterContext) {
    this.#client = client
    this.context = context
  }

  /** Runs a prepared statement; the name identifies it on the connection. Statements of one turn are sent together. */
  rows<Row extends object>(name: string, text: string, values: readonly unknown[]): Promise<Row[]> {
    const { promise, resolve, reject } = Promise.withResolvers<Row[]>()
    if (this.#unsent.length === 0) process.nextTick(() => this.#send())
    this.#unsent.push(() => {
      const asked = this.#client.query<Row>({ name, text, values: [...values] })
      asked.then(({ rows }) => resolve(rows), reject)
      return asked
    })
    return promise
  }

  /** Runs the statements of another room in the same way. A statement without a name is parsed each time. */
  get db(): Queryable {
    return { query: async ({ name = '', text, values }) => ({ rows: await this.rows<never>(name, text, values) }) }
  }

  /**
   * Sends the commit behind all earlier statements: if one of them fails, PostgreSQL turns it into a rollback. No
   * statement may follow.
   */
  commit(): void {
    this.#isCommitted = true
  }

  #send(): void {
    const statements = this.#unsent
    this.#unsent = []
    // A single statement is a transaction of its own.
    const isWhole = this.#isCommitted && !this.#hasBegun && statements.length === 1
    sendCorked(this.#client, () => {
      if (statements.length > 0 && !this.#hasBegun && !isWhole) {
        this.#hasBegun = true
        this.#keep(this.#client.query('BEGIN'))
      }
      for (const statement of statements) this.#keep(statement())
      if (this.#hasBegun && this.#isCommitted && !this.#isCommitSent) {
        this.#isCommitSent = true
        this.#keep(this.#client.query('COMMIT'))
      }
    })
  }

  /** Awaited by `settled`, possibly after its failure. */
  #keep(work: Promise<unknown>): void {
    work.catch(() => undefined)
    this.#work.push(work)
  }

  /** Resolves when the transaction has ended. */
  async settled(): Promise<void> {
    this.#send()
    await Promise.all(this.#work)
  }

  afterCommit(effect: () => void): void {
    this.#afterCommit.push(effect)
  }

  /**
   * Places the run on no worker that is `reserved` for others, and on none where the long runs of the domain have used up its share of the
   * slots.
   */
  place(
    needsHash: string,
    run: Parameters<Cluster['place']>[1],
    reserved: ReadonlySet<WorkerSession> = NO_WORKERS,
  ): WorkerSession | undefined {
    const { cluster } = this.context
    const domainId = cluster.domainOf(needsHash)
    const closed = this.#closedTo(needsHash, run)
    const session = cluster.place(needsHash, run, closed.size === 0 ? reserved : reserved.union(closed))
    if (session === undefined) return undefined
    this.#reserved.push({ session, needsHash, memoryBytes: cluster.memoryOf(needsHash) })
    const runs = this.#runsOf(domainId)
    if (runs !== undefined) runs.held += 1
    if (cluster.isShared && cluster.mayBeLong({ ...run, needs: needsHash }))
      this.#longRunsAt(session, domainId).placed += 1
    return session
  }

  /** Whether the run waits because its domain has its share of the slots everywhere, not for a slot. */
  isShareUsedUp(needsHash: string, run: Parameters<Cluster['place']>[1]): boolean {
    const closed = this.#closedTo(needsHash, run)
    return closed.size > 0 && this.context.cluster.candidates(needsHash).every((session) => closed.has(session))
  }

  #closedTo(needsHash: string, run: Parameters<Cluster['place']>[1]): ReadonlySet<WorkerSession> {
    const { cluster } = this.context
    if (!cluster.isShared || !cluster.mayBeLong({ ...run, needs: needsHash })) return NO_WORKERS
    const domainId = cluster.domainOf(needsHash)
    return new Set(
      cluster.candidates(needsHash).filter((session) => {
        const { held, placed } = this.#longRunsAt(session, domainId)
        return held + placed >= longRunsOfDomain(session)
      }),
    )
  }

  #isLong(run: AssignedRun): boolean {
    return monotonicMs() - (run.sentMs ?? -Infinity) > LONG_MS || this.context.cluster.mayBeLong(run)
  }

  /** Long runs of the domain at the worker, and those that this batch has placed there. */
  #longRunsAt(session: WorkerSession, domainId: string | null | undefined): { held: number; placed: number } {
    const ofSession = this.#longRuns.getOrInsertComputed(session, () => new Map())
    return ofSession.getOrInsertComputed(domainId, () => {
      let held = 0
      for (const run of session.runs.values())
        if (!this.#freedRuns.has(run.id) && run.spec.domain_id === domainId && this.#isLong(run)) held += 1
      return { held, placed: 0 }
    })
  }

  /** How many more runs of the domain the workers may get, by its quota. */
  roomOf(domainId: string | null | undefined): number {
    if (refusalOf(this.context.counted, domainId) !== undefined) return 0
    const limit =
      domainId === undefined || domainId === null
        ? undefined
        : this.context.quotas.ofDomainId(domainId, 'concurrent_runs')
    return limit === undefined ? Infinity : Math.max(limit - (this.#runsOf(domainId)?.held ?? 0), 0)
  }

  /**
   * A run of the domain will be queued. Beyond the quota of queued runs, it throws `quota_exceeded` for a start of a user, and
   * `unavailable` for others, which are started again: a message that starts a run waits. If there is no processor time left today, or no
   * room for results, it throws `rate_limited` or `quota_exceeded`, and `unavailable`.
   */
  willQueue(domainId: string | null, cause: RunCause): void {
    const error = refusalOf(this.context.counted, domainId)
    if (error !== undefined)
      throw cause.type === 'user' ? error : new ServiceError('unavailable', error.message, { retryAfterSeconds: 1 })
    const limit = domainId === null ? undefined : this.context.quotas.ofDomainId(domainId, 'queued_runs')
    const runs = limit === undefined ? undefined : this.#runsOf(domainId)
    if (limit === undefined || runs === undefined) return
    if (runs.queued >= limit) {
      const message = `the quota of the domain is ${limit} queued runs; ${runs.queued} are queued`
      throw cause.type === 'user'
        ? new ServiceError('quota_exceeded', message)
        : new ServiceError('unavailable', message, { retryAfterSeconds: 1 })
    }
    runs.queued += 1
  }

  /**
   * A run of the domain, or of none, will be queued. Throws `unavailable` if the queue is full and the domain has used up its share, which is
   * an equal part of the queue: a full queue of one domain refuses no start of another.
   */
  requireQueueRoom(domainId: string | null): void {
    const { queues, cluster } = this.context
    if (queues.total < MAX_QUEUED_RUNS) return
    if (this.#queuedOf === undefined) {
      this.#queuedOf = new Map()
      for (const needs of queues.needs) {
        const share = cluster.domainOf(needs)
        this.#queuedOf.set(share, (this.#queuedOf.get(share) ?? 0) + queues.waiting(needs))
      }
    }
    const queued = this.#queuedOf.get(domainId) ?? 0
    this.#queuedOf.set(domainId, queued + 1)
    if (queued < Math.max(Math.floor(MAX_QUEUED_RUNS / this.#queuedOf.size), MIN_QUEUE_SHARE)) return
    this.#queuedOf.set(domainId, queued)
    throw new ServiceError(
      'unavailable',
      `${queues.total} runs are queued already, ${queued} of them of this domain; try again`,
      { retryAfterSeconds: 1 },
    )
  }

  /** The runs are counted once per batch; undefined for runs of no domain. */
  #runsOf(domainId: string | null | undefined): RunsOfDomain | undefined {
    if (domainId === undefined || domainId === null) return undefined
    const { cluster, queues, quotas } = this.context
    const known = this.#ofDomains.get(domainId)
    if (known !== undefined || !hasRunQuota(quotas, domainId)) return known
    const runs = { held: cluster.heldBy(domainId), queued: 0 }
    for (const needs of queues.needs) if (cluster.domainOf(needs) === domainId) runs.queued += queues.waiting(needs)
    this.#ofDomains.set(domainId, runs)
    return runs
  }

  /** Frees the run's slot at its worker with this commit; placements of the same batch can use it. */
  free(session: WorkerSession, runId: string): void {
    const runs = this.#runsOf(session.runs.get(runId)?.spec.domain_id)
    if (runs !== undefined) runs.held -= 1
    this.#freedRuns.add(runId)
    const memoryBytes = memoryOf(session.runs.get(runId))
    session.unreserve(memoryBytes)
    this.#freed.push({ session, memoryBytes })
    this.#afterCommit.push(() => {
      session.reserve(memoryBytes)
      session.runs.delete(runId)
    })
  }

  /** The session is void: its worker gets no runs in this batch and from now on. */
  unplace(session: WorkerSession, needsHash: string): void {
    this.release(session, needsHash)
    this.context.cluster.remove(session)
  }

  /** Releases the slot of a run that was not written. */
  release(session: WorkerSession, needsHash: string): void {
    const index = this.#reserved.findLastIndex((one) => one.session === session && one.needsHash === needsHash)
    const [placed] = index < 0 ? [] : this.#reserved.splice(index, 1)
    const { cluster } = this.context
    cluster.release(session, placed?.memoryBytes ?? cluster.memoryOf(needsHash))
  }

  /** A part of this broadcast began or ended. */
  touchGroup(id: string): void {
    this.#groups.add(id)
  }

  takeGroups(): string[] {
    const groups = [...this.#groups]
    this.#groups.clear()
    return groups
  }

  /** The task's state follows its run. The last change in a batch is used; a task has one driving run at a time. */
  changeTask(taskKey: number, change: TaskChange): void {
    this.#tasks.set(taskKey, change)
  }

  /** Writes the pending task states, sorted by key: two unsorted updates of many rows deadlock. */
  async writeTasks(): Promise<void> {
    if (this.#tasks.size === 0) return
    const changes = [...this.#tasks].toSorted(([left], [right]) => left - right)
    await this.rows('write-tasks', WRITE_TASKS, [
      changes.map(([key]) => key),
      changes.map(([, change]) => change.runKey),
      changes.map(([, change]) => change.state),
      changes.map(([, change]) => change.durationMs),
    ])
  }

  /** The change of a task or a worker will be in the journal. */
  record(actor: Actor, ...change: Parameters<typeof managedEntry>): void {
    this.#records.push({ actor, entry: managedEntry(...change) })
  }

  async writeRecords(): Promise<void> {
    await writeRecords(this.db, this.#records)
  }

  committed(): void {
    this.context.onTasksChanged?.(this.#tasks.keys())
    for (const effect of this.#afterCommit) effect()
    this.context.cluster.flush()
    this.context.onCommitted?.()
  }

  abandoned(): void {
    this.#unsent = []
    for (const { session, memoryBytes } of this.#reserved) this.context.cluster.release(session, memoryBytes)
    for (const { session, memoryBytes } of this.#freed) session.reserve(memoryBytes)
  }
}

// The times are those of the driving run: start when it first runs, finish when it ends; a new start clears both.
const WRITE_TASKS = `
  WITH changed AS (UPDATE tasks t SET
    state = c.state,
    run_key = c.run_key,
    start_time = CASE
      WHEN t.run_key IS DISTINCT FROM c.run_key THEN NULL
      WHEN c.state = ${TASK_STATE.scheduled} THEN t.start_time
      WHEN c.state = ${TASK_STATE.stopped} AND c.duration_ms IS NULL THEN t.start_time
      ELSE coalesce(t.start_time, now() - make_interval(secs => coalesce(c.duration_ms, 0) / 1000))
    END,
    finish_time = CASE WHEN c.state IN (${TASK_STATE.completed}, ${TASK_STATE.failed}, ${TASK_STATE.stopped}) THEN now() END
  FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::float8[]) AS c (key, run_key, state, duration_ms)
  WHERE t.key = c.key
  RETURNING t.key, t.state)
  ${noteTasks('changed')}`

const RUN_QUOTAS = ['concurrent_runs', 'queued_runs'] as const

/** Starts of such a domain are counted, so their batch is written alone. */
export function hasRunQuota(quotas: TaskQuotas, domainId: string | null): boolean {
  return domainId !== null && RUN_QUOTAS.some((name) => quotas.ofDomainId(domainId, name) !== undefined)
}
