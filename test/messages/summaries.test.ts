/** Summaries of the index of batches keep up with what arrives. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { createPartitions } from '../../api/messages/store/partitions.ts'
import { createSummaries } from '../../api/messages/projections/summaries.ts'
import type { Summaries } from '../../api/messages/projections/summaries.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase } from '../harness/database.ts'
import { until } from '../harness/until.ts'

let server: TestDatabase

beforeAll(async () => {
  server = await createTestDatabase()
  await createPartitions(server.database)
})
afterAll(async () => {
  await server[Symbol.asyncDispose]()
})

/** Rows that fill some ranges of blocks. */
async function arrive(rows: number): Promise<void> {
  await sql`
    INSERT INTO records (channel_key, min_time, max_time, batch_seq, message, chunk, retention_days, protocol, series_keys, times)
    SELECT 1, now(), now(), row, 0, 0, 0, 1, array_fill(1::bigint, ARRAY[64]), array_fill(now(), ARRAY[64])
      FROM generate_series(1, ${rows}::integer) AS row`.execute(server.database.db)
}

/** Ranges that had no summary; afterwards they have. */
async function unsummarised(): Promise<number> {
  const { rows } = await sql<{ ranges: number }>`
    SELECT coalesce(sum(brin_summarize_new_values(t.relid)), 0)::integer AS ranges
      FROM pg_partition_tree('records_batch') t WHERE t.isleaf`.execute(server.database.db)
  return rows[0]?.ranges ?? 0
}

/** As the folder does: a call that finds a partition busy, with an autovacuum perhaps, leaves it to the next. */
const untilKeptUp = (summaries: Summaries) =>
  until(async () => {
    try {
      await summaries.keepUp()
      return true
    } catch {
      return false
    }
  }, 'no partition is busy')

test('arrivals are summarised except for the incomplete range', async () => {
  const summaries = createSummaries(server.database)
  await arrive(3000)
  await untilKeptUp(summaries)
  expect(await unsummarised()).toBeLessThanOrEqual(1)
  await arrive(3000)
  await untilKeptUp(summaries)
  expect(await unsummarised()).toBeLessThanOrEqual(1)
})

test('a locked partition is left for the next call', async () => {
  const summaries = createSummaries(server.database)
  await arrive(3000)
  await server.database.transaction(async (tx) => {
    await sql`LOCK TABLE records IN SHARE UPDATE EXCLUSIVE MODE`.execute(tx)
    await expect(summaries.keepUp()).rejects.toThrow()
  })
  await untilKeptUp(summaries)
  expect(await unsummarised()).toBeLessThanOrEqual(1)
})
