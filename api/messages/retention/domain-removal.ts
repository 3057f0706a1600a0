/**
 * The messages of a domain that is removed (decision 46). They refer to no domain, so its channels are looked up: those that
 * exist, those that have series, and those whose deletion the journal knows.
 */
import type { Database } from '#core/database/index.ts'
import { projectPending } from '../projections/project.ts'

/** Removes at most so many rows, and gives how many went. */
type RemovePart = (limit: number) => Promise<number>

/** Channels that one statement looks for. */
const CHANNELS_PER_PART = 1000
const PARTITIONED = ['records', 'payloads', 'rollups']

/** Everything that is stored of the domain's channels, as parts that are removed one after the other. */
export async function removalsOf(database: Database, domainKey: number): Promise<RemovePart[]> {
  const { pool } = database
  // Otherwise the last batches would be added to rollups that are removed already.
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
  const tables = [...leaves.map((leaf) => leaf.name), 'latest_records', 'series']

  // Row by row number inside one partition: a join over all of them would read them whole for each part.
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
