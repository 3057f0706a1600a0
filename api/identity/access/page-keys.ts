/**
 * The keys of one page of a listing of clients, channels or groups, and how many rows there are, found in the way that the
 * sizes ask for (docs/query-plans.md).
 */
import type { Queryable } from '#core/database/index.ts'
import { MAX_LIMIT } from '#core/page.ts'
import { MAX_SORTED, createListing } from './listing-statements.ts'
import type { Listed, Listing, PageQuery } from './listing-statements.ts'
import type { FoundLabels } from './label-blocks.ts'
import { readKeys } from './policy.ts'
import type { AccessPolicy, KeptListing } from './policy.ts'
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
/** Keys of the listing in the order that is asked for. */
type KeysOf = KeptListing['keys']

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
  const isFar = offset > FAR_OFFSET
  const keptRows = keptRowsOf(access, listed)
  const kept = access.listing(domains, counting.count())
  const keysOf: KeysOf = (which, statement, known) => kept.keys(`${which} ${query.order} ${dir}`, statement, known)
  const inLabels = async () => await countInLabels({ db, access }, listed, query)
  const all = counting.isSortedAtOnce ? keysOf('counted', () => counting.counted(dir), inLabels) : undefined
  // By what is kept to count takes half as long as to sort too.
  const counted = (keptRows === undefined || isFar ? await all?.find() : all?.remembered()) ?? []
  const totals = counted.length > 0 ? counted.slice(0, 1) : await findTotals({ db, access }, kept, listed, query)
  const total = totals.reduce((sum, of) => sum + of, 0)
  prepareLabels(access, listed, total)
  if (query.only_total === true || total <= offset) return { total, keys: [] }
  if (counted.length > 1) return { total, keys: counted.slice(1 + offset, 1 + end) }

  const listing = createListing(listed, query, totals)
  const isSmall = total <= MAX_SORTED
  const nearest = isFar || listing.isIndexed ? undefined : keysOf(`first ${NEAREST}`, () => listing.first(NEAREST, dir))
  const near = nearest?.remembered()
  if (near !== undefined) return { total, keys: near.slice(offset, end) }
  const firstOnes = isSmall ? MAX_SORTED : HEAD
  const first = keysOf(`first ${firstOnes}`, () => listing.first(firstOnes, dir))
  const known = isSmall || end <= HEAD ? first.remembered() : undefined
  if (known !== undefined) return { total, keys: known.slice(offset, end) }
  const labelled = keptRows !== undefined && isSmall ? all : undefined
  async function findAll(): Promise<readonly number[]> {
    const keys = (await labelled?.find())?.slice(1) ?? []
    return keys.length > 0 ? keys : await first.find()
  }
  if (total <= FEW_ROWS || (isSmall && isFar)) return { total, keys: (await findAll()).slice(offset, end) }
  if (isFar) return { total, keys: await findFarKeys(db, listing, keysOf, total, query) }

  const found = await readKeys(
    db,
    listing.mayLieFarApart
      ? listing.walk(dir, offset, limit, keptRows === undefined ? undefined : total / keptRows)
      : listing.near(dir, offset, limit),
  )
  // Of what is known all are soon sorted, for pages at any depth.
  const later = labelled ?? (listing.isKnown ? first : nearest)
  later?.prepare()
  if (found.length >= Math.min(limit, total - offset) || !listing.mayLieFarApart) return { total, keys: found }
  return { total, keys: (await findAll()).slice(offset, end) }
}

/** As `count` of a listing gives them. */
async function findTotals(
  { db, access }: Deps,
  kept: KeptListing,
  listed: Listed,
  query: PageQuery,
): Promise<readonly number[]> {
  const { shown, labels } = listed
  if (labels === undefined) return await kept.totals()
  return await kept.totals(async () => {
    const found = new Map<ShownRows, number>()
    for (const rows of shown) {
      const labelled = await findLabelled(access, listed, query, rows)
      if (labelled !== undefined) found.set(rows, labelled.total)
    }
    if (found.size === 0) return undefined
    const others = shown.filter((rows) => !found.has(rows))
    const counted = await createListing({ ...listed, shown: others }, query)
      .count()
      .execute(db)
    const more = (counted.rows[0]?.totals ?? []).values()
    const [wholes, parts] = [shown.filter(({ isWhole }) => isWhole), shown.filter(({ isWhole }) => !isWhole)]
    // All domains that are shown whole are one number, the first.
    const ofWholes = wholes.reduce((sum, rows) => sum + (found.get(rows) ?? 0), 0)
    const ofOtherWholes = wholes.some((rows) => !found.has(rows)) ? (more.next().value ?? 0) : 0
    const ofParts = parts.map((rows) => found.get(rows) ?? more.next().value ?? 0)
    return wholes.length === 0 ? ofParts : [ofWholes + ofOtherWholes, ...ofParts]
  })
}

/** The same as `counted` of a listing gives, by what is kept of its domain. */
async function countInLabels({ db, access }: Deps, listed: Listed, query: PageQuery): Promise<number[] | undefined> {
  const [only] = listed.shown
  const found = only === undefined ? undefined : await findLabelled(access, listed, query, only, MAX_SORTED)
  if (found?.keys === undefined) return found === undefined ? undefined : [found.total]
  const keys = await readKeys(db, createListing(listed, query).inOrder(found.keys, query.dir ?? 'asc'))
  return [keys.length, ...keys]
}

/** How many rows are kept of the one domain that is listed, if all that is asked for can be said of them. */
function keptRowsOf(access: AccessPolicy, { type, shown, labels }: Listed): number | undefined {
  const [only, ...more] = shown
  if (labels === undefined || only?.within === undefined || more.length > 0) return undefined
  return access.labels.rowsOf(type, only.domain.domainKey)
}

/** What matches of a domain by the names, tags and groups that are kept; undefined where these do not say it. */
async function findLabelled(
  access: AccessPolicy,
  { type, labels }: Listed,
  { status }: PageQuery,
  { domain, isWhole, within }: ShownRows,
  most?: number,
): Promise<FoundLabels | undefined> {
  if (labels === undefined || !(isWhole || within !== undefined)) return undefined
  const filter = status === undefined || status === 'all' ? labels : { ...labels, status }
  return await access.labels.find(type, domain.domainKey, filter, { most, within })
}

/** What PostgreSQL takes long to count is kept for the next time. */
function prepareLabels(access: AccessPolicy, { type, shown, labels }: Listed, total: number): void {
  if (labels === undefined || (labels.name === undefined && total < MANY_TAGGED)) return
  const countable = shown.filter(({ isWhole, within }) => isWhole || within !== undefined)
  // Whoever asks for a page meets the same failure, and is told.
  access.labels
    .prepare(
      type,
      countable.map(({ domain }) => domain.domainKey),
    )
    .catch(() => {})
}

/** Those of a page that is reached from the nearer end, or from a row that is remembered. */
async function findFarKeys(
  db: Queryable,
  listing: Listing,
  keysOf: KeysOf,
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
  const anchors = distance > anchoredFrom ? keysOf(`every ${between}`, () => listing.anchors(dir, between)) : undefined
  const anchor = anchors?.remembered()?.[Math.floor(offset / between)]
  if (anchor !== undefined) {
    const keys = await readKeys(db, listing.from(anchor, dir, offset % between, limit))
    if (keys.length >= wanted) return keys
  }
  const direction = isBackwards === (dir === 'asc') ? 'desc' : 'asc'
  const keys = await readKeys(db, listing.far(direction, distance, isBackwards ? wanted : limit))
  if (anchor === undefined) anchors?.prepare()
  return isBackwards ? keys.toReversed() : keys
}

/**
 * Whether a page is found sooner from the last row. Rows that came since the total was counted would shift it, which nobody
 * who pages by creation may see (decision 58): there new rows come last, and pages are counted from the first.
 */
function isNearerToEnd({ order, dir, offset }: PageQuery, total: number): boolean {
  return offset > total / 2 && !(order === 'created_at' && dir !== 'desc')
}
