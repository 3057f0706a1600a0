/** From the filter of a query to SQL: which rows of the table can hold a match, and which records in them match. */
import type { RawBuilder, SqlBool } from 'kysely'
import { sql } from 'kysely'
import type { Queryable } from '#core/database/index.ts'
import { BUCKET_SECONDS } from '../store/runs.ts'
import type { Filter } from './filter.ts'
import type { Comparator } from './schema.ts'

/** Which records a query is about, apart from their times. */
export type Scope = {
  channelKey: number
  /** The series that match, where name, publisher or subtopic are asked for. */
  seriesKeys: readonly number[] | undefined
  /** Whether the records of a row match all or none of them. */
  isBySeriesOfRow: boolean
  protocol: number | undefined
  /** About the values of a record `r`. */
  values: readonly RawBuilder<SqlBool>[]
}

/** A range of times in epoch seconds, the end exclusive. */
export type TimeRange = { fromSeconds: number | undefined; toSeconds: number | undefined }

export type RecordConditions = {
  /** About a row `m` of the table `records`: it may hold records that match. */
  rows: RawBuilder<SqlBool>
  /** About a row: all its times lie in the range. */
  isInside: RawBuilder<SqlBool>
  /** About the times of a record, on `r.time`: needed where a range cuts through a row. */
  times: readonly RawBuilder<SqlBool>[]
  /** About anything else of a record `r`. Empty: every record of the rows matches, within the times. */
  records: readonly RawBuilder<SqlBool>[]
}

const OPERATORS: Readonly<Record<Comparator, RawBuilder<unknown>>> = {
  eq: sql`=`,
  lt: sql`<`,
  le: sql`<=`,
  gt: sql`>`,
  ge: sql`>=`,
}

/** A row spans less than a bucket; a second more for times that are rounded. */
const MAX_ROW_SECONDS = BUCKET_SECONDS + 1

/**
 * The series are looked up first: as a list of keys they are one hash probe per record, while a join is planned by
 * statistics that a young table does not have.
 */
export async function scopeOf(tx: Queryable, channelKey: number, filter: Filter): Promise<Scope> {
  const operator = OPERATORS[filter.comparator]
  const values: RawBuilder<SqlBool>[] = []
  if (filter.value !== undefined) values.push(sql`r.value ${operator} ${filter.value}::float8`)
  if (filter.boolValue !== undefined) values.push(sql`r.bool_value = ${filter.boolValue}`)
  if (filter.stringValue !== undefined) values.push(stringCondition(filter.stringValue, filter.comparator))
  if (filter.dataValue !== undefined) values.push(sql`r.data_value ${operator} ${Buffer.from(filter.dataValue)}::bytea`)
  const series = seriesConditions(filter)
  let seriesKeys: number[] | undefined
  if (series.length > 0) {
    const { rows } = await sql<{ key: number }>`
      SELECT key FROM series WHERE channel_key = ${channelKey} AND ${all(series)}`.execute(tx)
    seriesKeys = rows.map(({ key }) => key)
  }
  return { channelKey, seriesKeys, isBySeriesOfRow: filter.name === undefined, protocol: filter.protocol, values }
}

/** What records of the scope in the range must meet. */
export function conditionsIn(scope: Scope, range: TimeRange): RecordConditions {
  const { channelKey, seriesKeys, isBySeriesOfRow, protocol, values } = scope
  const rows = [sql<SqlBool>`m.channel_key = ${channelKey}`, ...rowTimeConditions(range)]
  const records = [...values]
  if (protocol !== undefined) rows.push(sql`m.protocol = ${protocol}`)
  if (seriesKeys !== undefined) {
    // Publisher and subtopic are the same for all records of a row, so that its first one speaks for them.
    if (isBySeriesOfRow) rows.push(sql`m.series_keys[1] = ANY (${seriesKeys}::bigint[])`)
    else records.push(sql`r.series_key = ANY (${seriesKeys}::bigint[])`)
  }
  return { rows: all(rows), isInside: insideCondition(range), times: timeConditions(sql`r.time`, range), records }
}

/** All conditions joined by AND; true without any. */
export function all(conditions: readonly RawBuilder<SqlBool>[]): RawBuilder<SqlBool> {
  return conditions.length === 0 ? sql<SqlBool>`true` : sql<SqlBool>`${sql.join([...conditions], sql` AND `)}`
}

export function timeConditions(
  time: RawBuilder<unknown>,
  { fromSeconds, toSeconds }: TimeRange,
): RawBuilder<SqlBool>[] {
  const conditions: RawBuilder<SqlBool>[] = []
  if (fromSeconds !== undefined) conditions.push(sql`${time} >= to_timestamp(${fromSeconds}::float8)`)
  if (toSeconds !== undefined) conditions.push(sql`${time} < to_timestamp(${toSeconds}::float8)`)
  return conditions
}

/** A row whose times meet the range. Both ends bound both columns, so that either index finds the range. */
function rowTimeConditions({ fromSeconds, toSeconds }: TimeRange): RawBuilder<SqlBool>[] {
  const conditions: RawBuilder<SqlBool>[] = []
  const at = (seconds: number) => sql`to_timestamp(${seconds}::float8)`
  const span = sql`make_interval(secs => ${MAX_ROW_SECONDS})`
  if (fromSeconds !== undefined) {
    conditions.push(sql`m.max_time >= ${at(fromSeconds)}`, sql`m.min_time > ${at(fromSeconds)} - ${span}`)
  }
  if (toSeconds !== undefined) {
    conditions.push(sql`m.min_time < ${at(toSeconds)}`, sql`m.max_time < ${at(toSeconds)} + ${span}`)
  }
  return conditions
}

function insideCondition({ fromSeconds, toSeconds }: TimeRange): RawBuilder<SqlBool> {
  const conditions: RawBuilder<SqlBool>[] = []
  if (fromSeconds !== undefined) conditions.push(sql`m.min_time >= to_timestamp(${fromSeconds}::float8)`)
  if (toSeconds !== undefined) conditions.push(sql`m.max_time < to_timestamp(${toSeconds}::float8)`)
  return all(conditions)
}

function seriesConditions(filter: Filter): RawBuilder<SqlBool>[] {
  const conditions: RawBuilder<SqlBool>[] = []
  if (filter.name !== undefined) conditions.push(sql`name = ${filter.name}`)
  if (filter.subtopic !== undefined) conditions.push(sql`subtopic = ${filter.subtopic}`)
  if (filter.publisherId !== undefined) conditions.push(sql`publisher_id = ${filter.publisherId}`)
  return conditions
}

/** Contract section 8: eq = equal; ge = contains; gt = contains and differs; le and lt = is contained in. */
function stringCondition(text: string, comparator: Comparator): RawBuilder<SqlBool> {
  switch (comparator) {
    case 'eq':
      return sql`r.string_value = ${text}`
    case 'ge':
      return sql`position(${text} IN r.string_value) > 0`
    case 'gt':
      return sql`(position(${text} IN r.string_value) > 0 AND r.string_value <> ${text})`
    case 'le':
    case 'lt':
      return sql`position(r.string_value IN ${text}) > 0`
  }
}
