/**
 * Pages of clients in the order of their state: those that are online, then the others, or the other way round. Each
 * part is a listing of its own, so no statement sorts all clients of a domain.
 */
import type { ClientRecord } from './repository.ts'
import type { ClientQuery } from './schema.ts'

type Found = { total: number; rows: ClientRecord[] }

/** `find` returns a page of the clients with this state. Within a part, clients are sorted by their creation. */
export async function findInOnlineOrder(
  query: ClientQuery,
  find: (isOnline: boolean, query: ClientQuery) => Promise<Found>,
): Promise<Found> {
  const states = query.dir === 'desc' ? [true, false] : [false, true]
  const rows: ClientRecord[] = []
  let total = 0
  let isCut = false
  for (const isOnline of states) {
    if (query.online !== undefined && query.online !== isOnline) continue
    const offset = Math.max(0, query.offset - total)
    const limit = query.limit - rows.length
    const isTotalEnough = query.only_total === true || isCut || limit === 0
    const asked = { ...query, order: 'created_at', offset, limit: Math.max(limit, 1) }
    const part = await find(isOnline, isTotalEnough ? { ...asked, only_total: true } : asked)
    rows.push(...part.rows)
    // A page that is cut at its largest size ends there: the next one begins with the row that is missing.
    isCut ||= part.rows.length < Math.min(limit, part.total - offset)
    total += part.total
  }
  return { total, rows }
}
