/** Pages of clients and channels: how many rows the caller is shown, and those of one page, found from the nearer end. */
import { sql } from 'kysely'
import type { RawBuilder, SqlBool } from 'kysely'
import { ENTITY_TABLES, allOf, orderOf } from '#api/identity/index.ts'
import type { AccessPolicy, DomainAccess, ReachableRows } from '#api/identity/index.ts'
import type { Database, Queryable } from '#core/database/index.ts'
import type { ConnectableType } from './record.ts'
import { shownIn } from './shown-in.ts'
import type { parseShown } from './shown-in.ts'

/** Rows of a listing in their order, as a repository finds them. */
export type Listing = {
  where: RawBuilder<SqlBool>
  order: string
  dir: 'asc' | 'desc'
  offset: number
  limit: number
}

type PageQuery = { order: string; dir?: 'asc' | 'desc'; offset: number; limit: number; only_total?: boolean }

export type Listed<R> = {
  type: ConnectableType
  alias: string
  find(db: Queryable, listing: Listing): Promise<R[]>
}

/** Throws `forbidden` for the reach of somebody else. */
export async function findPage<R>(
  { database: { db }, access }: { database: Database; access: AccessPolicy },
  { type, alias, find }: Listed<R>,
  domains: readonly DomainAccess[],
  shown: ReturnType<typeof parseShown>,
  filters: readonly RawBuilder<SqlBool>[],
  query: PageQuery,
): Promise<{ total: number; rows: R[] }> {
  const readable = await shownIn(db, domains, { type, alias }, shown)
  const table = sql.table(ENTITY_TABLES[type].table)
  const total = await access.total(
    domains,
    sql`SELECT count(*) AS total FROM ${table} ${sql.ref(alias)} WHERE ${allOf([readable.count, ...filters])}`,
  )
  const { order, dir = 'asc', offset, limit } = query
  if (query.only_total === true || total <= offset) return { total, rows: [] }
  if (total <= MAX_SORTED) {
    const sorted = access.keys(
      domains,
      sql`SELECT ${sql.ref(`${alias}.key`)} FROM ${table} ${sql.ref(alias)}
        WHERE ${allOf([readable.count, ...filters])} ORDER BY ${orderOf(alias, order, dir)} LIMIT ${MAX_SORTED}`,
    )
    const keys = sorted.remembered() ?? (offset > FAR_OFFSET ? await sorted.find() : undefined)
    if (keys !== undefined) {
      const where = sql<SqlBool>`${sql.ref(`${alias}.key`)} = ANY (${keys.slice(offset, offset + limit)}::bigint[])`
      return { total, rows: await find(db, { where, order, dir, offset: 0, limit }) }
    }
  }
  const isBackwards = isNearerToEnd(query, total)
  const distance = isBackwards ? Math.max(0, total - offset - limit) : offset
  const rows = await find(db, {
    where: allOf([toFindPage(readable, distance), ...filters]),
    order,
    dir: isBackwards === (dir === 'asc') ? 'desc' : 'asc',
    offset: distance,
    limit: isBackwards ? Math.min(limit, total - offset) : limit,
  })
  return { total, rows: isBackwards ? rows.toReversed() : rows }
}

/** A listing of at most so many rows is sorted once for its far pages. */
const MAX_SORTED = 30_000
/** A page so far behind the first is found among all that are reached, a nearer one by looking at row after row. */
const FAR_OFFSET = 200

/** The condition that finds a page soonest. */
function toFindPage({ page, count }: ReachableRows, offset: number): RawBuilder<SqlBool> {
  return offset > FAR_OFFSET ? count : page
}

/**
 * Whether a page is found sooner from the last row. Rows that came since the total was counted would shift it, which nobody
 * who pages by creation may see (decision 58): there new rows come last, and pages are counted from the first.
 */
function isNearerToEnd({ order, dir, offset }: PageQuery, total: number): boolean {
  return offset > FAR_OFFSET && offset > total / 2 && !(order === 'created_at' && dir !== 'desc')
}
