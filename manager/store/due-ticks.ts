/** SQL of the ticks of schedules: the due ones, domains in turn, and those that have passed. */
import type { Database } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { TaskState } from '#proto/index.ts'
import { clearRefusals } from '#queues/index.ts'

export type DueTick = {
  key: number
  id: string
  domain_id: string | null
  schedule: string
  timezone: string
  catch_up: 'none' | 'once'
  state: TaskState
  next_tick_at: string
  now: string
}

/**
 * Tasks whose next tick is due: one of each domain, the longest due first, then a second one of each, and so on. So a domain with thousands
 * of them delays those of another by a round.
 */
export async function findDueTicks(
  { db }: Pick<Database, 'db'>,
  { without, limit }: { without: readonly number[]; limit: number },
): Promise<DueTick[]> {
  const { rows } = await sql<DueTick>`
    SELECT t.key, t.id, t.domain_id, t.schedule, t.timezone, t.catch_up, t.state, t.next_tick_at, now() AS now FROM (
        SELECT key, next_tick_at, row_number() OVER (PARTITION BY domain_key ORDER BY next_tick_at, key) AS place FROM tasks
         WHERE next_tick_at <= now() AND paused_at IS NULL AND key <> ALL (${[...without]}::bigint[])
         ORDER BY place, next_tick_at LIMIT ${limit}) due
      JOIN tasks t ON t.key = due.key ORDER BY due.place, due.next_tick_at`.execute(db)
  return rows
}

export type PassedTick = {
  row: DueTick
  next: Date | undefined
  /** Scheduled times that started no run. */
  missed: number
  hasStarted: boolean
}

/** Passes all ticks in one statement. It has no effect on a task whose schedule was changed, or where another manager was faster. */
export async function passTicks({ db }: Pick<Database, 'db'>, passed: readonly PassedTick[]): Promise<void> {
  if (passed.length === 0) return
  const sorted = passed.toSorted((left, right) => left.row.key - right.row.key)
  const started = sorted.flatMap(({ row, hasStarted }) => (hasStarted ? [row.key] : []))
  await sql`WITH cleared AS (${clearRefusals('schedule', started)})
    UPDATE tasks t SET next_tick_at = p.next_tick_at, missed_ticks = t.missed_ticks + p.missed
    FROM unnest(${sorted.map(({ row }) => row.key)}::bigint[], ${sorted.map(({ row }) => row.next_tick_at)}::timestamptz[],
      ${sorted.map(({ next }) => next?.toISOString() ?? null)}::timestamptz[], ${sorted.map(({ missed }) => missed)}::bigint[])
      AS p (key, tick_at, next_tick_at, missed)
    WHERE t.key = p.key AND t.next_tick_at = p.tick_at`.execute(db)
}
