/**
 * The entities of one type and domain on which a user may perform an action: as a condition, as rows, and as counts.
 */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { ENTITY_TABLES } from './entities.ts'
import type { EntityFacts } from './effective-actions.ts'
import { columnsOf } from './reachable.ts'
import type { Columns, GrantsPlan } from './reachable.ts'

/** Number of entities for each status. */
export type StatusCounts = ReadonlyMap<string, number>

/** A table of these columns with one row for each entity. */
export type AccessibleRows = (columns: Columns) => Sql<unknown>

type AccessibleParts = {
  db: Queryable
  type: EntityFacts['type']
  domainKey: number
  /** Condition: a row of the table `alias` is one of these entities. */
  isAmong: (alias: string, plan: GrantsPlan) => Sql<boolean>
  /** Undefined when it is every entity of the type in the domain. */
  rows: AccessibleRows | undefined
  /** Caches a count until the next change in the domain. */
  remember: (count: () => Promise<StatusCounts>) => Promise<StatusCounts>
}

export class Accessible {
  readonly #parts: AccessibleParts

  constructor(parts: AccessibleParts) {
    this.#parts = parts
  }

  /** True when it is every entity of the type in the domain. */
  get isWhole(): boolean {
    return this.#parts.rows === undefined
  }

  /** Undefined when it is every entity of the domain. */
  get rows(): AccessibleRows | undefined {
    return this.#parts.rows
  }

  /** Condition: a row of the table `alias` is one of these entities. `row` is the better plan for few rows. */
  isAmong(alias: string, plan: GrantsPlan): Sql<boolean> {
    return this.#parts.isAmong(alias, plan)
  }

  /**
   * Returns the counts, from the cache until the next change in the domain. Undefined when it is every entity of the
   * domain.
   */
  async count(): Promise<StatusCounts | undefined> {
    const { db, rows, remember } = this.#parts
    if (rows === undefined) return undefined
    return await remember(async () => {
      const counted = await sql<{ status: string; amount: number }>`
        SELECT status, count(*) AS amount FROM ${rows(['key', 'status'])} accessible GROUP BY status`.execute(db)
      return new Map(counted.rows.map(({ status, amount }) => [status, amount]))
    })
  }

  /** Returns the entities that also have one of these keys. */
  only(keys: readonly number[]): Accessible {
    const { db, type, domainKey, isAmong, rows } = this.#parts
    const isNamed = (alias: string) => sql<boolean>`${sql.ref(`${alias}.key`)} = ANY (${keys}::bigint[])`
    const all: AccessibleRows =
      rows ??
      ((columns) =>
        sql`(SELECT ${columnsOf('e', columns)} FROM ${sql.table(ENTITY_TABLES[type].table)} e WHERE e.domain_key = ${domainKey})`)
    return new Accessible({
      db,
      type,
      domainKey,
      isAmong: (alias, plan) => sql<boolean>`(${isAmong(alias, plan)} AND ${isNamed(alias)})`,
      rows: (columns) => sql`(SELECT one.* FROM ${all(columns)} one WHERE ${isNamed('one')})`,
      // A token selects few entities, so counting them is cheap.
      remember: (count) => count(),
    })
  }
}
