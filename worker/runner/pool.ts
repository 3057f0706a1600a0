/**
 * Runs guests in runner processes and supervises them: placement, deadlines, memory, fairness between domains, and the
 * handling of other runs when one guest crashes its runner. All decisions are made here, in a process that runs no guest
 * code.
 */
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs } from '#core/time.ts'
import { CallTimes } from './call-times.ts'
import { RunnerSupervisor } from './runner-supervisor.ts'
import type { KillReason } from './runner-supervisor.ts'
import type { RunnerPoolOptions } from './pool-options.ts'
import type { PendingRun, RunOutcome, RunRequest } from './run-request.ts'
import { addedBytes, countedBytes } from './run-memory.ts'
import { countHeld, findThread, isIdle, isStartSlow, runsUnderWay } from './runner.ts'
import type { Runner } from './runner.ts'
import { CrashQuarantine } from './crash-quarantine.ts'

export type RunnerPoolStats = {
  runners: { pid: number; residentBytes: number; underWay: number }[]
  waiting: number
  /** The last runner processes that were tried did not start. */
  isUnstartable: boolean
  /** Runner processes that ended otherwise than they were meant to, since the start. */
  kills: Readonly<Record<KillReason, number>>
}

export type RunnerPool = {
  /** Never rejects because of a guest. Rejects with `unavailable` if too many runs wait or the pool is closed. */
  run(request: RunRequest, signal?: AbortSignal): Promise<RunOutcome>
  stats(): RunnerPoolStats
  /** Ends all active runs as `stopped`, and all processes. */
  close(): Promise<void>
}

/** Limit of queued runs; callers observe their slots, so it is not reached normally. */
const MAX_WAITING = 10_000
/** Concurrent runner processes, unless there are more slots: each domain has its own. */
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
          this.#endWaiting(() => true, { state: 'requeue', cause: `failed to start a runner process: ${cause}` })
        },
      },
    })
  }

  run(request: RunRequest, signal?: AbortSignal): Promise<RunOutcome> {
    if (this.#isClosed) return Promise.reject(new ServiceError('unavailable', 'the worker is shutting down'))
    if (this.#waiting.length >= MAX_WAITING) {
      return Promise.reject(new ServiceError('unavailable', `${MAX_WAITING} runs are queued already`))
    }
    if (signal?.aborted) return Promise.resolve({ state: 'stopped', durationMs: 0 })
    return new Promise((resolve) => {
      const run: PendingRun = {
        request,
        // Includes the domain: reports of a runner about a module, and its call times, apply only to that domain.
        moduleKey: `${request.domain} ${request.digest} ${request.call.memoryLimitBytes}`,
        sequence: 0,
        hasEnded: false,
        answeredCalls: 0,
        withinMemoryAt: undefined,
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
      isUnstartable: this.#supervisor.isUnstartable,
      kills: { ...this.#supervisor.kills },
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

  /** Places runs once per turn of the event loop. */
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
    const turn = new PlacementRound(this.#supervisor.runners)
    const left = waiting.filter((run) => !run.hasEnded && !this.#placeOne(run, turn))
    const ordered = turn.waitsForSlot === undefined ? left : servedLast(left, turn.served)
    this.#waiting = ordered.concat(this.#waiting)
    // This comes last, so that a runner that has just loaded a module gets its run before it is considered idle.
    for (const domain of turn.withoutRunner) this.#makeRoomFor(domain, turn)
    this.#keepSpare()
  }

  /** Keeps an unused runner, so that a new domain does not wait for a start. */
  #keepSpare(): void {
    if (this.#options.memory !== undefined) return
    const { runners } = this.#supervisor
    const hasSpare = runners.some(({ domain }) => domain === undefined)
    if (!hasSpare && runners.length > 0 && runners.length < this.#maxRunners) this.#supervisor.start()
  }

  /** True if the run was assigned to a thread. False: it waits, and what it needs was started unless it waits for memory. */
  #placeOne(run: PendingRun, turn: PlacementRound): boolean {
    const { memory } = this.#options
    if (memory === undefined) return this.#placeInMemory(run, turn)
    const added = addedBytes(run, this.#supervisor.runners)
    if (!this.#hasMemoryFor(run, turn, { added, runnersBytes: memory.runnersBytes })) return false
    const isPlaced = this.#placeInMemory(run, turn)
    if (!isPlaced) turn.claimMemory(run, added)
    return isPlaced
  }

  /**
   * Whether the limits of the run and of all others fit in the memory. The runs behind one that waits for memory wait too, or a large run
   * would wait for ever. A run alone always fits: how much its module takes is known only here.
   */
  #hasMemoryFor(
    run: PendingRun,
    turn: PlacementRound,
    { added, runnersBytes }: { added: number; runnersBytes: number },
  ): boolean {
    if (turn.waitsForMemory) return false
    const { runners } = this.#supervisor
    if (turn.claimedBytes + countedBytes(runners) + added <= runnersBytes) return true
    turn.waitsForMemory = true
    // An unused runner is for this run, and that of a run before this one has only no thread yet.
    const idle = this.#longestIdle(
      ({ domain }) => domain !== undefined && domain !== run.request.domain && !turn.claimedDomains.has(domain),
    )
    if (idle !== undefined) this.#supervisor.retire(idle)
    if (runners.some(({ state }) => state === 'dying')) return false
    return turn.claimedBytes === 0 && runners.every((runner) => countHeld(runner) === 0)
  }

  #placeInMemory(run: PendingRun, turn: PlacementRound): boolean {
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
    // Queued runs behind others take no slot; while another domain waits for a slot, its turn comes first.
    if (!isIdle && turn.waitsForSlot !== undefined && turn.waitsForSlot !== run.request.domain) return false
    if (isIdle) turn.underWay++
    if (mustRunAlone) runner.isAlone = true
    turn.served.add(run.request.domain)
    this.#supervisor.handOver(runner, thread, run)
    return true
  }

  /**
   * Starts another process while a core is unused, else another thread, unless short calls share the existing one. While a
   * process starts slowly, as on a busy machine, the run gets a thread: it must not wait beside a run that never ends.
   */
  #addThread(runner: Runner, turn: PlacementRound, isShared: boolean): void {
    const opening = runner.threads.filter((thread) => !thread.isReady).length
    if (turn.claim(runner, opening)) return
    const { slots, runners } = this.#options
    const isSpread = this.#countOf(runner.domain) < runners && this.#supervisor.runners.length < this.#maxRunners
    if (isSpread) {
      if (!turn.claim('runner', turn.starting)) this.#supervisor.start()
      if (!turn.isStartSlow) return
    }
    const most = isSpread ? this.#threadsPerRunner + 1 : this.#threadsPerRunner
    const isFull = runner.threads.length >= most || turn.underWay + opening >= slots
    if (!isShared && !isFull) this.#supervisor.openThread(runner)
  }

  #countOf(domain: string | undefined): number {
    return this.#supervisor.runners.filter((runner) => runner.domain === domain).length
  }

  /** Makes room if no runner accepts this domain now: starts one or, at the limit, retires the one that was idle longest. */
  #makeRoomFor(domain: string, turn: PlacementRound): void {
    if (turn.claim('runner', turn.starting)) return
    const { runners } = this.#supervisor
    if (runners.length < this.#maxRunners) return this.#supervisor.start()
    if (runners.some(({ state }) => state === 'dying')) return
    const longestIdle = this.#longestIdle((runner) => runner.domain !== domain)
    if (longestIdle !== undefined) this.#supervisor.retire(longestIdle)
  }

  /** Of these runners, the one that was idle longest. */
  #longestIdle(isMeant: (runner: Runner) => boolean): Runner | undefined {
    return this.#supervisor.runners
      .filter((runner) => isIdle(runner) && isMeant(runner))
      .sort((a, b) => a.idleSinceMs - b.idleSinceMs)[0]
  }

  /**
   * The runner for a run: one of its domain, or the spare while the domain has less than its share. For short calls it is a runner that
   * holds some already and has capacity, otherwise the one with the fewest runs among the soonest available.
   */
  #findRunner(run: PendingRun, { mustRunAlone, depth, nowMs }: PlacementConstraints): Runner | undefined {
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

  /** 0: a thread can take the run now; 1: another thread can be opened; 2: a run must end first. */
  #readinessOf(runner: Runner, depth: number, nowMs: number): number {
    if (findThread(runner, depth, nowMs) !== undefined) return 0
    return runner.threads.length < this.#threadsPerRunner ? 1 : 2
  }
}

/** `depth`: how many runs a thread can hold, including this one. */
type PlacementConstraints = { mustRunAlone: boolean; depth: number; nowMs: number }

/**
 * The resources that one round of placement has claimed: each thread or process that is being started serves one queued
 * run.
 */
class PlacementRound {
  readonly nowMs = monotonicMs()
  readonly starting: number
  readonly isStartSlow: boolean
  underWay: number
  /** Domains that no runner accepts. */
  readonly withoutRunner = new Set<string>()
  /** Domains whose runs were assigned to a thread. */
  readonly served = new Set<string>()
  /** The first domain in the queue that waits for a slot. */
  waitsForSlot: string | undefined
  /** A run waits for memory, and so do all behind it. */
  waitsForMemory = false
  /** What runs add that have memory and no thread yet. */
  claimedBytes = 0
  /** Their domains. */
  readonly claimedDomains = new Set<string>()
  readonly #claims = new Map<Runner | 'runner', number>()

  constructor(runners: Runner[]) {
    this.starting = runners.filter((runner) => runner.state === 'starting').length
    this.isStartSlow = runners.some((runner) => isStartSlow(runner, this.nowMs))
    this.underWay = runners.reduce((sum, runner) => sum + runsUnderWay(runner).length, 0)
  }

  /** The run has memory from now on, and waits for a thread. */
  claimMemory({ request }: PendingRun, bytes: number): void {
    this.claimedBytes += bytes
    this.claimedDomains.add(request.domain)
  }

  /** True while fewer than `available` were claimed. */
  claim(what: Runner | 'runner', available: number): boolean {
    const claimed = this.#claims.get(what) ?? 0
    this.#claims.set(what, claimed + 1)
    return claimed < available
  }
}

/**
 * The domains take turns: a worker holds hundreds of short runs of one domain, and a run of another that arrives later must not wait
 * for all of them.
 */
function servedLast(waiting: readonly PendingRun[], served: ReadonlySet<string>): PendingRun[] {
  const isServed = ({ request }: PendingRun) => served.has(request.domain)
  return [...waiting.filter((run) => !isServed(run)), ...waiting.filter(isServed)]
}

function isLoadingAnother(runner: Runner, moduleKey: string): boolean {
  return [...runner.modules].some(([key, module]) => module.state === 'loading' && key !== moduleKey)
}
