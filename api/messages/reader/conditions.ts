/** Translates the filter of a query to SQL: which rows of the table can contain a match, and which records in them match. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { BUCKET_SECONDS } from '../store/record-chunks.ts'
import type { Arrivals } from './arrivals.ts'
import { arrivalsOf, holdsRecords } from './arrivals.ts'
import type { Filter } from './filter.ts'
import type { Comparator } from './schema.ts'
import type { SelectedMessages } from './selected-messages.ts'
import { isSelected, selectedMessages } from './selected-messages.ts'
import type { TimeRange } from './time-range.ts'

/** The records of a query, without their times. */
export type Scope = {
  channelKey: number
  /** The partitions with messages of the channel; undefined when all of them are read. */
  arrivals: Arrivals | undefined
  /** The matching series when the query filters by name, publisher or subtopic. Rollups are found by series. */
  seriesKeys: readonly number[] | undefined
  /** Series with the publisher and subtopic of the query, with any name. */
  rowKeys: readonly number[] | undefined
  /** Series with the name of the query. */
  recordKeys: readonly number[] | undefined
  protocol: number | undefined
  /** The messages when the query filters by a message or a run; 'nothing': none has records. */
  selected: SelectedMessages | 'nothing' | undefined
  values: readonly ValueCondition[]
}

/** A condition on the value of a record `r`, and one on a row `m` that is true if the row contains such a record. */
export type ValueCondition = { record: Sql<boolean>; row: Sql<boolean> }

export type RecordConditions = {
  /** The condition on a row `m` of the table `records`: it can contain matching records. */
  rows: Sql<boolean>
  /** The condition on a row: all its times are in the range. */
  isInside: Sql<boolean>
  /** The conditions on `r.time`. They are required when the range covers only a part of a row. */
  times: readonly Sql<boolean>[]
  /** The conditions on the series of a record `r`. */
  series: readonly Sql<boolean>[]
  /** The conditions on the values of a record `r`. */
  values: readonly Sql<boolean>[]
}

/** The value of the record is the right operand, as in a comparison of an element with all elements of an array. */
const OPERATORS: Readonly<Record<Comparator, Sql<unknown>>> = {
  eq: sql`=`,
  lt: sql`>`,
  le: sql`>=`,
  gt: sql`<`,
  ge: sql`<=`,
}

/**
 * The series are looked up first. A list of keys costs one hash probe per record; a join would be planned with statistics, which a new
 * table does not have.
 */
export async function scopeOf(tx: Queryable, channelKey: number, filter: Filter): Promise<Scope> {
  const values = valueConditions(filter)
  const [arrivals, series, selected] = await Promise.all([
    arrivalsOf(tx, channelKey),
    seriesOf(tx, channelKey, filter),
    selectedMessages(tx, filter),
  ])
  return { channelKey, arrivals, ...series, protocol: filter.protocol, selected, values }
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
  { names, subtopic, publisherIds }: Filter,
): Promise<Pick<Scope, 'seriesKeys' | 'rowKeys' | 'recordKeys'>> {
  const ofRow = [sql<boolean>`channel_key = ${channelKey}`]
  if (subtopic !== undefined) ofRow.push(sql`subtopic = ${subtopic}`)
  if (publisherIds !== undefined) ofRow.push(isAnyOf(sql`publisher_id`, publisherIds))
  const isByRow = ofRow.length > 1
  if (!isByRow && names === undefined) return { seriesKeys: undefined, rowKeys: undefined, recordKeys: undefined }
  const isNamed = names === undefined ? sql<boolean>`true` : isAnyOf(sql`name`, names)
  const { rows } = await sql<{ key: number; is_named: boolean }>`
    SELECT key, ${isNamed} AS is_named FROM series WHERE ${all(isByRow ? ofRow : [...ofRow, isNamed])}`.execute(tx)
  const seriesKeys = rows.filter((row) => row.is_named).map(({ key }) => key)
  return {
    seriesKeys,
    rowKeys: isByRow ? rows.map(({ key }) => key) : undefined,
    recordKeys: names === undefined ? undefined : seriesKeys,
  }
}

/**
 * The conditions on records of the scope in the range. When only rows of a few batches are read, the conditions on channel and times are
 * written so that no index is used: the planner underestimates a channel of a new table, and estimates an unknown range of times as
 * 1/200 of the table. `heldIn`: a part of the range that contains the requested records.
 */
export function conditionsIn(
  scope: Scope,
  range: TimeRange,
  { found = 'by channel', heldIn = range }: { found?: 'by channel' | 'by batch'; heldIn?: TimeRange } = {},
): RecordConditions {
  const { channelKey, arrivals, rowKeys, recordKeys, protocol, selected, values } = scope
  const times = rowTimeConditions(range)
  const rows =
    found === 'by channel'
      ? [sql<boolean>`m.channel_key = ${channelKey}`, ...times]
      : [sql<boolean>`m.channel_key + 0 = ${channelKey}`, ...times.map((one) => sql<boolean>`(${one}) IS TRUE`)]
  // Pending batches name their partitions themselves.
  if (arrivals !== undefined && found === 'by channel') rows.push(holdsRecords(arrivals, heldIn))
  if (protocol !== undefined) rows.push(sql`m.protocol = ${protocol}`)
  if (selected === 'nothing') rows.push(sql`false`)
  else if (selected !== undefined) rows.push(...rowTimeConditions(selected.times), isSelected(selected))
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

/** A text column is one of these texts. */
export function isAnyOf(column: Sql<unknown>, texts: readonly string[]): Sql<boolean> {
  return sql`${column} = ANY (${texts}::text[])`
}

/** IS TRUE makes PostgreSQL use a hash set of the keys, also in plans with unknown parameters. */
function isOneOf(key: Sql<unknown>, keys: readonly number[]): Sql<boolean> {
  return sql`(${key} IN (SELECT unnest(${keys}::bigint[]))) IS TRUE`
}

/** The conditions on a record `r` of the rows. */
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
 * A row whose times overlap the range. Both bounds restrict both columns, so that either index can find the range. This is correct because
 * all times of a row are in one bucket.
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
