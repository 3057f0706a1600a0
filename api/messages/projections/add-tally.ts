/** Adds a tally to the projections: a few rows per series, however many records they stand for. */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { BUCKET_SECONDS } from '../store/runs.ts'
import { mergeRollups } from './rollups.ts'
import { LATEST_COLUMNS, mergeLatest } from './latest.ts'
import type { Tally } from './tally.ts'
import { insertTelemetry, insertUsage } from './usage.ts'

/** The caller holds the lock of rollups and has seen that no batch of the tally is folded; all arrived on one day of UTC. */
export async function addTally(tx: Transaction, tally: Tally, arrivedOn: string): Promise<void> {
  await addUsage(tx, tally, arrivedOn)
  if (tally.records === 0) return
  const rollups = [...tally.rollups()]
  await mergeRollups(
    tx,
    sql`
      SELECT channel_key, series_key, '2000-01-01 00:00Z'::timestamptz + make_interval(secs => bucket * ${BUCKET_SECONDS}), retention_days,
             date_trunc(message_partition_unit(retention_days), ${arrivedOn}::timestamptz, 'UTC'), protocol, records,
             value_count, min_value, max_value, value_sum
        FROM ${unnest(
          [
            ['channel_key', 'bigint', rollups.map((row) => row.channelKey)],
            ['series_key', 'bigint', rollups.map((row) => row.seriesKey)],
            ['bucket', 'bigint', rollups.map((row) => row.bucket)],
            ['retention_days', 'smallint', rollups.map((row) => row.retentionDays)],
            ['protocol', 'smallint', rollups.map((row) => row.protocol)],
            ['records', 'bigint', rollups.map((row) => row.records)],
            ['value_count', 'bigint', rollups.map((row) => row.valueCount)],
            ['min_value', 'float8', rollups.map((row) => float8(row.valueCount === 0 ? undefined : row.min))],
            ['max_value', 'float8', rollups.map((row) => float8(row.valueCount === 0 ? undefined : row.max))],
            ['value_sum', 'numeric', rollups.map((row) => row.sum.toNumeric())],
          ],
          't',
        )}`,
  )
  await addNewest(tx, tally)
}

async function addNewest(tx: Transaction, tally: Tally): Promise<void> {
  const newest = [...tally.newest()]
  await mergeLatest(
    tx,
    sql`
      SELECT ${LATEST_COLUMNS} FROM (
        SELECT t.*, '2000-01-01 00:00Z'::timestamptz + micros * interval '1 microsecond' AS time, b.arrived_at
          FROM ${unnest(
            [
              ['channel_key', 'bigint', newest.map((row) => row.channelKey)],
              ['series_key', 'bigint', newest.map((row) => row.seriesKey)],
              ['micros', 'bigint', newest.map((row) => row.micros)],
              ['batch_seq', 'bigint', newest.map((row) => row.batchSeq)],
              ['message', 'integer', newest.map((row) => row.message)],
              ['run', 'integer', newest.map((row) => row.run)],
              ['place', 'bigint', newest.map((row) => row.place)],
              ['retention_days', 'smallint', newest.map((row) => row.retentionDays)],
              ['protocol', 'smallint', newest.map((row) => row.protocol)],
              ['value', 'float8', newest.map(({ record }) => float8(record.value))],
              ['sum', 'float8', newest.map(({ record }) => float8(record.sum))],
              ['update_time', 'float8', newest.map(({ record }) => record.updateTimeSeconds ?? null)],
              ['bool_value', 'boolean', newest.map(({ record }) => record.boolValue ?? null)],
              ['string_value', 'text', newest.map(({ record }) => record.stringValue ?? null)],
              ['data_value', 'bytea', newest.map(({ record }) => asBuffer(record.dataValue))],
            ],
            't',
          )} JOIN ingest_batches b ON b.seq = t.batch_seq) t
       ORDER BY channel_key, series_key`,
  )
}

async function addUsage(tx: Transaction, { clients, domains }: Tally, arrivedOn: string): Promise<void> {
  const ofClients = [...clients.values()]
  await insertTelemetry(
    sql`
      SELECT c.key, first.arrived_at, last.arrived_at, t.messages
        FROM ${unnest(
          [
            ['key', 'bigint', [...clients.keys()]],
            ['first_seq', 'bigint', ofClients.map(({ firstSeq }) => firstSeq)],
            ['last_seq', 'bigint', ofClients.map(({ lastSeq }) => lastSeq)],
            ['messages', 'bigint', ofClients.map(({ messages }) => messages)],
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
            ['key', 'bigint', [...domains.keys()]],
            ['messages', 'bigint', ofDomains.map(({ messages }) => messages)],
            ['records', 'bigint', ofDomains.map(({ records }) => records)],
          ],
          't',
        )} JOIN domains d USING (key) ORDER BY d.key`,
  ).execute(tx)
}

type Value = number | string | boolean | Buffer | null
type Column = readonly [name: string, type: string, values: readonly Value[]]

/** The columns as a table of this name. */
function unnest(columns: readonly Column[], name: string): Sql<unknown> {
  const arrays = columns.map(([, type, values]) => sql`${arrayOf(type, values)}::${sql.raw(type)}[]`)
  return sql`unnest(${sql.join(arrays)}) AS ${sql.ref(name)} (${sql.join(columns.map(([column]) => sql.ref(column)))})`
}

/** Types whose values need no quotes in the text of an array. */
const PLAIN_TYPES = new Set(['smallint', 'integer', 'bigint', 'float8', 'numeric', 'boolean'])

/**
 * The text of an array, where joining is enough: the driver escapes element by element, which for some thousand rows holds up
 * every request of the process for as long.
 */
function arrayOf(type: string, values: readonly Value[]): unknown {
  return PLAIN_TYPES.has(type) ? `{${values.map((value) => value?.toString() ?? 'NULL').join(',')}}` : values
}

/** As text a negative zero would lose its sign. */
function float8(value: number | undefined): number | string | null {
  if (value === undefined) return null
  return Object.is(value, -0) ? '-0' : value
}

function asBuffer(bytes: Uint8Array | undefined): Buffer | null {
  return bytes === undefined ? null : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}
