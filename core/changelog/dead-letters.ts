/** The selection of dead letters. These are messages that were given up, and are kept to be tried again or discarded. */
import { ServiceError, refusedField } from '../errors/index.ts'
import { sql } from '../sql.ts'
import type { Sql } from '../sql.ts'

/** One of the three is given: nothing is retried or discarded by default. */
export type LetterSelection = {
  ids?: readonly string[]
  /** All that were given up at this time (RFC 3339) or earlier. */
  until?: string
  /** Only true: false is refused. */
  all?: boolean
}

/** Bounds of a count over several sources: how many sources are read, and how many letters of each. */
export type LetterBounds = { readonly sources: number; readonly letters: number }

/**
 * A subquery that counts the letters of a source up to the bound. The table has the alias `l`, and `order` begins with the column that
 * refers to the source. The condition is a range, not an equality, so that only an index in this order serves it: when few sources have most
 * rows, the planner otherwise reads the table or another index for each source, also for those without letters.
 */
export function countLetters(
  { table, isLetter, order }: { table: Sql; isLetter: Sql; order: readonly [Sql, Sql] },
  sourceKey: Sql,
  { letters }: LetterBounds,
): Sql {
  const [source, next] = order
  return sql`(SELECT count(*) FROM (SELECT FROM ${table} l WHERE ${source} >= ${sourceKey} AND ${source} <= ${sourceKey} AND ${isLetter}
    ORDER BY ${source}, ${next} LIMIT ${letters}) counted)`
}

/** Throws `malformed` unless exactly one of the fields is given. */
export function requireSelection(selection: LetterSelection): LetterSelection {
  const given = Object.values(selection).filter((value) => value !== undefined).length
  if (selection.all === false) throw refusedField('/all', 'must be true: name the dead letters by ids or until instead')
  if (given !== 1) throw new ServiceError('malformed', 'name the dead letters by exactly one of ids, until and all')
  return selection
}

/** The condition for the selected letters; `columns` are their id and the time at which they were given up. */
export function isSelected({ ids, until, all }: LetterSelection, columns: { id: Sql; at: Sql }): Sql<boolean> {
  if (ids !== undefined) return sql<boolean>`${columns.id} = ANY (${ids}::uuid[])`
  if (until !== undefined) return sql<boolean>`${columns.at} <= ${until}::timestamptz`
  return all === true ? sql<boolean>`true` : sql<boolean>`false`
}
