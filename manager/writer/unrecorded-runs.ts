/**
 * Runs that are sent to a worker before they are in the database, and recorded with their end: one commit instead of two for a short
 * run whose caller waits for the result (decision 0106). What needs the row earlier records the run as started: its age, a rejection,
 * a stop, a new session of its worker, the end of this process.
 */
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs } from '#core/time.ts'
import { TASK_STATE } from '#proto/index.ts'
import { afterEnd } from '../model/retry.ts'
import type { AssignedRun, RunEnding, RunHandle, Unrecorded } from '../model/run.ts'
import type { StartRequest, StartedRun } from '../model/start.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import { hasRunQuota } from './batch.ts'
import { refusalOf } from './counted-quota.ts'
import type { WriterContext } from './batch.ts'
import type { Change } from './changes.ts'
import type { Fences } from './fences.ts'
import type { StartTask } from './known-tasks.ts'
import { RUN_METRICS } from './metrics.ts'
import { planFor, prepare, requireStartable, type PreparedRun } from './run-plan.ts'

/** Output of a run that waits in memory until it is recorded; beyond it the run is recorded as started. */
const MAX_WAITING_OUTPUT_BYTES = 64 * 1024
/** Changes that wait for the writer; with more of them runs are recorded first, so that their callers learn of the overload. */
const MAX_PENDING_CHANGES = 1_000

/** The end of a run that is not recorded yet. */
export type FinishedRun = { run: UnrecordedRun; ending: RunEnding }

/** Queues whose workers are left to the runs that wait in them; with more of them every run is recorded first. */
const MAX_QUEUES = 16
const NO_WORKERS: ReadonlySet<WorkerSession> = new Set()

export type UnrecordedRunsDeps = {
  context: Pick<WriterContext, 'cluster' | 'counted' | 'queues' | 'quotas' | 'tasks' | 'timing'>
  fences: Pick<Fences, 'next'>
  /** Changes that wait for the writer. */
  pending: () => number
  submit: (change: Change) => Promise<unknown>
  /** The worker has reported the start of a run that is recorded now. */
  onBegun: (run: UnrecordedRun) => void
}

export class UnrecordedRuns {
  readonly #deps: UnrecordedRunsDeps
  /** The runs in the order of their starts. */
  readonly #runs = new Map<string, UnrecordedRun>()
  #timer: NodeJS.Timeout | undefined
  #isSending = false
  #isClosed = false

  constructor(deps: UnrecordedRunsDeps) {
    this.#deps = deps
  }

  /**
   * Sends the run to a worker at once. Resolves after the commit that records it, with its end or as started. Undefined: it must be
   * recorded first.
   */
  begin(request: StartRequest): Promise<StartedRun> | undefined {
    const { cluster, queues, tasks, timing } = this.#deps.context
    const isAlone = !request.drivesTask && request.idempotency === undefined && request.recordedFor === undefined
    if (request.isAwaited !== true || !isAlone || this.#isClosed || queues.needs.length > MAX_QUEUES) return undefined
    if (this.#deps.pending() > MAX_PENDING_CHANGES) return undefined
    const known = tasks.find([request])
    const task = known?.tasks.get(request.taskId)
    if (known === undefined || task === undefined || !this.#mayWait(task)) return undefined
    let prepared: PreparedRun
    try {
      requireStartable(request, task)
      prepared = prepare(request, task, planFor(request, task, known.modules, cluster))
    } catch {
      // The cached task can be stale: a refusal needs the row.
      return undefined
    }
    const { digest, spec, needsHash } = prepared
    if (!cluster.areNeedsStored(needsHash) || queues.waiting(needsHash) > 0) return undefined
    // Its domain has a share of the slots, which the batch counts.
    if (cluster.isShared && cluster.mayBeLong({ taskKey: task.key, needs: needsHash, digest, spec })) return undefined
    const fence = this.#deps.fences.next()
    if (fence === undefined) return undefined
    const session = cluster.place(needsHash, { taskKey: task.key, digest, spec }, this.#awaitedWorkers())
    if (session === undefined) return undefined
    const assigned: AssignedRun = {
      key: 0,
      id: request.runId,
      taskKey: task.key,
      drivesTask: false,
      parentId: null,
      attempt: 1,
      fence,
      digest,
      needs: needsHash,
      spec,
      state: TASK_STATE.scheduled,
    }
    const run = new UnrecordedRun({ request, task, prepared, session, assigned, record: () => void this.#record(run) })
    this.#runs.set(request.runId, run)
    cluster.assign(session, assigned)
    RUN_METRICS.dispatch.observe({ path: 'direct' }, 0)
    this.#sendSoon()
    this.#timer ??= setTimeout(() => this.#recordDue(), timing.recordAfterMs)
    return run.started.promise
  }

  /** Undefined: the run is recorded. */
  find(runId: string): UnrecordedRun | undefined {
    return this.#runs.get(runId)
  }

  /** The end of the run can be written with it: no attempt follows. Its writing must be followed by `finish` or `startOver`. */
  mayFinish(run: UnrecordedRun, ending: RunEnding): boolean {
    return run.step === 'open' && !afterEnd(run.assigned.spec, run.assigned.attempt, ending, 0).retry
  }

  /** Resolves when all of these runs are in the database, or known not to be. */
  async record(isChosen: (run: UnrecordedRun) => boolean = () => true): Promise<void> {
    await Promise.all([...this.#runs.values()].filter(isChosen).map((run) => this.recordOne(run)))
  }

  /** Resolves when the run is in the database, or known not to be. */
  async recordOne(run: UnrecordedRun): Promise<void> {
    if (run.step === 'open') void this.#record(run)
    await run.recorded
  }

  /** The run is in the database with its end. */
  finish(run: UnrecordedRun, started: StartedRun): void {
    this.#runs.delete(run.id)
    run.settle(started)
  }

  /**
   * Its end was not written. It is recorded as started, and its worker reports the end again; if its task has changed since it was sent, it
   * starts with the task of now.
   */
  startOver(run: UnrecordedRun): void {
    if (this.#runs.has(run.id)) void this.#record(run)
  }

  /** Its end cannot be written with it. Resolves when it is recorded as started, or known not to be. */
  async recordFirst(run: UnrecordedRun): Promise<void> {
    this.startOver(run)
    await run.recorded
  }

  /** Resolves when every run is recorded; later ones are recorded first. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.record()
    clearTimeout(this.#timer)
  }

  /** Nothing else changes with the run, and nobody counts it. */
  #mayWait({
    broadcast,
    daemon,
    domain_id: domainId,
    grants,
    http,
    on_lost: onLost,
    publish_result: target,
  }: StartTask) {
    const { counted, quotas } = this.#deps.context
    const isPlain =
      !broadcast && !daemon && target === null && grants.length === 0 && http === null && onLost !== 'wait'
    return isPlain && !hasRunQuota(quotas, domainId) && refusalOf(counted, domainId) === undefined
  }

  /** Workers that queued runs could get. */
  #awaitedWorkers(): ReadonlySet<WorkerSession> {
    const { cluster, queues } = this.#deps.context
    if (queues.total === 0) return NO_WORKERS
    return new Set(queues.needs.flatMap((needs) => cluster.candidates(needs)))
  }

  /** Assignments of one turn of the event loop are one message. */
  #sendSoon(): void {
    if (this.#isSending) return
    this.#isSending = true
    setImmediate(() => {
      this.#isSending = false
      this.#deps.context.cluster.flush()
    })
  }

  #recordDue(): void {
    const dueMs = monotonicMs() - this.#deps.context.timing.recordAfterMs
    this.#timer = undefined
    for (const run of this.#runs.values()) {
      if (run.sinceMs > dueMs) {
        this.#timer = setTimeout(() => this.#recordDue(), run.sinceMs - dueMs)
        return
      }
      if (run.step === 'open') void this.#record(run)
    }
  }

  /** Records the run like a start that is placed already. Never rejects. */
  async #record(run: UnrecordedRun): Promise<void> {
    run.step = 'recording'
    let outcome: StartedRun | Error
    try {
      outcome = (await this.#deps.submit({ kind: 'start', request: run.request })) as StartedRun
    } catch (error) {
      outcome = error instanceof Error ? error : new ServiceError('internal', 'internal error', { cause: error })
      run.leaveWorker()
    }
    this.#runs.delete(run.id)
    run.settle(outcome)
    if (!(outcome instanceof Error) && run.hasBegun && run.isHeld) this.#deps.onBegun(run)
  }
}

type UnrecordedRunDeps = {
  request: StartRequest
  task: StartTask
  prepared: PreparedRun
  session: WorkerSession
  assigned: AssignedRun
  record: () => void
}

export class UnrecordedRun implements Unrecorded {
  readonly request: StartRequest
  readonly task: StartTask
  readonly prepared: PreparedRun
  readonly session: WorkerSession
  readonly assigned: AssignedRun
  readonly sinceMs = monotonicMs()
  readonly started = Promise.withResolvers<StartedRun>()
  /** open: no write has begun. finishing: with its end. recording: as started. */
  step: 'open' | 'finishing' | 'recording' = 'open'
  /** The worker has reported its start. */
  hasBegun = false
  readonly #record: () => void
  readonly #recorded = Promise.withResolvers<RunHandle | undefined>()
  #outputBytes = 0

  constructor({ request, task, prepared, session, assigned, record }: UnrecordedRunDeps) {
    this.request = request
    this.task = task
    this.prepared = prepared
    this.session = session
    this.assigned = assigned
    this.#record = record
    assigned.unrecorded = this
  }

  get id(): string {
    return this.assigned.id
  }

  get recorded(): Promise<RunHandle | undefined> {
    return this.#recorded.promise
  }

  holdOutput(bytes: number): void {
    this.#outputBytes += bytes
    if (this.#outputBytes > MAX_WAITING_OUTPUT_BYTES && this.step === 'open') this.#record()
  }

  /** Its worker still has it under its fence. */
  get isHeld(): boolean {
    return this.session.runs.get(this.id) === this.assigned
  }

  /** Whether a start of now would run the same. */
  isSame({ digest, needsHash, specJson }: PreparedRun): boolean {
    const { prepared } = this
    return digest === prepared.digest && needsHash === prepared.needsHash && specJson === prepared.specJson
  }

  /** Its worker must not run it any longer. */
  leaveWorker(): void {
    if (!this.isHeld) return
    this.session.runs.delete(this.id)
    this.session.cancel([this.assigned])
  }

  settle(outcome: StartedRun | Error): void {
    const { assigned } = this
    assigned.unrecorded = undefined
    if (outcome instanceof Error) {
      this.#recorded.resolve(undefined)
      this.started.reject(outcome)
      return
    }
    if (outcome.runKey !== undefined) assigned.key = outcome.runKey
    const isHere = outcome.ended !== undefined || this.isHeld
    this.#recorded.resolve(isHere && outcome.runKey !== undefined ? assigned : undefined)
    this.started.resolve(outcome)
  }
}
