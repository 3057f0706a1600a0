/** Entities of one domain by their name, id or a tag, as a search shows them. */
import type { Queryable } from '#core/database/index.ts'
import { isId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { ENTITY_TABLES } from '../access/index.ts'
import type { DomainAccess, EntityFacts } from '../access/index.ts'
import { contains, hasTrigrams } from './conditions.ts'
import { findPageKeys } from './page.ts'
import { shownRows } from './shown-rows.ts'
import type { Filters } from './statements.ts'

export type NamedEntity = { id: string; name: string; tags: string[]; status: string }
type Search = { domain: DomainAccess; text: string; limit: number }
type Found = { total: number; items: NamedEntity[] }

const ALIAS = 'e'

/**
 * Returns the entities that the caller may read whose name contains the text or whose id or tag equals it: at most
 * `limit`, exact matches first, then by name; `total` counts all of them.
 */
export async function findNamed(db: Queryable, type: EntityFacts['type'], search: Search): Promise<Found> {
  const exact = await findMatching(db, type, search, sql<boolean>`e.name = ${search.text}`)
  const partial = await findMatching(db, type, search, contains('e.name', search.text))
  const seen = new Set(exact.items.map(({ id }) => id))
  const items = [...exact.items, ...partial.items.filter(({ id }) => !seen.has(id))].slice(0, search.limit)
  return { total: partial.total, items }
}

async function findMatching(
  db: Queryable,
  type: EntityFacts['type'],
  { domain, text, limit }: Search,
  hasName: Sql<boolean>,
): Promise<Found> {
  const alternatives = [
    hasName,
    sql<boolean>`e.tags @> ARRAY[${text}]::text[]`,
    ...(isId(text) ? [sql<boolean>`e.id = ${text}`] : []),
  ]
  const isMatch = sql<boolean>`(${sql.join(alternatives, sql` OR `)})`
  const filters: Filters = { conditions: [isMatch], isIndexed: hasTrigrams(text) }
  const shown = await shownRows(db, [domain], { type, alias: ALIAS }, { actions: [], query: {} }, () => [])
  const listed = { type, alias: ALIAS, shown, filters }
  const { total, keys } = await findPageKeys(db, listed, { offset: 0, limit, order: 'name', status: 'all' })
  if (keys.length === 0) return { total, items: [] }
  const { rows } = await sql<NamedEntity>`
    SELECT e.id, e.name, e.tags, e.status FROM unnest(${keys}::bigint[]) WITH ORDINALITY page (key, place)
      JOIN ${sql.table(ENTITY_TABLES[type].table)} e ON e.key = page.key ORDER BY page.place`.execute(db)
  return { total, items: rows }
}
