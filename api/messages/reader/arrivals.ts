/**
 * Finds the partitions that contain messages of a channel. Each partition in a statement costs planning time, and a record of any time
 * can arrive at any time. So a read first finds the partitions that can contain its records, and names only those.
 */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { BUCKET_SECONDS } from '../store/record-chunks.ts'
import { WEEK_SECONDS } from '../store/partitions.ts'
import type { ArrivedBatch } from './batch-range.ts'
import { rangeOfBatches } from './batch-range.ts'
import type { TimeRange } from './time-range.ts'

/**
 * Projected records of one retention class that arrived in one week: their number, and the earliest and the end of the latest bucket of
 * their times.
 */
type Week = { retentionDays: number; startSeconds: number; fromSeconds: number; toSeconds: number; records: number }

/** Batches that are not projected yet: both conditions are about rows `m` of `records`; `arrival` alone leaves out partitions. */
type Pending = { condition: Sql<boolean>; arrival: Sql<boolean> }

/** The partitions and pending batches of a channel, in the snapshot of the transaction. */
export type Arrivals = { weeks: readonly Week[]; pending: Pending | undefined }

export async function arrivalsOf(tx: Queryable, channelKey: number): Promise<Arrivals> {
  const [weeks, pending] = await Promise.all([weeksOf(tx, channelKey), pendingBatches(tx)])
  return { weeks, pending }
}

async function weeksOf(tx: Queryable, channelKey: number): Promise<Week[]> {
  const { rows } = await sql<{ retention_days: number; start: number; first: number; last: number; records: number }>`
    SELECT retention_days, records, extract(epoch FROM arrived_on)::float8 AS start, extract(epoch FROM first_bucket)::float8 AS first,
           extract(epoch FROM last_bucket)::float8 AS last
      FROM rollup_weeks WHERE channel_key = ${channelKey} AND series_key = 0
     ORDER BY retention_days, arrived_on`.executePrepared(tx, 'weeks-of-channel')
  return rows.map((row) => ({
    retentionDays: row.retention_days,
    startSeconds: row.start,
    fromSeconds: row.first,
    toSeconds: row.last + BUCKET_SECONDS,
    records: row.records,
  }))
}

/** IS TRUE makes a hashed set of the numbers. */
async function pendingBatches(tx: Queryable): Promise<Pending | undefined> {
  const { rows } = await sql<ArrivedBatch>`
    SELECT seq, arrived_at FROM ingest_batches WHERE NOT projected ORDER BY arrived_at`.executePrepared(
    tx,
    'pending-batches',
  )
  const range = rangeOfBatches(rows)
  if (range === undefined) return undefined
  const { arrival, numbers } = range
  const condition = sql<boolean>`${numbers} AND ${arrival}
    AND (m.batch_seq IN (SELECT unnest(${rows.map(({ seq }) => seq)}::bigint[]))) IS TRUE`
  return { condition, arrival }
}

/** About a row `m` of `records`: its partition can hold times of the range. */
export function holdsRecords({ weeks, pending }: Arrivals, range: TimeRange): Sql<boolean> {
  const places = placesOf(weeks, range, sql`m.retention_days`, sql`m.arrived_at`)
  if (pending !== undefined) places.push(pending.arrival)
  return anyOf(places)
}

/** A condition on a row `b` of `rollups`: its partition can hold times of the range. */
export function holdsRollups({ weeks }: Arrivals, range: TimeRange): Sql<boolean> {
  return anyOf(placesOf(weeks, range, sql`b.retention_days`, sql`b.arrived_on`))
}

/** Consecutive weeks become one condition. */
function placesOf(
  weeks: readonly Week[],
  range: TimeRange,
  retentionDays: Sql<unknown>,
  arrival: Sql<unknown>,
): Sql<boolean>[] {
  const places: { retentionDays: number; startSeconds: number; endSeconds: number }[] = []
  for (const week of weeksIn(weeks, range)) {
    const last = places.at(-1)
    const endSeconds = week.startSeconds + WEEK_SECONDS
    if (last?.retentionDays === week.retentionDays && last.endSeconds === week.startSeconds)
      last.endSeconds = endSeconds
    else places.push({ ...week, endSeconds })
  }
  const at = (seconds: number) => sql`to_timestamp(${seconds}::float8)`
  return places.map(
    (place) => sql<boolean>`(${retentionDays} = ${place.retentionDays}
      AND ${arrival} >= ${at(place.startSeconds)} AND ${arrival} < ${at(place.endSeconds)})`,
  )
}

function weeksIn(weeks: readonly Week[], { fromSeconds = -Infinity, toSeconds = Infinity }: TimeRange): Week[] {
  return weeks.filter((week) => week.toSeconds > fromSeconds && week.fromSeconds < toSeconds)
}

/** Weeks that are completely in the range, and weeks that overlap it. */
export function splitWeeks(arrivals: Arrivals, range: TimeRange): { inside: Arrivals; cut: Arrivals } {
  const { fromSeconds = -Infinity, toSeconds = Infinity } = range
  const isInside = (week: Week) => week.fromSeconds >= fromSeconds && week.toSeconds <= toSeconds
  const held = weeksIn(arrivals.weeks, range)
  const having = (weeks: readonly Week[]): Arrivals => ({ ...arrivals, weeks })
  return { inside: having(held.filter(isInside)), cut: having(held.filter((week) => !isInside(week))) }
}

function anyOf(conditions: readonly Sql<boolean>[]): Sql<boolean> {
  return conditions.length === 0 ? sql<boolean>`false` : sql<boolean>`(${sql.join([...conditions], sql` OR `)})`
}

/** The given number of weeks at the newest (or oldest) end of the range. Undefined when this excludes no partition. */
export function nearEnd(
  { weeks }: Arrivals,
  range: TimeRange,
  dir: 'asc' | 'desc',
  count: number,
): TimeRange | undefined {
  const length = count * WEEK_SECONDS
  const held = weeksIn(weeks, range)
  const near = { ...range }
  if (dir === 'desc') {
    const end = Math.min(range.toSeconds ?? Infinity, Math.max(...held.map(({ toSeconds }) => toSeconds)))
    near.fromSeconds = Math.max(range.fromSeconds ?? -Infinity, end - length)
  } else {
    const start = Math.max(range.fromSeconds ?? -Infinity, Math.min(...held.map(({ fromSeconds }) => fromSeconds)))
    near.toSeconds = Math.min(range.toSeconds ?? Infinity, start + length)
  }
  return weeksIn(weeks, near).length < held.length ? near : undefined
}
