/**
 * The table `tallies`: what folders added up and nobody merged yet. Together with `rollups` and `latest_records` it tells what is
 * folded; merging moves it into them.
 */
import { prepared } from '#core/database/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { booleanArray, byteaArray, numberArray, numbersOf, textArray } from '../store/binary-arrays.ts'
import type { NumberType } from '../store/binary-arrays.ts'
import { BUCKET_SECONDS } from '../store/runs.ts'
import { mergeLatest } from './latest.ts'
import { fromMicros } from './micros.ts'
import { PART_ROWS, partsOf } from './pace.ts'
import type { Rest } from './pace.ts'
import { upsertRollups } from './rollups.ts'
import type { Column, TallyRows } from './tally-rows.ts'

/** Series of a row of the table: with numbers it fills half a page. */
const ROW_SERIES = 36
/** Texts and bytes among the newest records of a row, as long as one alone does not have more. */
const ROW_BYTES = 64 * 1024
/** Such bytes of one statement. */
const SLICE_BYTES = 1024 * 1024
const BUCKET_MICROS = BUCKET_SECONDS * 1e6

const ROLLUPS_IN_ROW = sql`unnest(t.series_keys, t.protocols, t.records, t.value_counts, t.min_values, t.max_values, t.millionths, t.value_sums)
  AS e(series_key, protocol, records, value_count, min_value, max_value, millionths, value_sum)`

/** Rows of the columns of `rollups`, of these rows `t` and series `e`. */
export function talliedRollups(rows: Sql<unknown>): Sql<unknown> {
  return sql`
    SELECT t.channel_key, e.series_key, t.bucket, t.retention_days, t.arrived_on, e.protocol, e.records::bigint AS records,
           e.value_count::bigint AS value_count, e.min_value, e.max_value, coalesce(e.value_sum, e.millionths * 0.000001) AS value_sum
      FROM tallies t CROSS JOIN LATERAL ${ROLLUPS_IN_ROW} WHERE ${rows}`
}

/** Rows of the columns of `latest_records`, several of a series, of these rows `t` and series `e`. */
export function talliedLatest(rows: Sql<unknown>): Sql<unknown> {
  return sql`
    SELECT t.channel_key, e.series_key, ${fromMicros(sql`e.micros`)} AS time, ${fromMicros(sql`e.arrival`)} AS arrived_at, e.batch_seq, e.message,
           e.run, e.place::bigint AS place, t.retention_days, e.protocol, e.value, e.sum, e.update_time, e.bool_value, e.string_value, e.data_value
      FROM tallies t CROSS JOIN LATERAL unnest(
             t.series_keys, t.newest_micros, t.newest_arrivals, t.newest_batch_seqs, t.newest_messages, t.newest_runs, t.newest_places,
             t.newest_protocols, t.newest_values, t.newest_sums, t.newest_update_times, t.newest_bools, t.newest_strings, t.newest_data)
           AS e(series_key, micros, arrival, batch_seq, message, run, place, protocol, value, sum, update_time, bool_value, string_value, data_value)
     WHERE NOT t.is_total AND ${rows}`
}

/** Merges those of a folder, or of all. The caller holds the lock of rollups, under which alone there can be new ones. */
export async function mergeTallies(tx: Transaction, folder?: string): Promise<void> {
  const merged = folder === undefined ? sql`true` : sql`t.folder = ${folder}`
  const { rows } = await sql<{ any: boolean }>`SELECT EXISTS (SELECT FROM tallies t WHERE ${merged}) AS any`.execute(tx)
  if (rows[0]?.any !== true) return
  await upsertRollups(sql`
    SELECT channel_key, series_key, bucket, retention_days, arrived_on, min(protocol), sum(records)::bigint, sum(value_count)::bigint,
           min(min_value), max(max_value), sum(value_sum)
      FROM (${talliedRollups(merged)}) t GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5`).execute(tx)
  await mergeLatest(sql`
    SELECT DISTINCT ON (channel_key, series_key) * FROM (${talliedLatest(merged)}) t
     ORDER BY channel_key, series_key, time DESC, arrived_at DESC, batch_seq DESC, message DESC`).execute(tx)
  await sql`DELETE FROM tallies t WHERE ${merged}`.execute(tx)
}

/** Rows of a tally that are of one channel, quarter of an hour and retention class. */
export type Group = { channelKey: number; bucket: number; retentionDays: number; rows: number[] }

export function groupsOf(rows: TallyRows): Group[] {
  const groups = new Map<string, Group>()
  let group: Group | undefined
  for (let row = 0; row < rows.length; row++) {
    const channelKey = rows.get(row, 'channelKey')
    const bucket = rows.get(row, 'bucket')
    const retentionDays = rows.get(row, 'retentionDays')
    // Most belong to the same as the one before.
    if (group?.channelKey !== channelKey || group.bucket !== bucket || group.retentionDays !== retentionDays) {
      const key = `${channelKey} ${bucket} ${retentionDays}`
      group = groups.get(key) ?? { channelKey, bucket, retentionDays, rows: [] }
      groups.set(key, group)
    }
    group.rows.push(row)
  }
  return [...groups.values()]
}

/** Channel, quarter, class and partition of each as parameters; `partitions`: where those of the classes begin, in microseconds since 2000. */
export function columnsOf(groups: readonly Group[], partitions: ReadonlyMap<number, number>): Buffer[] {
  return [
    numbersOf('int8', groups, ({ channelKey }) => channelKey),
    numbersOf('timestamptz', groups, ({ bucket }) => bucket * BUCKET_MICROS),
    numbersOf('int2', groups, ({ retentionDays }) => retentionDays),
    numbersOf('timestamptz', groups, ({ retentionDays }) => partitions.get(retentionDays)),
  ]
}

/** What the series of a channel come to together: counts alone. Parameters for lowest protocol and records. */
export function totalsOf(tally: TallyRows, groups: readonly Group[]): Buffer[] {
  return [
    numbersOf('int2', groups, ({ rows }) => tally.column('protocol', rows).reduce((low, one) => Math.min(low, one))),
    numbersOf('int8', groups, ({ rows }) => tally.column('records', rows).reduce((sum, one) => sum + one)),
  ]
}

const insertTotals = prepared(
  'totals_of_tally',
  `INSERT INTO tallies (folder, channel_key, is_total, bucket, retention_days, arrived_on, series_keys, protocols, records, value_counts,
                        min_values, max_values, millionths)
   SELECT $1, channel_key, true, bucket, retention_days, arrived_on, '{0}', ARRAY[protocol], ARRAY[records], '{0}', '{NULL}', '{NULL}', '{NULL}'
     FROM unnest($2::bigint[], $3::timestamptz[], $4::smallint[], $5::timestamptz[], $6::smallint[], $7::bigint[])
       AS t (channel_key, bucket, retention_days, arrived_on, protocol, records)`,
)

/** Columns with a number for each series, and where it stands in the tally. */
const NUMBERS = {
  series_keys: ['int8', 'seriesKey'],
  protocols: ['int2', 'protocol'],
  records: ['int4', 'records'],
  value_counts: ['int4', 'valueCount'],
  min_values: ['float8', 'min'],
  max_values: ['float8', 'max'],
  millionths: ['int8', 'millionths'],
  newest_micros: ['int8', 'newestMicros'],
  newest_arrivals: ['int8', 'newestArrival'],
  newest_batch_seqs: ['int8', 'newestBatchSeq'],
  newest_messages: ['int4', 'newestMessage'],
  newest_runs: ['int4', 'newestRun'],
  newest_places: ['int4', 'newestPlace'],
  newest_protocols: ['int2', 'newestProtocol'],
  newest_values: ['float8', 'newestValue'],
} as const satisfies Record<string, [NumberType, Column]>

/** Columns of what few series have, with their types. */
const OTHERS = {
  value_sums: 'text',
  newest_sums: 'float8',
  newest_update_times: 'float8',
  newest_bools: 'bool',
  newest_strings: 'text',
  newest_data: 'bytea',
} as const

type Elements = Record<keyof typeof NUMBERS, Buffer> & Record<keyof typeof OTHERS, Buffer | null>

/** In the order of the parameters, after those of the row. */
const ELEMENTS = [
  ...Object.entries(NUMBERS).map(([column, [type]]) => ({ column: column as keyof Elements, type })),
  ...Object.entries(OTHERS).map(([column, type]) => ({ column: column as keyof Elements, type })),
]
const FIRST_ELEMENT = 8

const insertSeries = prepared(
  'series_of_tally',
  `INSERT INTO tallies (folder, channel_key, is_total, bucket, retention_days, arrived_on, ${ELEMENTS.map(({ column }) => column).join()})
   SELECT $1, channel_key, false, bucket, retention_days, arrived_on,
          ${ELEMENTS.map(({ column, type }, index) => {
            const part = `($${FIRST_ELEMENT + index}::${type}[])[first:last]`
            return column === 'value_sums' ? `${part}::numeric[]` : part
          }).join(', ')}
     FROM unnest($2::bigint[], $3::timestamptz[], $4::smallint[], $5::timestamptz[], $6::integer[], $7::integer[])
       AS t (channel_key, bucket, retention_days, arrived_on, first, last)`,
)

/** Writes these rows as the folder's; returns how many of the table that were. */
export async function storeTally(
  tx: Transaction,
  folder: string,
  rows: TallyRows,
  partitions: ReadonlyMap<number, number>,
  rest: Rest,
): Promise<number> {
  const groups = groupsOf(rows)
  for (const part of partsOf(groups)) {
    await insertTotals(tx, [folder, ...columnsOf(part, partitions), ...totalsOf(rows, part)])
    await rest()
  }
  let stored = groups.length
  for (const slice of slicesOf(rows, groups)) {
    let last = 0
    const lasts = slice.map(({ rows: { length } }) => (last += length))
    const elements = elementsOf(
      rows,
      slice.flatMap((part) => part.rows),
    )
    await insertSeries(tx, [
      folder,
      ...columnsOf(slice, partitions),
      numbersOf('int4', slice, (part, index) => (lasts[index] ?? 0) - part.rows.length + 1),
      numbersOf('int4', lasts, (one) => one),
      ...ELEMENTS.map(({ column }) => elements[column]),
    ])
    stored += slice.length
    await rest()
  }
  return stored
}

/** As many rows of the table in the making as one statement may have: parts of groups. */
export function* slicesOf(rows: TallyRows, groups: readonly Group[]): Generator<Group[]> {
  let slice: Group[] = []
  let series = 0
  let bytes = 0
  for (const group of groups) {
    for (const part of rowsOf(rows, group)) {
      if (series + part.rows.length > PART_ROWS || bytes > SLICE_BYTES) {
        yield slice
        slice = []
        series = 0
        bytes = 0
      }
      slice.push(part)
      series += part.rows.length
      bytes += part.bytes
    }
  }
  if (slice.length > 0) yield slice
}

function* rowsOf(rows: TallyRows, group: Group): Generator<Group & { bytes: number }> {
  let part: number[] = []
  let bytes = 0
  for (const row of group.rows) {
    const record = rows.newestRecord(row)
    const more = (record?.stringValue?.length ?? 0) + (record?.dataValue?.length ?? 0)
    if (part.length > 0 && (part.length >= ROW_SERIES || bytes + more > ROW_BYTES)) {
      yield { ...group, rows: part, bytes }
      part = []
      bytes = 0
    }
    part.push(row)
    bytes += more
  }
  yield { ...group, rows: part, bytes }
}

/** Parameters by their columns. */
export function elementsOf(tally: TallyRows, rows: readonly number[]): Elements {
  const numbers = Object.fromEntries(
    Object.entries(NUMBERS).map(([column, [type, place]]) => [column, numberArray(type, tally.column(place, rows))]),
  ) as Record<keyof typeof NUMBERS, Buffer>
  const newest = rows.map((row) => tally.newestRecord(row))
  const floats = (values: readonly (number | undefined)[]) => numbersOf('float8', values, (value) => value)
  return {
    ...numbers,
    value_sums: unlessEmpty(
      rows.map((row) => tally.decimalSum(row)),
      textArray,
    ),
    newest_sums: unlessEmpty(
      newest.map((record) => record?.sum),
      floats,
    ),
    newest_update_times: unlessEmpty(
      newest.map((record) => record?.updateTimeSeconds),
      floats,
    ),
    newest_bools: unlessEmpty(
      newest.map((record) => record?.boolValue),
      booleanArray,
    ),
    newest_strings: unlessEmpty(
      newest.map((record) => record?.stringValue),
      textArray,
    ),
    newest_data: unlessEmpty(
      newest.map((record) => record?.dataValue),
      byteaArray,
    ),
  }
}

/** Most records are numbers: NULL stands for as many NULLs as the other columns have elements. */
function unlessEmpty<Value>(
  values: readonly (Value | undefined)[],
  write: (values: readonly (Value | undefined)[]) => Buffer,
): Buffer | null {
  return values.some((value) => value !== undefined) ? write(values) : null
}
