/** Reads SenML records: pages in order, and aggregates per interval and series. */
import type { RawBuilder, SqlBool } from 'kysely'
import { sql } from 'kysely'
import type { Transaction } from '#core/database/index.ts'
import type { AggregationRequest, Filter } from './filter.ts'
import type { Interval } from './interval.ts'
import type { Comparator } from './schema.ts'

export type Window = { offset: number; limit: number; order: string | undefined; dir: 'asc' | 'desc' }

export type RecordRow = {
  subtopic: string
  publisher_id: string
  name: string
  unit: string
  protocol: number
  time: number
  value: number | null
  sum: number | null
  update_time: number | null
  bool_value: boolean | null
  string_value: string | null
  data_value: Buffer | null
}

export type Rows<Row> = { rows: Row[]; total: number }

/** The columns that a page can be ordered by; an unknown order is that of time. */
const ORDER_COLUMNS: Readonly<Record<string, RawBuilder<unknown>>> = {
  name: sql`s.name`,
  unit: sql`s.unit`,
  publisher: sql`s.publisher_id`,
  subtopic: sql`s.subtopic`,
  protocol: sql`m.protocol`,
  value: sql`m.value`,
}

const OPERATORS: Readonly<Record<Comparator, RawBuilder<unknown>>> = {
  eq: sql`=`,
  lt: sql`<`,
  le: sql`<=`,
  gt: sql`>`,
  ge: sql`>=`,
}

/** A page and the number of all matching records, of one snapshot. */
export async function readRecords(
  tx: Transaction,
  channelKey: number,
  filter: Filter,
  window: Window,
): Promise<Rows<RecordRow>> {
  const condition = await recordCondition(tx, channelKey, filter)
  const direction = window.dir === 'asc' ? sql`ASC` : sql`DESC`
  // Records of one message stay in the order in which they were sent, also where the newest message comes first.
  const byTime = sql`m.time ${direction}, m.batch_seq ${direction}, m.message ${direction}, m.ordinal ASC`
  const column = window.order === undefined ? undefined : ORDER_COLUMNS[window.order]
  // By time the index gives the page, and only its rows meet their series.
  const source = column === undefined ? sql`messages m` : sql`messages m JOIN series s ON s.key = m.series_key`
  const order = column === undefined ? byTime : sql`${column} ${direction}, ${byTime}`
  const { rows } = await sql<RecordRow & { total: number; place: number | null }>`
    WITH page AS (
      SELECT found.*, row_number() OVER () AS place
        FROM (SELECT m.* FROM ${source} WHERE ${condition} ORDER BY ${order} LIMIT ${window.limit} OFFSET ${window.offset}) found
    ), counted AS (
      SELECT count(*) AS total FROM messages m WHERE ${condition}
    )
    SELECT counted.total, page.place, s.subtopic, s.publisher_id, s.name, s.unit, page.protocol,
           extract(epoch FROM page.time)::float8 AS time, page.value, page.sum, page.update_time, page.bool_value,
           page.string_value, page.data_value
      FROM counted LEFT JOIN page ON true LEFT JOIN series s ON s.key = page.series_key ORDER BY page.place`.execute(tx)
  return { rows: rows.filter((row) => row.place !== null), total: rows[0]?.total ?? 0 }
}

/** One row per interval and series that has numeric values in it; `time` is the beginning of the interval. */
export async function aggregateRecords(
  tx: Transaction,
  channelKey: number,
  filter: Filter,
  { by, interval, timeZone }: AggregationRequest,
  window: Window,
): Promise<Rows<RecordRow>> {
  const direction = window.dir === 'asc' ? sql`ASC` : sql`DESC`
  const condition = await recordCondition(tx, channelKey, filter)
  const { rows } = await sql<RecordRow & { total: number; place: number | null }>`
    WITH buckets AS (
      SELECT ${bucketOf(interval, timeZone)} AS bucket, m.series_key, min(m.protocol) AS protocol, ${sql.raw(by)}(m.value)::float8 AS value
        FROM messages m
       WHERE ${condition} AND m.value IS NOT NULL
       GROUP BY bucket, m.series_key
    ), page AS (
      SELECT s.subtopic, s.publisher_id, s.name, s.unit, b.protocol, extract(epoch FROM b.bucket)::float8 AS time, b.value,
             row_number() OVER (ORDER BY b.bucket ${direction}, b.series_key) AS place
        FROM buckets b JOIN series s ON s.key = b.series_key
       ORDER BY place LIMIT ${window.limit} OFFSET ${window.offset}
    ), counted AS (
      SELECT count(*) AS total FROM buckets
    )
    SELECT counted.total, page.*, NULL AS sum, NULL AS update_time, NULL AS bool_value, NULL AS string_value, NULL AS data_value
      FROM counted LEFT JOIN page ON true ORDER BY page.place`.execute(tx)
  return { rows: rows.filter((row) => row.place !== null), total: rows[0]?.total ?? 0 }
}

/** The beginning of the interval that a record's time falls into. */
function bucketOf(interval: Interval, timeZone: string): RawBuilder<unknown> {
  if (interval.kind === 'fixed') {
    return sql`date_bin(make_interval(secs => ${interval.seconds}), m.time, 'epoch'::timestamptz)`
  }
  const local = sql`(m.time AT TIME ZONE ${timeZone})`
  const { count } = interval
  switch (interval.unit) {
    case 'day':
      return sql`(date_bin(make_interval(days => ${count}::integer), ${local}, '1970-01-01'::timestamp) AT TIME ZONE ${timeZone})`
    case 'week':
      // Weeks begin on Monday.
      return sql`(date_bin(make_interval(weeks => ${count}::integer), ${local}, '1970-01-05'::timestamp) AT TIME ZONE ${timeZone})`
    case 'month': {
      const months = sql`(extract(year FROM ${local}) * 12 + extract(month FROM ${local}) - 1)::integer`
      const first = sql`(${months} - ${months} % ${count}::integer)`
      return sql`(make_timestamp(${first} / 12, ${first} % 12 + 1, 1, 0, 0, 0) AT TIME ZONE ${timeZone})`
    }
  }
}

/**
 * Which records match. The series are looked up first: as a list of keys they are one hash probe per record, while a join
 * is planned by statistics that a young table does not have.
 */
async function recordCondition(tx: Transaction, channelKey: number, filter: Filter): Promise<RawBuilder<SqlBool>> {
  const conditions = [sql<SqlBool>`m.channel_key = ${channelKey}`, ...timeConditions(sql`m.time`, filter)]
  const series = seriesConditions(filter)
  if (series.length > 0) {
    const { rows } = await sql<{ key: number }>`
      SELECT key FROM series WHERE channel_key = ${channelKey} AND ${sql.join(series, sql` AND `)}`.execute(tx)
    conditions.push(sql`m.series_key = ANY (${rows.map((row) => row.key)}::bigint[])`)
  }
  const operator = OPERATORS[filter.comparator]
  if (filter.protocol !== undefined) conditions.push(sql`m.protocol = ${filter.protocol}`)
  if (filter.value !== undefined) conditions.push(sql`m.value ${operator} ${filter.value}::float8`)
  if (filter.boolValue !== undefined) conditions.push(sql`m.bool_value = ${filter.boolValue}`)
  if (filter.stringValue !== undefined) conditions.push(stringCondition(filter.stringValue, filter.comparator))
  if (filter.dataValue !== undefined)
    conditions.push(sql`m.data_value ${operator} ${Buffer.from(filter.dataValue)}::bytea`)
  return sql<SqlBool>`${sql.join(conditions, sql` AND `)}`
}

export function timeConditions(time: RawBuilder<unknown>, { fromSeconds, toSeconds }: Filter): RawBuilder<SqlBool>[] {
  const conditions: RawBuilder<SqlBool>[] = []
  if (fromSeconds !== undefined) conditions.push(sql`${time} >= to_timestamp(${fromSeconds}::float8)`)
  if (toSeconds !== undefined) conditions.push(sql`${time} < to_timestamp(${toSeconds}::float8)`)
  return conditions
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
      return sql`m.string_value = ${text}`
    case 'ge':
      return sql`position(${text} IN m.string_value) > 0`
    case 'gt':
      return sql`(position(${text} IN m.string_value) > 0 AND m.string_value <> ${text})`
    case 'le':
    case 'lt':
      return sql`position(m.string_value IN ${text}) > 0`
  }
}
