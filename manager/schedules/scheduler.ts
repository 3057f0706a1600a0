/**
 * Ticks of schedules. A tick is started under its time as a key, in the transaction that creates its run: the first of
 * several managers starts it, and the others find it started. Ticks that were missed while no manager ran start one run
 * or none, as `catch_up` of the task says. Domains take turns: a round takes as many ticks of each as it can.
 */
import type { Database } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startRounds } from '#core/rounds.ts'
import { formatTime, monotonicMs } from '#core/time.ts'
import { LATE_MS, planTicks } from '#core/ticks.ts'
import { inTurns } from '#core/turns.ts'
import type { TaskRefusal } from '#queues/index.ts'
import type { RunsService } from '../runs/service.ts'
import { isUnderWay, requireNextState } from '../model/lifecycle.ts'
import { findDueTicks, passTicks } from '../store/due-ticks.ts'
import type { DueTick, PassedTick } from '../store/due-ticks.ts'
import { needsAction, writeRefusals } from '../store/refusals.ts'

/** Ticks per round, started concurrently. */
const MAX_DUE = 100
/** A round that is awaited for a tick begins this long after it, so that the tick is due for the database. */
const AFTER_TICK_MS = 5
/** A tick that cannot be started now is retried after this; meanwhile it does not block others. */
const DEFER_MS = 5_000

export type SchedulerDeps = {
  database: Database
  runs: Pick<RunsService, 'startFor'>
  logger: Logger
  intervalMs: number
}

/** What became of a due tick: it has passed, with a run or without. */
type Outcome = { passed: PassedTick; refusal?: Omit<TaskRefusal, 'taskKey' | 'source'> }

export function startScheduler({ database, runs, logger, intervalMs }: SchedulerDeps): { stop(): Promise<void> } {
  /** Throws the error of a start that is to be tried again. */
  async function tick(row: DueTick): Promise<Outcome> {
    const { schedule, timezone, catch_up: catchUp } = row
    const first = new Date(row.next_tick_at)
    const { start, latest, next, skipped } = planTicks({ schedule, timezone, catchUp }, first, new Date(row.now))
    const refused = (reason: string, isForGood: boolean): Outcome => ({
      passed: { row, next, missed: skipped + 1, hasStarted: false },
      refusal: { reason, count: 1, needsAction: isForGood },
    })
    if (start === undefined)
      return refused(`no run could be started within ${LATE_MS / 1000} s of ${formatTime(latest)}`, false)
    try {
      // This is known without asking the writer: what is refused costs no transaction of its own.
      if (isUnderWay(row.state)) requireNextState(row.state, 'start')
      await runs.startFor({
        taskId: row.id,
        domainId: row.domain_id,
        origin: 'schedule',
        key: `tick ${start.toISOString()}`,
        drivesTask: true,
        cause: { type: 'schedule', tick: formatTime(start) },
      })
      return { passed: { row, next, missed: skipped, hasStarted: true } }
    } catch (error) {
      if (!(error instanceof ServiceError) || kindOf(error) === 'internal') throw error
      if (error.kind === 'unavailable' || error.kind === 'timeout') throw error
      // Permanent for this tick: the next one tries again.
      logger.info({ task: row.id, reason: error.message }, 'a scheduled start was refused; waiting for the next tick')
      return refused(error.message, needsAction(error))
    }
  }

  /** The end of the deferral, by task key. */
  const deferred = new Map<number, number>()

  /** Defers the tick, because what refuses it may be over in a moment. */
  function defer(row: DueTick, error: unknown): TaskRefusal[] {
    deferred.set(row.key, monotonicMs() + DEFER_MS)
    logger.warn({ err: error, task: row.id }, 'failed to start a run of a schedule; retrying')
    if (!(error instanceof ServiceError) || kindOf(error) === 'internal') return []
    return [{ taskKey: row.key, source: 'schedule', reason: error.message, count: 1, needsAction: needsAction(error) }]
  }

  /** Returns the pause to the next round. The writes of a round are two statements, however many ticks it has. */
  async function passDue(): Promise<number> {
    const beganMs = monotonicMs()
    for (const [key, until] of deferred) if (until <= beganMs) deferred.delete(key)
    const due = await findDueTicks(database, { without: [...deferred.keys()], limit: MAX_DUE })
    const passed: PassedTick[] = []
    const refusals: TaskRefusal[] = []
    const work: Promise<void>[] = []
    // The times of a schedule are computed one by one.
    await inTurns(due, (row) => {
      const ticking = tick(row).then(
        ({ passed: one, refusal }) => {
          passed.push(one)
          if (refusal !== undefined) refusals.push({ taskKey: row.key, source: 'schedule', ...refusal })
        },
        (error: unknown) => void refusals.push(...defer(row, error)),
      )
      work.push(ticking)
    })
    await Promise.all(work)
    await writeRefusals(database, refusals)
    await passTicks(database, passed)
    if (due.length === MAX_DUE) return 0
    // This is the time of the database, like that of the ticks.
    const nowMs = Date.parse(due[0]?.now ?? '') + monotonicMs() - beganMs
    const untilNext = passed.flatMap(({ next }) => (next === undefined ? [] : [next.getTime() - nowMs + AFTER_TICK_MS]))
    return Math.max(Math.min(intervalMs, ...untilNext), AFTER_TICK_MS)
  }

  const rounds = startRounds(async () => {
    try {
      return { pauseMs: await passDue(), isWakeable: true }
    } catch (error) {
      logger.warn({ err: error }, 'failed to check schedules; retrying')
      return { pauseMs: intervalMs, isWakeable: false }
    }
  })
  return { stop: () => rounds.stop() }
}
