/**
 * Ticks of schedules. A tick is started under its time as a key, in the transaction that creates its run: whoever of
 * several managers comes first starts it, and the others find it started. Ticks that passed while no manager ran are made
 * up for by one run, or by none, as the task says.
 */
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { startRounds } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'
import type { RunsService } from '../runs/service.ts'
import { dueTicks } from '../model/cron.ts'

/** A tick that is later than this was missed. */
export const LATE_MS = 60_000
/** Ticks of one look, which are started side by side. */
const MAX_DUE = 100
/** A tick that nobody can take now is tried again after this; meanwhile it stands in nobody's way. */
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

/** What is to be started for a schedule whose tick is due; undefined: nothing. */
export function judgeTicks(
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
    const { start, next } = judgeTicks({ ...row, catchUp: row.catch_up }, first, new Date(row.now))
    if (start !== undefined) {
      try {
        const key = `tick ${start.toISOString()}`
        await runs.startFor({ taskId: row.id, domainId: row.domain_id, origin: 'schedule', key, drivesTask: true })
      } catch (error) {
        if (!(error instanceof ServiceError) || kindOf(error) === 'internal') throw error
        // Nobody to come back for: the task says itself why, and the next tick tries again.
        if (error.kind === 'unavailable' || error.kind === 'timeout') throw error
        logger.info({ task: row.id, reason: error.message }, 'a schedule was due and started nothing')
      }
    }
    await advance(database.db, row, next)
  }

  /** Until when, by the key of the task. */
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
      return { pauseMs: due.length === MAX_DUE ? 0 : intervalMs, isPokable: true }
    } catch (error) {
      logger.warn({ err: error }, 'failed to check schedules; retrying')
      return { pauseMs: intervalMs, isPokable: false }
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

/** Not when the schedule was changed, or another manager was faster. */
async function advance(db: Queryable, row: DueRow, next: Date | undefined): Promise<void> {
  await sql`UPDATE tasks SET next_tick_at = ${next ?? null}
    WHERE key = ${row.key} AND next_tick_at = ${row.next_tick_at}`.execute(db)
}
