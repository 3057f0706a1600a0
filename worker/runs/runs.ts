/**
 * The runs that this worker holds, from their assignment to the acknowledgement of their result. Independent of sessions:
 * reports without a session are part of the next Hello.
 */
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { HeldRunSchema, OfflineRunSchema, OnLost, RejectReason, RunResultSchema, WireTaskState } from '#proto/index.ts'
import type { Assignment, GuestReply, HeldRun, RunRef, RunResult, Welcome } from '#proto/index.ts'
import { bytesOf } from '#core/bytes/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs } from '#core/time.ts'
import { startSpan, traceIdOf, withSpan } from '#core/tracing/index.ts'
import type { Span } from '#core/tracing/index.ts'
import { toModuleRequest } from '../modules/index.ts'
import type { ModuleCache } from '../modules/index.ts'
import type { TickRun, TickRunner } from '../offline/index.ts'
import type { AssignmentJournal } from './assignment-journal.ts'
import type { GuestHttp } from '../http/index.ts'
import { GuestCalls } from './guest-calls.ts'
import { RunLogs } from './run-logs.ts'
import { refuseCall } from '../runner/index.ts'
import type { GuestCall, GuestReply as GuestAnswer, OutputName, RunOutcome, RunnerPool } from '../runner/index.ts'
import type { Outbox } from '../session/outbox.ts'
import { isComplete, keyOf, toRunRequest, toRunResult } from '../session/run-messages.ts'
import type { CheckedAssignment, RunEnd } from '../session/run-messages.ts'
import { SPOOL_WRITE_DELAY_MS } from '../spool/index.ts'
import type { Spool } from '../spool/index.ts'
import type { Components } from '../transpile/index.ts'

/** Why a run is ended early, which determines its report. */
type EndingFor =
  /** The manager cancelled it and waits for the confirmation. */
  | 'cancel'
  /** Nobody waits for it: a stale fence, or a lease that ended. */
  | 'nobody'
  /** The worker stops; another worker runs it. */
  | 'shutdown'

type Run = {
  assignment: CheckedAssignment
  receivedMs: number
  isRunning: boolean
  /** Heartbeats since it was accepted, or since it began. */
  beats: number
  abort: AbortController
  /** The time when the fetch of its module began; undefined: it is not being fetched. */
  fetchedSinceMs: number | undefined
  /** Since when it waits for a thread; undefined: it does not, or it has begun. */
  waitsSinceMs: number | undefined
  /** It was ended so that another run gets its slot. */
  isGivenBack: boolean
  endingFor: EndingFor | undefined
  /** Undefined: a manager assigned it. Otherwise no manager knows it before its end. */
  offline: StartedOffline | undefined
  span: Span
}

/** A run that this worker started by itself. */
type StartedOffline = {
  tick: TickRun
  withoutSession: boolean
  startedMs: number
  /** Its result is kept. */
  isKept: boolean
}

/** The outcome of the pool, or why the run never reached it. */
type Ended = RunOutcome | (RunEnd & { state: 'failed' }) | { state: 'crowded'; cause: string }

export type RunsDeps = {
  pool: RunnerPool
  modules: ModuleCache
  components: Components
  spool: Spool
  journal: AssignmentJournal
  http: GuestHttp
  slots: number
  /** Runs accepted beyond the slots, which begin when slots become free. */
  backlog: number
  /** Tasks of domains are refused. */
  isPlatformOnly: boolean
  /** The worker has a limit of memory, for which runs may wait. */
  isMemoryLimited: boolean
  logger: Logger
}

/** An unconfirmed report is repeated after this many heartbeats: a whole interval is between them. */
const BEATS_BEFORE_REPEAT = 2

/** A report is repeated with exponential backoff, for a manager whose database is unavailable. */
function isRepeatedAt(beats: number): boolean {
  return beats >= BEATS_BEFORE_REPEAT && Math.log2(beats) % 1 === 0
}

/** After this, at the next heartbeat, a slow module does not keep a slot that others may need. */
const FETCH_PATIENCE_MS = 2_000
/** After this, a run that waits for memory goes back. A small machine may take some seconds for the start of a runner. */
const MEMORY_PATIENCE_MS = 15_000

/** Limit per heartbeat; further ones are shown as not running yet. */
const MAX_PREPARING = 1_000

/** The run goes back to the manager without costing an attempt. */
function releaseToManager(run: Run, cause: string): void {
  if (run.abort.signal.aborted) return
  run.isGivenBack = true
  run.abort.abort(new ServiceError('rate_limited', cause))
}

export class Runs implements TickRunner {
  readonly #deps: RunsDeps
  readonly #held = new Map<string, Run>()
  readonly #guestCalls = new GuestCalls()
  readonly #logs = new RunLogs()
  /** Unacknowledged results, with the number of heartbeats since. */
  #unacknowledged = new Map<string, number>()
  /** Results that the disk refused when their runs ended. */
  readonly #unsaved = new Set<string>()
  #outbox: Outbox | undefined
  #finishedTotal = 0
  /** Ended runs whose result is not on disk yet. */
  #settling = 0
  #isDraining = false
  /** What the manager of this session heard last. */
  #saidDraining = false
  #onEmpty: (() => void) | undefined

  constructor(deps: RunsDeps) {
    this.#deps = deps
  }

  get count(): number {
    return this.#held.size
  }

  get freeSlots(): number {
    return Math.max(0, this.#deps.slots - this.#held.size)
  }

  get finishedTotal(): number {
    return this.#finishedTotal
  }

  get isDraining(): boolean {
    return this.#isDraining
  }

  set isDraining(isDraining: boolean) {
    this.#isDraining = isDraining
    this.tellWhetherItTakesRuns()
  }

  /**
   * Runs at each heartbeat. Tells the manager when this worker begins or ceases to refuse all runs. Without that, the manager would give it a run
   * that it has just rejected at once again. It takes runs again at a heartbeat at the earliest, so that it does not change back and forth.
   */
  tellWhetherItTakesRuns(): void {
    const draining = this.#isDraining || this.#deps.spool.isFull
    if (this.#outbox === undefined || draining === this.#saidDraining) return
    this.#saidDraining = draining
    this.#outbox.enqueue({ case: 'drainState', value: { draining, running: this.count } })
  }

  /** Lists the runs for the status display. */
  list(): { run_id: string; task: string; running: boolean; held_ms: number; on_lost_wait: boolean }[] {
    const nowMs = monotonicMs()
    return [...this.#held.values()].map(({ assignment, isRunning, receivedMs }) => ({
      run_id: assignment.run.runId,
      task: assignment.taskName,
      running: isRunning,
      held_ms: Math.round(nowMs - receivedMs),
      on_lost_wait: assignment.onLost === OnLost.WAIT,
    }))
  }

  /** The claims of Hello. */
  claims(): { running: HeldRun[]; spooled: RunRef[] } {
    const assigned = [...this.#held.values()].filter(({ offline }) => offline === undefined)
    const running = assigned.map(({ assignment, isRunning }) => {
      const state = isRunning ? WireTaskState.RUNNING : WireTaskState.SCHEDULED
      return create(HeldRunSchema, { run: assignment.run, state })
    })
    const spooled = this.#deps.spool.results().flatMap(({ payload }) => {
      const { run, offline } = fromBinary(RunResultSchema, payload)
      return run === undefined || offline !== undefined ? [] : [run]
    })
    return { running, spooled }
  }

  /** A session was established: reconciles the claims of Hello, and later reports use this session. */
  connect(outbox: Outbox, welcome: Welcome): void {
    this.#outbox = outbox
    this.#unacknowledged.clear()
    for (const run of welcome.acknowledged) this.#forget(keyOf(run))
    this.#saidDraining = false
    this.tellWhetherItTakesRuns()
    for (const run of welcome.stop) this.#end(keyOf(run), 'nobody')
    this.#guestCalls.connect(outbox)
    this.#logs.connect(outbox)
    // Includes results since Hello.
    for (const { payload } of this.#deps.spool.results()) this.#sendSpooled(payload)
  }

  /** A manager of an earlier version would drop the result of a run that it did not assign. */
  #sendSpooled(payload: Uint8Array): void {
    const result = fromBinary(RunResultSchema, payload)
    if (result.offline === undefined || this.#outbox?.takesOfflineRuns === true) this.#outbox?.ended(result)
  }

  disconnect(): void {
    this.#outbox = undefined
    this.#deps.spool.writeDeferredNow()
    this.#guestCalls.disconnect()
    this.#logs.disconnect()
  }

  /** Continues unfinished assignments of an earlier process of this worker; works without a manager. */
  async resume(): Promise<void> {
    for (const assignment of await this.#deps.journal.read()) {
      if (!isComplete(assignment)) continue
      const key = keyOf(assignment.run)
      if (this.#deps.spool.find(key) === undefined) void this.#execute(assignment, 'resumed')
      else await this.#deps.journal.remove(key)
    }
  }

  take(assignment: Assignment): void {
    const { run } = assignment
    if (run === undefined || this.#isKnown(run)) return
    const refusal = this.#findRefusal(assignment)
    if (refusal !== undefined) {
      // Before the rejection, which lets the manager look for a worker.
      if (this.#deps.spool.isFull) this.tellWhetherItTakesRuns()
      return this.#outbox?.rejected(run, ...refusal)
    }
    if (isComplete(assignment)) {
      void this.#execute(assignment, 'assigned')
      return
    }
    this.#outbox?.accepted(run)
    const limits = { timeoutMs: 0n, memoryLimitBytes: 0n, maxOutputBytes: 0n, maxResultBytes: 4096n }
    const incomplete = { ...assignment, run, limits, module: { digest: '' } } as CheckedAssignment
    const error = 'the assignment has no module, or a limit is zero'
    void this.#record(incomplete, { state: 'failed', reason: 'module_invalid', error, durationMs: 0 }, 0)
  }

  /** A repeated assignment: the manager did not receive the report about it, so it is sent again. */
  #isKnown(run: RunRef): boolean {
    const held = this.#held.get(keyOf(run))
    if (held !== undefined) {
      if (held.isRunning) this.#outbox?.started(run)
      else this.#outbox?.accepted(run)
      return true
    }
    const result = this.#deps.spool.find(keyOf(run))
    if (result !== undefined) this.#outbox?.ended(fromBinary(RunResultSchema, result))
    return result !== undefined
  }

  /** Runs at each heartbeat. Repeats reports from before the last one, which may be lost. */
  resendUnconfirmed(): void {
    for (const run of this.#held.values()) {
      run.beats++
      if (run.beats !== BEATS_BEFORE_REPEAT || run.offline !== undefined) continue
      if (run.isRunning) this.#outbox?.started(run.assignment.run)
      else this.#outbox?.accepted(run.assignment.run)
    }
    const unheard = new Map<string, number>()
    for (const { key, payload } of this.#deps.spool.results()) {
      const beats = (this.#unacknowledged.get(key) ?? 0) + 1
      unheard.set(key, beats)
      if (isRepeatedAt(beats)) this.#sendSpooled(payload)
    }
    this.#unacknowledged = unheard
  }

  /**
   * Runs at each heartbeat. While every slot is held, runs whose module arrives slowly go back to the manager, and where memory is limited those
   * that wait for it: the manager does not know what a module takes. The fetch goes on for their next assignment.
   */
  giveBackSlow(): void {
    const nowMs = monotonicMs()
    const isFull = this.#held.size >= this.#deps.slots
    for (const run of this.#held.values()) {
      const { fetchedSinceMs = Infinity, waitsSinceMs = Infinity } = run
      if (run.offline !== undefined) continue
      if (isFull && nowMs - fetchedSinceMs >= FETCH_PATIENCE_MS)
        releaseToManager(run, 'its module is still being fetched, and others need the slot')
      else if (this.#deps.isMemoryLimited && nowMs - waitsSinceMs >= MEMORY_PATIENCE_MS)
        releaseToManager(run, 'it waits for memory that others have')
    }
  }

  /** Runs whose component is being transpiled or waits for it, with its position, for a heartbeat. */
  preparing(): { run: RunRef; position: number }[] {
    const preparing = [...this.#held.values()].flatMap(({ assignment, isRunning, offline }) => {
      const position =
        isRunning || offline !== undefined ? undefined : this.#deps.components.positionOf(assignment.module.digest)
      return position === undefined ? [] : [{ run: assignment.run, position }]
    })
    return preparing.slice(0, MAX_PREPARING)
  }

  cancel(run: RunRef): void {
    if (!this.#held.has(keyOf(run))) return this.#outbox?.cancelled(run, false)
    this.#end(keyOf(run), 'cancel')
  }

  /** An answer to a guest call. */
  answerGuest(reply: GuestReply): void {
    this.#guestCalls.answer(reply)
  }

  acknowledge(run: RunRef, isRecorded: boolean): void {
    if (!isRecorded) this.#deps.logger.info({ run: keyOf(run) }, 'dropped a stale result')
    this.#forget(keyOf(run))
  }

  #forget(key: string): void {
    this.#deps.spool.acknowledge(key)
    if (this.#unsaved.delete(key))
      this.#deps.journal.remove(key).catch((error: unknown) => {
        this.#deps.logger.warn({ err: error }, 'failed to remove an assignment that has ended')
      })
  }

  /** The lease expired: ends all runs except those with `on_lost: wait`. True if any was ended. */
  endForLease(): boolean {
    let hasEnded = false
    for (const [key, { assignment, offline }] of this.#held) {
      if (assignment.onLost === OnLost.WAIT || offline !== undefined) continue
      hasEnded = true
      this.#end(key, 'nobody')
    }
    return hasEnded
  }

  /** Rejects queued runs at once, and running ones after `graceMs`. Resolves when no run is held. */
  async drain(graceMs: number): Promise<void> {
    this.isDraining = true
    for (const [key, { isRunning }] of this.#held) if (!isRunning) this.#end(key, 'shutdown')
    if (this.#isEmpty) return
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#onEmpty = resolve
    const timer = setTimeout(() => {
      for (const key of this.#held.keys()) this.#end(key, 'shutdown')
    }, graceMs)
    await promise
    clearTimeout(timer)
  }

  refusalOfTick(taskId: string): string | undefined {
    if (this.#isDraining) return 'the worker is draining'
    if (this.#deps.spool.isFull) return 'too many results are unacknowledged'
    const isUnderWay = this.#held.values().some(({ assignment }) => assignment.taskId === taskId)
    return isUnderWay ? 'a run of the task has not ended' : undefined
  }

  async runTick(assignment: CheckedAssignment, tick: TickRun): Promise<boolean> {
    if (this.#isDraining) return false
    const key = keyOf(assignment.run)
    const onGone = () => this.#end(key, 'nobody')
    tick.signal.addEventListener('abort', onGone, { once: true })
    const started = this.#startedOffline(tick)
    await this.#execute(assignment, started)
    tick.signal.removeEventListener('abort', onGone)
    return started.isKept
  }

  async loseTick(assignment: CheckedAssignment, tick: TickRun): Promise<void> {
    const end: RunEnd = {
      state: 'failed',
      reason: 'worker_lost',
      error: 'the worker was stopped before the run had ended',
      durationMs: 0,
    }
    const started = this.#startedOffline(tick)
    await this.#storeOffline(assignment, toOfflineResult({ assignment, end, prepareMs: 0, started }))
  }

  #startedOffline(tick: TickRun): StartedOffline {
    return { tick, withoutSession: this.#outbox === undefined, startedMs: tick.nowMs(), isKept: false }
  }

  hasResult({ run }: CheckedAssignment): boolean {
    return this.#deps.spool.find(keyOf(run)) !== undefined
  }

  reportTick({ run }: CheckedAssignment): void {
    const payload = this.#deps.spool.find(keyOf(run))
    if (payload !== undefined) this.#sendSpooled(payload)
  }

  #findRefusal({ domainId }: Assignment): [RejectReason, string] | undefined {
    if (this.#deps.isPlatformOnly && domainId !== '') {
      return [RejectReason.ISOLATION, 'the isolation level is too weak for a task of a domain']
    }
    if (this.#isDraining) return [RejectReason.DRAINING, 'the worker is draining']
    if (this.#deps.spool.isRefused) return [RejectReason.NO_SLOT, 'the disk of the worker refuses results: is it full?']
    if (this.#deps.spool.isFull) return [RejectReason.NO_SLOT, 'too many results are unacknowledged']
    const { slots, backlog } = this.#deps
    if (this.#held.size < slots + backlog) return undefined
    return [RejectReason.NO_SLOT, `all ${slots} slots and the backlog of ${backlog} runs are full`]
  }

  #end(key: string, endingFor: EndingFor): void {
    const run = this.#held.get(key)
    if (run === undefined) return
    // A discarded run stays discarded: its fence is void.
    if (run.endingFor !== 'nobody') run.endingFor = endingFor
    run.abort.abort(new ServiceError('unavailable', `the run was ended: ${endingFor}`))
  }

  /** A run that no other worker gets is on disk before it is confirmed to the manager. */
  async #keep(assignment: CheckedAssignment): Promise<void> {
    await this.#deps.journal.add(keyOf(assignment.run), assignment).catch((error: unknown) => {
      this.#deps.logger.error({ err: error }, 'failed to store an assignment; a restart would lose it')
    })
  }

  async #execute(assignment: CheckedAssignment, origin: 'assigned' | 'resumed' | StartedOffline): Promise<void> {
    const key = keyOf(assignment.run)
    const offline = typeof origin === 'object' ? origin : undefined
    const run: Run = {
      assignment,
      receivedMs: monotonicMs(),
      isRunning: false,
      beats: 0,
      abort: new AbortController(),
      fetchedSinceMs: undefined,
      waitsSinceMs: undefined,
      isGivenBack: false,
      endingFor: undefined,
      offline,
      span: spanOf(assignment),
    }
    this.#held.set(key, run)
    if (origin === 'assigned') {
      if (assignment.onLost === OnLost.WAIT) await this.#keep(assignment)
      this.#outbox?.accepted(assignment.run)
    }
    let startedMs = 0
    const onStarted = () => {
      startedMs = monotonicMs()
      if (run.isRunning) return
      run.isRunning = true
      run.waitsSinceMs = undefined
      run.beats = 0
      if (offline === undefined) this.#outbox?.started(assignment.run)
      else offline.startedMs = offline.tick.nowMs()
    }
    const outcome = await this.#run(run, onStarted)
    // What it says of a request comes before the end of the run.
    this.#deps.http.end(assignment)
    endSpan(run.span, outcome)
    this.#outbox?.ending(assignment.run)
    const isLeftForNextStart = run.endingFor === 'shutdown' && this.#outbox === undefined
    const settling = this.#settle(run, outcome, startedMs === 0 ? 0 : startedMs - run.receivedMs)
    // Its end is being sent: the manager can assign its slot before the disk is done.
    this.#guestCalls.endCallsOf(assignment.run)
    this.#logs.end(assignment.run)
    this.#held.delete(key)
    this.#finishedTotal++
    this.#settling++
    await settling
    // Without a result on disk, the next start runs it again.
    if (!isLeftForNextStart && offline === undefined && assignment.onLost === OnLost.WAIT && !this.#unsaved.has(key))
      await this.#deps.journal.remove(key)
    this.#settling--
    if (this.#isEmpty) this.#onEmpty?.()
  }

  get #isEmpty(): boolean {
    return this.#held.size === 0 && this.#settling === 0
  }

  /** Never rejects: a failure before the call is an outcome too. */
  async #run(run: Run, onStarted: () => void): Promise<Ended> {
    const { assignment, abort } = run
    const parent = run.span.traceparent
    try {
      run.fetchedSinceMs = monotonicMs()
      const module = await withSpan('fetch module', { parent }, () =>
        this.#deps.modules.get(toModuleRequest(assignment.module), abort.signal),
      )
      run.fetchedSinceMs = undefined
      try {
        const folder = await this.#deps.components.prepare(assignment.module.digest, module.path, {
          domainId: assignment.domainId,
          signal: abort.signal,
        })
        const request = toRunRequest(assignment, module.path, folder)
        const { run: ref } = assignment
        const hooks = {
          onStarted,
          onGuestCall: (callId: number, call: GuestCall): Promise<GuestAnswer> => {
            if (run.offline !== undefined) return Promise.resolve(NO_PLATFORM)
            if (call.kind !== 'http') return this.#guestCalls.ask(assignment, callId, call)
            return this.#deps.http.ask({ assignment, parent, log: (line) => this.#logRequest(ref, line) }, callId, call)
          },
          onOutput: (output: OutputName, data: Uint8Array) => {
            if (run.offline === undefined) this.#logs.write(ref, output, data)
          },
        }
        run.waitsSinceMs = monotonicMs()
        const outcome = await withSpan('call guest', { parent }, () =>
          this.#deps.pool.run({ ...request, ...hooks }, abort.signal),
        )
        // A run whose wait was ended began nothing.
        if (run.isGivenBack && !run.isRunning) abort.signal.throwIfAborted()
        return outcome
      } finally {
        module.release()
      }
    } catch (error) {
      if (abort.signal.aborted && !run.isGivenBack) return { state: 'stopped', durationMs: 0 }
      const message = error instanceof Error ? error.message : String(error)
      if (kindOf(error) === 'rate_limited') return { state: 'crowded', cause: message }
      const reason = kindOf(error) === 'malformed' ? 'module_invalid' : 'fetch_failed'
      if (kindOf(error) === 'internal')
        this.#deps.logger.error(
          { err: error, digest: assignment.module.digest, trace_id: traceIdOf(parent) },
          'failed to prepare a run',
        )
      return { state: 'failed', reason, error: message, durationMs: 0 }
    }
  }

  #logRequest(run: RunRef, line: string): void {
    this.#logs.write(run, 'http', Buffer.from(`${line}\n`))
  }

  async #settle(run: Run, outcome: Ended, prepareMs: number): Promise<void> {
    const { assignment, endingFor, offline } = run
    const ref = assignment.run
    if (endingFor === 'nobody') return
    if (offline !== undefined) return await this.#settleOffline(assignment, outcome, prepareMs, offline)
    const hasNotEnded = outcome.state === 'stopped' || outcome.state === 'requeue' || outcome.state === 'crowded'
    if (hasNotEnded && endingFor === 'cancel') {
      await this.#record(
        assignment,
        { state: 'stopped', durationMs: 'durationMs' in outcome ? outcome.durationMs : 0 },
        prepareMs,
      )
      this.#outbox?.cancelled(ref, true)
      return
    }
    if (outcome.state === 'stopped') {
      this.#outbox?.rejected(ref, RejectReason.DRAINING, 'the worker is shutting down')
      return
    }
    if (outcome.state === 'crowded') {
      this.#outbox?.rejected(ref, RejectReason.CROWDED, outcome.cause)
      return
    }
    if (outcome.state === 'requeue') {
      this.#outbox?.rejected(ref, RejectReason.RUNNER_KILLED, outcome.cause)
      return
    }
    const result = toRunResult(assignment, outcome, prepareMs)
    const isRepeated = result.outputInResult && this.#outbox?.takesOutputInResult === true
    if (!isRepeated) this.#reportOutput(ref, outcome)
    await this.#store(assignment, outcome, result)
    // It ended before the cancellation reached it: its result is used.
    if (endingFor === 'cancel') this.#outbox?.cancelled(ref, false)
  }

  /** What has not ended begins again: no manager can give it to another worker. */
  async #settleOffline(
    assignment: CheckedAssignment,
    end: Ended,
    prepareMs: number,
    started: StartedOffline,
  ): Promise<void> {
    if (end.state === 'stopped' || end.state === 'requeue' || end.state === 'crowded') return
    await this.#storeOffline(assignment, toOfflineResult({ assignment, end, prepareMs, started }))
    started.isKept = true
  }

  /** The result is on disk before it is sent. If the disk refuses it, it is in memory, and is written again later. */
  async #storeOffline({ run }: CheckedAssignment, result: RunResult): Promise<void> {
    const stored = this.#deps.spool.add(keyOf(run), toBinary(RunResultSchema, result), 'now')
    await stored.catch((error: unknown) => {
      this.#deps.logger.error({ err: error }, 'failed to spool a result; a crash would lose it')
    })
  }

  /** Output of a short run comes with its end; of a longer one only the rest is sent. */
  #reportOutput(run: RunRef, outcome: Ended): void {
    if (!('stdout' in outcome) && !('stderr' in outcome)) return
    const { stdout = '', stderr = '', isOutputTruncated = false } = outcome
    if ('isStreamed' in outcome && outcome.isStreamed) return
    this.#logs.write(run, 'stdout', bytesOf(stdout), isOutputTruncated)
    this.#logs.write(run, 'stderr', bytesOf(stderr), isOutputTruncated)
  }

  async #record(assignment: CheckedAssignment, end: RunEnd, prepareMs: number): Promise<void> {
    await this.#store(assignment, end, toRunResult(assignment, end, prepareMs))
  }

  /**
   * Sends the end at once, independent of the disk: the manager's record is authoritative, and a run that both lose is
   * run again. Therefore a quickly repeatable result is only written to disk if the manager does not answer: syncing many
   * results costs more than they are worth (docs/performance.md).
   */
  async #store(assignment: CheckedAssignment, end: RunEnd, result: RunResult): Promise<void> {
    const isCheap = assignment.onLost !== OnLost.WAIT && end.durationMs < SPOOL_WRITE_DELAY_MS
    const urgency = isCheap && this.#outbox !== undefined ? 'deferred' : 'now'
    const stored = this.#deps.spool.add(keyOf(assignment.run), toBinary(RunResultSchema, result), urgency)
    this.#outbox?.ended(result)
    await stored.catch((error: unknown) => {
      // The manager had it before the disk refused it: no acknowledgement follows that would remove it from this set.
      if (this.#deps.spool.find(keyOf(assignment.run)) === undefined) return
      this.#unsaved.add(keyOf(assignment.run))
      this.#deps.logger.error({ err: error }, 'failed to spool a result; a crash would lose it')
    })
  }
}

/** What a guest of an offline task gets for a call of the platform. */
const NO_PLATFORM = refuseCall('forbidden', 'an offline task has no channels and no state')

type OfflineEnd = { assignment: CheckedAssignment; end: RunEnd; prepareMs: number; started: StartedOffline }

function toOfflineResult({ assignment, end, prepareMs, started }: OfflineEnd): RunResult {
  const { tick, withoutSession, startedMs } = started
  const offline = create(OfflineRunSchema, {
    taskId: assignment.taskId,
    tickMs: BigInt(tick.tickMs),
    startedMs: BigInt(Math.max(startedMs, 0)),
    finishedMs: BigInt(Math.max(tick.nowMs(), startedMs, 0)),
    withoutSession,
    missed: tick.missed,
  })
  return create(RunResultSchema, { ...toRunResult(assignment, end, prepareMs), offline })
}

function spanOf({ run, taskId, domainId, module, traceparent }: CheckedAssignment): Span {
  const attributes = {
    'skein.run.id': run.runId,
    'skein.run.attempt': run.attempt,
    'skein.task.id': taskId,
    'skein.domain.id': domainId === '' ? undefined : domainId,
    'skein.module.digest': module.digest,
  }
  return startSpan('run', { kind: 'consumer', parent: traceparent, attributes })
}

function endSpan(span: Span, outcome: Ended): void {
  span.setAttributes({ 'skein.run.state': outcome.state })
  if (outcome.state === 'failed') {
    span.fail(new ServiceError('unprocessable', outcome.error ?? 'the run failed'))
    span.setAttributes({ 'error.type': outcome.reason })
  }
  span.end()
}
