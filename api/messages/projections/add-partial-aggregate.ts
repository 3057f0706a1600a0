/** Adds a partial aggregate to the projections: two rows for each series, however many records it sent. */
import { prepared } from '#core/database/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { booleanArray, byteaArray, numberArray, numbersOf, textArray } from '../store/binary-arrays.ts'
import type { NumberType } from '../store/binary-arrays.ts'
import { BUCKET_SECONDS } from '../store/record-chunks.ts'
import type { AggregateRows, Column } from './aggregate-rows.ts'
import { mergeLatest } from './latest.ts'
import { fromMicros } from './micros.ts'
import type { PartialAggregate } from './partial-aggregate.ts'
import { NO_VALUES, arrivedOn, upsertRollups } from './rollups.ts'
import { insertMinutes, insertStored, insertTelemetry, insertUsage } from './usage.ts'

/** A batch of the partial aggregate: when it arrived, in microseconds since 2000, and on which day of UTC. */
export type ArrivedBatch = { seq: number; arrived_micros: number; day: string }

/** Rows of one statement: their parameters take the process a few milliseconds to write. */
const SLICE_ROWS = 2_000
/** Texts and bytes of one statement, unless one record alone has more. */
const SLICE_BYTES = 1024 * 1024
const BUCKET_MICROS = BUCKET_SECONDS * 1e6
const MINUTE_MICROS = 60e6

/**
 * The caller holds the lock of the projections and has seen that all batches of the partial aggregate are pending and arrived on one
 * day of UTC. Adds nothing without a batch.
 */
export async function addPartialAggregate(
  tx: Transaction,
  partial: PartialAggregate,
  batches: readonly ArrivedBatch[],
): Promise<void> {
  const [first] = batches
  if (first === undefined) return
  const arrivals = new Map(batches.map((batch) => [batch.seq, batch.arrived_micros]))
  await addTelemetry(tx, partial, arrivals)
  await addDays(tx, partial, first.day)
  await addStored(tx, partial, first.day)
  await addMinutes(tx, partial, arrivals)
  await addTotals(tx, partial.rows, first.day)
  for (const slice of slicesOf(partial.rows)) {
    await upsertSeries(tx, [first.day, ...slice.numbers(OF_ROLLUP), slice.sums()])
    await upsertNewest(tx, [...slice.numbers(OF_NEWEST), slice.arrivals(arrivals), ...slice.others()])
  }
}

const upsertTelemetry = prepared(
  'telemetry_of_partial',
  insertTelemetry(
    sql`SELECT c.key, ${fromMicros(sql`t.first`)}, ${fromMicros(sql`t.last`)}, t.messages
          FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS t (key, first, last, messages) JOIN clients c USING (key)
         ORDER BY c.key`,
  ).statement().text,
)

async function addTelemetry(
  tx: Transaction,
  { clients }: PartialAggregate,
  arrivals: ReadonlyMap<number, number>,
): Promise<void> {
  for (const part of partsOf([...clients])) {
    await upsertTelemetry(tx, [
      numbersOf('int8', part, ([key]) => key),
      numbersOf('int8', part, ([, { firstSeq }]) => arrivals.get(firstSeq)),
      numbersOf('int8', part, ([, { lastSeq }]) => arrivals.get(lastSeq)),
      numbersOf('int8', part, ([, { messages }]) => messages),
    ])
  }
}

const upsertUsage = prepared(
  'usage_of_partial',
  insertUsage(
    sql`SELECT d.key, $4::date, t.messages, t.records
          FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS t (key, messages, records) JOIN domains d USING (key) ORDER BY d.key`,
  ).statement().text,
)

async function addDays(tx: Transaction, { domains }: PartialAggregate, day: string): Promise<void> {
  for (const part of partsOf([...domains])) {
    await upsertUsage(tx, [
      numbersOf('int8', part, ([key]) => key),
      numbersOf('int8', part, ([, { messages }]) => messages),
      numbersOf('int8', part, ([, { records }]) => records),
      day,
    ])
  }
}

const upsertStored = prepared(
  'stored_of_partial',
  insertStored(
    sql`SELECT d.key, t.retention_days, ${arrivedOn(sql`$4::timestamptz`)}, t.records
          FROM unnest($1::bigint[], $2::smallint[], $3::bigint[]) AS t (key, retention_days, records) JOIN domains d USING (key)
         ORDER BY d.key, t.retention_days`,
  ).statement().text,
)

async function addStored(tx: Transaction, { domains }: PartialAggregate, day: string): Promise<void> {
  const stored = [...domains].flatMap(([domainKey, { classes }]) =>
    [...classes].map(([retentionDays, records]) => ({ domainKey, retentionDays, records })),
  )
  for (const part of partsOf(stored)) {
    await upsertStored(tx, [
      numbersOf('int8', part, ({ domainKey }) => domainKey),
      numbersOf('int2', part, ({ retentionDays }) => retentionDays),
      numbersOf('int8', part, ({ records }) => records),
      day,
    ])
  }
}

const upsertMinutes = prepared(
  'minutes_of_partial',
  insertMinutes(
    sql`SELECT d.key, ${fromMicros(sql`t.minute`)}, t.messages, t.records
          FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS t (key, minute, messages, records)
          JOIN domains d USING (key) ORDER BY d.key, t.minute`,
  ).statement().text,
)

type Minute = { domainKey: number; minuteMicros: number; messages: number; records: number }

async function addMinutes(
  tx: Transaction,
  { domains }: PartialAggregate,
  arrivals: ReadonlyMap<number, number>,
): Promise<void> {
  const minutes = new Map<string, Minute>()
  for (const [domainKey, { batches }] of domains) {
    for (const { seq, messages, records } of batches) {
      const arrival = arrivals.get(seq)
      if (arrival === undefined) continue
      const minuteMicros = Math.floor(arrival / MINUTE_MICROS) * MINUTE_MICROS
      const key = `${domainKey} ${minuteMicros}`
      const minute = minutes.get(key) ?? { domainKey, minuteMicros, messages: 0, records: 0 }
      minute.messages += messages
      minute.records += records
      minutes.set(key, minute)
    }
  }
  for (const part of partsOf([...minutes.values()])) {
    await upsertMinutes(tx, [
      numbersOf('int8', part, ({ domainKey }) => domainKey),
      numbersOf('int8', part, ({ minuteMicros }) => minuteMicros),
      numbersOf('int8', part, ({ messages }) => messages),
      numbersOf('int8', part, ({ records }) => records),
    ])
  }
}

const upsertTotals = prepared(
  'rollups_of_channels',
  upsertRollups(
    sql`SELECT channel_key, 0, bucket, retention_days, ${arrivedOn(sql`$1::timestamptz`)}, protocol, records, ${NO_VALUES}
          FROM unnest($2::bigint[], $3::timestamptz[], $4::smallint[], $5::smallint[], $6::bigint[])
            AS t (channel_key, bucket, retention_days, protocol, records)
         ORDER BY 1, 2, 3, 4, 5`,
  ).statement().text,
)

type ChannelTotal = { channelKey: number; bucket: number; retentionDays: number; protocol: number; records: number }

/** Adds the sums of all series of each channel. They are counts alone. */
async function addTotals(tx: Transaction, rows: AggregateRows, day: string): Promise<void> {
  const totals = new Map<string, ChannelTotal>()
  for (let row = 0; row < rows.length; row++) {
    const channelKey = rows.get(row, 'channelKey')
    const bucket = rows.get(row, 'bucket')
    const retentionDays = rows.get(row, 'retentionDays')
    const key = `${channelKey} ${bucket} ${retentionDays}`
    const total = totals.get(key) ?? { channelKey, bucket, retentionDays, protocol: Infinity, records: 0 }
    total.protocol = Math.min(total.protocol, rows.get(row, 'protocol'))
    total.records += rows.get(row, 'records')
    totals.set(key, total)
  }
  for (const part of partsOf([...totals.values()])) {
    await upsertTotals(tx, [
      day,
      numbersOf('int8', part, ({ channelKey }) => channelKey),
      numbersOf('timestamptz', part, ({ bucket }) => bucket * BUCKET_MICROS),
      numbersOf('int2', part, ({ retentionDays }) => retentionDays),
      numbersOf('int2', part, ({ protocol }) => protocol),
      numbersOf('int8', part, ({ records }) => records),
    ])
  }
}

/** Parameters of `upsertSeries` between the day and the sums. */
const OF_ROLLUP = [
  ['int8', 'channelKey'],
  ['int8', 'seriesKey'],
  ['int8', 'bucket'],
  ['int2', 'retentionDays'],
  ['int2', 'protocol'],
  ['int4', 'records'],
  ['int4', 'valueCount'],
  ['float8', 'min'],
  ['float8', 'max'],
  ['int8', 'millionths'],
] as const satisfies [NumberType, Column][]

const upsertSeries = prepared(
  'rollups_of_series',
  upsertRollups(
    sql`SELECT channel_key, series_key, ${fromMicros(sql`bucket * ${sql.raw(String(BUCKET_MICROS))}`)}, retention_days,
               ${arrivedOn(sql`$1::timestamptz`)}, protocol, records, value_count, min_value, max_value,
               coalesce(value_sum::numeric, millionths * 0.000001)
          FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::smallint[], $6::smallint[], $7::integer[], $8::integer[],
                      $9::float8[], $10::float8[], $11::bigint[], $12::text[])
            AS t (channel_key, series_key, bucket, retention_days, protocol, records, value_count, min_value, max_value, millionths, value_sum)
         ORDER BY 1, 2, 3, 4, 5`,
  ).statement().text,
)

/** Parameters of `upsertNewest` before the arrivals. */
const OF_NEWEST = [
  ['int8', 'channelKey'],
  ['int8', 'seriesKey'],
  ['int2', 'retentionDays'],
  ['int8', 'newestMicros'],
  ['int8', 'newestBatchSeq'],
  ['int4', 'newestMessage'],
  ['int4', 'newestChunk'],
  ['int4', 'newestPlace'],
  ['int2', 'newestProtocol'],
  ['float8', 'newestValue'],
] as const satisfies [NumberType, Column][]

const upsertNewest = prepared(
  'latest_of_series',
  mergeLatest(
    sql`SELECT DISTINCT ON (channel_key, series_key)
               channel_key, series_key, ${fromMicros(sql`micros`)}, ${fromMicros(sql`arrival`)}, batch_seq, message, chunk, place, retention_days,
               protocol, value, sum, update_time, bool_value, string_value, data_value
          FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::bigint[], $5::bigint[], $6::integer[], $7::integer[], $8::integer[],
                      $9::smallint[], $10::float8[], $11::bigint[], $12::float8[], $13::float8[], $14::boolean[], $15::text[], $16::bytea[])
            AS t (channel_key, series_key, retention_days, micros, batch_seq, message, chunk, place, protocol, value, arrival, sum, update_time,
                  bool_value, string_value, data_value)
         ORDER BY channel_key, series_key, micros DESC, arrival DESC, batch_seq DESC, message DESC`,
  ).statement().text,
)

/** Some of the rows, from `first` to before `end`, as parameters of one statement. */
class Slice {
  readonly #rows: AggregateRows
  readonly #first: number
  readonly #end: number

  constructor(rows: AggregateRows, first: number, end: number) {
    this.#rows = rows
    this.#first = first
    this.#end = end
  }

  numbers(columns: readonly (readonly [NumberType, Column])[]): Buffer[] {
    return columns.map(([type, column]) => numberArray(type, this.#rows.column(column, this.#first, this.#end)))
  }

  /** The sums that are not a number of millionths. */
  sums(): Buffer | null {
    return unlessEmpty(
      this.#each((row) => this.#rows.decimalSum(row)),
      textArray,
    )
  }

  /** The times at which the newest records arrived. */
  arrivals(arrivals: ReadonlyMap<number, number>): Buffer {
    return numbersOf('int8', this.#rows.column('newestBatchSeq', this.#first, this.#end), (seq) => arrivals.get(seq))
  }

  /** The fields that few of the newest records have: sum, update time, and values that are not numbers. */
  others(): (Buffer | null)[] {
    const newest = this.#each((row) => this.#rows.newestRecord(row))
    const floats = (values: readonly (number | undefined)[]) => numbersOf('float8', values, (value) => value)
    return [
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

  #each<Value>(valueOf: (row: number) => Value): Value[] {
    return Array.from({ length: this.#end - this.#first }, (_, index) => valueOf(this.#first + index))
  }
}

function* slicesOf(rows: AggregateRows): Generator<Slice> {
  let first = 0
  let bytes = 0
  for (let row = 0; row < rows.length; row++) {
    const newest = rows.newestRecord(row)
    const more = (newest?.stringValue?.length ?? 0) + (newest?.dataValue?.length ?? 0)
    if (row > first && (row - first >= SLICE_ROWS || bytes + more > SLICE_BYTES)) {
      yield new Slice(rows, first, row)
      first = row
      bytes = 0
    }
    bytes += more
  }
  if (first < rows.length) yield new Slice(rows, first, rows.length)
}

function* partsOf<Row>(rows: readonly Row[]): Generator<Row[]> {
  for (let start = 0; start < rows.length; start += SLICE_ROWS) yield rows.slice(start, start + SLICE_ROWS)
}

/** Most records are numbers: NULL stands for as many NULLs as the other columns have elements. */
function unlessEmpty<Value>(
  values: readonly (Value | undefined)[],
  write: (values: readonly (Value | undefined)[]) => Buffer,
): Buffer | null {
  return values.some((value) => value !== undefined) ? write(values) : null
}
