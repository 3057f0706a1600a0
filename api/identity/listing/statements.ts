/** The statements by which a listing of clients, channels or groups is counted and its pages are found (docs/query-plans.md). */
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { ENTITY_TABLES } from '../access/index.ts'
import type { EntityFacts, ReachPlan } from '../access/index.ts'
import { allOf, inOrder, orderedBy, partsByName } from './conditions.ts'
import type { ShownRows } from './shown-rows.ts'

export type PageQuery = {
  order: string
  dir?: 'asc' | 'desc'
  offset: number
  limit: number
  only_total?: boolean
  /** `all`, or one. */
  status?: string
}

export type Listed = {
  type: EntityFacts['type']
  /** What the table is called in the conditions. */
  alias: string
  shown: readonly ShownRows[]
  filters: Filters
}

/** What the records themselves must say, beside the status, and whether an index finds those that do. */
export type Filters = { conditions: readonly Sql<boolean>[]; isIndexed: boolean }

/** Keys of a page in their order as a text of JSON; null: none. As rows twenty thousand take the driver 20 ms. */
export type FoundKeys = { keys: string | null }

/** A domain of which so many entities or fewer are accessible is read from the grants on, where no index finds what is asked for. */
const FEW_ACCESSIBLE = 30_000
/** Where an index finds it. */
const FEW_BESIDE_INDEX = 2000

/** Rows of one domain that may have something to show. `accessible`: how many of them there are; undefined: the whole domain. */
export type CountedRows = { rows: ShownRows; accessible: number | undefined }

export class ListingStatements {
  readonly #filters: Filters
  readonly #shown: readonly CountedRows[]
  readonly #query: PageQuery
  readonly #dir: 'asc' | 'desc'
  readonly #alias: string
  readonly #table: Sql<unknown>
  readonly #entities: Sql<unknown>
  readonly #key: Sql<unknown>
  readonly #columns: readonly Sql<unknown>[]
  readonly #hasStatus: readonly Sql<boolean>[]

  constructor({ type, alias, filters }: Listed, shown: readonly CountedRows[], query: PageQuery) {
    const { status, order, dir = 'asc' } = query
    this.#filters = filters
    this.#shown = shown
    this.#query = query
    this.#dir = dir
    this.#alias = alias
    this.#entities = sql.table(ENTITY_TABLES[type].table)
    this.#table = sql`${this.#entities} ${sql.ref(alias)}`
    this.#key = sql.ref(`${alias}.key`)
    this.#columns = orderedBy(alias, order)
    this.#hasStatus =
      status === undefined || status === 'all' ? [] : [sql<boolean>`${sql.ref(`${alias}.status`)} = ${status}`]
  }

  /** Whether what matches is found without a look at every row of a domain. */
  get isFoundSoon(): boolean {
    return this.#filters.isIndexed || this.#shown.every((counted) => this.#isReadFromGrants(counted))
  }

  /** Read by several processes where every row of a domain is looked at. */
  total(): Sql<{ total: number }> {
    const counts = this.#sources().map((source) => sql`(SELECT count(*) FROM ${source})`)
    return sql<{ total: number }>`SELECT ${sql.join(counts, sql` + `)} AS total`
  }

  /**
   * How many rows there are and the keys of the page, by looking at all that matches. `most`: the look ends with one row more than that, and
   * the page means nothing then.
   */
  sorted(most?: number): Sql<FoundKeys & { total: number }> {
    const { offset, limit } = this.#query
    const parts = this.#sources().map((source) => sql`SELECT ${this.#key}, ${this.#named()} FROM ${source}`)
    const bound = most === undefined ? sql`` : sql`LIMIT ${most + 1}`
    return sql<FoundKeys & { total: number }>`
      WITH matched AS MATERIALIZED (SELECT * FROM (${sql.join(parts, sql` UNION ALL `)}) every ${bound})
      SELECT (SELECT count(*) FROM matched) AS total, (SELECT json_agg(key)::text FROM (
        SELECT ${this.#key} FROM matched ${sql.ref(this.#alias)} ORDER BY ${this.#byNames()} OFFSET ${offset} LIMIT ${limit}) page) AS keys`
  }

  /**
   * The page as far as the first `most` rows of the one domain in the order of an index hold it: each is held against filters and
   * access, so that it ends with the last row of the page.
   */
  walk(most: number, plan: ReachPlan): Sql<FoundKeys> {
    const [{ rows }] = this.#shown as [CountedRows]
    const { order, offset, limit } = this.#query
    // What the index of the order has in front; the rest is asked of each row.
    const isInFront = order !== 'name' && order !== 'created_at'
    const parts = this.#tableParts().map(
      ({ isIn, columns }) => sql`(SELECT *, ${this.#named(columns)} FROM ${this.#table}
        WHERE ${allOf([this.#isInDomain(rows), ...isIn, ...(isInFront ? this.#hasStatus : [])])}
        ORDER BY ${inOrder(columns, this.#dir)} LIMIT ${most})`,
    )
    const asked = [...(isInFront ? [] : this.#hasStatus), ...this.#filters.conditions, ...this.#ofAccess(rows, plan)]
    return this.#found(sql`SELECT ${this.#key} FROM (
        SELECT * FROM (${sql.join(parts, UNION)}) ${sql.ref(this.#alias)} ORDER BY ${this.#byNames()} LIMIT ${most}) ${sql.ref(this.#alias)}
      WHERE ${allOf(asked)} ORDER BY ${this.#byNames()} OFFSET ${offset} LIMIT ${limit}`)
  }

  /** The page, read from each domain in the order of an index as far as it is needed. */
  inOrder(): Sql<FoundKeys> {
    const { offset, limit } = this.#query
    const most = sql`LIMIT ${offset + limit}`
    const wholes = this.#wholes()
    const [only, ...more] = wholes
    const isInWhole = (domainKey: Sql<unknown>) =>
      allOf([
        sql<boolean>`${sql.ref(`${this.#alias}.domain_key`)} = ${domainKey}`,
        ...this.#hasStatus,
        ...this.#filters.conditions,
      ])
    const ofWholes = this.#tableParts().map(({ isIn, columns }) => {
      const part = (domainKey: Sql<unknown>) => sql`(SELECT ${this.#key}, ${this.#named(columns)} FROM ${this.#table}
        WHERE ${allOf([...isIn, isInWhole(domainKey)])} ORDER BY ${inOrder(columns, this.#dir)} ${most})`
      if (more.length === 0) return part(sql`${only}`)
      return sql`(SELECT part.* FROM unnest(${wholes}::bigint[]) entered (key) CROSS JOIN LATERAL ${part(sql`entered.key`)} part)`
    })
    const ofOthers = this.#others().flatMap((counted) => {
      if (this.#isReadFromGrants(counted))
        return [
          sql`(SELECT ${this.#key}, ${this.#named()} FROM ${this.#source(counted)} ORDER BY ${this.#inOrder()} ${most})`,
        ]
      const asked = [
        this.#isInDomain(counted.rows),
        ...this.#hasStatus,
        ...this.#filters.conditions,
        ...this.#ofAccess(counted.rows, 'set'),
      ]
      return this.#tableParts().map(
        ({ isIn, columns }) => sql`(SELECT ${this.#key}, ${this.#named(columns)} FROM ${this.#table}
          WHERE ${allOf([...isIn, ...asked])} ORDER BY ${inOrder(columns, this.#dir)} ${most})`,
      )
    })
    const parts = [...(wholes.length === 0 ? [] : ofWholes), ...ofOthers]
    return this.#found(sql`SELECT ${this.#key} FROM (${sql.join(parts, UNION)}) ${sql.ref(this.#alias)}
      ORDER BY ${this.#byNames()} OFFSET ${offset} LIMIT ${limit}`)
  }

  #found(page: Sql<unknown>): Sql<FoundKeys> {
    // JSON, since PostgreSQL does that in no parts, which would come in any order.
    return sql<FoundKeys>`SELECT json_agg(key)::text AS keys FROM (${page}) page`
  }

  /** Keys of the domains of which every row is shown. */
  #wholes(): readonly number[] {
    return this.#shown
      .filter(({ rows }) => rows.accessible.isWhole && !rows.isNarrowed)
      .map(({ rows }) => rows.domain.domainKey)
  }

  #others(): readonly CountedRows[] {
    return this.#shown.filter(({ rows }) => !rows.accessible.isWhole || rows.isNarrowed)
  }

  #isInDomain({ domain }: ShownRows): Sql<boolean> {
    return sql<boolean>`${sql.ref(`${this.#alias}.domain_key`)} = ${domain.domainKey}`
  }

  #ofAccess({ accessible, narrowed }: ShownRows, plan: ReachPlan): Sql<boolean>[] {
    return [...(accessible.isWhole ? [] : [accessible.isAmong(this.#alias, plan)]), ...narrowed(plan)]
  }

  /** All rows that are listed, each once: what follows FROM, with the alias. */
  #sources(): Sql<unknown>[] {
    const wholes = this.#wholes()
    const [only, ...more] = wholes
    const domainKey = sql.ref(`${this.#alias}.domain_key`)
    const isIn =
      more.length === 0 ? sql<boolean>`${domainKey} = ${only}` : sql<boolean>`${domainKey} = ANY (${wholes}::bigint[])`
    const asked = allOf([isIn, ...this.#hasStatus, ...this.#filters.conditions])
    return [
      ...(wholes.length === 0 ? [] : [sql`${this.#table} WHERE ${asked}`]),
      ...this.#others().map((counted) => this.#source(counted)),
    ]
  }

  #isReadFromGrants({ accessible }: CountedRows): boolean {
    return accessible !== undefined && accessible <= (this.#filters.isIndexed ? FEW_BESIDE_INDEX : FEW_ACCESSIBLE)
  }

  #source(counted: CountedRows): Sql<unknown> {
    const { rows } = counted
    const { conditions } = this.#filters
    const own = rows.accessible.rows
    const alias = sql.ref(this.#alias)
    if (own !== undefined && this.#isReadFromGrants(counted)) {
      const asked = allOf([...this.#hasStatus, ...conditions, ...rows.narrowed('set')])
      // `OFFSET 0` keeps the order: from the grants to the rows by their keys, whatever PostgreSQL believes of the tables' sizes.
      return sql`(SELECT e.* FROM (SELECT key FROM ${own} own OFFSET 0) own CROSS JOIN LATERAL (
        SELECT * FROM ${this.#entities} e WHERE e.key = own.key OFFSET 0) e) ${alias} WHERE ${asked}`
    }
    const ofRecord = allOf([this.#isInDomain(rows), ...this.#hasStatus, ...conditions])
    const ofAccess = allOf(this.#ofAccess(rows, 'set'))
    // What an index finds comes first: left to itself PostgreSQL holds every row of the domain against the grants. Where none does
    // it reads all rows, in several processes, which it does of no subquery with an OFFSET.
    return !this.#filters.isIndexed
      ? sql`${this.#table} WHERE ${ofRecord} AND ${ofAccess}`
      : sql`(SELECT * FROM ${this.#table} WHERE ${ofRecord} OFFSET 0) ${alias} WHERE ${ofAccess}`
  }

  /** By name a table is two parts, each with an index that has all that a page is found by. */
  #tableParts(): { isIn: readonly Sql<boolean>[]; columns: readonly Sql<unknown>[] }[] {
    if (this.#query.order !== 'name') return [{ isIn: [], columns: this.#columns }]
    return partsByName(this.#alias).map(({ isIn, columns }) => ({ isIn: [isIn], columns }))
  }

  #inOrder(): Sql<unknown> {
    return inOrder(this.#columns, this.#dir)
  }

  /** What a row is sorted by, by name: only so PostgreSQL sees that the rows of a subquery come in order. */
  #named(columns: readonly Sql<unknown>[] = this.#columns): Sql<unknown> {
    return sql.join(columns.map((column, index) => sql`${column} AS ${sql.ref(`sorted_${index}`)}`))
  }

  #byNames(): Sql<unknown> {
    return inOrder(
      this.#columns.map((_, index) => sql.ref(`${this.#alias}.sorted_${index}`)),
      this.#dir,
    )
  }
}

const UNION = sql` UNION ALL `
