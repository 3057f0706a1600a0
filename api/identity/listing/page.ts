/**
 * The keys of one page of a listing of clients, channels or groups, and how many rows there are: a statement for the total and one
 * for the page (docs/query-plans.md, decision 0067). Nothing of a page is kept in memory.
 */
import type { Queryable } from '#core/database/index.ts'
import { countStored } from './counts.ts'
import { ListingStatements } from './statements.ts'
import type { CountedRows, FoundKeys, Listed, PageQuery } from './statements.ts'

/** So many rows that match are counted and sorted at once, in some 40 ms. */
const FEW_ROWS = 20_000
/** Where fewer than that are accessible, all of them are sorted for a page. */
const FEW_ACCESSIBLE = 2000
/** Rows that are looked at in the order of an index before all that match are sorted: so many at least, */
const LEAST_WALKED = 1000
/** so many times as many as should hold the page if they lay evenly, */
const WALKED_TIMES = 2
/** and at most so many, in 0.2 s. */
const MOST_WALKED = 100_000
/** For more rows than that the grants are read once, into a set; for fewer each row is looked up in them. */
const FEW_WALKED = 5000
/** As many accessible rows are sorted in 0.1 s. */
const SORTED_ACCESSIBLE = 30_000

export type FoundPage = { total: number; keys: readonly number[] }

export async function findPageKeys(db: Queryable, listed: Listed, query: PageQuery): Promise<FoundPage> {
  const shown = await countAccessible(listed)
  if (shown.length === 0) return { total: 0, keys: [] }
  const statements = new ListingStatements(listed, shown, query)
  const isFiltered = listed.filters.conditions.length > 0 || shown.some(({ rows }) => rows.isNarrowed)
  if (isFiltered && query.only_total !== true && statements.isFoundSoon) {
    const few = await firstRow(db, statements.sorted(FEW_ROWS))
    if (few.total <= FEW_ROWS) return { total: few.total, keys: keysOf(few) }
  }
  const total = isFiltered
    ? (await firstRow(db, statements.total())).total
    : await countUnfiltered(db, listed, shown, query)
  if (query.only_total === true || total <= query.offset) return { total, keys: [] }
  return { total, keys: await findPage(db, listed, { shown, statements, isFiltered, total }, query) }
}

type Counted = { shown: readonly CountedRows[]; statements: ListingStatements; isFiltered: boolean; total: number }

async function findPage(
  db: Queryable,
  { type }: Listed,
  { shown, statements, isFiltered, total }: Counted,
  query: PageQuery,
): Promise<readonly number[]> {
  const { offset, limit } = query
  const inOrder = async () => keysOf(await firstRow(db, statements.inOrder()))
  const sorted = async () => keysOf(await firstRow(db, statements.sorted()))
  const isWhole = !isFiltered && shown.every(({ accessible }) => accessible === undefined)
  if (isWhole || (!isFiltered && shown.length > 1)) return await inOrder()
  if (!isFiltered && total <= FEW_ACCESSIBLE) return await sorted()
  const domainKeys = shown.map(({ rows }) => rows.domain.domainKey)
  const size = await countStored(db, type, domainKeys, undefined)
  const expected = ((offset + limit) * size) / total
  if (shown.length > 1) return expected * shown.length <= MOST_WALKED ? await inOrder() : await sorted()
  const most = Math.ceil(Math.max(LEAST_WALKED, WALKED_TIMES * expected))
  if (most <= MOST_WALKED) {
    const keys = keysOf(await firstRow(db, statements.walk(most, most <= FEW_WALKED ? 'row' : 'set')))
    if (keys.length >= Math.min(limit, total - offset)) return keys
  }
  // An index alone says of each row whether it is accessible, so that to read it to its end is sooner done than to sort many.
  return !isFiltered && total > SORTED_ACCESSIBLE ? await inOrder() : await sorted()
}

/** How much of each domain is accessible; what has nothing to show is left out. */
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
  const ofWholes = wholes.length === 0 ? 0 : await countStored(db, type, wholes, asked)
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

const keysOf = ({ keys }: FoundKeys): readonly number[] => JSON.parse(keys ?? '[]') as number[]
