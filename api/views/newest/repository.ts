/** Reads the newest values of clients from the projection of the newest records. */
import type { DomainAccess } from '#api/identity/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { MAX_TEXT_CHARS } from './schema.ts'

export type NewestRow = {
  client_id: string
  channel_id: string
  subtopic: string
  name: string
  unit: string
  /** Seconds since 1970. */
  time: number
  value: number | null
  string_value: string | null
  bool_value: boolean | null
  data_bytes: number | null
  sum: number | null
}

/** Returns the rows in the order of the ids, at most one row of each client. */
export async function findNewest(db: Queryable, domain: DomainAccess, ids: readonly string[]): Promise<NewestRow[]> {
  const ofClients = domain.accessible('client', 'read').isAmong('e', 'row')
  const ofChannels = domain.accessible('channel', 'subscribe').isAmong('c', 'row')
  const { rows } = await sql<NewestRow>`
    SELECT e.id AS client_id, n.*
      FROM unnest(${ids}::uuid[]) WITH ORDINALITY given (id, place)
      JOIN clients e ON e.domain_key = ${domain.domainKey} AND e.id = given.id AND ${ofClients}
     CROSS JOIN LATERAL (
       SELECT c.id AS channel_id, s.subtopic, s.name, s.unit, extract(epoch FROM l.time)::float8 AS time, l.value,
              left(l.string_value, ${MAX_TEXT_CHARS}::integer) AS string_value, l.bool_value,
              octet_length(l.data_value) AS data_bytes, l.sum
         FROM series s
         JOIN latest_records l ON l.channel_key = s.channel_key AND l.series_key = s.key
         JOIN channels c ON c.key = s.channel_key AND c.domain_key = ${domain.domainKey} AND ${ofChannels}
        WHERE s.publisher_key = e.key
        ORDER BY l.time DESC, l.arrived_at DESC, s.key LIMIT 1) n
     ORDER BY given.place`.execute(db)
  return rows
}
