/**
 * The one ordered writer of this manager's run states: everything that changes a run goes through one queue and is
 * written in batches, one transaction each. Acknowledgements, assignments and HTTP answers leave after the commit. Two batches
 * are written at a time where neither can touch what the other does (docs/performance.md).
 */
import type { Client } from 'pg'
import type { Batch } from '#core/database/index.ts'
import { GroupCommit, isDatabaseAway, translateDatabaseError, violatedConstraint } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { RunEnding, RunIdentity } from '../model/run.ts'
import type { StartRequest, StartedRun } from '../model/start.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import { applyChanges, isPlainBatch } from './apply-changes.ts'
import type { Change } from './changes.ts'
import { RunBatch, type WriterContext } from './batch.ts'
import { WriterConnections } from './connections.ts'
import type { HelloClaims, Reconciliation } from './reconcile-runs.ts'
import { adoptAssigned, findStarted } from './recover-runs.ts'
import type { RemovalOutcome, WorkerRemoval } from './remove-worker.ts'
import { STALE_TASK } from './start-runs.ts'

/** Changes in one transaction; a message of a worker with many runs is one change. */
const MAX_BATCH_CHANGES = 1_000
/** While one waits for its commit to reach the disk, the other one is computed. */
const MAX_BATCHES_AT_A_TIME = 2
/** Runs in the changes of one transaction. */
const MAX_BATCH_RUNS = 10_000
/** Changes that wait; beyond it HTTP is answered 503 and workers send their results again. */
const MAX_QUEUED_CHANGES = 20_000
/** Runs that workers report on in the changes that wait. */
const MAX_QUEUED_REPORTS = 200_000
/** What workers reported is written again for as long as this when the database is away, in milliseconds. */
const REPORT_RETRY_MS = 60_000
/** A start is refused with `unavailable` when the database is away for as long as this: its caller may ask again. */
const START_RETRY_MS = 3_000

export type RunWriterDeps = {
  context: WriterContext
  /** A connection of the writer's own. */
  connect: () => Promise<Client>
  signal: AbortSignal
}

/**
 * Repeating a change is safe: every report counts only under its fence and once, and a start is looked up by the run id that
 * was made for it.
 */
export class RunWriter {
  readonly #context: WriterContext
  readonly #connections: WriterConnections
  readonly #queue: GroupCommit<Change, unknown>
  /** Assignments may be committed that were never sent: the next batch looks for them first. */
  #mayHoldUnsent = false

  constructor({ context, connect, signal }: RunWriterDeps) {
    this.#context = context
    this.#connections = new WriterConnections(connect)
    this.#queue = new GroupCommit({
      name: 'the task manager',
      item: 'a change of a run',
      logger: context.logger,
      signal,
      maxItems: MAX_BATCH_CHANGES,
      maxQueuedItems: MAX_QUEUED_CHANGES,
      maxInFlight: MAX_BATCHES_AT_A_TIME,
      // What counts is not the bytes of a change but the runs that it names.
      sizeOf: countRuns,
      maxBytes: MAX_BATCH_RUNS,
      maxQueuedBytes: MAX_QUEUED_REPORTS,
      weightOf: countRuns,
      mayShare: (changes) => !this.#mayHoldUnsent && isPlainBatch(context, changes),
      commit: (batch) => this.#commit(batch),
      // Another manager has used the key a moment ago: now it is seen.
      mend: (error) => violatedConstraint(error) === 'run_start_keys_pkey',
      refuseAlone: (change, error) => this.#refuseAlone(change, error),
      whileAwayMs: ({ kind }) => (kind === 'start' ? START_RETRY_MS : REPORT_RETRY_MS),
      inDoubtMs: 0,
      refuseInDoubt: (error) => translateDatabaseError(error) as Error,
    })
  }

  /** Resolves after the commit. Rejects with what the start is refused with. */
  start(request: StartRequest): Promise<StartedRun> {
    return this.#submit({ kind: 'start', request })
  }

  running(session: WorkerSession, runs: RunIdentity[]): Promise<void> {
    return this.#submit({ kind: 'running', session, runs })
  }

  /** Acknowledged to the worker after the commit, in order. */
  ends(session: WorkerSession, ends: { run: RunIdentity; ending: RunEnding }[]): Promise<void> {
    return this.#submit({ kind: 'ends', session, ends })
  }

  reject(session: WorkerSession, run: RunIdentity, reason: string): Promise<void> {
    return this.#submit({ kind: 'reject', session, run, reason })
  }

  /** Undefined: the epoch of the session is void. */
  hello(session: WorkerSession, claims: HelloClaims, leaseMs: number): Promise<Reconciliation | undefined> {
    return this.#submit({ kind: 'hello', session, claims, leaseMs })
  }

  /** False: it has been heard of after all. */
  lose(workerKey: number, epoch: number): Promise<boolean> {
    return this.#submit({ kind: 'lose', workerKey, epoch })
  }

  removeWorker(workerKey: number, removal: WorkerRemoval): Promise<RemovalOutcome> {
    return this.#submit({ kind: 'remove_worker', workerKey, removal })
  }

  /** Keys of the runs that a worker must confirm. */
  stop(taskKey: number): Promise<number[]> {
    return this.#submit({ kind: 'stop', taskKey })
  }

  force(keys: number[]): Promise<void> {
    return this.#submit({ kind: 'force', keys })
  }

  /** How many rows were due. */
  sweep(): Promise<number> {
    return this.#submit({ kind: 'sweep' })
  }

  claim(): Promise<void> {
    return this.#submit({ kind: 'claim' })
  }

  /** Changes that wait or are being written. */
  get pending(): number {
    return this.#queue.pending
  }

  async close(): Promise<void> {
    await this.#queue.close()
    await this.#connections.close()
  }

  #submit<T>(change: Change): Promise<T> {
    return this.#queue.submit(change) as Promise<T>
  }

  async #commit(batch: Batch<Change, unknown>): Promise<readonly unknown[]> {
    const { isInDoubt, isShared, items } = batch
    const outcomes = await this.#transact(items, { isInDoubt, isPlain: isShared, onSend: () => batch.committing([]) })
    const stale = [...items.keys()].filter((index) => outcomes[index] === STALE_TASK)
    if (stale.length > 0) {
      const again = await this.#startAnew(stale.map((index) => items[index] as Change))
      for (const [at, index] of stale.entries()) outcomes[index] = again[at]
    }
    // Room that one batch has made and the other one has not seen.
    if (isShared && this.#context.queues.total > 0) this.claim().catch(() => undefined)
    return outcomes
  }

  /** Starts whose task may have changed since it was remembered: once more with the task as it is now. */
  async #startAnew(starts: readonly Change[]): Promise<readonly unknown[]> {
    try {
      return await this.#transact(starts, { isInDoubt: false, isPlain: true, rereadsTasks: true })
    } catch (error) {
      // Then all of the batch is in doubt. Anything else is no business of the others, which are committed.
      if (isDatabaseAway(error)) throw error
      this.#context.logger.error({ err: error, changes: starts.length }, 'failed to write starts of changed tasks')
      return starts.map(() => new ServiceError('internal', 'internal error', { cause: error }))
    }
  }

  async #transact(changes: readonly Change[], mode: Mode): Promise<unknown[]> {
    const { managerId } = this.#context
    const connection = await this.#connections.take()
    const batch = new RunBatch(connection, this.#context)
    const adopts = this.#mayHoldUnsent || mode.isInDoubt
    try {
      mode.onSend?.()
      if (adopts) await adoptAssigned(batch)
      const started = mode.isInDoubt ? await findStarted(batch, changes) : undefined
      const outcomes = await applyChanges(batch, changes, { ...mode, managerId, started })
      await batch.writeTasks()
      batch.commit()
      await batch.settled()
      if (adopts) this.#mayHoldUnsent = false
      batch.committed()
      this.#connections.giveBack(connection)
      return outcomes
    } catch (error) {
      batch.abandoned()
      await batch.settled().catch(() => undefined)
      if (isDatabaseAway(error)) {
        this.#mayHoldUnsent = true
        await connection.end().catch(() => undefined)
      } else {
        await connection.query('ROLLBACK').catch(() => undefined)
        this.#connections.giveBack(connection)
      }
      throw error
    }
  }

  #refuseAlone(change: Change, error: unknown): unknown {
    const constraint = violatedConstraint(error)
    if (change.kind === 'start' && constraint === 'runs_task_fkey') return new ServiceError('not_found', 'no such task')
    // Another manager has started this very run a moment ago.
    if (change.kind === 'start' && constraint === 'runs_id_key')
      return { runId: change.request.runId, runKey: undefined, taskKey: 0 } satisfies StartedRun
    this.#context.logger.error({ err: error, change: change.kind }, 'the database refused a change of a run')
    return error
  }
}

type Mode = {
  /** It may be in the database already. */
  isInDoubt: boolean
  isPlain: boolean
  rereadsTasks?: boolean
  /** Told right before anything is sent. */
  onSend?: () => void
}

function countRuns(change: Change): number {
  if (change.kind === 'ends') return change.ends.length
  return change.kind === 'running' ? change.runs.length : 1
}
