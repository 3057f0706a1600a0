/** Pages of clients and channels: how many rows the caller is shown, and those of one page. */
import { findPageKeys, shownRows } from '#api/identity/index.ts'
import type { DomainAccess, Filters, PageQuery } from '#api/identity/index.ts'
import type { Queryable } from '#core/database/index.ts'
import type { ConnectableRecord, ConnectableType } from './record.ts'
import { ownedAs } from './shown-query.ts'
import type { parseShown } from './shown-query.ts'

export type Listed<R> = {
  type: ConnectableType
  alias: string
  /** Those of the keys that are still there, in their order, as far as they fit on a page. */
  find(db: Queryable, keys: readonly number[]): Promise<R[]>
}

/** Throws `forbidden` for the reach of somebody else. */
export async function findPage<R extends ConnectableRecord>(
  db: Queryable,
  { type, alias, find }: Listed<R>,
  domains: readonly DomainAccess[],
  asked: ReturnType<typeof parseShown>,
  filters: Filters,
  query: PageQuery,
): Promise<{ total: number; rows: R[] }> {
  const shown = await shownRows(db, domains, { type, alias }, asked, (domain) => ownedAs(domain, alias, asked.query))
  const { total, keys } = await findPageKeys(db, { type, alias, shown, filters }, query)
  if (keys.length === 0) return { total, rows: [] }
  return { total, rows: await find(db, keys) }
}
