/** Filters of listings of clients by their state. They match only clients whose state the caller may read. */
import type { DomainAccess } from '#api/identity/index.ts'
import { parseWithExactIntegers } from '#core/exact-integers.ts'
import { refusedField } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { requireStorable } from '#http/index.ts'
import { requireObject } from './document.ts'
import type { JsonObject } from './document.ts'

export type StateQuery = { reported?: string; out_of_sync?: boolean }

/** Throws `malformed` unless it is a JSON object. */
export function parseReportedFilter({ reported }: StateQuery): JsonObject | undefined {
  if (reported === undefined) return undefined
  let value: unknown
  try {
    value = requireObject(parseWithExactIntegers(reported))
  } catch {
    throw refusedField('reported', 'must be a JSON object')
  }
  requireStorable(value, '/reported', 0)
  return value as JsonObject
}

/**
 * Conditions on the table `c` of clients of these domains. `reported` is that of the document without a name. `isIndexed`: few clients
 * match, and an index finds them.
 */
export function stateFilters(
  domains: readonly DomainAccess[],
  { reported, outOfSync }: { reported: JsonObject | undefined; outOfSync: boolean | undefined },
): { conditions: Sql<boolean>[]; isIndexed: boolean } {
  if (reported === undefined && outOfSync === undefined) return { conditions: [], isIndexed: false }
  const inDomains = sql`s.domain_key = ANY (${domains.map(({ domainKey }) => domainKey)}::bigint[])`
  const readable = domains.map(
    (domain) => sql`(c.domain_key = ${domain.domainKey} AND ${domain.reachable('client', 'state_read', 'c')})`,
  )
  const conditions: Sql<boolean>[] = [
    readable.length === 0 ? sql<boolean>`false` : sql<boolean>`(${sql.join(readable, sql` OR `)})`,
  ]
  if (reported !== undefined)
    conditions.push(sql<boolean>`c.key IN (SELECT s.client_key FROM device_states s
      WHERE ${inDomains} AND s.name = '' AND s.reported @> ${JSON.stringify(reported)}::jsonb)`)
  if (outOfSync === true)
    conditions.push(sql<boolean>`c.key IN (SELECT s.client_key FROM device_states s
      WHERE ${inDomains} AND s.delta <> '{}'::jsonb)`)
  if (outOfSync === false)
    conditions.push(sql<boolean>`NOT EXISTS (SELECT FROM device_states s
      WHERE s.client_key = c.key AND s.delta <> '{}'::jsonb)`)
  return { conditions, isIndexed: reported !== undefined || outOfSync === true }
}
