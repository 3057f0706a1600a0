/**
 * The single ordered writer of this manager's run states: every change of a run goes through one queue and is written in
 * batches, one transaction each. Acknowledgements, assignments and HTTP answers are sent after the commit. Two batches
 * are written concurrently if they cannot affect each other (docs/performance.md).
 */
import type { Actor } from '#api/identity/index.ts'
import type { Batch, Database } from '#core/database/index.ts'
import { GroupCommit, isAnswered, isOutage, translateDatabaseError, violatedConstraint } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs } from '#core/time.ts'
import type { RunEnding, RunIdentity } from '../model/run.ts'
import type { StartRequest, StartedRun } from '../model/start.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import { applyChanges, isPlainBatch } from './apply-changes.ts'
import type { Change } from './changes.ts'
import { RunBatch, type WriterContext } from './batch.ts'
import { WriterConnections } from './connections.ts'
import { DelayedRuns } from './delayed-runs.ts'
import { findAssignedRun } from './end-runs.ts'
import { Fences } from './fences.ts'
import { RUN_METRICS, WRITER_OBSERVER } from './metrics.ts'
import type { HelloClaims, Reconciliation } from './reconcile-runs.ts'
import { adoptAssigned, findStarted } from './recover-runs.ts'
import type { RemovalOutcome, WorkerRemoval } from './remove-worker.ts'
import { STALE_TASK } from './start-runs.ts'
import type { TaskStop } from './stop-runs.ts'
import { divideByState, readiesOf, weightOfState, writesState } from './write-state.ts'
import { UnrecordedRuns, type FinishedRun, type UnrecordedRun } from './unrecorded-runs.ts'

/** Changes per transaction; a message of a worker with many runs is one change. */
const MAX_BATCH_CHANGES = 1_000
/** While one batch waits for its commit, the other one is computed. */
const MAX_BATCHES_AT_A_TIME = 2
/** Runs in the changes of one transaction. */
const MAX_BATCH_RUNS = 10_000
/** Queued changes; beyond it HTTP requests get 503 and workers resend their results. */
const MAX_QUEUED_CHANGES = 20_000
/** Reports of workers in the queued changes. */
const MAX_QUEUED_REPORTS = 200_000
/** How long writes of workers' reports are retried while the database is unavailable, in milliseconds. */
const REPORT_RETRY_MS = 60_000
/** How long a start is retried while the database is unavailable, before it fails with `unavailable`, in milliseconds. */
const START_RETRY_MS = 3_000

export type RunWriterDeps = {
  context: Omit<WriterContext, 'unrecorded' | 'delayed'>
  database: Pick<Database, 'db' | 'dedicated' | 'limitSilence' | 'replicated'>
  signal: AbortSignal
}

/**
 * Repeating a change is safe: every report is accepted only under its fence and once, and a start is found by its
 * predetermined run id.
 */
export class RunWriter {
  readonly #context: WriterContext
  readonly #unrecorded: UnrecordedRuns
  readonly #delayed: DelayedRuns
  readonly #connections: WriterConnections
  readonly #queue: GroupCommit<Change, unknown>
  readonly #removePending: () => void
  /** Committed assignments may be unsent: the next batch looks for them first. */
  #mayHoldUnsent = false

  constructor({ context: given, database, signal }: RunWriterDeps) {
    const unrecorded = new UnrecordedRuns({
      context: given,
      fences: new Fences(database, given.logger),
      pending: () => (this.#mayHoldUnsent ? Infinity : this.#queue.pending),
      submit: (change) => this.#submit(change),
      onBegun: ({ session, assigned }) => void this.markRunning(session, [assigned]).catch(() => undefined),
    })
    // What fails is found by a sweep.
    const delayed = new DelayedRuns((runs) => void this.#submit({ kind: 'due', runs }).catch(() => undefined))
    const context = { ...given, unrecorded, delayed }
    this.#unrecorded = unrecorded
    this.#delayed = delayed
    this.#context = context
    this.#connections = new WriterConnections(database)
    this.#queue = new GroupCommit({
      name: 'the task manager',
      item: 'a change of a run',
      observer: WRITER_OBSERVER,
      logger: context.logger,
      signal,
      maxItems: MAX_BATCH_CHANGES,
      maxQueuedItems: MAX_QUEUED_CHANGES,
      maxInFlight: MAX_BATCHES_AT_A_TIME,
      // The cost of a change is its number of runs, not its bytes.
      sizeOf: countRuns,
      maxBytes: MAX_BATCH_RUNS,
      maxQueuedBytes: MAX_QUEUED_REPORTS,
      weightOf: countRuns,
      mayShare: (changes) => !this.#mayHoldUnsent && isPlainBatch(context, changes),
      commit: (batch) => this.#commit(batch),
      replicated: () => database.replicated(),
      // Another manager used the key a moment ago: the retry sees it.
      repair: (error) => violatedConstraint(error) === 'run_start_keys_pkey',
      refuseAlone: (change, error) => this.#refuseAlone(change, error),
      retryMs: ({ kind }) => (kind === 'start' || kind === 'finished' ? START_RETRY_MS : REPORT_RETRY_MS),
      inDoubtMs: 0,
      refuseInDoubt: (error) => translateDatabaseError(error) as Error,
    })
    this.#removePending = RUN_METRICS.pending.fromValue(() => this.#queue.pending)
  }

  /**
   * Resolves after the commit. Rejects with the error of the start. `onSent` is called if the run was sent to a worker before that.
   */
  start(request: StartRequest, onSent?: () => void): Promise<StartedRun> {
    const sent = this.#unrecorded.begin(request)
    if (sent === undefined) return this.#submit({ kind: 'start', request: { ...request, sinceMs: monotonicMs() } })
    onSent?.()
    return sent
  }

  async markRunning(session: WorkerSession, runs: RunIdentity[]): Promise<void> {
    const recorded = runs.filter((identity) => {
      const run = this.#unrecordedOf(session, identity)
      if (run !== undefined) run.hasBegun = true
      return run === undefined
    })
    if (recorded.length > 0) await this.#submit({ kind: 'running', session, runs: recorded })
  }

  /** Records the ends. They are acknowledged to the worker after the commit, in order. */
  recordEnds(session: WorkerSession, ends: readonly IdentifiedEnd[]): Promise<void> {
    const domainOf = ({ run }: IdentifiedEnd) => findAssignedRun(session, run)?.spec.domain_id
    const readies = readiesOf(ends, domainOf, this.#context.amounts)
    if (readies === undefined) return this.#recordEnds(session, ends)
    return this.#recordWhenReady(session, ends, (end) =>
      writesState(end.ending) ? readies.get(domainOf(end) ?? '') : undefined,
    )
  }

  /** Ends that wait for nothing are recorded at once. */
  async #recordWhenReady(
    session: WorkerSession,
    ends: readonly IdentifiedEnd[],
    readyOf: (end: IdentifiedEnd) => Promise<void> | undefined,
  ): Promise<void> {
    const parts = [...Map.groupBy(ends, readyOf)]
    await Promise.all(
      parts.map(async ([ready, part]) => {
        await ready
        await this.#recordEnds(session, part)
      }),
    )
  }

  async #recordEnds(session: WorkerSession, ends: readonly IdentifiedEnd[]): Promise<void> {
    const finished: FinishedRun[] = []
    const recorded: IdentifiedEnd[] = []
    const recording: Promise<unknown>[] = []
    for (const end of ends) {
      const run = this.#unrecordedOf(session, end.run)
      if (run !== undefined && this.#unrecorded.mayFinish(run, end.ending)) {
        // A second end of the run waits for this one.
        run.step = 'finishing'
        finished.push({ run, ending: end.ending })
        continue
      }
      recorded.push(end)
      if (run !== undefined) recording.push(this.#unrecorded.recordOne(run))
    }
    if (finished.length > 0) for (const part of divideByState(finished)) this.#finish(session, part)
    if (recording.length > 0) await Promise.all(recording)
    if (recorded.length === 0) return
    const submitted = divideByState(recorded).map((part) => this.#submit({ kind: 'ends', session, ends: part }))
    await (submitted.length === 1 ? submitted[0] : Promise.all(submitted))
  }

  /** The session has ended: what its worker has is recorded for its next one. */
  async recordSent(session: WorkerSession): Promise<void> {
    await this.#unrecorded.record((run) => run.session === session)
  }

  async reject(session: WorkerSession, run: RunIdentity, reason: string): Promise<void> {
    const sent = this.#unrecordedOf(session, run)
    if (sent !== undefined) await this.#unrecorded.recordOne(sent)
    await this.#submit({ kind: 'reject', session, run, reason })
  }

  /** Undefined: the epoch of the session is void. */
  async reconcileHello(
    session: WorkerSession,
    claims: HelloClaims,
    leaseMs: number,
  ): Promise<Reconciliation | undefined> {
    await this.#unrecorded.record((run) => run.session.key === session.key)
    return await this.#submit({ kind: 'hello', session, claims, leaseMs })
  }

  /** False: a heartbeat arrived meanwhile. */
  expireLease(workerKey: number, epoch: number): Promise<boolean> {
    return this.#submit({ kind: 'lose', workerKey, epoch })
  }

  removeWorker(workerKey: number, removal: WorkerRemoval, recordedFor: Actor): Promise<RemovalOutcome> {
    return this.#submit({ kind: 'remove_worker', workerKey, removal, recordedFor })
  }

  /** Returns the keys of the runs that a worker must confirm. */
  async stop(stop: TaskStop): Promise<number[]> {
    await this.#unrecorded.record((run) => run.assigned.taskKey === stop.taskKey)
    return await this.#submit({ kind: 'stop', stop })
  }

  forceStop(keys: number[]): Promise<void> {
    return this.#submit({ kind: 'force', keys })
  }

  /** Returns the number of due rows. */
  sweep(): Promise<number> {
    return this.#submit({ kind: 'sweep' })
  }

  claim(): Promise<void> {
    return this.#submit({ kind: 'claim' })
  }

  /** Changes that are queued or being written. */
  get pending(): number {
    return this.#queue.pending
  }

  async close(): Promise<void> {
    this.#delayed.close()
    await this.#unrecorded.close()
    await this.#queue.close()
    this.#removePending()
    await this.#connections.close()
  }

  #unrecordedOf(session: WorkerSession, identity: RunIdentity): UnrecordedRun | undefined {
    const run = findAssignedRun(session, identity)
    return run?.unrecorded === undefined ? undefined : this.#unrecorded.find(run.id)
  }

  #finish(session: WorkerSession, finished: FinishedRun[]): void {
    const recorded = this.#submit<FinishedRun[]>({ kind: 'finished', session, finished })
    const isWriting = finished.some(({ ending }) => writesState(ending))
    const settled = isWriting ? recorded.then((left) => this.#recordLeft(session, left)) : recorded
    settled.catch((error: unknown) => {
      this.#context.logger.warn({ err: error, runs: finished.length }, 'failed to record runs with their ends')
      for (const { run } of finished) this.#unrecorded.startOver(run)
    })
  }

  /** Runs whose state could not be written with them: they are recorded as started, and then with their ends. */
  async #recordLeft(session: WorkerSession, left: readonly FinishedRun[]): Promise<void> {
    if (left.length === 0) return
    await Promise.all(left.map(({ run }) => this.#unrecorded.recordFirst(run)))
    await this.recordEnds(
      session,
      left.map(({ run, ending }) => ({ run: run.assigned, ending })),
    )
  }

  #submit<T>(change: Change): Promise<T> {
    return this.#queue.submit(change) as Promise<T>
  }

  async #commit(batch: Batch<Change, unknown>): Promise<readonly unknown[]> {
    const { isInDoubt, isShared, items } = batch
    const outcomes = await this.#transact(items, { isInDoubt, isPlain: isShared, onSend: () => batch.committing([]) })
    const stale = [...items.keys()].filter((index) => outcomes[index] === STALE_TASK)
    if (stale.length > 0) {
      const again = await this.#retryStarts(stale.map((index) => items[index] as Change))
      for (const [at, index] of stale.entries()) outcomes[index] = again[at]
    }
    // Slots that one batch freed and the other one did not see.
    if (isShared && this.#context.queues.total > 0) this.claim().catch(() => undefined)
    return outcomes
  }

  /** Repeats starts whose task may have changed since it was cached, with the current task. */
  async #retryStarts(starts: readonly Change[]): Promise<readonly unknown[]> {
    try {
      return await this.#transact(starts, { isInDoubt: false, isPlain: true, rereadsTasks: true })
    } catch (error) {
      // Then the outcome of the whole batch is unknown. Any other error concerns only these starts; the others are
      // committed.
      if (isUnanswered(error)) throw error
      this.#context.logger.error(
        { err: error, changes: starts.length },
        'failed to write starts of changed tasks; refusing them',
      )
      return starts.map(() => new ServiceError('internal', 'internal error', { cause: error }))
    }
  }

  async #transact(changes: readonly Change[], mode: Mode): Promise<unknown[]> {
    const { managerId } = this.#context
    const connection = await this.#connections.acquire()
    const batch = new RunBatch(connection, this.#context)
    const adopts = this.#mayHoldUnsent || mode.isInDoubt
    try {
      mode.onSend?.()
      if (adopts) await adoptAssigned(batch)
      const started = mode.isInDoubt ? await findStarted(batch, changes) : undefined
      const outcomes = await applyChanges(batch, changes, { ...mode, managerId, started })
      await Promise.all([batch.writeTasks(), batch.writeRecords()])
      batch.commit()
      await batch.settled()
      if (adopts) this.#mayHoldUnsent = false
      batch.committed()
      this.#connections.release(connection)
      return outcomes
    } catch (error) {
      batch.abandoned()
      await batch.settled().catch(() => undefined)
      if (isUnanswered(error)) {
        this.#mayHoldUnsent = true
        this.#connections.discard(connection)
      } else {
        await connection.query('ROLLBACK').catch(() => undefined)
        this.#connections.release(connection)
      }
      throw error
    }
  }

  #refuseAlone(change: Change, error: unknown): unknown {
    const constraint = violatedConstraint(error)
    if (change.kind === 'start' && constraint === 'runs_task_fkey') return new ServiceError('not_found', 'no such task')
    // Another manager has started this run a moment ago.
    if (change.kind === 'start' && constraint === 'runs_id_key')
      return { runId: change.request.runId, runKey: undefined, taskKey: 0 } satisfies StartedRun
    this.#context.logger.error({ err: error, change: change.kind }, 'the database refused a change of a run')
    return error
  }
}

type IdentifiedEnd = { run: RunIdentity; ending: RunEnding }

type Mode = {
  /** The change can be committed already. */
  isInDoubt: boolean
  isPlain: boolean
  rereadsTasks?: boolean
  /** Called right before the first statement is sent. */
  onSend?: () => void
}

/** The outcome of the transaction is unknown. */
function isUnanswered(error: unknown): boolean {
  return isOutage(error) && !isAnswered(error)
}

function countRuns(change: Change): number {
  if (change.kind === 'finished') return change.finished.length + weightOfState(change.finished)
  if (change.kind === 'ends') return change.ends.length + weightOfState(change.ends)
  return change.kind === 'running' ? change.runs.length : 1
}
