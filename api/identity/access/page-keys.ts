/**
 * The keys of one page of a listing of clients, channels or groups, and how many rows there are, found in the way that the
 * sizes ask for (docs/query-plans.md).
 */
import { sql } from 'kysely'
import type { RawBuilder, SqlBool } from 'kysely'
import type { Queryable } from '#core/database/index.ts'
import { allOf, anyOf, orderOf, orderedBy } from '../wire/index.ts'
import { ENTITY_TABLES } from './entities.ts'
import type { AccessPolicy, EntityFacts } from './policy.ts'
import type { ShownRows } from './shown-rows.ts'

export type PageQuery = {
  order: string
  dir?: 'asc' | 'desc'
  offset: number
  limit: number
  only_total?: boolean
  status?: string
}

export type Listed = {
  type: EntityFacts['type']
  /** What the table is called in the conditions. */
  alias: string
  shown: readonly ShownRows[]
  /** What the records themselves must say, beside the status. */
  filters: readonly RawBuilder<SqlBool>[]
}

/** A listing of at most so many rows is sorted once for its far pages. */
const MAX_SORTED = 30_000
/** One of at most so many rows is sorted at once. */
const FEW_ROWS = 2000
/** A page so far behind the first is found among all that are reached, a nearer one by looking at row after row. */
const FAR_OFFSET = 200
/** So many rows are looked at before the page is found in another way, and so many more for each row that is wanted. */
const LEAST_WALKED = 400
const WALKED_PER_ROW = 10
/** The first keys of a large listing whose rows lie far behind others. */
const HEAD = 2000
/** Every so many rows one is remembered to begin from, where a page is farther from both ends. */
const ANCHOR_DISTANCE = 1000
const ANCHORED_FROM = 20_000

type Condition = RawBuilder<SqlBool>
type Direction = 'asc' | 'desc'

export async function findPageKeys(
  { db, access }: { db: Queryable; access: AccessPolicy },
  listed: Listed,
  query: PageQuery,
): Promise<{ total: number; keys: readonly number[] }> {
  const { dir = 'asc', offset, limit } = query
  const domains = listed.shown.map(({ domain }) => domain)
  const listing = createListing(listed, query)
  const total = await access.total(domains, listing.count())
  if (query.only_total === true || total <= offset) return { total, keys: [] }
  const wanted = Math.min(limit, total - offset)
  const keysOf = async (statement: RawBuilder<{ key: number }>) =>
    (await statement.execute(db)).rows.map(({ key }) => key)

  const isSmall = total <= MAX_SORTED
  const first = access.keys(domains, listing.sorted(isSmall ? MAX_SORTED : HEAD, dir))
  const isFar = offset > FAR_OFFSET
  const isAmongFirst = isSmall || offset + limit <= HEAD
  const remembered = isAmongFirst ? first.remembered() : undefined
  if (remembered !== undefined) return { total, keys: remembered.slice(offset, offset + limit) }
  if (total <= FEW_ROWS || (isSmall && isFar))
    return { total, keys: (await first.find()).slice(offset, offset + limit) }

  if (!isFar) {
    if (!listing.mayLieFarApart) return { total, keys: await keysOf(listing.page('page', dir, offset, limit)) }
    const found = await keysOf(listing.walk(dir, offset, limit))
    if (found.length >= wanted) return { total, keys: found }
    return { total, keys: (await first.find()).slice(offset, offset + limit) }
  }

  const isBackwards = isNearerToEnd(query, total)
  const distance = isBackwards ? Math.max(0, total - offset - limit) : offset
  if (distance > (listing.mayLieFarApart ? FAR_OFFSET : ANCHORED_FROM) && domains.length === 1) {
    const anchors = access.keys(domains, listing.anchors(dir))
    const anchor = anchors.remembered()?.[Math.floor(offset / ANCHOR_DISTANCE)]
    if (anchor !== undefined) {
      const keys = await keysOf(listing.from(anchor, dir, offset % ANCHOR_DISTANCE, limit))
      if (keys.length >= wanted) return { total, keys }
    } else if (anchors.isAskedAgain()) {
      // For the pages that follow; whoever asks now does not wait for them.
      anchors.find().catch(() => undefined)
    }
  }
  const direction = isBackwards === (dir === 'asc') ? 'desc' : 'asc'
  const keys = await keysOf(listing.page('count', direction, distance, isBackwards ? wanted : limit))
  return { total, keys: isBackwards ? keys.toReversed() : keys }
}

/**
 * Whether a page is found sooner from the last row. Rows that came since the total was counted would shift it, which nobody
 * who pages by creation may see (decision 58): there new rows come last, and pages are counted from the first.
 */
function isNearerToEnd({ order, dir, offset }: PageQuery, total: number): boolean {
  return offset > total / 2 && !(order === 'created_at' && dir !== 'desc')
}

/** The statements of a listing. */
function createListing({ type, alias, shown, filters }: Listed, { order, status }: PageQuery) {
  const table = sql`${sql.table(ENTITY_TABLES[type].table)} ${sql.ref(alias)}`
  const key = sql.ref(`${alias}.key`)
  const domainKey = sql.ref(`${alias}.domain_key`)
  const hasStatus: Condition[] =
    status === undefined || status === 'all' ? [] : [sql<SqlBool>`${sql.ref(`${alias}.status`)} = ${status}`]
  const sortedBy = (dir: Direction) => orderOf(alias, order, dir)
  const sortedAs = orderedBy(alias, order).map((column, index) => ({ column, name: `sorted_${index}` }))
  /** What a row is sorted by, by name: only so PostgreSQL sees that the rows of a subquery come in order. */
  const sortedColumns = sql.join(sortedAs.map(({ column, name }) => sql`${column} AS ${sql.ref(name)}`))
  const inOrder = (dir: Direction) =>
    sql.join(sortedAs.map(({ name }) => sql`${sql.ref(`${alias}.${name}`)} ${dir === 'asc' ? sql`ASC` : sql`DESC`}`))
  const [only, ...more] = shown
  const isOne = only !== undefined && more.length === 0
  const wholeKeys = isOne ? [] : shown.filter(({ isWhole }) => isWhole).map(({ domain }) => domain.domainKey)
  const inDomain = ({ domain }: ShownRows) => sql<SqlBool>`${domainKey} = ${domain.domainKey}`
  const others = isOne ? shown : shown.filter(({ isWhole }) => !isWhole)
  /** What rows of a domain that is shown whole must say, and those of another one. */
  const ofWhole = (isIn: Condition) => allOf([isIn, ...hasStatus, ...filters])
  const ofOther = (rows: ShownRows, plan: 'page' | 'count') =>
    allOf([inDomain(rows), ...hasStatus, rows[plan], ...filters])
  /** What each part of the listing says: every domain that is shown whole, then each of the others. */
  const conditions = (plan: 'page' | 'count') => [
    ...(wholeKeys.length === 0 ? [] : [ofWhole(sql<SqlBool>`${domainKey} = ANY (${wholeKeys}::bigint[])`)]),
    ...others.map((rows) => ofOther(rows, plan)),
  ]

  /** Of several domains each gives as many as the page may need of it. */
  function merged(plan: 'page' | 'count', dir: Direction, offset: number, limit: number): RawBuilder<{ key: number }> {
    const part = (condition: Condition) =>
      sql`SELECT ${key}, ${sortedColumns} FROM ${table} WHERE ${condition} ORDER BY ${sortedBy(dir)} LIMIT ${offset + limit}`
    const whole = sql`SELECT part.* FROM unnest(${wholeKeys}::bigint[]) entered (key)
      CROSS JOIN LATERAL (${part(ofWhole(sql<SqlBool>`${domainKey} = entered.key`))}) part`
    const parts = [
      ...(wholeKeys.length === 0 ? [] : [whole]),
      ...others.map((rows) => sql`(${part(ofOther(rows, plan))})`),
    ]
    return sql`SELECT ${key} FROM (${sql.join(parts, sql` UNION ALL `)}) ${sql.ref(alias)}
      ORDER BY ${inOrder(dir)} OFFSET ${offset} LIMIT ${limit}`
  }

  function page(plan: 'page' | 'count', dir: Direction, offset: number, limit: number): RawBuilder<{ key: number }> {
    if (shown.length > 1) return merged(plan, dir, offset, limit)
    return sql`SELECT ${key} FROM ${table} WHERE ${anyOf(conditions(plan))} ORDER BY ${sortedBy(dir)} OFFSET ${offset} LIMIT ${limit}`
  }

  return {
    /** Whether many rows may have to be looked at until a page is full. */
    mayLieFarApart:
      isOne && (only.isWhole !== true || filters.length > 0 || (hasStatus.length > 0 && order !== 'updated_at')),
    count: (): RawBuilder<{ total: number }> => {
      const counts = conditions('count').map((condition) => sql`(SELECT count(*) FROM ${table} WHERE ${condition})`)
      return counts.length === 0 ? sql`SELECT 0 AS total` : sql`SELECT ${sql.join(counts, sql` + `)} AS total`
    },
    sorted: (most: number, dir: Direction) => page('count', dir, 0, most),
    page,
    /** The page if the first rows of the domain have all of it, otherwise less. */
    walk(dir: Direction, offset: number, limit: number): RawBuilder<{ key: number }> {
      // What the index of the order has in front; the rest is asked of each row.
      const isInFront = order === 'updated_at'
      const rows = only as ShownRows
      return sql`SELECT ${key} FROM (
          SELECT *, ${sortedColumns} FROM ${table} WHERE ${allOf([inDomain(rows), ...(isInFront ? hasStatus : [])])}
           ORDER BY ${sortedBy(dir)} LIMIT ${LEAST_WALKED + WALKED_PER_ROW * (offset + limit)}) ${sql.ref(alias)}
        WHERE ${allOf([...(isInFront ? [] : hasStatus), rows.page, ...filters])} ORDER BY ${inOrder(dir)} OFFSET ${offset} LIMIT ${limit}`
    },
    /** The keys of the rows at 0, `ANCHOR_DISTANCE`, twice that and so on. */
    anchors: (dir: Direction): RawBuilder<{ key: number }> => sql`SELECT key FROM (
        SELECT ${key}, row_number() OVER (ORDER BY ${sortedBy(dir)}) - 1 AS place FROM ${table} WHERE ${anyOf(conditions('count'))}) ranked
      WHERE place % ${ANCHOR_DISTANCE} = 0 ORDER BY place`,
    /** A page that begins `offset` rows behind the row `anchor`. */
    from(anchor: number, dir: Direction, offset: number, limit: number): RawBuilder<{ key: number }> {
      const columns = sortedAs.map(({ column }) => column)
      const at = columns.map((column) => sql`(SELECT ${column} FROM ${table} WHERE ${key} = ${anchor})`)
      const isBehind = sql<SqlBool>`(${sql.join(columns)}) ${dir === 'asc' ? sql`>=` : sql`<=`} (${sql.join(at)})`
      return sql`SELECT ${key} FROM ${table} WHERE ${allOf([isBehind, anyOf(conditions('page'))])}
        ORDER BY ${sortedBy(dir)} OFFSET ${offset} LIMIT ${limit}`
    },
  }
}
