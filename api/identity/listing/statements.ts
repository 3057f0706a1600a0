/** The statements that count a listing of clients, channels or groups and find its pages (docs/query-plans.md). */
import type { Keyset, SortColumn } from '#core/database/index.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { ENTITY_TABLES } from '../access/index.ts'
import type { EntityFacts, GrantsPlan } from '../access/index.ts'
import { allOf, orderedBy, orderedFirstBy, partsByName } from './conditions.ts'
import type { ShownRows } from './shown-rows.ts'

export type PageQuery = PageRange & {
  order: string
  dir?: 'asc' | 'desc'
  only_total?: boolean
  /** `all`, or one status. */
  status?: string
  /** An order that no index has, in place of `order`: all matching rows are read and sorted. */
  sortedBy?: SortColumn
}

export type Listed = {
  type: EntityFacts['type']
  /** Alias of the table in the conditions. */
  alias: string
  shown: readonly ShownRows[]
  filters: Filters
}

/** Conditions on the columns of the records except the status. `isIndexed`: an index finds the matching rows. */
export type Filters = { conditions: readonly Sql<boolean>[]; isIndexed: boolean }

/**
 * Keys of a page in their order, each with its place, as JSON text; null for an empty page. The driver needs 20 ms for twenty
 * thousand rows.
 */
export type FoundKeys = { keys: string | null }

/**
 * Without an index on the filters, a domain with at most this number of accessible entities is read starting from the
 * grants.
 */
const FEW_ACCESSIBLE = 30_000
/** This limit applies instead when an index finds the matching rows. */
const FEW_BESIDE_INDEX = 2000

/** The listed rows of one domain. `accessible` is their number; undefined means the whole domain. */
export type CountedRows = { rows: ShownRows; accessible: number | undefined }

export class ListingStatements {
  readonly #filters: Filters
  readonly #shown: readonly CountedRows[]
  readonly #query: PageQuery
  readonly #dir: 'asc' | 'desc'
  readonly #alias: string
  readonly #table: Sql<unknown>
  readonly #key: Sql<unknown>
  readonly #keyset: Keyset
  /** The order over the columns `sorted_0` and so on. */
  readonly #sorted: Keyset
  readonly #hasStatus: readonly Sql<boolean>[]

  constructor({ type, alias, filters }: Listed, shown: readonly CountedRows[], query: PageQuery) {
    const { status, order, dir = 'asc' } = query
    this.#filters = filters
    this.#shown = shown
    this.#query = query
    this.#dir = dir
    this.#alias = alias
    this.#table = sql`${sql.table(ENTITY_TABLES[type].table)} ${sql.ref(alias)}`
    this.#key = sql.ref(`${alias}.key`)
    this.#keyset =
      query.sortedBy === undefined ? orderedBy(alias, order, dir) : orderedFirstBy(query.sortedBy, alias, dir)
    this.#sorted = this.#keyset.over((index) => sql.ref(`${alias}.sorted_${index}`))
    this.#hasStatus =
      status === undefined || status === 'all' ? [] : [sql<boolean>`${sql.ref(`${alias}.status`)} = ${status}`]
  }

  /** True when the matching rows are found without reading every row of a domain. */
  get isFoundSoon(): boolean {
    return this.#filters.isIndexed || this.#shown.every((counted) => this.#isReadFromGrants(counted))
  }

  /** PostgreSQL uses parallel workers when it reads every row of a domain. */
  total(): Sql<{ total: number }> {
    const counts = this.#sources().map((source) => sql`(SELECT count(*) FROM ${source})`)
    return sql<{ total: number }>`SELECT ${sql.join(counts, sql` + `)} AS total`
  }

  /**
   * Returns the number of rows and the keys of the page by reading all matching rows. With `most` it stops after one
   * more row than that, and then the page is not valid.
   */
  sorted(most?: number): Sql<FoundKeys & { total: number }> {
    const parts = this.#sources().map((source) => sql`SELECT ${this.#key}, ${this.#named()} FROM ${source}`)
    const bound = most === undefined ? sql`` : sql`LIMIT ${most + 1}`
    const page = sql`SELECT * FROM matched ${sql.ref(this.#alias)} WHERE ${this.#sorted.after(this.#query.cursor)} ${this.#range()}`
    return sql<FoundKeys & { total: number }>`
      WITH matched AS MATERIALIZED (SELECT * FROM (${sql.join(parts, sql` UNION ALL `)}) every ${bound})
      SELECT (SELECT count(*) FROM matched) AS total, (${this.#found(page)}) AS keys`
  }

  /**
   * Returns the page as far as the first `most` rows of the domain in index order contain it. Each row is checked
   * against filters and access, so the scan ends with the last row of the page.
   */
  walk(most: number, plan: GrantsPlan): Sql<FoundKeys> {
    const [{ rows }] = this.#shown as [CountedRows]
    const { order, cursor } = this.#query
    // The index of this sort order begins with the status. For other orders each row is checked.
    const isInFront = order !== 'name' && order !== 'created_at'
    const parts = this.#tableParts().map(
      ({ isIn, keyset }) => sql`(SELECT *, ${this.#named(keyset)} FROM ${this.#table}
        WHERE ${allOf([this.#isInDomain(rows), ...isIn, ...(isInFront ? this.#hasStatus : []), keyset.after(cursor)])}
        ORDER BY ${keyset.order} LIMIT ${most})`,
    )
    const asked = [...(isInFront ? [] : this.#hasStatus), ...this.#filters.conditions, ...this.#ofAccess(rows, plan)]
    return this.#found(sql`SELECT ${this.#key}, ${this.#named(this.#sorted)} FROM (
        SELECT * FROM (${sql.join(parts, UNION)}) ${sql.ref(this.#alias)} ORDER BY ${this.#sorted.order} LIMIT ${most}) ${sql.ref(this.#alias)}
      WHERE ${allOf(asked)} ${this.#range()}`)
  }

  /** Returns the page by reading each domain in index order as far as needed. */
  inOrder(): Sql<FoundKeys> {
    const { offset, limit, cursor } = this.#query
    const most = sql`LIMIT ${offset + limit}`
    const wholes = this.#wholes()
    const [only, ...more] = wholes
    const isInWhole = (domainKey: Sql<unknown>) =>
      allOf([
        sql<boolean>`${sql.ref(`${this.#alias}.domain_key`)} = ${domainKey}`,
        ...this.#hasStatus,
        ...this.#filters.conditions,
      ])
    const ofWholes = this.#tableParts().map(({ isIn, keyset }) => {
      const part = (domainKey: Sql<unknown>) => sql`(SELECT ${this.#key}, ${this.#named(keyset)} FROM ${this.#table}
        WHERE ${allOf([...isIn, isInWhole(domainKey), keyset.after(cursor)])} ORDER BY ${keyset.order} ${most})`
      if (more.length === 0) return part(sql`${only}`)
      return sql`(SELECT part.* FROM unnest(${wholes}::bigint[]) entered (key) CROSS JOIN LATERAL ${part(sql`entered.key`)} part)`
    })
    const ofOthers = this.#others().flatMap((counted) => {
      if (this.#isReadFromGrants(counted))
        return [
          sql`(SELECT ${this.#key}, ${this.#named()} FROM ${this.#source(counted)} AND ${this.#keyset.after(cursor)}
            ORDER BY ${this.#keyset.order} ${most})`,
        ]
      const asked = [
        this.#isInDomain(counted.rows),
        ...this.#hasStatus,
        ...this.#filters.conditions,
        ...this.#ofAccess(counted.rows, 'set'),
      ]
      return this.#tableParts().map(
        ({ isIn, keyset }) => sql`(SELECT ${this.#key}, ${this.#named(keyset)} FROM ${this.#table}
          WHERE ${allOf([...isIn, ...asked, keyset.after(cursor)])} ORDER BY ${keyset.order} ${most})`,
      )
    })
    const parts = [...(wholes.length === 0 ? [] : ofWholes), ...ofOthers]
    return this.#found(sql`SELECT * FROM (${sql.join(parts, UNION)}) ${sql.ref(this.#alias)} ${this.#range()}`)
  }

  #found(page: Sql<unknown>): Sql<FoundKeys> {
    // Aggregated as JSON, because PostgreSQL does not parallelize that. A parallel plan would not keep the order.
    return sql<FoundKeys>`SELECT json_agg(json_build_array(${this.#key}, ${this.#sorted.place}))::text AS keys
      FROM (${page}) ${sql.ref(this.#alias)}`
  }

  #range(): Sql<unknown> {
    const { offset, limit } = this.#query
    return sql`ORDER BY ${this.#sorted.order} OFFSET ${offset} LIMIT ${limit}`
  }

  /** Keys of the domains whose rows are all listed. */
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

  #ofAccess({ accessible, narrowed }: ShownRows, plan: GrantsPlan): Sql<boolean>[] {
    return [...(accessible.isWhole ? [] : [accessible.isAmong(this.#alias, plan)]), ...narrowed(plan)]
  }

  /** Sources of all listed rows, each once: the text after FROM, with the alias. */
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
      return sql`${own('all')} ${alias} WHERE ${asked}`
    }
    const ofRecord = allOf([this.#isInDomain(rows), ...this.#hasStatus, ...conditions])
    const ofAccess = allOf(this.#ofAccess(rows, 'set'))
    // The indexed filter is evaluated first. Otherwise PostgreSQL checks every row of the domain against the grants.
    // Without an indexed filter it reads all rows in parallel, which it does not do in a subquery with OFFSET.
    return !this.#filters.isIndexed
      ? sql`${this.#table} WHERE ${ofRecord} AND ${ofAccess}`
      : sql`(SELECT * FROM ${this.#table} WHERE ${ofRecord} OFFSET 0) ${alias} WHERE ${ofAccess}`
  }

  /** Sorted by name, a table has two parts, each with an index that contains all columns of the page. */
  #tableParts(): { isIn: readonly Sql<boolean>[]; keyset: Keyset }[] {
    if (this.#query.order !== 'name') return [{ isIn: [], keyset: this.#keyset }]
    return partsByName(this.#alias, this.#dir).map(({ isIn, keyset }) => ({ isIn: [isIn], keyset }))
  }

  /** The sort columns with names: only then PostgreSQL recognizes that the rows of a subquery are sorted. */
  #named(keyset: Keyset = this.#keyset): Sql<unknown> {
    return sql.join(keyset.columns.map(({ by }, index) => sql`${by} AS ${sql.ref(`sorted_${index}`)}`))
  }
}

const UNION = sql` UNION ALL `
