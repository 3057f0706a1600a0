/**
 * Gives offline tasks to their workers and takes them back (decision 0161). A worker first gets the definition and fetches the module; when it has
 * both on disk, it gets the ticks too, and no manager starts them any more. A change of the task takes them back: at the next round a manager starts
 * its ticks again, or its worker gets it as it is now.
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { growingPauses, startRounds } from '#core/rounds.ts'
import { monotonicMs } from '#core/time.ts'
import { createTurns } from '#core/turns.ts'
import { nextTick } from '#core/ticks.ts'
import type { AssignedRun } from '../model/run.ts'
import type { StartRequest, ResolvedImage } from '../model/start.ts'
import type { Cluster } from '../placement/cluster.ts'
import type { OfflineOffer, OfflineSession, WorkerSession } from '../placement/worker-session.ts'
import {
  TooLate,
  findOfflineSpecs,
  findOfflineTasks,
  findVoidTasks,
  grantOfflineTask,
  hasOfflineTasks,
  takeBackTask,
  voidTasksOf,
  type OfflineTask,
} from '../store/offline-tasks.ts'
import { needsAction, writeRefusals } from '../store/refusals.ts'
import { findTasks, type TaskRecord } from '../store/tasks.ts'
import type { StartTask } from '../writer/known-tasks.ts'
import { planFor, prepare, type PreparedRun } from '../writer/run-plan.ts'
import { OfflineImages, isTransient, type ImageAnswer } from './offline-images.ts'

/** A task changes hands this long before the first tick of the worker, so that no manager is starting that tick. */
const HANDOVER_MS = 5_000
/** Tasks that are not ready after this are sent again, with new tickets for their modules. */
const RESEND_MS = 60_000
/** Without any offline task, a round is this many intervals after the one before: a manager starts the ticks of the first one meanwhile. */
const IDLE_INTERVALS = 10
/** Tasks that are taken back in one round. */
const MAX_TAKEN_BACK = 100
/** Tasks that cannot be offline, each reported once. */
const MAX_REFUSED = 10_000
/** Offline tasks of one worker. Further ones stay with the managers. */
const MAX_TASKS = 1_000
/** Tasks that are read at a time, each with a result of up to 256 KiB. */
const MAX_READ = 32
/** Specs of the offline tasks of one worker, in characters: one message has them all. Further tasks stay with the managers. */
const MAX_CHARS = 4 * 1024 * 1024

export type OfflineKeeperDeps = {
  database: Database
  cluster: Cluster
  resolveImage: (reference: string, domainId: string | null) => Promise<ResolvedImage>
  logger: Logger
  intervalMs: number
}

/** A task that its worker can run: what each run is. */
type Planned = { row: OfflineTask; run: PreparedRun }

export function startOfflineKeeper(deps: OfflineKeeperDeps): { stop(): Promise<void> } {
  const keeper = new OfflineKeeper(deps)
  const { logger, intervalMs } = deps
  const pauses = growingPauses(intervalMs, IDLE_INTERVALS * intervalMs)
  const rounds = startRounds(async () => {
    try {
      return { pauseMs: pauses.next(!(await keeper.round())), isWakeable: false }
    } catch (error) {
      logger.warn({ err: error }, 'failed to check the offline tasks; retrying')
      return { pauseMs: intervalMs, isWakeable: false }
    }
  })
  return { stop: () => rounds.stop() }
}

class OfflineKeeper {
  readonly #deps: OfflineKeeperDeps
  /** Sessions of workers of an earlier version, which have no offline tasks. */
  readonly #older = new WeakSet<WorkerSession>()
  /** Versions of tasks that cannot be offline, each reported once. */
  readonly #refused = new BoundedCache<number, string>({ maxEntries: MAX_REFUSED })
  readonly #images: OfflineImages
  /** Sessions with a task whose registry has answered since it was left out. */
  readonly #answered = new WeakSet<WorkerSession>()

  constructor(deps: OfflineKeeperDeps) {
    this.#deps = deps
    this.#images = new OfflineImages(deps.resolveImage)
  }

  /** Returns whether there is any offline task, or a worker that has to be told that there is none. */
  async round(): Promise<boolean> {
    const { database, cluster } = this.#deps
    const isAnyTold = [...cluster.sessions].some(({ offline }) => offline !== undefined && hasSome(offline))
    if (!isAnyTold && !(await hasOfflineTasks(database))) return false
    await this.#takeBack()
    await this.#takeFromOlder()
    await this.#serveAll()
    return true
  }

  async #takeBack(): Promise<void> {
    const { database, logger } = this.#deps
    for (const { key, schedule, timezone } of await findVoidTasks(database, MAX_TAKEN_BACK))
      try {
        await takeBackTask(database, key, schedule === null ? undefined : nextTick(schedule, timezone, new Date()))
      } catch (error) {
        // A schedule that this version cannot read stops no other task.
        logger.warn({ err: error, task: key }, 'failed to take back an offline task; retrying')
      }
  }

  async #serveAll(): Promise<void> {
    const { database, cluster } = this.#deps
    const sessions = [...cluster.sessions].filter(({ offline, isSuspect }) => offline !== undefined && !isSuspect)
    if (sessions.length === 0) return
    const found = await findOfflineTasks(
      database.db,
      sessions.map(({ id }) => id),
    )
    for (const session of sessions)
      await this.#serve(session, boundedOf(found.get(session.id))).catch((error: unknown) => {
        this.#deps.logger.warn(
          { err: error, worker: session.id },
          'failed to check the offline tasks of a worker; retrying',
        )
      })
  }

  /** Looks at each session of a worker of an earlier version once. */
  async #takeFromOlder(): Promise<void> {
    const { database, cluster } = this.#deps
    const older = [...cluster.sessions].filter((one) => one.offline === undefined && !this.#older.has(one))
    if (older.length === 0) return
    await voidTasksOf(
      database,
      older.map(({ key }) => key),
    )
    for (const session of older) this.#older.add(session)
  }

  async #serve(session: WorkerSession, rows: readonly OfflineTask[]): Promise<void> {
    const { offline } = session
    if (offline === undefined) return
    const ready = rows.filter(({ id, version, fence }) => fence === null && offline.ready.get(id) === version)
    const granted = ready.length > 0 && (await this.#grant(session, ready))
    const now = granted
      ? boundedOf((await findOfflineTasks(this.#deps.database.db, [session.id])).get(session.id))
      : rows
    const signature = now.map(({ key, version, fence }) => `${key} ${version} ${fence}`).join('\n')
    const isAwaited = now.some(
      ({ key, id, version }) => offline.ready.get(id) !== version && this.#refused.get(key) !== version,
    )
    const isKnown = offline.sent === undefined ? now.length === 0 && offline.held === 0 : offline.sent === signature
    const isAnswered = this.#answered.delete(session)
    if (isKnown && !isAnswered && !(isAwaited && monotonicMs() - offline.sentMs > RESEND_MS)) return
    const offers = await this.#offersOf(session, now)
    offline.sent = signature
    offline.sentMs = monotonicMs()
    session.sendOffline(offers)
  }

  /** True if the worker got a task. */
  async #grant(session: WorkerSession, rows: readonly OfflineTask[]): Promise<boolean> {
    const { database, logger } = this.#deps
    let hasGranted = false
    for (const { row, run } of await this.#plan(session, rows)) {
      const first = firstTickOf(row, new Date(row.now))
      if (first === undefined) continue
      const worker = { key: session.key, epoch: session.epoch }
      const isGiven = await grantOfflineTask(database, { task: row, worker, ...first, run }).catch((error: unknown) => {
        if (error instanceof TooLate) return false
        throw error
      })
      if (isGiven) logger.info({ task: row.id, worker: session.id }, 'a worker starts the ticks of an offline task')
      hasGranted ||= isGiven
    }
    return hasGranted
  }

  async #offersOf(session: WorkerSession, rows: readonly OfflineTask[]): Promise<OfflineOffer[]> {
    const held = rows.filter(({ fence }) => fence !== null)
    const specs = await findOfflineSpecs(
      this.#deps.database.db,
      held.map(({ key }) => key),
    )
    const kept = held.flatMap((row) => {
      const found = specs.get(row.key)
      return found === undefined ? [] : [offerOf(row, found)]
    })
    let left = MAX_CHARS - kept.reduce((sum, { run }) => sum + JSON.stringify(run.spec).length, 0)
    const planned = await this.#plan(
      session,
      rows.filter(({ fence }) => fence === null),
    )
    const fresh = planned.flatMap(({ row, run }) => {
      left -= run.specJson.length
      return left < 0 ? [] : [offerOf(row, run)]
    })
    return [...kept, ...fresh]
  }

  /** What the runs of these tasks are. A task that cannot be offline is left out: its ticks are started as before, and it says why. */
  async #plan(session: WorkerSession, rows: readonly OfflineTask[]): Promise<Planned[]> {
    const planned: Planned[] = []
    for (let at = 0; at < rows.length; at += MAX_READ)
      planned.push(...(await this.#planSome(session, rows.slice(at, at + MAX_READ))))
    return planned
  }

  async #planSome(session: WorkerSession, rows: readonly OfflineTask[]): Promise<Planned[]> {
    const { database, cluster } = this.#deps
    const tasks = await findTasks(
      database.db,
      rows.map(({ key }) => key),
    )
    const planned: Planned[] = []
    const turns = createTurns()
    for (const row of rows) {
      if (turns.isOver) await turns.next()
      const task = tasks.get(row.key)?.task
      // A new task gets its module a moment later.
      if (task === undefined || (task.module === null && task.image_url === null)) continue
      const image = this.#imageOf(session, row, task)
      if (image === 'awaited') continue
      try {
        const run = this.#planOne(task, image)
        if (cluster.candidates(run.needsHash).includes(session)) planned.push({ row, run })
      } catch (error) {
        await this.#refuse(row, error)
      }
    }
    return planned
  }

  /** A task whose registry has not answered is left out, and keeps no other waiting. */
  #imageOf(
    session: WorkerSession,
    { key, version }: OfflineTask,
    task: TaskRecord,
  ): ImageAnswer | undefined | 'awaited' {
    if (task.image_url === null) return undefined
    const image = { key, version, reference: task.image_url, domainId: task.domain_id }
    return this.#images.find(image, () => this.#answered.add(session)) ?? 'awaited'
  }

  #planOne(task: TaskRecord, image: ImageAnswer | undefined): PreparedRun {
    const { cluster } = this.#deps
    const module = task.module
    const startTask: StartTask = {
      ...task,
      domain_key: null,
      module_key: module?.key ?? null,
      secrets: null,
      version: '',
    }
    const request: StartRequest = {
      taskId: task.id,
      runId: '',
      overrides: {},
      drivesTask: true,
      image,
      idempotency: undefined,
      cause: { type: 'schedule', tick: '' },
    }
    const modules = new Map(module === null ? [] : [[module.key, module] as const])
    const run = prepare(request, startTask, planFor(request, startTask, modules, cluster))
    if (run.spec.uses_state === true)
      throw new ServiceError('unprocessable', 'an offline task has no state, and its module uses it')
    return run
  }

  async #refuse({ key, id, version }: OfflineTask, error: unknown): Promise<void> {
    const { database, logger } = this.#deps
    // One task does not keep others from their workers.
    if (!(error instanceof ServiceError) || error.kind === 'internal') {
      logger.warn({ err: error, task: id }, 'failed to prepare an offline task; retrying')
      return
    }
    // The registry may answer the next time.
    if (isTransient(error)) return
    if (this.#refused.get(key) === version) return
    this.#refused.set(key, version)
    logger.info({ task: id, reason: error.message }, 'a task cannot be offline; a task manager starts its ticks')
    const reason = `it is not offline: ${error.message}`
    await writeRefusals(database, [
      { taskKey: key, source: 'schedule', reason, count: 1, needsAction: needsAction(error) },
    ])
  }
}

/** As far as its manager knows. */
function hasSome({ sent, held }: OfflineSession): boolean {
  return sent === undefined ? held > 0 : sent !== ''
}

/** Those that the worker has come first: they must not give way to others. */
function boundedOf(rows: readonly OfflineTask[] = []): OfflineTask[] {
  const held = rows.filter(({ fence }) => fence !== null)
  return [...held, ...rows.filter(({ fence }) => fence === null)].slice(0, MAX_TASKS)
}

function offerOf(row: OfflineTask, { spec, digest }: Pick<AssignedRun, 'spec' | 'digest'>): OfflineOffer {
  const { version, schedule, timezone, catch_up: catchUp, fence, first_tick_at: firstTick } = row
  return {
    version,
    schedule,
    timezone,
    isCaughtUp: catchUp === 'once',
    firstTickMs: firstTick === null ? 0 : Date.parse(firstTick),
    fence: fence ?? 0,
    run: { spec, digest },
  }
}

/**
 * The first tick that the worker starts, and the number of ticks before it that nobody starts. Undefined: a manager starts the next one first. Only a
 * schedule whose ticks are closer together than the handover takes loses any.
 */
export function firstTickOf(
  { schedule, timezone, next_tick_at: next }: Pick<OfflineTask, 'schedule' | 'timezone' | 'next_tick_at'>,
  now: Date,
): { firstTick: Date; skipped: number } | undefined {
  // One that is due is a manager's, however long it has been.
  if (next === null || Date.parse(next) <= now.getTime()) return undefined
  const free = now.getTime() + HANDOVER_MS
  let firstTick = new Date(next)
  let skipped = 0
  while (firstTick.getTime() <= free) {
    const after = nextTick(schedule, timezone, firstTick)
    if (after === undefined || after.getTime() - firstTick.getTime() > HANDOVER_MS) return undefined
    firstTick = after
    skipped += 1
  }
  return { firstTick, skipped }
}
