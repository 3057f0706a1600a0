/** Reads JSON and raw messages. */
import { withinPage } from '#core/database/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { Filter } from './filter.ts'
import { timeConditions } from './conditions.ts'
import type { Rows, Window } from './window.ts'

export type PayloadRow = {
  subtopic: string
  publisher_id: string
  protocol: number
  time: number
  content_type: string
  document: string | null
  body: Buffer | null
}

/** A page of one format and the number of all that match, of one snapshot. */
export async function readPayloads(
  tx: Transaction,
  channelKey: number,
  format: string,
  filter: Filter,
  { offset, limit, dir }: Window,
): Promise<Rows<PayloadRow>> {
  const conditions = [sql<boolean>`channel_key = ${channelKey} AND format = ${format}`, ...payloadConditions(filter)]
  const condition = sql.join(conditions, sql` AND `)
  const direction = dir === 'asc' ? sql`ASC` : sql`DESC`
  const order = sql`p.time ${direction}, p.arrived_at ${direction}, p.batch_seq ${direction}, p.message ${direction}, p.ordinal ASC`
  const page = withinPage(sql`
    SELECT subtopic, publisher_id, protocol, extract(epoch FROM p.time)::float8 AS time, content_type, document::text AS document, body
      FROM payloads p WHERE ${condition} ORDER BY ${order} LIMIT ${limit} OFFSET ${offset}`)
  const { rows } = await sql<PayloadRow & { total: number; page_place: number | null }>`
    WITH page AS (${page}), counted AS (
      SELECT count(*) AS total FROM payloads p WHERE ${condition}
    )
    SELECT counted.total, page.* FROM counted LEFT JOIN page ON true ORDER BY page.page_place`.execute(tx)
  return { rows: rows.filter((row) => row.page_place !== null), total: rows[0]?.total ?? 0 }
}

/** Names and values are those of records; here they filter nothing. */
export function payloadConditions(filter: Filter): Sql<boolean>[] {
  const conditions = timeConditions(sql`p.time`, filter)
  if (filter.subtopic !== undefined) conditions.push(sql`subtopic = ${filter.subtopic}`)
  if (filter.publisherId !== undefined) conditions.push(sql`publisher_id = ${filter.publisherId}`)
  if (filter.protocol !== undefined) conditions.push(sql`protocol = ${filter.protocol}`)
  return conditions
}
