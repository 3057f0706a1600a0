/**
 * Finds the keys of one page of a listing of clients, channels or groups, and the total: one statement for the total
 * and one for the page (docs/query-plans.md, decision 0067). No page is cached.
 */
import type { PageEnd, Place } from '#core/cursor.ts'
import type { Queryable } from '#core/database/index.ts'
import { refusedField } from '#core/errors/index.ts'
import { sumEntityCounts } from './counts.ts'
import { ListingStatements } from './statements.ts'
import type { CountedRows, FoundKeys, Listed, PageQuery } from './statements.ts'

/** Number of matching rows that are counted and sorted together, in some 40 ms. */
const FEW_ROWS = 20_000
/** With at most this number of accessible rows, all of them are sorted for a page. */
const FEW_ACCESSIBLE = 2000
/** Minimum number of rows that are read in index order before all matching rows are sorted instead. */
const LEAST_WALKED = 200
/** Factor on the number of rows that would contain the page if matches were evenly distributed. */
const WALKED_TIMES = 3
/** Maximum number of rows that are read in index order, in 0.3 s. */
const MOST_WALKED = 150_000
/** For more rows the grants are read once into a set. For fewer rows each row is looked up in the grants. */
const FEW_WALKED = 5000
/** Number of accessible rows that are sorted in 0.1 s. */
const SORTED_ACCESSIBLE = 30_000

export type FoundPage = { total: number; keys: readonly number[]; next: PageEnd }

/** Throws `malformed` for a cursor of another order. */
export async function findPageKeys(db: Queryable, listed: Listed, asked: PageQuery): Promise<FoundPage> {
  // One more row shows whether others follow the page.
  const { total, rows } = await findRows(db, listed, { ...asked, limit: asked.limit + 1 })
  const page = rows.slice(0, asked.limit)
  const places = page.map(([, place]) => JSON.stringify(place))
  return { total, keys: page.map(([key]) => key), next: { places, hasMore: rows.length > page.length } }
}

/**
 * The end of a page of which some rows were read: the others did not fit, or were removed meanwhile. Without a row, the next page
 * begins after the rows that were removed.
 */
export function endAt({ keys, next }: FoundPage, read: readonly { key: number }[]): PageEnd {
  const last = read.at(-1)
  if (last === undefined) return { ...next, places: next.places.slice(-1) }
  const placeOf = new Map(keys.map((key, index) => [key, next.places[index] as string]))
  const places = read.map(({ key }) => placeOf.get(key) as string)
  return { places, hasMore: next.hasMore || last.key !== keys.at(-1) }
}

/** A key and its place. */
type FoundRow = readonly [key: number, place: Place]

async function findRows(
  db: Queryable,
  listed: Listed,
  query: PageQuery,
): Promise<{ total: number; rows: readonly FoundRow[] }> {
  const shown = await countAccessible(listed)
  if (shown.length === 0) return { total: 0, rows: [] }
  const statements = new ListingStatements(listed, shown, query)
  if (query.sortedBy !== undefined && query.only_total !== true) return await findSorted(db, statements, query)
  const isFiltered = listed.filters.conditions.length > 0 || shown.some(({ rows }) => rows.isNarrowed)
  if (isFiltered && query.only_total !== true && statements.isFoundSoon) {
    const few = await firstRow(db, statements.sorted(FEW_ROWS))
    if (few.total <= FEW_ROWS) return { total: few.total, rows: rowsOf(few) }
  }
  const total = isFiltered
    ? (await firstRow(db, statements.total())).total
    : await countUnfiltered(db, listed, shown, query)
  if (query.only_total === true || total <= query.offset) return { total, rows: [] }
  return { total, rows: await findPage(db, listed, { shown, statements, isFiltered, total }, query) }
}

/** Throws `malformed` for more rows than are sorted: a page of them would take as long as all of them. */
async function findSorted(
  db: Queryable,
  statements: ListingStatements,
  { order }: PageQuery,
): Promise<{ total: number; rows: readonly FoundRow[] }> {
  const found = await firstRow(db, statements.sorted(FEW_ROWS))
  if (found.total > FEW_ROWS)
    throw refusedField(
      'order',
      `sorts at most ${FEW_ROWS.toLocaleString('en')} rows by ${order}: use filters that select fewer`,
    )
  return { total: found.total, rows: rowsOf(found) }
}

type Counted = { shown: readonly CountedRows[]; statements: ListingStatements; isFiltered: boolean; total: number }

async function findPage(
  db: Queryable,
  { type }: Listed,
  { shown, statements, isFiltered, total }: Counted,
  query: PageQuery,
): Promise<readonly FoundRow[]> {
  const { offset, limit, cursor } = query
  const inOrder = async () => rowsOf(await firstRow(db, statements.inOrder()))
  const sorted = async () => rowsOf(await firstRow(db, statements.sorted()))
  const isWhole = !isFiltered && shown.every(({ accessible }) => accessible === undefined)
  if (isWhole || (!isFiltered && shown.length > 1)) return await inOrder()
  if (!isFiltered && total <= FEW_ACCESSIBLE) return await sorted()
  const domainKeys = shown.map(({ rows }) => rows.domain.domainKey)
  const size = await sumEntityCounts(db, type, domainKeys, undefined)
  const expected = ((offset + limit) * size) / total
  if (shown.length > 1) return expected * shown.length <= MOST_WALKED ? await inOrder() : await sorted()
  const most = Math.ceil(Math.max(LEAST_WALKED, WALKED_TIMES * expected))
  if (most <= MOST_WALKED) {
    const rows = rowsOf(await firstRow(db, statements.walk(most, most <= FEW_WALKED ? 'row' : 'set')))
    // After a place, any number of rows may follow.
    if (rows.length >= (cursor === undefined ? Math.min(limit, total - offset) : limit)) return rows
  }
  // An index alone determines whether a row is accessible, so reading it to its end is faster than sorting many rows.
  return !isFiltered && total > SORTED_ACCESSIBLE ? await inOrder() : await sorted()
}

/** Counts the accessible rows of each domain. Domains without accessible rows are omitted. */
async function countAccessible({ shown }: Listed): Promise<CountedRows[]> {
  const counted = await Promise.all(
    shown.map(async (rows) => {
      const counts = await rows.accessible.count()
      return { rows, accessible: counts === undefined ? undefined : sumOf(counts, undefined) }
    }),
  )
  return counted.filter(({ accessible }) => accessible !== 0)
}

async function countUnfiltered(
  db: Queryable,
  { type }: Listed,
  shown: readonly CountedRows[],
  { status }: PageQuery,
): Promise<number> {
  const wholes = shown.filter(({ accessible }) => accessible === undefined).map(({ rows }) => rows.domain.domainKey)
  const asked = status === 'all' ? undefined : status
  const others = await Promise.all(shown.map(async ({ rows }) => sumOf(await rows.accessible.count(), asked)))
  const ofWholes = wholes.length === 0 ? 0 : await sumEntityCounts(db, type, wholes, asked)
  return others.reduce((sum, of) => sum + of, ofWholes)
}

function sumOf(counts: ReadonlyMap<string, number> | undefined, status: string | undefined): number {
  if (counts === undefined) return 0
  if (status !== undefined) return counts.get(status) ?? 0
  return [...counts.values()].reduce((sum, of) => sum + of, 0)
}

async function firstRow<Row>(
  db: Queryable,
  statement: { execute(db: Queryable): Promise<{ rows: Row[] }> },
): Promise<Row> {
  const { rows } = await statement.execute(db)
  return rows[0] as Row
}

const rowsOf = ({ keys }: FoundKeys): readonly FoundRow[] => JSON.parse(keys ?? '[]') as FoundRow[]
