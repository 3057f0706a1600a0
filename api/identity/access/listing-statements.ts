/** The statements by which a listing of clients, channels or groups is counted and its pages are found (docs/query-plans.md). */
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { allOf, inOrder, orderedBy, partsByName } from '../wire/index.ts'
import { ENTITY_TABLES } from './entities.ts'
import type { LabelFilter } from './kept-labels.ts'
import type { EntityFacts } from './policy.ts'
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
  filters: readonly Sql<boolean>[]
  /** The same as the filters, where these ask for short parts of names and for tags alone. */
  labels?: Omit<LabelFilter, 'status'> | undefined
}

/** A listing of at most so many rows is sorted once for its far pages. */
export const MAX_SORTED = 30_000
/** So many rows are looked at before the page is found in another way, and so many more for each row that is wanted. */
const LEAST_WALKED = 400
const WALKED_PER_ROW = 10
/** Where they are only held against roles: what is reached by keys lies far apart, and all of it takes 200 ms to sort. */
const KNOWN_WALKED_PER_ROW = 60
/** Where it is known how many there are among how many, so many times as many as should be enough, within a bound. */
const WALKED_TIMES = 2
const MOST_WALKED = 3000
/** In a listing of several domains what matches of a domain is looked up by key, and of all that are shown whole at once, if it is not more than this. */
const FEW_OF_SEVERAL = 5000

type Condition = Sql<boolean>
type Direction = 'asc' | 'desc'
type Plan = 'page' | 'count'

export type Listing = ReturnType<typeof createListing>

/** The statements of a listing; of what there is nothing of by these totals they say nothing. */
export function createListing(listed: Listed, { order, status }: PageQuery, totals?: readonly number[]) {
  const { type, alias, filters } = listed
  const isSeveral = listed.shown.length > 1
  /** What is counted: all domains that are shown whole, then each of the others. */
  const allWholes = isSeveral ? listed.shown.filter(({ isWhole }) => isWhole) : []
  const eachOther = isSeveral ? listed.shown.filter(({ isWhole }) => !isWhole) : listed.shown
  const [ofWholes, ...ofOthers] = allWholes.length === 0 ? [undefined, ...(totals ?? [])] : (totals ?? [])
  const counted = new Map(eachOther.map((rows, index) => [rows, ofOthers[index]]))
  const others = eachOther.filter((rows) => counted.get(rows) !== 0)
  const wholes = ofWholes === 0 ? [] : allWholes
  const shown = [...wholes, ...others]

  const table = sql`${sql.table(ENTITY_TABLES[type].table)} ${sql.ref(alias)}`
  const key = sql.ref(`${alias}.key`)
  const domainKey = sql.ref(`${alias}.domain_key`)
  const hasStatus: Condition[] =
    status === undefined || status === 'all' ? [] : [sql<boolean>`${sql.ref(`${alias}.status`)} = ${status}`]
  const columns = orderedBy(alias, order)
  /** What a row is sorted by, by name: only so PostgreSQL sees that the rows of a subquery come in order. */
  const nameOf = (index: number) => `sorted_${index}`
  const named = (sortedBy: typeof columns) =>
    sql.join(sortedBy.map((column, index) => sql`${column} AS ${sql.ref(nameOf(index))}`))
  const byNames = (dir: Direction) =>
    inOrder(
      columns.map((_, index) => sql.ref(`${alias}.${nameOf(index)}`)),
      dir,
    )
  const [only, ...more] = shown
  const isOne = only !== undefined && more.length === 0
  /** The keys of all that a domain has to show. */
  const knownOf = ({ known }: ShownRows) => (filters.length === 0 ? known : undefined)
  const known = isOne ? knownOf(only) : undefined
  const wholeKeys = isOne ? [] : wholes.map(({ domain }) => domain.domainKey)
  /** By a tag that one in a thousand bears each domain would be looked through for it: 260 ms for a hundred of them. */
  const areFewOfWholes = (ofWholes ?? Infinity) <= FEW_OF_SEVERAL
  const inDomain = ({ domain }: ShownRows) => sql<boolean>`${domainKey} = ${domain.domainKey}`
  /** What rows of a domain that is shown whole must say, and those of another one. */
  const ofWhole = (isIn: Condition) => allOf([isIn, ...hasStatus, ...filters])
  // Filters first: most rows are not asked for, and to be held against the reach takes longer.
  const ofOther = (rows: ShownRows, plan: Plan) => allOf([inDomain(rows), ...hasStatus, ...filters, rows[plan]])
  /**
   * The rows of another one to count by. Of a large reach the filters are done with first: PostgreSQL held every row of the domain
   * against it, also where three rows were connected to a channel.
   */
  const ofReach = (rows: ShownRows) =>
    filters.length === 0 || rows.reached === undefined
      ? sql`${table} WHERE ${ofOther(rows, 'count')}`
      : sql`(SELECT * FROM ${table} WHERE ${ofWhole(inDomain(rows))} OFFSET 0) ${sql.ref(alias)} WHERE ${rows.count}`
  const planOf = (rows: ShownRows, plan: Plan) =>
    isSeveral && (counted.get(rows) ?? Infinity) <= FEW_OF_SEVERAL ? 'count' : plan

  /** The row itself and what comes after it. */
  function isFrom(anchor: number, dir: Direction, sortedBy: typeof columns): Condition {
    const at = columns.map((column) => sql`(SELECT ${column} FROM ${table} WHERE ${key} = ${anchor})`)
    return sql<boolean>`(${sql.join(sortedBy)}) ${dir === 'asc' ? sql`>=` : sql`<=`} (${sql.join(at)})`
  }

  /** By name a table is two parts, each with an index that has all that a page is found by. */
  const tableParts =
    order === 'name'
      ? partsByName(alias).map(({ isIn, columns }) => ({ isIn: [isIn], columns }))
      : [{ isIn: [], columns }]

  /** The rows that say so in order, of each part of the table at most so many. */
  function partsOf(
    condition: Condition,
    dir: Direction,
    { most, anchor }: { most?: number; anchor?: number },
    from = table,
  ) {
    return tableParts.map(({ isIn, columns: sortedBy }) => {
      const behind = anchor === undefined ? [] : [isFrom(anchor, dir, sortedBy)]
      return sql`(SELECT ${key}, ${named(sortedBy)} FROM ${from} WHERE ${allOf([...isIn, condition, ...behind])}
        ORDER BY ${inOrder(sortedBy, dir)} ${most === undefined ? sql`` : sql`LIMIT ${most}`})`
    })
  }

  /**
   * The rows of all domains in order, of each at most so many. `isMerged`: read from all of them in turn, as far as is wanted, which takes
   * longer to plan than to read the first ones of each.
   */
  function ordered(plan: Plan, dir: Direction, slice: { most?: number; anchor?: number; isMerged?: boolean }) {
    const wholesInTurn = areFewOfWholes
      ? [ofWhole(sql<boolean>`${domainKey} = ANY (${wholeKeys}::bigint[])`)]
      : wholeKeys.map((at) => ofWhole(sql<boolean>`${domainKey} = ${at}`))
    const areInTurn = wholeKeys.length > 0 && (areFewOfWholes || slice.isMerged === true)
    const ofOthers = (isOne ? shown : others).flatMap((rows) => {
      const way = planOf(rows, plan)
      const condition = ofOther(rows, way)
      // Left to itself PostgreSQL looks at row after row of the domain, however few of them are reached: 350 ms for 300 of 1,000.
      if (slice.isMerged === true && rows.isByKeys && way === 'count')
        return partsOf(
          sql<boolean>`true`,
          dir,
          slice,
          sql`(SELECT * FROM ${table} WHERE ${condition} OFFSET 0) ${sql.ref(alias)}`,
        )
      return partsOf(condition, dir, slice)
    })
    const ofEntered = partsOf(ofWhole(sql<boolean>`${domainKey} = entered.key`), dir, slice)
    const whole = ofEntered.map(
      (part) => sql`SELECT part.* FROM unnest(${wholeKeys}::bigint[]) entered (key) CROSS JOIN LATERAL ${part} part`,
    )
    const parts = [
      ...(wholeKeys.length === 0 || areInTurn ? [] : whole),
      ...(areInTurn ? wholesInTurn : []).flatMap((condition) => partsOf(condition, dir, slice)),
      ...ofOthers,
    ]
    return sql`(${sql.join(parts, sql` UNION ALL `)}) ${sql.ref(alias)}`
  }

  function sorted(plan: Plan, dir: Direction, offset: number, limit: number, isMerged = false): Sql<{ key: number }> {
    const slice = sql`OFFSET ${offset} LIMIT ${limit}`
    // Of all that is known each row is opened once, also where a table is two parts.
    if (isOne && (order !== 'name' || (known?.size ?? Infinity) <= offset + limit))
      return sql`SELECT ${key} FROM ${table} WHERE ${ofOther(only, plan)} ORDER BY ${inOrder(columns, dir)} ${slice}`
    return sql`SELECT ${key} FROM ${ordered(plan, dir, { most: offset + limit, isMerged })} ORDER BY ${byNames(dir)} ${slice}`
  }

  return {
    /** Whether many rows may have to be looked at until a page is full. */
    mayLieFarApart:
      isOne && (only.isWhole !== true || filters.length > 0 || (hasStatus.length > 0 && order !== 'updated_at')),
    /** Whether the total and all keys are found together: both take a look at all that is reached, or at much of the domain. */
    isSortedAtOnce:
      isOne &&
      known === undefined &&
      !only.isWhole &&
      !only.isMost &&
      (only.reached === undefined || filters.length > 0),
    /** Whether the keys of all rows are known, but not their order. */
    isKnown: known !== undefined,
    /** The total as the first key; behind it the keys, if they are not too many to be sorted. */
    counted: (dir: Direction): Sql<{ key: number }> => sql`
      WITH matched AS MATERIALIZED (SELECT ${key}, ${named(columns)} FROM ${ofReach(only as ShownRows)}),
           counted AS (SELECT count(*) AS total FROM matched)
      SELECT key FROM (
        SELECT total AS key, 0 AS place FROM counted
        UNION ALL
        SELECT key, row_number() OVER (ORDER BY ${byNames(dir)}) FROM matched ${sql.ref(alias)}
         WHERE (SELECT total FROM counted) <= ${MAX_SORTED}) listed ORDER BY place`,
    /** These keys in order, as far as they are there. */
    inOrder: (keys: readonly number[], dir: Direction): Sql<{ key: number }> =>
      sql`SELECT ${key} FROM ${table} WHERE ${key} = ANY (${`{${keys.join(',')}}`}::bigint[]) ORDER BY ${inOrder(columns, dir)}`,
    /** Whether the first rows are those of one index. */
    isIndexed: isOne && only.isWhole && filters.length === 0,
    /** Those that have rows to show. */
    domains: shown.length,
    count(): Sql<{ totals: number[] }> {
      const ofOthers = eachOther.map((rows) => {
        const keys = knownOf(rows)?.keys
        if (keys !== undefined) return sql`cardinality(${keys}::bigint[])`
        return rows.reached === undefined || filters.length > 0
          ? sql`(SELECT count(*) FROM ${ofReach(rows)})`
          : sql`(SELECT count(*) FROM ${rows.reached.table} ${sql.ref(alias)} WHERE ${allOf([...hasStatus, rows.reached.count])})`
      })
      const isWhole = ofWhole(
        sql<boolean>`${domainKey} = ANY (${wholes.map(({ domain }) => domain.domainKey)}::bigint[])`,
      )
      const counts = [
        ...(wholes.length === 0 ? [] : [sql`(SELECT count(*) FROM ${table} WHERE ${isWhole})`]),
        ...ofOthers,
      ]
      return counts.length === 0
        ? sql`SELECT '{}'::int[] AS totals`
        : sql`SELECT ARRAY[${sql.join(counts)}]::int[] AS totals`
    },
    first: (most: number, dir: Direction) => sorted('count', dir, 0, most, filters.length > 0),
    near: (dir: Direction, offset: number, limit: number) => sorted('page', dir, offset, limit),
    far: (dir: Direction, offset: number, limit: number) => sorted('count', dir, offset, limit, true),
    /** The page if the first rows of the domain have all of it, otherwise less. `matching`: which part of the rows does, where it is known. */
    walk(dir: Direction, offset: number, limit: number, matching = 1): Sql<{ key: number }> {
      // What the index of the order has in front; the rest is asked of each row.
      const isInFront = order === 'updated_at'
      const rows = only as ShownRows
      const expected = Math.min(MOST_WALKED, (WALKED_TIMES * (offset + limit)) / matching)
      const perRow = known === undefined ? WALKED_PER_ROW : KNOWN_WALKED_PER_ROW
      const most = Math.max(LEAST_WALKED + perRow * (offset + limit), Math.ceil(expected))
      const parts = tableParts.map(
        ({ isIn, columns: sortedBy }) => sql`(SELECT *, ${named(sortedBy)} FROM ${table}
          WHERE ${allOf([inDomain(rows), ...isIn, ...(isInFront ? hasStatus : [])])}
          ORDER BY ${inOrder(sortedBy, dir)} LIMIT ${most})`,
      )
      return sql`SELECT ${key} FROM (
          SELECT * FROM (${sql.join(parts, sql` UNION ALL `)}) ${sql.ref(alias)} ORDER BY ${byNames(dir)} LIMIT ${most}) ${sql.ref(alias)}
        WHERE ${allOf([...(isInFront ? [] : hasStatus), ...filters, rows.page])} ORDER BY ${byNames(dir)} OFFSET ${offset} LIMIT ${limit}`
    },
    /** The keys of the rows at 0, `distance`, twice that and so on. */
    anchors: (dir: Direction, distance: number): Sql<{ key: number }> => sql`SELECT key FROM (
        SELECT ${key}, row_number() OVER (ORDER BY ${byNames(dir)}) - 1 AS place FROM ${ordered('count', dir, {})}) ranked
      WHERE place % ${distance} = 0 ORDER BY place`,
    /** A page that begins `offset` rows behind the row `anchor`. */
    from: (anchor: number, dir: Direction, offset: number, limit: number): Sql<{ key: number }> =>
      sql`SELECT ${key} FROM ${ordered('page', dir, { most: offset + limit, anchor })} ORDER BY ${byNames(dir)}
        OFFSET ${offset} LIMIT ${limit}`,
  }
}
