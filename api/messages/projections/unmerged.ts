/**
 * What a folder added up since it last merged, in memory and in the table `tallies`: each round adds to the one and writes the other
 * anew. So the rows of many rounds are merged at the price of one, and whoever reads finds one row of the table for each series.
 */
import { randomUUID } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import { prepared } from '#core/database/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { mergeLatest } from './latest.ts'
import { fromMicros, inMicros } from './micros.ts'
import { partsOf } from './pace.ts'
import type { Rest } from './pace.ts'
import { upsertRollups } from './rollups.ts'
import { columnsOf, elementsOf, groupsOf, mergeTallies, slicesOf, storeTally, totalsOf } from './tallies.ts'
import { TallyRows } from './tally-rows.ts'

/** Rounds whose rows are merged at once: it rewrites two rows for each series. */
const MAX_ROUNDS = 32
/** Rows that are kept at most, as long as one round does not bring more. */
const MAX_ROWS = 300_000
/** So many times the rows that a round adds to are kept: each round writes all of them. */
const MAX_KEPT_RATIO = 4
/** Fewer are kept whatever a round adds to. */
const MIN_KEPT_ROWS = 2_000
/** Rows that are added in memory without a look at anything else. */
const ROWS_AT_ONCE = 5_000

/** By retention class: where the partition of arrivals begins, in microseconds since 2000. */
type Partitions = ReadonlyMap<number, number>

/** The day of UTC on which batches arrived, and when each did, in microseconds since 2000. */
type Arrived = { day: string; arrivals: ReadonlyMap<number, number> }

export class Unmerged {
  readonly #folder = randomUUID()
  readonly #rows = new TallyRows()
  #partitions = new Map<number, number>()
  /** Day of UTC on which all of it arrived. */
  #day: string | undefined
  #rounds = 0
  /** How many rows of the table hold it; undefined where that is not known, as at first. */
  #stored: number | undefined
  #isChanging = false

  /** Called with each attempt at a transaction that may change it. */
  begin(): void {
    // The attempt before was not committed, or nobody knows.
    if (this.#isChanging) this.#stored = undefined
    this.#isChanging = true
  }

  /** Called once the transaction is committed. */
  committed(): void {
    this.#isChanging = false
  }

  /** Merges what has waited long enough; the caller holds the lock of rollups. */
  async mergeWhenDue(tx: Transaction, rest: Rest): Promise<void> {
    if (this.#stored === undefined || this.#rounds >= MAX_ROUNDS) await this.#merge(tx, rest)
    else if (this.#rows.length > 0) this.#rounds += 1
  }

  /** Adds rows of these batches; the caller holds the lock of rollups. Returns how many rows were written. */
  async add(tx: Transaction, added: TallyRows, { day, arrivals }: Arrived, rest: Rest): Promise<number> {
    if (this.#isTooMuchFor(added) || this.#day !== day || !(await this.#isStored(tx))) await this.#merge(tx, rest)
    this.#day = day
    for (let row = 0; row < added.length; row++) {
      this.#rows.addRow(added, row, arrivals)
      if (row % ROWS_AT_ONCE === ROWS_AT_ONCE - 1) await setImmediate()
    }
    await this.#findPartitions(tx, day)
    await this.#removeStored(tx)
    this.#stored = await storeTally(tx, this.#folder, this.#rows, this.#partitions, rest)
    return this.#rows.length
  }

  #isTooMuchFor(added: TallyRows): boolean {
    const kept = this.#rows.length
    return kept + added.length > MAX_ROWS || kept > Math.max(added.length * MAX_KEPT_RATIO, MIN_KEPT_ROWS)
  }

  /** Whether the table has what this has: nobody merged it or took anything away. */
  async #isStored(tx: Transaction): Promise<boolean> {
    if (this.#stored === undefined) return false
    const { rows } = await sql<{ stored: number }>`
      SELECT count(*)::integer AS stored FROM tallies WHERE folder = ${this.#folder}`.execute(tx)
    return rows[0]?.stored === this.#stored
  }

  async #removeStored(tx: Transaction): Promise<void> {
    await sql`DELETE FROM tallies WHERE folder = ${this.#folder}`.execute(tx)
  }

  async #merge(tx: Transaction, rest: Rest): Promise<void> {
    if (await this.#isStored(tx)) {
      await mergeRows(tx, this.#rows, this.#partitions, rest)
      await this.#removeStored(tx)
    } else {
      // Others that ended may have left some at first. Those that run merge theirs at less cost themselves.
      await mergeTallies(tx, this.#stored === undefined ? undefined : this.#folder)
    }
    this.#rows.clear()
    this.#partitions.clear()
    this.#rounds = 0
    this.#stored = 0
  }

  /** Those of the day for classes that are new. */
  async #findPartitions(tx: Transaction, day: string): Promise<void> {
    const missing = [...this.#rows.retentionClasses].filter((days) => !this.#partitions.has(days))
    if (missing.length === 0) return
    const { rows } = await sql<{ days: number; micros: number }>`
      SELECT days, ${inMicros(sql`date_trunc(message_partition_unit(days), ${day}::timestamptz, 'UTC')`)} AS micros
        FROM unnest(${missing}::integer[]) AS days`.execute(tx)
    for (const { days, micros } of rows) this.#partitions.set(days, micros)
  }
}

const upsertTotals = prepared(
  'rollups_of_totals',
  upsertRollups(
    sql`SELECT channel_key, 0, bucket, retention_days, arrived_on, protocol, records, 0, NULL, NULL, NULL
          FROM unnest($1::bigint[], $2::timestamptz[], $3::smallint[], $4::timestamptz[], $5::smallint[], $6::bigint[])
            AS t (channel_key, bucket, retention_days, arrived_on, protocol, records)
         ORDER BY 1, 2, 3, 4, 5`,
  ).statement().text,
)

/** What follows the columns of the row, in the order of the parameters. */
const OF_ROLLUPS = [
  'series_keys',
  'protocols',
  'records',
  'value_counts',
  'min_values',
  'max_values',
  'millionths',
  'value_sums',
] as const

const upsertSeries = prepared(
  'rollups_of_series',
  upsertRollups(
    sql`SELECT channel_key, series_key, bucket, retention_days, arrived_on, protocol, records, value_count, min_value, max_value,
               coalesce(value_sum::numeric, millionths * 0.000001)
          FROM unnest($1::bigint[], $2::timestamptz[], $3::smallint[], $4::timestamptz[], $5::bigint[], $6::smallint[], $7::integer[],
                      $8::integer[], $9::float8[], $10::float8[], $11::bigint[], $12::text[])
            AS t (channel_key, bucket, retention_days, arrived_on, series_key, protocol, records, value_count, min_value, max_value, millionths,
                  value_sum)
         ORDER BY 1, 2, 3, 4, 5`,
  ).statement().text,
)

/** The same of channel and retention class. */
const OF_NEWEST = [
  'series_keys',
  'newest_micros',
  'newest_arrivals',
  'newest_batch_seqs',
  'newest_messages',
  'newest_runs',
  'newest_places',
  'newest_protocols',
  'newest_values',
  'newest_sums',
  'newest_update_times',
  'newest_bools',
  'newest_strings',
  'newest_data',
] as const

const upsertNewest = prepared(
  'latest_of_series',
  mergeLatest(
    sql`SELECT DISTINCT ON (channel_key, series_key)
               channel_key, series_key, ${fromMicros(sql`micros`)}, ${fromMicros(sql`arrival`)}, batch_seq, message, run, place, retention_days,
               protocol, value, sum, update_time, bool_value, string_value, data_value
          FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::integer[], $8::integer[], $9::integer[],
                      $10::smallint[], $11::float8[], $12::float8[], $13::float8[], $14::boolean[], $15::text[], $16::bytea[])
            AS t (channel_key, retention_days, series_key, micros, arrival, batch_seq, message, run, place, protocol, value, sum, update_time,
                  bool_value, string_value, data_value)
         ORDER BY channel_key, series_key, micros DESC, arrival DESC, batch_seq DESC, message DESC`,
  ).statement().text,
)

/** Adds the rows to `rollups` and `latest_records`. */
async function mergeRows(tx: Transaction, rows: TallyRows, partitions: Partitions, rest: Rest): Promise<void> {
  const groups = groupsOf(rows)
  for (const part of partsOf(groups)) {
    await upsertTotals(tx, [...columnsOf(part, partitions), ...totalsOf(rows, part)])
    await rest()
  }
  for (const slice of slicesOf(rows, groups)) {
    const each = slice.flatMap((part) => part.rows.map((row) => ({ ...part, rows: [row] })))
    const columns = columnsOf(each, partitions)
    const [channelKeys, , retentionDays] = columns
    const elements = elementsOf(
      rows,
      each.flatMap((one) => one.rows),
    )
    await upsertSeries(tx, [...columns, ...OF_ROLLUPS.map((column) => elements[column])])
    await rest()
    await upsertNewest(tx, [channelKeys, retentionDays, ...OF_NEWEST.map((column) => elements[column])])
    await rest()
  }
}
