/**
 * Ticks of schedules. A tick is started under its time as a key, in the transaction that creates its run: the first of
 * several managers starts it, and the others find it started. Ticks that were missed while no manager ran start one run
 * or none, as `catch_up` of the task says.
 */
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startRounds } from '#core/rounds.ts'
import { sql } from '#core/sql.ts'
import { formatTime, monotonicMs } from '#core/time.ts'
import type { RunsService } from '../runs/service.ts'
import { dueTicks } from '../model/cron.ts'

/** A tick that is later than this is missed. */
export const LATE_MS = 60_000
/** Ticks per round, started concurrently. */
const MAX_DUE = 100
/** A tick that cannot be started now is retried after this; meanwhile it does not block others. */
const DEFER_MS = 5_000

export type SchedulerDeps = {
  database: Database
  runs: Pick<RunsService, 'startFor'>
  logger: Logger
  intervalMs: number
}

type DueRow = {
  key: number
  id: string
  domain_id: string | null
  schedule: string
  timezone: string
  catch_up: 'none' | 'once'
  next_tick_at: string
  now: string
}

/** The start for a schedule with a due tick; undefined: none. */
export function planTicks(
  row: { schedule: string; timezone: string; catchUp: 'none' | 'once' },
  first: Date,
  now: Date,
): { start: Date | undefined; next: Date | undefined } {
  const { latest, next } = dueTicks(row.schedule, row.timezone, first, now)
  const isLate = now.getTime() - latest.getTime() > LATE_MS
  return { start: isLate && row.catchUp === 'none' ? undefined : latest, next }
}

export function startScheduler({ database, runs, logger, intervalMs }: SchedulerDeps): { stop(): Promise<void> } {
  async function tick(row: DueRow): Promise<void> {
    const first = new Date(row.next_tick_at)
    const { start, next } = planTicks({ ...row, catchUp: row.catch_up }, first, new Date(row.now))
    if (start !== undefined) {
      try {
        const key = `tick ${start.toISOString()}`
        await runs.startFor({
          taskId: row.id,
          domainId: row.domain_id,
          origin: 'schedule',
          key,
          drivesTask: true,
          cause: { type: 'schedule', tick: formatTime(start) },
        })
      } catch (error) {
        if (!(error instanceof ServiceError) || kindOf(error) === 'internal') throw error
        // Permanent for this tick: the log has the reason, and the next tick tries again.
        if (error.kind === 'unavailable' || error.kind === 'timeout') throw error
        logger.info({ task: row.id, reason: error.message }, 'a scheduled start was refused; waiting for the next tick')
      }
    }
    await advance(database.db, row, next)
  }

  /** The end of the deferral, by task key. */
  const deferred = new Map<number, number>()

  const rounds = startRounds(async () => {
    try {
      const now = monotonicMs()
      for (const [key, until] of deferred) if (until <= now) deferred.delete(key)
      const due = await findDue(database.db, [...deferred.keys()])
      const work = due.map(async (row) => {
        await tick(row).catch((error: unknown) => {
          deferred.set(row.key, now + DEFER_MS)
          logger.warn({ err: error, task: row.id }, 'failed to start a run of a schedule; retrying')
        })
      })
      await Promise.all(work)
      return { pauseMs: due.length === MAX_DUE ? 0 : intervalMs, isWakeable: true }
    } catch (error) {
      logger.warn({ err: error }, 'failed to check schedules; retrying')
      return { pauseMs: intervalMs, isWakeable: false }
    }
  })
  return { stop: () => rounds.stop() }
}

async function findDue(db: Queryable, without: readonly number[]): Promise<DueRow[]> {
  const { rows } = await sql<DueRow>`
    SELECT key, id, domain_id, schedule, timezone, catch_up, next_tick_at, now() AS now FROM tasks
    WHERE next_tick_at <= now() AND key <> ALL (${without}::bigint[]) ORDER BY next_tick_at LIMIT ${MAX_DUE}`.execute(
    db,
  )
  return rows
}

/** No effect if the schedule was changed or another manager was faster. */
async function advance(db: Queryable, row: DueRow, next: Date | undefined): Promise<void> {
  await sql`UPDATE tasks SET next_tick_at = ${next ?? null}
    WHERE key = ${row.key} AND next_tick_at = ${row.next_tick_at}`.execute(db)
}
