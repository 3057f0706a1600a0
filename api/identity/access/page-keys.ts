/**
 * The keys of one page of a listing of clients, channels or groups, and how many rows there are, found in the way that the
 * sizes ask for (docs/query-plans.md).
 */
import type { Queryable } from '#core/database/index.ts'
import { MAX_LIMIT } from '#core/page.ts'
import type { Sql } from '#core/sql.ts'
import { MAX_SORTED, createListing } from './listing-statements.ts'
import type { Listed, Listing, PageQuery } from './listing-statements.ts'
import type { AccessPolicy, DomainAccess } from './policy.ts'
import type { ShownRows } from './shown-rows.ts'

/** One of at most so many rows is sorted at once. */
const FEW_ROWS = 2000
/** A page so far behind the first is found among all that are reached, a nearer one by looking at row after row. */
const FAR_OFFSET = 200
/** The first keys of a large listing whose rows lie far behind others. */
const HEAD = 2000
/** Of every listing whose pages take more than a look into an index the first keys are found while nobody waits. */
const NEAREST = FAR_OFFSET + MAX_LIMIT
/** Every so many rows one is remembered to begin from, where a page is farther from both ends. */
const ANCHOR_DISTANCE = 1000
/** Of several domains each gives as many rows as lie between two. */
const MERGED_ANCHOR_DISTANCE = 100
const ANCHORED_FROM = 20_000
/** An index finds fewer rows by a tag sooner. */
const MANY_TAGGED = 10_000

type Deps = { db: Queryable; access: AccessPolicy }

export async function findPageKeys(
  { db, access }: Deps,
  listed: Listed,
  query: PageQuery,
): Promise<{ total: number; keys: readonly number[] }> {
  const { dir = 'asc', offset, limit } = query
  const end = offset + limit
  // Everything that is asked about, which is more than what has rows to show.
  const domains = listed.shown.map(({ domain }) => domain)
  const counting = createListing(listed, query)
  const counted = counting.isSortedAtOnce ? await access.keys(domains, counting.counted(dir)).find() : []
  const totals = counted.length > 0 ? counted.slice(0, 1) : await findTotals({ db, access }, listed, query)
  const total = totals.reduce((sum, of) => sum + of, 0)
  prepareLabels(access, listed, total)
  if (query.only_total === true || total <= offset) return { total, keys: [] }
  if (counted.length > 1) return { total, keys: counted.slice(1 + offset, 1 + end) }

  const listing = createListing(listed, query, totals)
  const isSmall = total <= MAX_SORTED
  const isFar = offset > FAR_OFFSET
  const nearest = isFar || listing.isIndexed ? undefined : access.keys(domains, listing.first(NEAREST, dir))
  const near = nearest?.remembered()
  if (near !== undefined) return { total, keys: near.slice(offset, end) }
  const first = access.keys(domains, listing.first(isSmall ? MAX_SORTED : HEAD, dir))
  const known = isSmall || end <= HEAD ? first.remembered() : undefined
  if (known !== undefined) return { total, keys: known.slice(offset, end) }
  if (total <= FEW_ROWS || (isSmall && isFar)) return { total, keys: (await first.find()).slice(offset, end) }
  if (isFar) return { total, keys: await findFarKeys({ db, access }, listing, domains, total, query) }

  const found = await keysOf(
    db,
    listing.mayLieFarApart ? listing.walk(dir, offset, limit) : listing.near(dir, offset, limit),
  )
  nearest?.prepare()
  if (found.length >= Math.min(limit, total - offset) || !listing.mayLieFarApart) return { total, keys: found }
  return { total, keys: (await first.find()).slice(offset, end) }
}

/** As `count` of a listing gives them. */
async function findTotals({ db, access }: Deps, listed: Listed, query: PageQuery): Promise<readonly number[]> {
  const { type, shown, labels } = listed
  const domains = shown.map(({ domain }) => domain)
  const statement = createListing(listed, query).count()
  if (labels === undefined) return await access.totals(domains, statement)
  const { status } = query
  const filter = status === undefined || status === 'all' ? labels : { ...labels, status }
  return await access.totals(domains, statement, async () => {
    let known = 0
    const others: ShownRows[] = []
    for (const rows of shown) {
      const count = rows.isWhole ? await access.labels.count(type, rows.domain.domainKey, filter) : undefined
      if (count === undefined) others.push(rows)
      else known += count
    }
    if (others.length === shown.length) return undefined
    const counted = await createListing({ ...listed, shown: others }, query)
      .count()
      .execute(db)
    const more = counted.rows[0]?.totals ?? []
    // All domains that are shown whole are one number, the first.
    return others.some(({ isWhole }) => isWhole) ? [known + (more[0] ?? 0), ...more.slice(1)] : [known, ...more]
  })
}

/** What PostgreSQL takes long to count is kept for the next time. */
function prepareLabels(access: AccessPolicy, { type, shown, labels }: Listed, total: number): void {
  if (labels === undefined || (labels.name === undefined && total < MANY_TAGGED)) return
  const wholes = shown.filter(({ isWhole }) => isWhole).map(({ domain }) => domain.domainKey)
  // Whoever asks for a page meets the same failure, and is told.
  access.labels.prepare(type, wholes).catch(() => {})
}

/** Those of a page that is reached from the nearer end, or from a row that is remembered. */
async function findFarKeys(
  { db, access }: Deps,
  listing: Listing,
  domains: readonly DomainAccess[],
  total: number,
  query: PageQuery,
): Promise<readonly number[]> {
  const { dir = 'asc', offset, limit } = query
  const wanted = Math.min(limit, total - offset)
  const isBackwards = isNearerToEnd(query, total)
  const distance = isBackwards ? Math.max(0, total - offset - limit) : offset
  // Several domains are merged, so each row that is passed is passed in each.
  const anchoredFrom = listing.mayLieFarApart ? FAR_OFFSET : ANCHORED_FROM / listing.domains
  const between = listing.domains === 1 ? ANCHOR_DISTANCE : MERGED_ANCHOR_DISTANCE
  const anchors = distance > anchoredFrom ? access.keys(domains, listing.anchors(dir, between)) : undefined
  const anchor = anchors?.remembered()?.[Math.floor(offset / between)]
  if (anchor !== undefined) {
    const keys = await keysOf(db, listing.from(anchor, dir, offset % between, limit))
    if (keys.length >= wanted) return keys
  }
  const direction = isBackwards === (dir === 'asc') ? 'desc' : 'asc'
  const keys = await keysOf(db, listing.far(direction, distance, isBackwards ? wanted : limit))
  if (anchor === undefined) anchors?.prepare()
  return isBackwards ? keys.toReversed() : keys
}

async function keysOf(db: Queryable, statement: Sql<{ key: number }>): Promise<number[]> {
  return (await statement.execute(db)).rows.map(({ key }) => key)
}

/**
 * Whether a page is found sooner from the last row. Rows that came since the total was counted would shift it, which nobody
 * who pages by creation may see (decision 58): there new rows come last, and pages are counted from the first.
 */
function isNearerToEnd({ order, dir, offset }: PageQuery, total: number): boolean {
  return offset > total / 2 && !(order === 'created_at' && dir !== 'desc')
}
