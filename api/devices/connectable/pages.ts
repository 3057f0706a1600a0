/** Pages of clients and channels: the total that the caller may read and the rows of one page. */
import { endAt, findPageKeys, shownRows } from '#api/identity/index.ts'
import type { DomainAccess, Filters, PageQuery } from '#api/identity/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { Queryable } from '#core/database/index.ts'
import type { ConnectableRecord, ConnectableType } from './record.ts'
import { ownedAs } from './shown-query.ts'
import type { parseShown } from './shown-query.ts'

export type Listed<R> = {
  type: ConnectableType
  alias: string
  /** Returns the rows with these keys that still exist, in the order of the keys, up to the size limit of a page. */
  find(db: Queryable, keys: readonly number[]): Promise<R[]>
}

/** Throws `forbidden` when the query asks for the access of another user and the caller is not an administrator. */
export async function findPage<R extends ConnectableRecord>(
  db: Queryable,
  { type, alias, find }: Listed<R>,
  domains: readonly DomainAccess[],
  asked: ReturnType<typeof parseShown>,
  filters: Filters,
  query: PageQuery,
): Promise<{ total: number; rows: R[]; next: PageEnd }> {
  const shown = await shownRows(db, domains, { type, alias }, asked, (domain) => ownedAs(domain, alias, asked.query))
  const found = await findPageKeys(db, { type, alias, shown, filters }, query)
  const rows = found.keys.length === 0 ? [] : await find(db, found.keys)
  return { total: found.total, rows, next: endAt(found, rows) }
}
