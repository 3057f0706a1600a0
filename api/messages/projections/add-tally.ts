/** Adds a tally to the projections: a few rows per series, however many records they stand for. */
import { prepared } from '#core/database/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { BUCKET_SECONDS } from '../store/runs.ts'
import { mergeLatest } from './latest.ts'
import { upsertRollups } from './rollups.ts'
import type { Newest, Rollup, Tally } from './tally.ts'
import { insertTelemetry, insertUsage } from './usage.ts'

/** Rows of one statement: neither this process nor PostgreSQL is kept from its publishers for long at a time. */
const SLICE_ROWS = 2_000
const BUCKET_MICROS = BUCKET_SECONDS * 1e6

const EPOCH = sql`timestamptz '2000-01-01 00:00Z'`

/** Microseconds since 2000 of a time, exactly. */
export function inMicros(time: Sql<unknown>): Sql<unknown> {
  return sql`(extract(epoch FROM ${time} - ${EPOCH}) * 1000000)::bigint`
}

/** The other way, exactly for what a double holds. */
function fromMicros(micros: Sql<unknown>): Sql<unknown> {
  return sql`${EPOCH} + ${micros} * interval '1 microsecond'`
}

/** A batch of the tally: when it arrived, as text and in microseconds since 2000. */
export type TalliedBatch = { seq: number; arrived_at: string; arrived_micros: number }

/**
 * The caller holds the lock of rollups and has seen that no batch of the tally is folded; all arrived on one day of UTC. Without a batch
 * nothing is added. Returns how many rows of series were.
 */
export async function addTally(tx: Transaction, tally: Tally, batches: readonly TalliedBatch[]): Promise<number> {
  const arrivedOn = batches[0]?.arrived_at
  if (arrivedOn === undefined) return 0
  await addUsage(tx, tally, arrivedOn)
  if (tally.records === 0) return 0
  const rollups = [...tally.totals(), ...tally.rollups()]
  const partitions = await partitionsOf(tx, new Set(rollups.map(({ retentionDays }) => retentionDays)), arrivedOn)
  for (const slice of slicesOf(rollups)) await addRollups(tx, slice, partitions)
  const arrivals = new Map(batches.map((batch) => [batch.seq, batch.arrived_micros]))
  const newest = [...tally.newest()]
  for (const slice of slicesOf(newest)) await addNewest(tx, slice, arrivals)
  return rollups.length + newest.length
}

function* slicesOf<Row>(rows: readonly Row[]): Generator<Row[]> {
  for (let start = 0; start < rows.length; start += SLICE_ROWS) yield rows.slice(start, start + SLICE_ROWS)
}

/** By retention class: where the partition of these arrivals begins, in microseconds since 2000. */
async function partitionsOf(
  tx: Transaction,
  classes: ReadonlySet<number>,
  arrivedOn: string,
): Promise<Map<number, number>> {
  const { rows } = await sql<{ days: number; micros: number }>`
    SELECT days, ${inMicros(sql`date_trunc(message_partition_unit(days), ${arrivedOn}::timestamptz, 'UTC')`)} AS micros
      FROM unnest(${[...classes]}::integer[]) AS days`.execute(tx)
  return new Map(rows.map(({ days, micros }) => [days, micros]))
}

const upsertRollupsOf = prepared(
  'rollups_of_tally',
  upsertRollups(
    sql`SELECT channel_key, series_key, ${fromMicros(sql`bucket`)}, retention_days, ${fromMicros(sql`arrived_on`)}, protocol, records,
               value_count, min_value, max_value, value_sum
          FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bigint[], $6::smallint[], $7::bigint[], $8::bigint[],
                 $9::float8[], $10::float8[], $11::numeric[])
            AS t (channel_key, series_key, bucket, retention_days, arrived_on, protocol, records, value_count, min_value, max_value, value_sum)
         ORDER BY 1, 2, 3, 4, 5`,
  ).statement().text,
)

async function addRollups(tx: Transaction, rows: readonly Rollup[], partitions: ReadonlyMap<number, number>) {
  await upsertRollupsOf(tx, [
    arrayOf(rows, (row) => row.channelKey),
    arrayOf(rows, (row) => row.seriesKey),
    arrayOf(rows, (row) => row.bucket * BUCKET_MICROS),
    arrayOf(rows, (row) => row.retentionDays),
    arrayOf(rows, (row) => partitions.get(row.retentionDays)),
    arrayOf(rows, (row) => row.protocol),
    arrayOf(rows, (row) => row.records),
    arrayOf(rows, (row) => row.valueCount),
    arrayOf(rows, (row) => (row.valueCount === 0 ? undefined : row.min)),
    arrayOf(rows, (row) => (row.valueCount === 0 ? undefined : row.max)),
    arrayOf(rows, (row) => row.sum.toNumeric() ?? undefined),
  ])
}

const mergeLatestOf = prepared(
  'latest_of_tally',
  mergeLatest(
    sql`SELECT channel_key, series_key, ${fromMicros(sql`micros`)}, ${fromMicros(sql`arrived`)}, batch_seq, message, run, place,
               retention_days, protocol, value, sum, update_time, bool_value, string_value, data_value
          FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::integer[], $7::integer[], $8::bigint[],
                 $9::smallint[], $10::smallint[], $11::float8[], $12::float8[], $13::float8[], $14::boolean[], $15::text[], $16::bytea[])
            AS t (channel_key, series_key, micros, arrived, batch_seq, message, run, place, retention_days, protocol, value, sum, update_time,
                 bool_value, string_value, data_value)
         ORDER BY 1, 2`,
  ).statement().text,
)

async function addNewest(tx: Transaction, rows: readonly Newest[], arrivals: ReadonlyMap<number, number>) {
  await mergeLatestOf(tx, [
    arrayOf(rows, (row) => row.channelKey),
    arrayOf(rows, (row) => row.seriesKey),
    arrayOf(rows, (row) => row.micros),
    arrayOf(rows, (row) => arrivals.get(row.batchSeq)),
    arrayOf(rows, (row) => row.batchSeq),
    arrayOf(rows, (row) => row.message),
    arrayOf(rows, (row) => row.run),
    arrayOf(rows, (row) => row.place),
    arrayOf(rows, (row) => row.retentionDays),
    arrayOf(rows, (row) => row.protocol),
    arrayOf(rows, ({ record }) => record.value),
    unlessEmpty(rows, ({ record }) => record.sum, arrayOf),
    unlessEmpty(rows, ({ record }) => record.updateTimeSeconds, arrayOf),
    unlessEmpty(rows, ({ record }) => record.boolValue, arrayOf),
    unlessEmpty(rows, ({ record }) => record.stringValue, escaped),
    unlessEmpty(rows, ({ record }) => asBuffer(record.dataValue), escaped),
  ])
}

type Value = number | string | boolean | Buffer

/**
 * The text of an array of numbers or booleans, NULL for undefined. Joining is enough for them: the driver escapes element by element,
 * which for some thousand rows holds up every request of the process for as long.
 */
function arrayOf<Row>(rows: readonly Row[], valueOf: (row: Row) => Value | undefined): string {
  return `{${rows.map((row) => textOf(valueOf(row))).join()}}`
}

function textOf(value: Value | undefined): Value {
  // As text a negative zero would lose its sign.
  return value === undefined ? 'NULL' : Object.is(value, -0) ? '-0' : value
}

/** For the driver to escape. */
function escaped<Row>(rows: readonly Row[], valueOf: (row: Row) => Value | undefined): unknown {
  return rows.map((row) => valueOf(row) ?? null)
}

/** Most records are numbers: no element at all stands for as many NULLs as the other columns have rows. */
function unlessEmpty<Row>(
  rows: readonly Row[],
  valueOf: (row: Row) => Value | undefined,
  write: typeof escaped,
): unknown {
  return rows.some((row) => valueOf(row) !== undefined) ? write(rows, valueOf) : []
}

async function addUsage(tx: Transaction, { clients, domains }: Tally, arrivedOn: string): Promise<void> {
  const ofClients = [...clients.values()]
  await insertTelemetry(
    sql`
      SELECT c.key, first.arrived_at, last.arrived_at, t.messages
        FROM ${unnest(
          [
            ['key', arrayOf([...clients.keys()], (key) => key)],
            ['first_seq', arrayOf(ofClients, ({ firstSeq }) => firstSeq)],
            ['last_seq', arrayOf(ofClients, ({ lastSeq }) => lastSeq)],
            ['messages', arrayOf(ofClients, ({ messages }) => messages)],
          ],
          't',
        )} JOIN clients c USING (key) JOIN ingest_batches first ON first.seq = t.first_seq
        JOIN ingest_batches last ON last.seq = t.last_seq
       ORDER BY c.key`,
  ).execute(tx)
  const ofDomains = [...domains.values()]
  await insertUsage(
    sql`
      SELECT d.key, (${arrivedOn}::timestamptz AT TIME ZONE 'UTC')::date, t.messages, t.records
        FROM ${unnest(
          [
            ['key', arrayOf([...domains.keys()], (key) => key)],
            ['messages', arrayOf(ofDomains, ({ messages }) => messages)],
            ['records', arrayOf(ofDomains, ({ records }) => records)],
          ],
          't',
        )} JOIN domains d USING (key) ORDER BY d.key`,
  ).execute(tx)
}

/** The columns as a table of this name. */
function unnest(columns: readonly (readonly [name: string, values: string])[], name: string): Sql<unknown> {
  const arrays = columns.map(([, values]) => sql`${values}::bigint[]`)
  return sql`unnest(${sql.join(arrays)}) AS ${sql.ref(name)} (${sql.join(columns.map(([column]) => sql.ref(column)))})`
}

function asBuffer(bytes: Uint8Array | undefined): Buffer | undefined {
  return bytes === undefined ? undefined : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}
