/**
 * Pages of clients in the order of their state: those that are online, then the others, or the other way round. Each
 * part is a listing of its own, so no statement sorts all clients of a domain.
 */
import { invalidCursor } from '#core/cursor.ts'
import type { PageEnd, Place } from '#core/cursor.ts'
import type { ClientRecord } from './repository.ts'
import type { ClientQuery } from './schema.ts'

type Found = { total: number; rows: ClientRecord[]; next: PageEnd }

/**
 * `find` returns a page of the clients with this state. Within a part, clients are sorted by their creation. A place is that in the
 * part, after the state.
 */
export async function findInOnlineOrder(
  query: ClientQuery,
  find: (isOnline: boolean, query: ClientQuery) => Promise<Found>,
): Promise<Found> {
  const states = query.dir === 'desc' ? [true, false] : [false, true]
  const begin = beginOf(query.cursor)
  const first = begin === undefined ? 0 : states.indexOf(begin.isOnline)
  const rows: ClientRecord[] = []
  const places: string[] = []
  let total = 0
  let isCut = false
  let hasMore = false
  for (const [index, isOnline] of states.entries()) {
    if (query.online !== undefined && query.online !== isOnline) continue
    const offset = Math.max(0, query.offset - total)
    const limit = query.limit - rows.length
    const isTotalEnough = query.only_total === true || isCut || limit === 0 || index < first
    const { cursor: _, ...asked } = { ...query, order: 'created_at', offset, limit: Math.max(limit, 1) }
    const after = begin !== undefined && index === first ? { cursor: begin.place } : {}
    const part = await find(isOnline, isTotalEnough ? { ...asked, only_total: true } : { ...asked, ...after })
    total += part.total
    if (isTotalEnough) {
      hasMore ||= index >= first && part.total > 0
      continue
    }
    rows.push(...part.rows)
    places.push(...part.next.places.map((place) => JSON.stringify([isOnline, ...(JSON.parse(place) as Place)])))
    hasMore = part.next.hasMore
    // A page that is cut at its largest size ends there: the next one begins with the row that is missing.
    isCut = hasMore && part.rows.length < limit
  }
  return { total, rows, next: { places, hasMore } }
}

function beginOf(cursor: Place | undefined): { isOnline: boolean; place: Place } | undefined {
  if (cursor === undefined) return undefined
  const [isOnline, ...place] = cursor
  if (typeof isOnline !== 'boolean') throw invalidCursor()
  return { isOnline, place }
}
