/**
 * Summaries of the block range index of batches: a search for pending batches reads every block that has no summary. Autovacuum makes them
 * once a minute, in which ten million records may arrive, so the projector makes them after each round.
 */
import type { Database } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/** Blocks of a range, as the index was made. */
const RANGE_BLOCKS = 32
/** Ranges at the end of a partition that the first call looks at: after a start it is not known which have a summary. */
const FIRST_RANGES = 256
/** Ranges of one partition that one call summarises. */
const MAX_RANGES = 512
/** How long to wait for a lock on a busy partition. Waiting longer would cancel a running autovacuum. */
const LOCK_DEADLINE_MS = 20

export type Summaries = {
  /** Rejects when a partition is locked by another transaction; the next call continues there. */
  keepUp(): Promise<void>
}

export function createSummaries(database: Database): Summaries {
  /** The first range without a summary in each partition. The keys are the indexes of the partitions. */
  const next = new Map<number, number>()
  return {
    async keepUp() {
      // Only full ranges are summarised: the last one is short to read.
      const { rows } = await sql<{ index: number; ranges: number }>`
        SELECT i.indexrelid::bigint AS index, pg_relation_size(i.indrelid) / current_setting('block_size')::integer / ${RANGE_BLOCKS} AS ranges
          FROM pg_partition_tree('records_batch') t JOIN pg_index i ON i.indexrelid = t.relid WHERE t.isleaf`.execute(
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
