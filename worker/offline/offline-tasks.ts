/**
 * Offline tasks (decision 0161): the worker starts the ticks of their schedules by its own clock, with a manager or without one. From the moment when a manager
 * has given it a task until that is changed, nobody else starts them. A tick is on disk before its run begins, and its result before that is
 * sent: a kill repeats a run at most, as `on_lost` says, and the manager records each tick once.
 */
import { create } from '@bufbuild/protobuf'
import type { Logger } from '#core/logging/index.ts'
import { sleep } from '#core/time.ts'
import { nextTick, planTicks } from '#core/ticks.ts'
import { createTurns } from '#core/turns.ts'
import { OfflineTasksSchema, OnLost, idOfTick } from '#proto/index.ts'
import type { OfflineTask, OfflineTasks as OfflineTasksMessage } from '#proto/index.ts'
import { toModuleRequest } from '../modules/index.ts'
import type { ModuleCache, PinnedModule } from '../modules/index.ts'
import type { Clocks } from '../session/lease.ts'
import { isComplete } from '../session/run-messages.ts'
import type { CheckedAssignment } from '../session/run-messages.ts'
import { OfflineClock } from './clock.ts'
import type { OfflineStore, Progress, StartedTick } from './store.ts'

/** A run of a tick, for what runs it. */
export type TickRun = StartedTick & {
  nowMs: () => number
  /** Aborted when nobody waits for it any more. */
  signal: AbortSignal
}

/** What runs the ticks. */
export type TickRunner = {
  /** Why no run can begin now; undefined: it can. */
  refusalOfTick(taskId: string): string | undefined
  /** True once its result is kept; false: it has not ended, and can be run again. Never rejects. */
  runTick(assignment: CheckedAssignment, tick: TickRun): Promise<boolean>
  /** Keeps the result of a run that a kill of this worker has ended. */
  loseTick(assignment: CheckedAssignment, tick: TickRun): Promise<void>
  /** Whether its result is kept, or is kept and acknowledged already. */
  hasResult(assignment: CheckedAssignment): boolean
  /** The result of a run can be sent. */
  reportTick(assignment: CheckedAssignment): void
}

export type OfflineTasksDeps = {
  store: Pick<OfflineStore, 'read' | 'writeTasks' | 'writeProgress'>
  modules: Pick<ModuleCache, 'get'>
  runs: TickRunner
  clocks: Clocks
  /** Tasks of domains are refused. */
  isPlatformOnly: boolean
  logger: Logger
  /** How often the clock is looked at; only tests shorten it. */
  checkMs?: number
  /** How long a run waits that has to begin again; only tests shorten it. */
  repeatMs?: number
}

/** The clock is looked at this often, because it can jump. */
const CHECK_MS = 1_000
/** A run that had no room, or whose runner was ended because of another run, begins again after this. */
const REPEAT_MS = 1_000
/** Ticks that have passed are further in the future than this only if the clock was wrong when they passed. */
const MAX_AHEAD_MS = 3_600_000

type Kept = {
  task: OfflineTask
  assignment: CheckedAssignment
  taskId: string
  progress: Progress
  /** The next tick; null: there is none; undefined: it is not computed yet. */
  nextMs: number | null | undefined
  isRunning: boolean
  module: PinnedModule | undefined
  /** Aborted when the task is no longer this worker's. */
  gone: AbortController
}

/** Tells the manager of the session which tasks this worker can run without it. */
type TellReady = (tasks: { taskId: string; version: string }[]) => void

export class OfflineTasks {
  readonly #deps: OfflineTasksDeps
  readonly #clock: OfflineClock
  #kept = new Map<string, Kept>()
  #timer: NodeJS.Timeout | undefined
  /** Changes of files, one after the other. */
  #work: Promise<void> = Promise.resolve()
  #tellReady: TellReady | undefined
  #isClosed = false

  private constructor(deps: OfflineTasksDeps, clock: OfflineClock) {
    this.#deps = deps
    this.#clock = clock
  }

  /** Reads the tasks of earlier processes, and continues with them; works without a manager. */
  static async start(deps: OfflineTasksDeps): Promise<OfflineTasks> {
    const { tasks, written } = await deps.store.read()
    const offline = new OfflineTasks(deps, new OfflineClock(deps.clocks, written.times))
    for (const task of tasks) offline.#keep(task, written.tasks[task.assignment?.taskId ?? ''])
    if (written.isDamaged === true) offline.#passAll()
    for (const kept of offline.#kept.values()) {
      void offline.#fetch(kept)
      if (kept.progress.started !== null) void offline.#resume(kept, kept.progress.started)
    }
    offline.#arm()
    return offline
  }

  get count(): number {
    return this.#kept.size
  }

  connect(tellReady: TellReady): void {
    this.#tellReady = tellReady
  }

  disconnect(): void {
    this.#tellReady = undefined
  }

  /** A manager has sent all tasks of this worker. Those that are missing are its no longer. */
  replace(message: OfflineTasksMessage): void {
    this.#clock.told(Number(message.nowMs))
    const before = this.#kept
    this.#kept = new Map()
    for (const task of message.tasks) {
      const taskId = task.assignment?.taskId ?? ''
      const known = before.get(taskId)
      const isSame = known !== undefined && known.task.version === task.version && fenceOf(known.task) === fenceOf(task)
      if (isSame) {
        // The ticket of its module is newer.
        const { assignment } = task
        if (known.module === undefined && assignment !== undefined && isComplete(assignment))
          known.assignment = assignment
        this.#kept.set(taskId, known)
      } else this.#keep(task, undefined)
      before.delete(taskId)
      if (!isSame && known !== undefined) this.#drop(known)
    }
    for (const known of before.values()) this.#drop(known)
    void this.#store(message.nowMs)
    this.#arm()
  }

  async #store(nowMs: bigint): Promise<void> {
    const kept = [...this.#kept.values()]
    const tasks = create(OfflineTasksSchema, { tasks: kept.map(({ task }) => task), nowMs })
    try {
      await this.#inTurn(() => this.#deps.store.writeTasks(tasks))
    } catch (error) {
      return this.#warn(error, 'failed to store the offline tasks; a restart would lose them')
    }
    for (const one of kept) void this.#prepare(one)
  }

  /** Runs that have not ended are left to the next start. */
  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#timer)
    for (const kept of this.#kept.values()) this.#drop(kept)
    await this.#work.catch(() => undefined)
  }

  #keep(task: OfflineTask, known: Progress | undefined): void {
    const { assignment } = task
    if (assignment === undefined || !isComplete(assignment) || assignment.daemon) return
    if (this.#deps.isPlatformOnly && assignment.domainId !== '') return
    const fence = String(assignment.run.fence)
    const fresh = { fence, lastTickMs: Number(task.firstTickMs) - 1, missed: 0, started: null }
    this.#kept.set(assignment.taskId, {
      task,
      assignment,
      taskId: assignment.taskId,
      progress: known?.fence === fence ? known : fresh,
      nextMs: undefined,
      isRunning: false,
      module: undefined,
      gone: new AbortController(),
    })
  }

  /** Nothing is known of the ticks until now: one that has started is not started again. */
  #passAll(): void {
    const nowMs = this.#clock.nowMs()
    for (const { progress } of this.#kept.values()) progress.lastTickMs = Math.max(progress.lastTickMs, nowMs)
  }

  #drop(kept: Kept): void {
    kept.gone.abort()
    kept.module?.release()
    kept.module = undefined
  }

  async #prepare(kept: Kept): Promise<void> {
    await this.#fetch(kept)
    if (kept.module === undefined || this.#kept.get(kept.taskId) !== kept) return
    this.#tellReady?.([{ taskId: kept.taskId, version: kept.task.version }])
  }

  /** The module stays in the cache as long as the task is this worker's. */
  async #fetch(kept: Kept): Promise<void> {
    if (kept.module !== undefined) return
    try {
      const module = await this.#deps.modules.get(toModuleRequest(kept.assignment.module), kept.gone.signal)
      if (kept.gone.signal.aborted || kept.module !== undefined) module.release()
      else kept.module = module
    } catch (error) {
      // The manager sends the task again, with a new ticket, until this worker says that it is ready.
      if (!kept.gone.signal.aborted) this.#warn(error, 'failed to fetch the module of an offline task', kept)
    }
  }

  #arm(): void {
    clearTimeout(this.#timer)
    const hasSome = this.#kept.values().some(({ task }) => fenceOf(task) > 0n)
    if (this.#isClosed || !hasSome) return
    this.#timer = setTimeout(() => {
      void this.startDue()
        .catch((error: unknown) => this.#warn(error, 'failed to start ticks of offline tasks; retrying'))
        .finally(() => this.#arm())
    }, this.#deps.checkMs ?? CHECK_MS)
  }

  /** Starts the ticks that are due, all of them after one write. Runs by itself, whenever the clock is looked at. */
  async startDue(): Promise<void> {
    const now = this.#clock.nowMs()
    const passed: { kept: Kept; started: StartedTick }[] = []
    // Times of schedules are computed one by one.
    const turns = createTurns()
    for (const kept of this.#kept.values()) {
      if (turns.isOver) await turns.next()
      if (fenceOf(kept.task) === 0n || kept.gone.signal.aborted) continue
      const started = this.#passSafely(kept, now)
      if (started === undefined) continue
      // From here on, because the clock is looked at again before a slow disk has stored the tick.
      kept.isRunning = true
      kept.progress.started = started
      passed.push({ kept, started })
    }
    const due = passed.filter(({ kept }) => !kept.gone.signal.aborted)
    if (due.length === 0) return
    try {
      await this.#writeProgress()
    } catch (error) {
      this.#warn(error, 'failed to store ticks of offline tasks; they are missed')
      for (const { kept, started } of due) {
        kept.isRunning = false
        kept.progress.started = null
        kept.progress.missed += started.missed + 1
      }
      return
    }
    for (const { kept, started } of due) void this.#run(kept, started)
  }

  /** A schedule that this version cannot read has no ticks, and stops no others. */
  #passSafely(kept: Kept, now: number): StartedTick | undefined {
    try {
      return this.#pass(kept, now)
    } catch (error) {
      this.#warn(error, 'failed to compute the ticks of an offline task', kept)
      kept.nextMs = null
      return undefined
    }
  }

  /** The tick to start; undefined: none is due, or it is missed. */
  #pass(kept: Kept, now: number): StartedTick | undefined {
    const { task, progress } = kept
    const { schedule, timezone } = task
    const firstMs = Number(task.firstTickMs)
    if (progress.lastTickMs >= firstMs && progress.lastTickMs - now > MAX_AHEAD_MS) {
      // The clock was wrong, and ran ahead: without this, ticks would begin again only when it is there again.
      progress.lastTickMs = Math.max(now, firstMs - 1)
      kept.nextMs = undefined
    }
    if (kept.nextMs === undefined)
      kept.nextMs = nextTick(schedule, timezone, new Date(progress.lastTickMs))?.getTime() ?? null
    if (kept.nextMs === null || kept.nextMs > now) return undefined
    const catchUp = task.catchUp ? 'once' : 'none'
    const plan = planTicks({ schedule, timezone, catchUp }, new Date(kept.nextMs), new Date(now))
    progress.lastTickMs = plan.latest.getTime()
    kept.nextMs = plan.next?.getTime() ?? null
    progress.missed += plan.skipped
    const refusal = kept.isRunning ? 'its last run has not ended' : this.#deps.runs.refusalOfTick(kept.taskId)
    if (plan.start === undefined || refusal !== undefined) {
      progress.missed += 1
      if (refusal !== undefined)
        this.#deps.logger.info({ task: kept.taskId, reason: refusal }, 'an offline task misses a tick')
      return undefined
    }
    const { missed } = progress
    progress.missed = 0
    return { tickMs: plan.start.getTime(), missed }
  }

  /** A kill has ended the last process between the start of a tick and its result. */
  async #resume(kept: Kept, started: StartedTick): Promise<void> {
    const assignment = this.#assignmentOf(kept, started)
    const { runs } = this.#deps
    const hasEnded = runs.hasResult(assignment)
    if (!hasEnded && assignment.onLost !== OnLost.FAIL) return await this.#run(kept, started)
    kept.isRunning = true
    if (!hasEnded) await runs.loseTick(assignment, this.#tickOf(kept, started))
    await this.#ended(kept, assignment)
    kept.isRunning = false
  }

  async #run(kept: Kept, started: StartedTick): Promise<void> {
    const assignment = this.#assignmentOf(kept, started)
    kept.isRunning = true
    const tick = this.#tickOf(kept, started)
    while (!kept.gone.signal.aborted) {
      if (await this.#deps.runs.runTick(assignment, tick)) {
        await this.#ended(kept, assignment)
        break
      }
      await sleep(this.#deps.repeatMs ?? REPEAT_MS, kept.gone.signal).catch(() => undefined)
    }
    kept.isRunning = false
  }

  #tickOf(kept: Kept, started: StartedTick): TickRun {
    return { ...started, nowMs: () => this.#clock.nowMs(), signal: kept.gone.signal }
  }

  /** The progress is on disk before the result is sent: what is acknowledged is not run again. */
  async #ended(kept: Kept, assignment: CheckedAssignment): Promise<void> {
    kept.progress.started = null
    await this.#writeProgress().catch((error: unknown) => this.#warn(error, 'failed to store that a tick has ended'))
    this.#deps.runs.reportTick(assignment)
  }

  #assignmentOf({ assignment, taskId, task }: Kept, { tickMs }: StartedTick): CheckedAssignment {
    const fence = fenceOf(task)
    return { ...assignment, run: { ...assignment.run, runId: idOfTick(taskId, fence, tickMs), attempt: 1, fence } }
  }

  async #writeProgress(): Promise<void> {
    await this.#inTurn(() => {
      const tasks = Object.fromEntries([...this.#kept].map(([taskId, { progress }]) => [taskId, progress]))
      return this.#deps.store.writeProgress({ times: this.#clock.known, tasks })
    })
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const done = this.#work.catch(() => undefined).then(work)
    this.#work = done
    return done
  }

  #warn(error: unknown, what: string, kept?: Kept): void {
    this.#deps.logger.warn({ err: error, ...(kept === undefined ? {} : { task: kept.taskId }) }, what)
  }
}

const fenceOf = ({ assignment }: OfflineTask): bigint => assignment?.run?.fence ?? 0n
