/**
 * One transaction of the run writer: its connection, what it has placed so far, the task states it owes, and what is to
 * be done once it is committed. Steps write through it; none of them commits.
 */
import type { Client } from 'pg'
import { sendTogether } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { TASK_STATE, type TaskState } from '#proto/index.ts'
import type { Cluster } from '../placement/cluster.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import type { ManagerTiming } from '../model/timing.ts'
import { noteTasks } from '../store/notes.ts'
import type { RunEndings } from './endings.ts'
import type { RunQueues } from './queues.ts'
import type { ModuleCatalogue } from '../store/catalogue.ts'
import type { KnownTasks } from './known-tasks.ts'

export type WriterContext = {
  managerId: string
  cluster: Cluster
  queues: RunQueues
  endings: RunEndings
  modules: ModuleCatalogue
  tasks: KnownTasks
  timing: ManagerTiming
  logger: Logger
  random: () => number
  /** Told of each batch that was committed. */
  onCommitted?: () => void
  /** Told when one was that holds what tasks publish. */
  onPublished?: () => void
}

type TaskChange = { runKey: number; state: TaskState; durationMs: number | null }

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
  readonly #reserved: WorkerSession[] = []
  readonly #freed: WorkerSession[] = []
  readonly #groups = new Set<string>()
  readonly #tasks = new Map<number, TaskChange>()

  constructor(client: Client, context: WriterContext) {
    this.#client = client
    this.context = context
  }

  /** A prepared statement; the name is its identity on the connection. Those of one turn are sent together. */
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

  /**
   * Sends the commit, behind every statement that was sent before it: when one of those fails, PostgreSQL turns it into
   * a rollback. Nothing may be written afterwards.
   */
  commit(): void {
    this.#isCommitted = true
  }

  #send(): void {
    const statements = this.#unsent
    this.#unsent = []
    // One statement that is all there is makes a transaction of its own.
    const isWhole = this.#isCommitted && !this.#hasBegun && statements.length === 1
    sendTogether(this.#client, () => {
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

  /** Awaited by `settled`, which may come after its failure. */
  #keep(work: Promise<unknown>): void {
    work.catch(() => undefined)
    this.#work.push(work)
  }

  /** Resolves when the transaction has begun and ended. */
  async settled(): Promise<void> {
    this.#send()
    await Promise.all(this.#work)
  }

  afterCommit(effect: () => void): void {
    this.#afterCommit.push(effect)
  }

  place(needsHash: string, taskKey: number, digest: string): WorkerSession | undefined {
    const session = this.context.cluster.place(needsHash, taskKey, digest)
    if (session !== undefined) this.#reserved.push(session)
    return session
  }

  /** The run leaves its worker with this commit; what is placed in the same batch may count on its room. */
  free(session: WorkerSession, runId: string): void {
    session.reserved -= 1
    this.#freed.push(session)
    this.#afterCommit.push(() => {
      session.reserved += 1
      session.runs.delete(runId)
    })
  }

  /** The session turned out to be void: its worker gets nothing, here and from now on. */
  unplace(session: WorkerSession): void {
    this.giveBack(session)
    this.context.cluster.remove(session)
  }

  /** The run was not written; its room is somebody else's. */
  giveBack(session: WorkerSession): void {
    const index = this.#reserved.lastIndexOf(session)
    if (index >= 0) this.#reserved.splice(index, 1)
    this.context.cluster.release(session)
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

  /** The task follows its run. The last change of a batch counts; a task has one driving run at a time. */
  changeTask(taskKey: number, change: TaskChange): void {
    this.#tasks.set(taskKey, change)
  }

  /** Writes the task states that are owed, sorted by key: two unsorted updates of many rows deadlock. */
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

  committed(): void {
    for (const effect of this.#afterCommit) effect()
    this.context.cluster.flush()
    this.context.onCommitted?.()
  }

  abandoned(): void {
    this.#unsent = []
    for (const session of this.#reserved) this.context.cluster.release(session)
    for (const session of this.#freed) session.reserved += 1
  }
}

// The times are those of the run that drives it: start when it first runs, finish when it ends; a new start clears both.
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
