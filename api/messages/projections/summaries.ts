/**
 * Summaries of the index of batches: whoever looks for what is not folded reads every block that has none. PostgreSQL makes them
 * once a minute, in which ten million records may arrive; the folder makes them of what it folds.
 */
import type { Database } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/** Blocks of a range, as the index was made. */
const RANGE_BLOCKS = 32
/** Ranges before the end of a partition that are looked at first: a start does not know which have one. */
const FIRST_RANGES = 256
/** Ranges of one partition and call; what is left has its turn with the next. */
const MAX_RANGES = 512
/** Whoever keeps the table busy is not waited for, least of all an autovacuum, which would be ended by our waiting. */
const LOCK_DEADLINE_MS = 20

export type Summaries = {
  /** Rejects when somebody else keeps a partition busy: the next call does what this one did not. */
  keepUp(): Promise<void>
}

export function createSummaries(database: Database): Summaries {
  /** Of each partition by its index: the first range that has none. */
  const next = new Map<number, number>()
  return {
    async keepUp() {
      // Only ranges that are full: of the last one there is little to read.
      const { rows } = await sql<{ index: number; ranges: number }>`
        SELECT i.indexrelid::bigint AS index, pg_relation_size(i.indrelid) / current_setting('block_size')::integer / ${RANGE_BLOCKS} AS ranges
          FROM pg_partition_tree('records_batch_seq_idx') t JOIN pg_index i ON i.indexrelid = t.relid WHERE t.isleaf`.execute(
        database.db,
      )
      for (const { index, ranges } of rows) {
        const from = next.get(index) ?? Math.max(0, ranges - FIRST_RANGES)
        const to = Math.min(ranges, from + MAX_RANGES)
        if (from < to) await summarise(database, index, from, to)
        next.set(index, to)
      }
      for (const index of next.keys()) if (!rows.some((row) => row.index === index)) next.delete(index)
    },
  }
}

async function summarise(database: Database, index: number, from: number, to: number): Promise<void> {
  await database.transaction(async (tx) => {
    await sql`SET LOCAL lock_timeout = ${sql.raw(String(LOCK_DEADLINE_MS))}`.execute(tx)
    await sql`
      SELECT count(brin_summarize_range(${index}::bigint::oid::regclass, range * ${RANGE_BLOCKS}))
        FROM generate_series(${from}::bigint, ${to - 1}::bigint) AS range`.execute(tx)
  })
}
