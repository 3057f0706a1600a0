/**
 * The runner processes of a pool: starts them, assigns runs to their threads, enforces deadlines and memory, and handles
 * each run when a thread or a runner ends. The pool decides the placement.
 */
import { monotonicMs } from '#core/time.ts'
import { refuseCall } from '#guests/wasm/index.ts'
import { DEFAULT_OVERHEAD_BYTES, memoryBudgetBytes, findModulesToDrop } from './memory-budget.ts'
import { onRunnerExit } from './runner-exit.ts'
import type { CallTimes } from './call-times.ts'
import { GuestThreadRuns } from './guest-thread-runs.ts'
import type { FromRunner } from './messages.ts'
import type { RunnerPoolOptions } from './pool-options.ts'
import type { PendingRun } from './run-request.ts'
import { SHORT_CALL_MS, heldRuns, isHoldingRuns, isIdle, isStartSlow, runsUnderWay, servedBy } from './runner.ts'
import type { GuestThread, Runner } from './runner.ts'
import { RunnerProcess } from './runner-process.ts'
import { StartFailures } from './start-failures.ts'
import type { CrashQuarantine } from './crash-quarantine.ts'

const DEFAULT_IDLE_MS = 60_000
/** Interval of deadline checks while a run is active. */
const DEADLINE_INTERVAL_MS = 10
/** Interval of memory checks while a runner exists. */
const MEMORY_INTERVAL_MS = 100
const START_DEADLINE_MS = 10_000
const LOAD_DEADLINE_MS = 30_000
/** Burst of output messages of a run, and the rate beyond it: more than a thread (`guest-thread-host.ts`) ever sends. */
const MAX_OUTPUT_PIECES = 10_000
const MAX_OUTPUT_PIECES_PER_MS = 1
const NO_CHANNELS = 'no channel is granted to this task'

/** Why a runner process was killed; crash: it exited unexpectedly. */
export type KillReason = 'memory' | 'stuck' | 'start' | 'compile' | 'fault' | 'crash'

export type SupervisorHooks = {
  /** A thread, a module or a runner became available. */
  onCapacity: () => void
  /** Assigned runs that have not begun; they are placed first. */
  onReturned: (runs: PendingRun[]) => void
  /** No runner can run this module. */
  onModuleRefused: (moduleKey: string, reason: 'module_invalid' | 'oom', error: string) => void
  /** Runner processes fail to start. */
  onUnstartable: (cause: string) => void
}

export type SupervisorDeps = RunnerPoolOptions & {
  hooks: SupervisorHooks
  quarantine: CrashQuarantine
  callTimes: CallTimes
}

export class RunnerSupervisor {
  readonly runners: Runner[] = []
  /** Runner processes that ended otherwise than they were meant to, since the start. */
  readonly kills: Record<KillReason, number> = { memory: 0, stuck: 0, start: 0, compile: 0, fault: 0, crash: 0 }
  readonly #deps: SupervisorDeps
  readonly #overheadBytes: number
  readonly #idleMs: number
  readonly #threadRuns: GuestThreadRuns
  readonly #startFailures = new StartFailures()
  #sequence = 0
  #deadlineTimer: NodeJS.Timeout | undefined
  #memoryTimer: NodeJS.Timeout | undefined
  #retryTimer: NodeJS.Timeout | undefined
  #isClosed = false

  constructor(deps: SupervisorDeps) {
    this.#deps = deps
    this.#threadRuns = new GuestThreadRuns(deps.hooks.onReturned)
    this.#overheadBytes = deps.overheadBytes ?? DEFAULT_OVERHEAD_BYTES
    this.#idleMs = deps.idleMs ?? DEFAULT_IDLE_MS
  }

  /** Starts one more runner; it accepts no runs until it is ready. No effect while earlier starts fail. */
  start(): void {
    const nowMs = monotonicMs()
    if (this.#isClosed || !this.#startFailures.mayStart(nowMs)) return
    const taken = new Set(this.runners.map((runner) => runner.index))
    let index = 0
    while (taken.has(index)) index++
    const { isolation, codeFolder } = this.#deps
    const process = new RunnerProcess(
      { isolation, codeFolder, index },
      {
        onMessage: (message) => this.#receive(runner, message),
        onFault: (cause) => this.#kill(runner, cause, 'fault'),
        onExit: (cause) => this.#onRunnerExit(runner, cause),
      },
    )
    const runner: Runner = {
      index,
      process,
      state: 'starting',
      domain: undefined,
      isAlone: false,
      threads: [],
      modules: new Map(),
      idleSinceMs: nowMs,
      startedMs: nowMs,
      hasStarted: false,
      killCause: undefined,
      isOverMemory: false,
      sentModules: 0,
      sentRuns: 0,
    }
    this.runners.push(runner)
    this.#memoryTimer ??= setInterval(() => this.#watchRunners(), MEMORY_INTERVAL_MS)
  }

  openThread(runner: Runner): void {
    const index = runner.threads.length
    runner.threads.push({ index, isReady: false, runs: [], headSinceMs: 0, isRecalling: false, killing: undefined })
    runner.process.send({ type: 'open_thread', thread: index })
  }

  loadModule(runner: Runner, run: PendingRun): void {
    const { modulePath, componentFolder, moduleBytes: bytes, call } = run.request
    const nowMs = monotonicMs()
    for (const moduleKey of findModulesToDrop(runner, bytes, this.#deps.memory?.loadedBytes)) {
      runner.modules.delete(moduleKey)
      runner.process.send({ type: 'drop_module', moduleKey })
    }
    runner.modules.set(run.moduleKey, {
      bytes,
      domain: run.request.domain,
      digest: run.request.digest,
      state: 'loading',
      loadDeadlineMs: nowMs + LOAD_DEADLINE_MS,
      lastUsedMs: nowMs,
    })
    const { maxModuleBytes, allowGc } = this.#deps
    runner.sentModules++
    runner.domain = run.request.domain
    runner.process.loadModule(
      { moduleKey: run.moduleKey, memoryLimitBytes: call.memoryLimitBytes, maxModuleBytes, allowGc },
      { modulePath, componentFolder },
    )
  }

  /** Assigns the run to the thread, whose runner has loaded its module. */
  handOver(runner: Runner, thread: GuestThread, run: PendingRun): void {
    const { request } = run
    run.sequence = ++this.#sequence
    run.answeredCalls = 0
    run.isCalling = false
    run.outputBytes = { stdout: 0, stderr: 0 }
    run.outputPieces = 0
    run.handedOverMs = monotonicMs()
    run.withinMemoryAt = undefined
    runner.sentRuns++
    const module = runner.modules.get(run.moduleKey)
    if (module !== undefined) module.lastUsedMs = monotonicMs()
    thread.runs.push(run)
    runner.process.send({
      type: 'run',
      thread: thread.index,
      order: {
        sequence: run.sequence,
        moduleKey: run.moduleKey,
        call: request.call,
      },
    })
    if (thread.runs.length === 1) this.#threadRuns.beginHead(thread)
    this.#deadlineTimer ??= setInterval(() => this.#watchDeadlines(), DEADLINE_INTERVAL_MS)
  }

  /** Ends an assigned run as `stopped`: at once if it has not begun, else when its thread has exited. */
  stop(run: PendingRun): void {
    for (const runner of this.runners) {
      for (const thread of runner.threads) {
        const position = thread.runs.indexOf(run)
        if (position === -1) continue
        const durationMs = position === 0 ? monotonicMs() - thread.headSinceMs : 0
        if (position === 0) return this.#threadRuns.kill(runner, thread, { state: 'stopped', durationMs })
        run.end({ state: 'stopped', durationMs })
        return this.#threadRuns.recall(runner, thread)
      }
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    clearInterval(this.#deadlineTimer)
    clearInterval(this.#memoryTimer)
    clearTimeout(this.#retryTimer)
    for (const runner of this.runners) {
      for (const run of heldRuns(runner)) run.end({ state: 'stopped', durationMs: 0 })
      if (runner.threads.some((thread) => thread.runs.length > 0)) runner.process.kill()
    }
    await Promise.all(this.runners.map((runner) => runner.process.close()))
  }

  /** False: the message had no effect. */
  #receive(runner: Runner, message: FromRunner): boolean {
    let isOfUse = true
    switch (message.type) {
      case 'ready':
        if (runner.state !== 'starting') throw new Error('it reported ready twice')
        runner.state = 'ready'
        this.openThread(runner)
        break
      case 'thread_ready':
        isOfUse = !threadOf(runner, message.thread).isReady
        threadOf(runner, message.thread).isReady = true
        runner.idleSinceMs = monotonicMs()
        runner.hasStarted = true
        this.#startFailures.succeeded()
        break
      case 'thread_ended': {
        const thread = threadOf(runner, message.thread)
        if (thread.killing === undefined) throw new Error('it reported the end of a thread that was not being ended')
        this.#threadRuns.endKilled(thread)
        this.#threadRuns.settle(runner)
        break
      }
      case 'thread_lost':
        isOfUse = threadOf(runner, message.thread).runs.length > 0
        this.#threadRuns.lose(runner, threadOf(runner, message.thread), message.error)
        break
      case 'module_ready':
        isOfUse = this.#receiveModule(runner, message)
        break
      case 'ended':
        isOfUse = this.#receiveEnd(runner, message)
        break
      case 'recalled': {
        const thread = threadOf(runner, message.thread)
        isOfUse = thread.isRecalling
        thread.isRecalling = false
        this.#threadRuns.takeBack(thread, (run) => message.sequences.includes(run.sequence))
        this.#threadRuns.settle(runner)
        break
      }
      case 'guest_call':
        return this.#serveGuest(runner, message)
      case 'output':
        return this.#passOutput(runner, message)
      case 'resident':
        return false
    }
    if (isOfUse) this.#deps.hooks.onCapacity()
    return isOfUse
  }

  #receiveModule(runner: Runner, message: Extract<FromRunner, { type: 'module_ready' }>): boolean {
    const { moduleKey, refused, reason = 'module_invalid' } = message
    const module = runner.modules.get(moduleKey)
    if (module?.state !== 'loading') return false
    // The run that needed it is placed next.
    runner.idleSinceMs = monotonicMs()
    if (refused === undefined) {
      module.state = 'ready'
      return true
    }
    runner.modules.delete(moduleKey)
    this.#deps.hooks.onModuleRefused(moduleKey, reason, refused)
    return true
  }

  #receiveEnd(runner: Runner, message: Extract<FromRunner, { type: 'ended' }>): boolean {
    const thread = threadOf(runner, message.thread)
    const position = thread.runs.findIndex((run) => run.sequence === message.sequence)
    const [run] = position === -1 ? [] : thread.runs.splice(position, 1)
    if (run === undefined) return false
    this.#deps.callTimes.record(run.moduleKey, message.durationMs)
    const { outcome, durationMs, cpuMs, memoryBytes, isStreamed, stateEntries } = message
    const state = stateEntries === undefined ? {} : { stateEntries }
    run.end({ ...outcome, durationMs, cpuMs, memoryBytes, isStreamed, ...state })
    if (position === 0) this.#threadRuns.beginHead(thread)
    this.#threadRuns.settle(runner)
    return true
  }

  /** A thread limits its output; a runner that sends more is compromised. */
  #passOutput(runner: Runner, message: Extract<FromRunner, { type: 'output' }>): boolean {
    const run = findRun(runner, message)
    if (run === undefined) return false
    const data = Buffer.from(message.data, 'base64')
    run.outputPieces++
    const elapsedMs = monotonicMs() - run.handedOverMs
    if (run.outputPieces > MAX_OUTPUT_PIECES + elapsedMs * MAX_OUTPUT_PIECES_PER_MS) {
      throw new Error('a run sent more output messages than a thread can send')
    }
    run.outputBytes[message.output] += data.length
    if (run.outputBytes[message.output] > run.request.call.maxOutputBytes)
      throw new Error('a run exceeded its output limit')
    run.request.onOutput?.(message.output, data)
    return true
  }

  #serveGuest(runner: Runner, message: Extract<FromRunner, { type: 'guest_call' }>): boolean {
    const run = findRun(runner, message)
    if (run === undefined) return false
    // A guest waits for the answer of one call before the next.
    if (message.callId !== run.answeredCalls + 1 || run.isCalling) throw new Error('a call is out of order')
    void this.#answerGuest(runner, run, message)
    return true
  }

  async #answerGuest(
    runner: Runner,
    run: PendingRun,
    { thread, sequence, callId, call }: Extract<FromRunner, { type: 'guest_call' }>,
  ): Promise<void> {
    run.isCalling = true
    const reply = (await run.request.onGuestCall?.(callId, call)) ?? refuseCall('forbidden', NO_CHANNELS)
    run.isCalling = false
    run.answeredCalls = callId
    // The thread may have been ended meanwhile; it drops an answer for an ended run.
    if (runner.state === 'ready') runner.process.send({ type: 'guest_reply', thread, sequence, callId, reply })
  }

  #watchDeadlines(): void {
    const nowMs = monotonicMs()
    let isAnythingHeld = false
    for (const runner of this.runners) {
      for (const thread of runner.threads) {
        const [head] = thread.runs
        if (head === undefined) continue
        isAnythingHeld = true
        const durationMs = nowMs - thread.headSinceMs
        if (thread.killing !== undefined) {
          if (nowMs > thread.killing.deadlineMs) this.#kill(runner, 'a thread did not end at its deadline', 'stuck')
        } else if (durationMs >= head.request.timeoutMs) {
          const error = `the run did not end within ${head.request.timeoutMs} ms`
          this.#threadRuns.kill(runner, thread, { state: 'failed', reason: 'timeout', error, durationMs })
        } else if (thread.runs.length > 1 && durationMs > SHORT_CALL_MS) {
          this.#threadRuns.recall(runner, thread)
        }
      }
    }
    if (isAnythingHeld) return
    clearInterval(this.#deadlineTimer)
    this.#deadlineTimer = undefined
  }

  #watchRunners(): void {
    const nowMs = monotonicMs()
    for (const runner of this.runners) {
      const residentBytes = runner.process.residentBytes()
      const allowed = memoryBudgetBytes(runner, this.#overheadBytes)
      if (residentBytes > allowed) {
        runner.isOverMemory = true
        this.#kill(runner, `its resident memory of ${residentBytes} bytes exceeded ${allowed} bytes`, 'memory')
      } else for (const run of runsUnderWay(runner)) run.withinMemoryAt = servedBy(runner)
      if (isStartSlow(runner, nowMs)) this.#deps.hooks.onCapacity()
      if (runner.state === 'starting' && nowMs - runner.startedMs > START_DEADLINE_MS)
        this.#kill(runner, 'it did not start in time', 'start')
      for (const module of runner.modules.values()) {
        const isLate = module.state === 'loading' && nowMs > module.loadDeadlineMs
        if (isLate) this.#kill(runner, `a module was not compiled within ${LOAD_DEADLINE_MS} ms`, 'compile')
      }
      const isUnused = isIdle(runner) && nowMs - runner.idleSinceMs > this.#idleMs
      const isSpareOfOthers = runner.domain === undefined && this.runners.some(({ domain }) => domain !== undefined)
      if (isUnused && !isSpareOfOthers) this.retire(runner)
    }
  }

  /** Ends a runner without runs. */
  retire(runner: Runner): void {
    runner.state = 'dying'
    void runner.process.close()
  }

  #kill(runner: Runner, cause: string, reason: KillReason): void {
    if (runner.state === 'dying') return
    this.kills[reason] += 1
    runner.killCause = cause
    if (runner.state === 'ready') runner.state = 'dying'
    runner.process.kill()
  }

  /** The process has exited. Its active runs end or are requeued. */
  #onRunnerExit(runner: Runner, exit: string): void {
    const cause = runner.killCause ?? exit
    this.runners.splice(this.runners.indexOf(runner), 1)
    if (this.#isClosed) return
    const wasSentAway = runner.state === 'dying' && runner.killCause === undefined
    if (runner.killCause === undefined && !wasSentAway) this.kills.crash += 1
    if (!runner.hasStarted && !wasSentAway) this.#countStartFailure(cause)
    if (isHoldingRuns(runner) || runner.state !== 'dying') {
      this.#deps.logger.warn(
        { pid: runner.process.pid, cause, underWay: runsUnderWay(runner).length },
        'a runner process exited; its runs end or are requeued',
      )
    }
    const waiting = runner.threads.flatMap((thread) => thread.runs.slice(1))
    const culprits = runner.threads.flatMap((thread) => (thread.killing === undefined ? [] : [thread.killing.run]))
    for (const thread of runner.threads) this.#threadRuns.endKilled(thread)
    const { quarantine, hooks } = this.#deps
    onRunnerExit(runner, culprits, cause, { quarantine, onModuleRefused: hooks.onModuleRefused })
    this.#deps.hooks.onReturned(waiting)
    if (this.runners.length === 0) {
      clearInterval(this.#memoryTimer)
      this.#memoryTimer = undefined
    }
    this.#deps.hooks.onCapacity()
  }

  get isUnstartable(): boolean {
    return this.#startFailures.areTooMany
  }

  #countStartFailure(cause: string): void {
    const backoffMs = this.#startFailures.failed(monotonicMs())
    // Queued runs are checked again when the next start is allowed.
    clearTimeout(this.#retryTimer)
    this.#retryTimer = setTimeout(() => this.#deps.hooks.onCapacity(), backoffMs + 1)
    this.#deps.logger.error(
      { cause, failures: this.#startFailures.count },
      'failed to start a runner process; retrying',
    )
    if (this.#startFailures.areTooMany) this.#deps.hooks.onUnstartable(cause)
  }
}

function findRun(runner: Runner, message: { thread: number; sequence: number }): PendingRun | undefined {
  return runner.threads[message.thread]?.runs.find(
    ({ sequence, hasEnded }) => sequence === message.sequence && !hasEnded,
  )
}

function threadOf(runner: Runner, index: number): GuestThread {
  const thread = runner.threads[index]
  if (thread === undefined) throw new Error(`it referred to thread ${index}, which was never opened`)
  return thread
}
