/** The entities of one type and domain on which a user may do something: as a condition, as rows, and how many they are. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { ENTITY_TABLES } from './entities.ts'
import type { EntityFacts } from './holdings.ts'
import type { ReachPlan } from './reachable.ts'

/** How many entities there are of each status. */
export type StatusCounts = ReadonlyMap<string, number>

/** A table of `key` and `status`, each entity once. */
export type AccessibleRows = Sql<{ key: number; status: string }>

type AccessibleParts = {
  db: Queryable
  type: EntityFacts['type']
  domainKey: number
  /** That a row of the table `alias` is among them. */
  isAmong: (alias: string, plan: ReachPlan) => Sql<boolean>
  /** Undefined: every entity of the type in the domain. */
  rows: AccessibleRows | undefined
  /** Remembers a count for as long as nothing changes in the domain. */
  remember: (count: () => Promise<StatusCounts>) => Promise<StatusCounts>
}

export class Accessible {
  readonly #parts: AccessibleParts

  constructor(parts: AccessibleParts) {
    this.#parts = parts
  }

  /** Every entity of the type in the domain. */
  get isWhole(): boolean {
    return this.#parts.rows === undefined
  }

  /** Undefined where it is the whole domain. */
  get rows(): AccessibleRows | undefined {
    return this.#parts.rows
  }

  /** That a row of the table `alias` is among them; `row` is the better plan where few rows are looked at. */
  isAmong(alias: string, plan: ReachPlan): Sql<boolean> {
    return this.#parts.isAmong(alias, plan)
  }

  /** How many there are, from memory while nothing changed in the domain. Undefined where it is the whole domain. */
  async count(): Promise<StatusCounts | undefined> {
    const { db, rows, remember } = this.#parts
    if (rows === undefined) return undefined
    return await remember(async () => {
      const counted = await sql<{ status: string; amount: number }>`
        SELECT status, count(*) AS amount FROM ${rows} accessible GROUP BY status`.execute(db)
      return new Map(counted.rows.map(({ status, amount }) => [status, amount]))
    })
  }

  /** Those of them that have one of these keys. */
  only(keys: readonly number[]): Accessible {
    const { db, type, domainKey, isAmong, rows } = this.#parts
    const isNamed = (alias: string) => sql<boolean>`${sql.ref(`${alias}.key`)} = ANY (${keys}::bigint[])`
    const all =
      rows ?? sql`(SELECT key, status FROM ${sql.table(ENTITY_TABLES[type].table)} WHERE domain_key = ${domainKey})`
    return new Accessible({
      db,
      type,
      domainKey,
      isAmong: (alias, plan) => sql<boolean>`(${isAmong(alias, plan)} AND ${isNamed(alias)})`,
      rows: sql`(SELECT one.key, one.status FROM ${all} one WHERE ${isNamed('one')})`,
      // A token names few of them.
      remember: (count) => count(),
    })
  }
}
