/**
 * Runs guests in runner processes and watches over them: who runs where, deadlines, memory, fairness between domains,
 * and what happens to everybody else when one guest takes its runner down. All decisions are taken here, in a process
 * that runs no guest code.
 */
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs } from '#core/time.ts'
import { CallTimes } from './call-times.ts'
import { RunnerSupervisor } from './runner-supervisor.ts'
import type { RunnerPoolOptions } from './pool-options.ts'
import type { PendingRun, RunOutcome, RunRequest } from './run-request.ts'
import { countHeld, findThread, runsUnderWay } from './runner.ts'
import type { Runner } from './runner.ts'
import { CrashQuarantine } from './crash-quarantine.ts'

export type RunnerPoolStats = { runners: { pid: number; residentBytes: number; underWay: number }[]; waiting: number }

export type RunnerPool = {
  /** Never rejects for what a guest does. Rejects with `unavailable` when too many wait or the pool is closed. */
  run(request: RunRequest, signal?: AbortSignal): Promise<RunOutcome>
  stats(): RunnerPoolStats
  /** Ends everything under way as `stopped` and all processes. */
  close(): Promise<void>
}

/** Runs that may wait; whoever calls keeps to its slots, so this is never reached in order. */
const MAX_WAITING = 10_000
/** Runner processes side by side, unless there are more slots: each domain has its own. */
const MIN_MAX_RUNNERS = 16

export function createRunnerPool(options: RunnerPoolOptions): RunnerPool {
  return new Pool(options)
}

class Pool implements RunnerPool {
  readonly #options: RunnerPoolOptions
  readonly #supervisor: RunnerSupervisor
  readonly #quarantine = new CrashQuarantine()
  readonly #callTimes = new CallTimes()
  readonly #threadsPerRunner: number
  readonly #maxRunners: number
  #waiting: PendingRun[] = []
  #isPlacing = false
  #isClosed = false

  constructor(options: RunnerPoolOptions) {
    this.#options = options
    this.#threadsPerRunner = Math.ceil(options.slots / options.runners)
    this.#maxRunners = Math.max(MIN_MAX_RUNNERS, options.slots)
    this.#supervisor = new RunnerSupervisor({
      ...options,
      quarantine: this.#quarantine,
      callTimes: this.#callTimes,
      hooks: {
        onCapacity: () => this.#placeSoon(),
        onReturned: (runs) => {
          this.#waiting.unshift(...runs)
          this.#placeSoon()
        },
        onModuleRefused: (moduleKey, reason, error) => {
          this.#endWaiting((run) => run.moduleKey === moduleKey, { state: 'failed', reason, error, durationMs: 0 })
        },
        onUnstartable: (cause) => {
          this.#endWaiting(() => true, { state: 'requeue', cause: `no runner process starts: ${cause}` })
        },
      },
    })
  }

  run(request: RunRequest, signal?: AbortSignal): Promise<RunOutcome> {
    if (this.#isClosed) return Promise.reject(new ServiceError('unavailable', 'the worker is stopping'))
    if (this.#waiting.length >= MAX_WAITING) {
      return Promise.reject(new ServiceError('unavailable', `${MAX_WAITING} runs wait already`))
    }
    if (signal?.aborted) return Promise.resolve({ state: 'stopped', durationMs: 0 })
    return new Promise((resolve) => {
      const run: PendingRun = {
        request,
        // Of the domain: what a runner says of a module, and how long its calls take, counts for nobody else.
        moduleKey: `${request.domain} ${request.digest} ${request.call.memoryLimitBytes}`,
        sequence: 0,
        hasEnded: false,
        answeredCalls: 0,
        wasWithinMemory: false,
        isCalling: false,
        outputBytes: { stdout: 0, stderr: 0 },
        outputPieces: 0,
        handedOverMs: 0,
        end: (outcome) => {
          if (run.hasEnded) return
          run.hasEnded = true
          signal?.removeEventListener('abort', onAbort)
          resolve(outcome)
        },
      }
      const onAbort = () => this.#stop(run)
      signal?.addEventListener('abort', onAbort, { once: true })
      this.#waiting.push(run)
      this.#placeSoon()
    })
  }

  stats(): RunnerPoolStats {
    return {
      runners: this.#supervisor.runners.flatMap((runner) => {
        const { pid } = runner.process
        const underWay = runsUnderWay(runner).length
        return pid === undefined ? [] : [{ pid, residentBytes: runner.process.residentBytes(), underWay }]
      }),
      waiting: this.#waiting.length,
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#endWaiting(() => true, { state: 'stopped', durationMs: 0 })
    await this.#supervisor.close()
  }

  #stop(run: PendingRun): void {
    const position = this.#waiting.indexOf(run)
    if (position === -1) return this.#supervisor.stop(run)
    this.#waiting.splice(position, 1)
    run.end({ state: 'stopped', durationMs: 0 })
  }

  #endWaiting(isMeant: (run: PendingRun) => boolean, outcome: RunOutcome): void {
    const meant = this.#waiting.filter(isMeant)
    this.#waiting = this.#waiting.filter((run) => !meant.includes(run))
    for (const run of meant) run.end(outcome)
  }

  /** Once per turn of the event loop, however much became free in it. */
  #placeSoon(): void {
    if (this.#isPlacing || this.#isClosed) return
    this.#isPlacing = true
    setImmediate(() => {
      this.#isPlacing = false
      this.#place()
    })
  }

  #place(): void {
    const waiting = this.#waiting
    this.#waiting = []
    const turn = new PlacingTurn(this.#supervisor.runners)
    const left = waiting.filter((run) => !run.hasEnded && !this.#placeOne(run, turn))
    this.#waiting = left.concat(this.#waiting)
    // Last, so that a runner whose module has just been loaded has its run before anybody finds it idle.
    for (const domain of turn.withoutRunner) this.#makeRoomFor(domain, turn)
    this.#keepSpare()
  }

  /** A runner that has served nobody, for the next domain that comes: it need not wait for a start then. */
  #keepSpare(): void {
    const { runners } = this.#supervisor
    const hasSpare = runners.some(({ domain }) => domain === undefined)
    if (!hasSpare && runners.length > 0 && runners.length < this.#maxRunners) this.#supervisor.start()
  }

  /** True when the run went to a thread. False: it waits, and what it waits for has been set going. */
  #placeOne(run: PendingRun, turn: PlacingTurn): boolean {
    const mustRunAlone = this.#quarantine.mustRunAlone(run.request)
    const depth = mustRunAlone ? 1 : this.#callTimes.threadQueueRuns(run.moduleKey)
    const runner = this.#findRunner(run, { mustRunAlone, depth, nowMs: turn.nowMs })
    if (runner === undefined) {
      turn.withoutRunner.add(run.request.domain)
      return false
    }
    const module = runner.modules.get(run.moduleKey)
    if (module === undefined) this.#supervisor.loadModule(runner, run)
    const thread = findThread(runner, depth, turn.nowMs)
    const isIdle = thread?.runs.length === 0
    if (!isIdle) this.#addThread(runner, turn, thread !== undefined)
    if (thread === undefined || module?.state !== 'ready') return false
    if (isIdle && turn.underWay >= this.#options.slots) {
      turn.waitsForSlot ??= run.request.domain
      return false
    }
    // Runs that go behind others take no slot; while another domain waits for one, its turn comes first.
    if (!isIdle && turn.waitsForSlot !== undefined && turn.waitsForSlot !== run.request.domain) return false
    if (isIdle) turn.underWay++
    if (mustRunAlone) runner.isAlone = true
    this.#supervisor.handOver(runner, thread, run)
    return true
  }

  /** Another process while there is a core without one, else another thread, unless short calls do with the one they have. */
  #addThread(runner: Runner, turn: PlacingTurn, isShared: boolean): void {
    const opening = runner.threads.filter((thread) => !thread.isReady).length
    if (turn.claim(runner, opening)) return
    if (this.#countOf(runner.domain) < this.#options.runners && this.#supervisor.runners.length < this.#maxRunners) {
      if (!turn.claim('runner', turn.starting)) this.#supervisor.start()
      return
    }
    const isFull = runner.threads.length >= this.#threadsPerRunner || turn.underWay + opening >= this.#options.slots
    if (!isShared && !isFull) this.#supervisor.openThread(runner)
  }

  #countOf(domain: string | undefined): number {
    return this.#supervisor.runners.filter((runner) => runner.domain === domain).length
  }

  /** No runner takes this domain now: start one, and where there are enough, end the one that was idle for longest. */
  #makeRoomFor(domain: string, turn: PlacingTurn): void {
    if (turn.claim('runner', turn.starting)) return
    const { runners } = this.#supervisor
    if (runners.length < this.#maxRunners) return this.#supervisor.start()
    if (runners.some(({ state }) => state === 'dying')) return
    const [longestIdle] = runners
      .filter((runner) => isIdle(runner) && runner.domain !== domain)
      .sort((a, b) => a.idleSinceMs - b.idleSinceMs)
    if (longestIdle !== undefined) this.#supervisor.retire(longestIdle)
  }

  /**
   * The runner for a run: of its domain, or the spare while the domain has less than its share. Where calls are short the
   * one that holds some already and has room for more, else the one with the fewest among those that can take it soonest.
   */
  #findRunner(run: PendingRun, { mustRunAlone, depth, nowMs }: Wish): Runner | undefined {
    const { domain } = run.request
    const mayTakeSpare = mustRunAlone || this.#countOf(domain) < this.#options.runners
    let best: { runner: Runner; readiness: number; held: number; knowsModule: boolean } | undefined
    for (const runner of this.#supervisor.runners) {
      if (runner.state !== 'ready' || runner.isAlone) continue
      if (runner.domain === undefined ? !mayTakeSpare : runner.domain !== domain) continue
      const held = countHeld(runner)
      if (mustRunAlone && (held > 0 || isLoadingAnother(runner, run.moduleKey))) continue
      const isLoaded = runner.modules.get(run.moduleKey)?.state === 'ready'
      const readiness = this.#readinessOf(runner, depth, nowMs)
      if (isLoaded && held > 0 && held < depth && readiness === 0) return runner
      const knowsModule = runner.modules.has(run.moduleKey)
      const order =
        best === undefined
          ? -1
          : readiness - best.readiness || held - best.held || (isLoaded && !best.knowsModule ? -1 : 1)
      if (order < 0) best = { runner, readiness, held, knowsModule }
    }
    return best?.runner
  }

  /** 0: a thread takes the run now; 1: one more thread may be opened; 2: a run must end first. */
  #readinessOf(runner: Runner, depth: number, nowMs: number): number {
    if (findThread(runner, depth, nowMs) !== undefined) return 0
    return runner.threads.length < this.#threadsPerRunner ? 1 : 2
  }
}

/** `depth`: how many runs a thread may hold with this one. */
type Wish = { mustRunAlone: boolean; depth: number; nowMs: number }

/** What one turn of placing has used up already: each thread or process that is on its way serves one run that waits. */
class PlacingTurn {
  readonly nowMs = monotonicMs()
  readonly starting: number
  underWay: number
  /** Domains that no runner takes. */
  readonly withoutRunner = new Set<string>()
  /** The first domain in the queue that waits for a slot. */
  waitsForSlot: string | undefined
  readonly #claims = new Map<Runner | 'runner', number>()

  constructor(runners: Runner[]) {
    this.starting = runners.filter((runner) => runner.state === 'starting').length
    this.underWay = runners.reduce((sum, runner) => sum + runsUnderWay(runner).length, 0)
  }

  /** True while fewer than `available` were claimed. */
  claim(what: Runner | 'runner', available: number): boolean {
    const claimed = this.#claims.get(what) ?? 0
    this.#claims.set(what, claimed + 1)
    return claimed < available
  }
}

/** It holds nothing and loads nothing that a run waits for. */
function isIdle(runner: Runner): boolean {
  const isLoading = [...runner.modules.values()].some(({ state }) => state === 'loading')
  return runner.state === 'ready' && countHeld(runner) === 0 && !isLoading
}

function isLoadingAnother(runner: Runner, moduleKey: string): boolean {
  return [...runner.modules].some(([key, module]) => module.state === 'loading' && key !== moduleKey)
}
