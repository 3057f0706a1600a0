/**
 * The table `tallies`: what folders added up and nobody merged yet. Together with `rollups` and `latest_records` it tells what is
 * folded; merging moves it into them.
 */
import { prepared } from '#core/database/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { booleanArray, byteaArray, numberArray, textArray } from '../store/binary-arrays.ts'
import type { NumberType } from '../store/binary-arrays.ts'
import { BUCKET_SECONDS } from '../store/runs.ts'
import { mergeLatest } from './latest.ts'
import { fromMicros } from './micros.ts'
import { PART_ROWS, partsOf } from './pace.ts'
import type { Rest } from './pace.ts'
import { upsertRollups } from './rollups.ts'
import type { TallyRows } from './tally-rows.ts'

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
  const arrayOf = (type: NumberType, valueOf: (group: Group) => number) =>
    numberArray(type, Float64Array.from(groups, valueOf))
  return [
    arrayOf('int8', ({ channelKey }) => channelKey),
    arrayOf('timestamptz', ({ bucket }) => bucket * BUCKET_MICROS),
    arrayOf('int2', ({ retentionDays }) => retentionDays),
    arrayOf('timestamptz', ({ retentionDays }) => partitions.get(retentionDays) ?? NaN),
  ]
}

/** What the series of a channel come to together: counts alone. Parameters for lowest protocol and records. */
export function totalsOf(rows: TallyRows, groups: readonly Group[]): Buffer[] {
  const protocols = groups.map((group) => rows.column('protocol', group.rows).reduce((low, one) => Math.min(low, one)))
  const records = groups.map((group) => rows.column('records', group.rows).reduce((sum, one) => sum + one))
  return [numberArray('int2', Float64Array.from(protocols)), numberArray('int8', Float64Array.from(records))]
}

const insertTotals = prepared(
  'totals_of_tally',
  `INSERT INTO tallies (folder, channel_key, is_total, bucket, retention_days, arrived_on, series_keys, protocols, records, value_counts,
                        min_values, max_values, millionths)
   SELECT $1, channel_key, true, bucket, retention_days, arrived_on, '{0}', ARRAY[protocol], ARRAY[records], '{0}', '{NULL}', '{NULL}', '{NULL}'
     FROM unnest($2::bigint[], $3::timestamptz[], $4::smallint[], $5::timestamptz[], $6::smallint[], $7::bigint[])
       AS t (channel_key, bucket, retention_days, arrived_on, protocol, records)`,
)

/** Columns with an element for each series, after those of the row, with their types, in the order of the parameters. */
const ELEMENTS = {
  series_keys: 'bigint',
  protocols: 'smallint',
  records: 'integer',
  value_counts: 'integer',
  min_values: 'float8',
  max_values: 'float8',
  millionths: 'bigint',
  value_sums: 'text',
  newest_micros: 'bigint',
  newest_arrivals: 'bigint',
  newest_batch_seqs: 'bigint',
  newest_messages: 'integer',
  newest_runs: 'integer',
  newest_places: 'integer',
  newest_protocols: 'smallint',
  newest_values: 'float8',
  newest_sums: 'float8',
  newest_update_times: 'float8',
  newest_bools: 'boolean',
  newest_strings: 'text',
  newest_data: 'bytea',
} as const
const FIRST_ELEMENT = 8

const insertSeries = prepared(
  'series_of_tally',
  `INSERT INTO tallies (folder, channel_key, is_total, bucket, retention_days, arrived_on, ${Object.keys(ELEMENTS).join()})
   SELECT $1, channel_key, false, bucket, retention_days, arrived_on,
          ${Object.entries(ELEMENTS)
            .map(([column, type], index) => {
              const part = `($${FIRST_ELEMENT + index}::${type}[])[first:last]`
              return column === 'value_sums' ? `${part}::numeric[]` : part
            })
            .join(', ')}
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
    const places = slice.flatMap((part) => part.rows)
    const lasts = new Float64Array(slice.length)
    for (const [index, part] of slice.entries()) lasts[index] = (lasts[index - 1] ?? 0) + part.rows.length
    await insertSeries(tx, [
      folder,
      ...columnsOf(slice, partitions),
      numberArray(
        'int4',
        lasts.map((last, index) => last + 1 - (slice[index]?.rows.length ?? 0)),
      ),
      numberArray('int4', lasts),
      ...elementsOf(rows, places),
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

/** Parameters for the columns of `ELEMENTS`. */
export function elementsOf(rows: TallyRows, places: readonly number[]): (Buffer | null)[] {
  const sums = places.map((row) => (rows.hasDecimals(row) ? rows.valueSum(row) : undefined))
  const newest = places.map((row) => rows.newestRecord(row))
  const millionths = rows.column('millionths', places)
  sums.forEach((sum, index) => {
    if (sum !== undefined) millionths[index] = NaN
  })
  const floats = (values: readonly (number | undefined)[]) =>
    numberArray(
      'float8',
      Float64Array.from(values, (value) => value ?? NaN),
    )
  return [
    numberArray('int8', rows.column('seriesKey', places)),
    numberArray('int2', rows.column('protocol', places)),
    numberArray('int4', rows.column('records', places)),
    numberArray('int4', rows.column('valueCount', places)),
    numberArray('float8', rows.column('min', places)),
    numberArray('float8', rows.column('max', places)),
    numberArray('int8', millionths),
    unlessEmpty(sums, textArray),
    numberArray('int8', rows.column('newestMicros', places)),
    numberArray('int8', rows.column('newestArrival', places)),
    numberArray('int8', rows.column('newestBatchSeq', places)),
    numberArray('int4', rows.column('newestMessage', places)),
    numberArray('int4', rows.column('newestRun', places)),
    numberArray('int4', rows.column('newestPlace', places)),
    numberArray('int2', rows.column('newestProtocol', places)),
    numberArray('float8', rows.column('newestValue', places)),
    unlessEmpty(
      newest.map((record) => record?.sum),
      floats,
    ),
    unlessEmpty(
      newest.map((record) => record?.updateTimeSeconds),
      floats,
    ),
    unlessEmpty(
      newest.map((record) => record?.boolValue),
      booleanArray,
    ),
    unlessEmpty(
      newest.map((record) => record?.stringValue),
      textArray,
    ),
    unlessEmpty(
      newest.map((record) => record?.dataValue),
      byteaArray,
    ),
  ]
}

/** Most records are numbers: NULL stands for as many NULLs as the other columns have elements. */
function unlessEmpty<Value>(
  values: readonly (Value | undefined)[],
  write: (values: readonly (Value | undefined)[]) => Buffer,
): Buffer | null {
  return values.some((value) => value !== undefined) ? write(values) : null
}
