/**
 * Finds the message of a filter that arrived last. Rows are found by their time, so it is the last to arrive among those with the
 * latest times. If times are far out of order, an older message may be returned.
 */
import type { ChannelAccess } from '#api/devices/index.ts'
import type { Database } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { LiveMessage } from './live-message.ts'
import { loadBatches } from './stored.ts'

/** The maximum duration of a search, for a filter that matches few of many messages. */
const READ_DEADLINE_MS = 5000
/** The number of rows with the latest times that are compared. */
const LOOKED_ROWS = 256

/** `filter` is from `parseSubtopicFilter`. Throws `timeout` when the search takes too long. */
export async function findLatest(
  database: Database,
  { channelKey, channelId }: ChannelAccess,
  filter: string,
): Promise<LiveMessage | undefined> {
  return await database.snapshot(async (tx) => {
    const { rows } = await sql<{ batch_seq: number; message: number; arrived_at: string }>`
      WITH RECURSIVE covered AS MATERIALIZED (
        SELECT s.key FROM series s WHERE s.channel_key = ${channelKey} AND ${covers(sql`s.subtopic`, filter)}
      ), formats AS (
        (SELECT p.format FROM payloads p WHERE p.channel_key = ${channelKey} ORDER BY p.format LIMIT 1)
        UNION ALL
        SELECT (SELECT p.format FROM payloads p WHERE p.channel_key = ${channelKey} AND p.format > f.format
                 ORDER BY p.format LIMIT 1)
          FROM formats f WHERE f.format IS NOT NULL
      ), newest AS (
        (SELECT m.arrived_at, m.batch_seq, m.message FROM records m
          WHERE m.channel_key = ${channelKey} AND EXISTS (SELECT FROM covered) AND m.series_keys[1] IN (SELECT key FROM covered)
          ORDER BY m.max_time DESC LIMIT ${LOOKED_ROWS})
        UNION ALL
        SELECT found.* FROM formats f CROSS JOIN LATERAL (
          SELECT p.arrived_at, p.batch_seq, p.message FROM payloads p
           WHERE p.channel_key = ${channelKey} AND p.format = f.format AND ${covers(sql`p.subtopic`, filter)}
           ORDER BY p.time DESC LIMIT ${LOOKED_ROWS}) found
      )
      SELECT batch_seq, message, arrived_at::text AS arrived_at FROM newest
       ORDER BY newest.arrived_at DESC, batch_seq DESC, message DESC LIMIT 1`.execute(tx)
    const [newest] = rows
    if (newest === undefined) return undefined
    const batch = { seq: newest.batch_seq, arrivedAt: newest.arrived_at }
    const loaded = await loadBatches(tx, [batch], new Map([[channelKey, channelId]]))
    return loaded.get(newest.batch_seq)?.find(({ index }) => index === newest.message)
  }, READ_DEADLINE_MS)
}

/** The condition of `matchesSubtopic` on a column. */
function covers(subtopic: Sql<unknown>, filter: string): Sql<boolean> {
  if (filter === '>') return sql<boolean>`true`
  if (!/[*>]/.test(filter)) return sql<boolean>`${subtopic} = ${filter}`
  const pattern = filter.split('.').map((element, index) => {
    if (element === '>') return '(\\..+)?'
    const text = element === '*' ? '[^.]+' : element.replaceAll(/[\\^$.|?*+()[\]{}]/g, '\\$&')
    return index === 0 ? text : `\\.${text}`
  })
  return sql<boolean>`${subtopic} ~ ${`^${pattern.join('')}$`}`
}
