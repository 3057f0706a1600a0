/**
 * Removes the messages of a deleted domain (decision 46). Messages do not refer to a domain, so its channels are looked up: existing
 * ones, those with series, and deleted ones in the journal.
 */
import type { Database } from '#core/database/index.ts'
import { projectPending } from '../projections/project.ts'

/** Removes at most `limit` rows and returns their number. */
type RemovePart = (limit: number) => Promise<number>

/** The number of channels of one statement. */
const CHANNELS_PER_PART = 1000
const PARTITIONED = ['records', 'payloads', 'rollups']

/** Everything that is stored of the domain's channels, as parts that are removed in order. */
export async function removalsOf(database: Database, domainKey: number): Promise<RemovePart[]> {
  const { pool } = database
  // Pending batches are added first: otherwise the last ones would be added to rollups that are already removed.
  await projectPending(database)
  const { rows: channels } = await pool.query<{ key: number }>(
    `SELECT key FROM channels WHERE domain_key = $1
      UNION SELECT channel_key FROM series_counts WHERE domain_key = $1 AND channel_key <> 0
      UNION SELECT unnest(entity_keys) FROM journal WHERE domain_key = $1 AND operation = 'channel.remove'`,
    [domainKey],
  )
  const { rows: leaves } = await pool.query<{ name: string }>(
    `SELECT leaf.relid::regclass::text AS name FROM unnest($1::text[]) AS parent (name)
      CROSS JOIN LATERAL pg_partition_tree(parent.name::regclass) AS leaf WHERE leaf.isleaf`,
    [PARTITIONED],
  )
  const keys = channels.map((channel) => channel.key)
  const tables = [...leaves.map((leaf) => leaf.name), 'rollup_weeks', 'latest_records', 'series']

  // Rows are deleted by their row numbers inside one partition: a join over all partitions would read them whole for each part.
  const removeOf =
    (table: string, channelKeys: readonly number[]): RemovePart =>
    async (limit) => {
      const { rowCount } = await pool.query(
        `DELETE FROM ${table} WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM ${table} WHERE channel_key = ANY ($1::bigint[]) LIMIT $2))`,
        [channelKeys, limit],
      )
      return rowCount ?? 0
    }

  const parts: RemovePart[] = []
  for (let first = 0; first < keys.length; first += CHANNELS_PER_PART) {
    const some = keys.slice(first, first + CHANNELS_PER_PART)
    for (const table of tables) parts.push(removeOf(table, some))
  }
  parts.push(async (limit) => {
    const { rowCount } = await pool.query(
      'DELETE FROM series_counts WHERE ctid = ANY (ARRAY(SELECT ctid FROM series_counts WHERE domain_key = $1 LIMIT $2))',
      [domainKey, limit],
    )
    return rowCount ?? 0
  })
  return parts
}
