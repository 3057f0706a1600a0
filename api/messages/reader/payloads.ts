/** Reads JSON and raw messages. */
import { withinPage } from '#core/database/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { Filter } from './filter.ts'
import { all, isAnyOf, timeConditions } from './conditions.ts'
import { payloadsByTime } from './order.ts'
import type { LinkedRow, PageRows, Window } from './window.ts'
import { pageRowsOf } from './window.ts'

export type PayloadRow = LinkedRow & {
  subtopic: string
  publisher_id: string
  protocol: number
  time: number
  content_type: string
  document: string | null
  body: Buffer | null
}

/** The JSON or raw messages of one query, within the snapshot of the transaction. */
export class PayloadsQuery {
  readonly #tx: Transaction
  readonly #condition: Sql<boolean>

  constructor(tx: Transaction, channelKey: number, format: string, filter: Filter) {
    this.#tx = tx
    this.#condition = all([
      sql<boolean>`channel_key = ${channelKey} AND format = ${format}`,
      ...payloadConditions(filter),
    ])
  }

  async page({ offset, limit, dir, cursor }: Window): Promise<PageRows<PayloadRow>> {
    const keyset = payloadsByTime(dir)
    const { rows } = await withinPage(sql<PayloadRow>`
      SELECT subtopic, publisher_id, protocol, extract(epoch FROM p.time)::float8 AS time, content_type, document::text AS document, body,
             p.batch_seq, p.message, ${keyset.placeText} AS row_place
        FROM payloads p WHERE ${this.#condition} AND ${keyset.after(cursor)} ORDER BY ${keyset.order} LIMIT ${limit} OFFSET ${offset}`).execute(
      this.#tx,
    )
    return pageRowsOf(rows)
  }

  async total(): Promise<number> {
    const { rows } = await sql<{ total: number }>`
      SELECT count(*) AS total FROM payloads p WHERE ${this.#condition}`.execute(this.#tx)
    return rows[0]?.total ?? 0
  }
}

/** Filters on names and values apply to records only; they are ignored here. */
export function payloadConditions(filter: Filter): Sql<boolean>[] {
  const conditions = timeConditions(sql`p.time`, filter)
  if (filter.subtopic !== undefined) conditions.push(sql`subtopic = ${filter.subtopic}`)
  if (filter.publisherIds !== undefined) conditions.push(isAnyOf(sql`publisher_id`, filter.publisherIds))
  if (filter.protocol !== undefined) conditions.push(sql`protocol = ${filter.protocol}`)
  if (filter.message !== undefined)
    conditions.push(sql`p.batch_seq = ${filter.message.batch} AND p.message = ${filter.message.message}`)
  return conditions
}
