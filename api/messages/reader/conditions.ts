/** From the filter of a query to SQL: which rows of the table can hold a match, and which records in them match. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { BUCKET_SECONDS } from '../store/record-chunks.ts'
import type { Filter } from './filter.ts'
import type { Comparator } from './schema.ts'

/** Which records a query is about, apart from their times. */
export type Scope = {
  channelKey: number
  /** The series that match, where name, publisher or subtopic are asked for: what rollups are found by. */
  seriesKeys: readonly number[] | undefined
  /** Series of the publisher and subtopic that are asked for, whatever their name. */
  rowKeys: readonly number[] | undefined
  /** Series of the name that is asked for. */
  recordKeys: readonly number[] | undefined
  protocol: number | undefined
  values: readonly ValueCondition[]
}

/** A condition on the value of a record `r`, and one on a row `m` that is true if the row holds such a record. */
export type ValueCondition = { record: Sql<boolean>; row: Sql<boolean> }

/** A range of times in epoch seconds, the end exclusive. */
export type TimeRange = { fromSeconds: number | undefined; toSeconds: number | undefined }

/** What lies in both ranges. */
export function intersection(one: TimeRange, other: TimeRange): TimeRange {
  const [from, to] = [
    Math.max(one.fromSeconds ?? -Infinity, other.fromSeconds ?? -Infinity),
    Math.min(one.toSeconds ?? Infinity, other.toSeconds ?? Infinity),
  ]
  return { fromSeconds: from === -Infinity ? undefined : from, toSeconds: to === Infinity ? undefined : to }
}

export type RecordConditions = {
  /** About a row `m` of the table `records`: it may hold records that match. */
  rows: Sql<boolean>
  /** About a row: all its times lie in the range. */
  isInside: Sql<boolean>
  /** About the times of a record, on `r.time`: needed where a range cuts through a row. */
  times: readonly Sql<boolean>[]
  /** About the series of a record `r`. */
  series: readonly Sql<boolean>[]
  /** About its values. */
  values: readonly Sql<boolean>[]
}

/** With the value of the record on their right: that is how an element is compared with all of an array. */
const OPERATORS: Readonly<Record<Comparator, Sql<unknown>>> = {
  eq: sql`=`,
  lt: sql`>`,
  le: sql`>=`,
  gt: sql`<`,
  ge: sql`<=`,
}

/**
 * The series are looked up first: as a list of keys they are one hash probe per record, while a join is planned by
 * statistics that a young table does not have.
 */
export async function scopeOf(tx: Queryable, channelKey: number, filter: Filter): Promise<Scope> {
  const values = valueConditions(filter)
  return { channelKey, ...(await seriesOf(tx, channelKey, filter)), protocol: filter.protocol, values }
}

function valueConditions({ value, boolValue, stringValue, dataValue, comparator }: Filter): ValueCondition[] {
  const conditions: ValueCondition[] = []
  const compare = (operand: Sql<unknown>, operator: Sql<unknown>, element: Sql<unknown>, array: Sql<unknown>) =>
    conditions.push({
      record: sql`${operand} ${operator} ${element}`,
      row: sql`${operand} ${operator} ANY (${array})`,
    })
  const operator = OPERATORS[comparator]
  if (value !== undefined) compare(sql`${value}::float8`, operator, sql`r.value`, sql`m."values"`)
  if (boolValue !== undefined) compare(sql`${boolValue}::boolean`, sql`=`, sql`r.bool_value`, sql`m.bool_values`)
  if (dataValue !== undefined)
    compare(sql`${Buffer.from(dataValue)}::bytea`, operator, sql`r.data_value`, sql`m.data_values`)
  if (stringValue !== undefined && comparator === 'eq')
    compare(sql`${stringValue}::text`, operator, sql`r.string_value`, sql`m.string_values`)
  if (stringValue !== undefined && comparator !== 'eq')
    conditions.push({ record: stringCondition(stringValue, comparator), row: sql`m.string_values IS NOT NULL` })
  return conditions
}

async function seriesOf(
  tx: Queryable,
  channelKey: number,
  { name, subtopic, publisherId }: Filter,
): Promise<Pick<Scope, 'seriesKeys' | 'rowKeys' | 'recordKeys'>> {
  const ofRow = [sql<boolean>`channel_key = ${channelKey}`]
  if (subtopic !== undefined) ofRow.push(sql`subtopic = ${subtopic}`)
  if (publisherId !== undefined) ofRow.push(sql`publisher_id = ${publisherId}`)
  const isByRow = ofRow.length > 1
  if (!isByRow && name === undefined) return { seriesKeys: undefined, rowKeys: undefined, recordKeys: undefined }
  const isNamed = name === undefined ? sql<boolean>`true` : sql<boolean>`name = ${name}`
  const { rows } = await sql<{ key: number; is_named: boolean }>`
    SELECT key, ${isNamed} AS is_named FROM series WHERE ${all(isByRow ? ofRow : [...ofRow, isNamed])}`.execute(tx)
  const seriesKeys = rows.filter((row) => row.is_named).map(({ key }) => key)
  return {
    seriesKeys,
    rowKeys: isByRow ? rows.map(({ key }) => key) : undefined,
    recordKeys: name === undefined ? undefined : seriesKeys,
  }
}

/**
 * What records of the scope in the range must meet. Rows of a few batches are found by them: then the conditions on channel and times
 * are written so that no index answers them, for the planner takes a channel of a young table to be far smaller than it is, and a
 * range of times that it does not know for a two-hundredth of it.
 */
export function conditionsIn(
  scope: Scope,
  range: TimeRange,
  found: 'by channel' | 'by batch' = 'by channel',
): RecordConditions {
  const { channelKey, rowKeys, recordKeys, protocol, values } = scope
  const times = rowTimeConditions(range)
  const rows =
    found === 'by channel'
      ? [sql<boolean>`m.channel_key = ${channelKey}`, ...times]
      : [sql<boolean>`m.channel_key + 0 = ${channelKey}`, ...times.map((one) => sql<boolean>`(${one}) IS TRUE`)]
  if (protocol !== undefined) rows.push(sql`m.protocol = ${protocol}`)
  rows.push(...values.map(({ row }) => row))
  // Publisher and subtopic are the same for all records of a row, so that the first record decides.
  if (rowKeys !== undefined) rows.push(isOneOf(sql`m.series_keys[1]`, rowKeys))
  return {
    rows: all(rows),
    isInside: insideCondition(range),
    times: timeConditions(sql`r.time`, range),
    series: recordKeys === undefined ? [] : [isOneOf(sql`r.series_key`, recordKeys)],
    values: values.map(({ record }) => record),
  }
}

/** IS TRUE makes a set of the keys that each is looked up in, also where the plan does not know them. */
function isOneOf(key: Sql<unknown>, keys: readonly number[]): Sql<boolean> {
  return sql`(${key} IN (SELECT unnest(${keys}::bigint[]))) IS TRUE`
}

/** What a record `r` of the rows must meet. */
export function matchingIn({ times, series, values }: RecordConditions): Sql<boolean>[] {
  return [...times, ...series, ...values]
}

/** All conditions joined by AND; true without any. */
export function all(conditions: readonly Sql<boolean>[]): Sql<boolean> {
  return conditions.length === 0 ? sql<boolean>`true` : sql<boolean>`${sql.join([...conditions], sql` AND `)}`
}

export function timeConditions(time: Sql<unknown>, { fromSeconds, toSeconds }: TimeRange): Sql<boolean>[] {
  const conditions: Sql<boolean>[] = []
  if (fromSeconds !== undefined) conditions.push(sql`${time} >= to_timestamp(${fromSeconds}::float8)`)
  if (toSeconds !== undefined) conditions.push(sql`${time} < to_timestamp(${toSeconds}::float8)`)
  return conditions
}

/**
 * A row whose times meet the range. Both ends bound both columns, so that either index finds the range: the times of a row lie in one
 * bucket, so that none is beyond the buckets that the range touches.
 */
export function rowTimeConditions({ fromSeconds, toSeconds }: TimeRange): Sql<boolean>[] {
  const conditions: Sql<boolean>[] = []
  const at = (seconds: number) => sql`to_timestamp(${seconds}::float8)`
  if (fromSeconds !== undefined) {
    const first = Math.floor(fromSeconds / BUCKET_SECONDS) * BUCKET_SECONDS
    conditions.push(sql`m.max_time >= ${at(fromSeconds)}`, sql`m.min_time >= ${at(first)}`)
  }
  if (toSeconds !== undefined) {
    const end = Math.ceil(toSeconds / BUCKET_SECONDS) * BUCKET_SECONDS
    conditions.push(sql`m.min_time < ${at(toSeconds)}`, sql`m.max_time < ${at(end)}`)
  }
  return conditions
}

function insideCondition({ fromSeconds, toSeconds }: TimeRange): Sql<boolean> {
  const conditions: Sql<boolean>[] = []
  if (fromSeconds !== undefined) conditions.push(sql`m.min_time >= to_timestamp(${fromSeconds}::float8)`)
  if (toSeconds !== undefined) conditions.push(sql`m.max_time < to_timestamp(${toSeconds}::float8)`)
  return all(conditions)
}

/** Contract section 8: ge = contains; gt = contains and differs; le and lt = is contained in. */
function stringCondition(text: string, comparator: Exclude<Comparator, 'eq'>): Sql<boolean> {
  switch (comparator) {
    case 'ge':
      return sql`position(${text} IN r.string_value) > 0`
    case 'gt':
      return sql`(position(${text} IN r.string_value) > 0 AND r.string_value <> ${text})`
    case 'le':
    case 'lt':
      return sql`position(r.string_value IN ${text}) > 0`
  }
}
