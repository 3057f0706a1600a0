/** Which dead letters a caller means: messages that were given up, and are kept to be tried again or discarded. */
import { ServiceError } from '../errors/index.ts'
import { sql } from '../sql.ts'
import type { Sql } from '../sql.ts'

/** One of the three is given: nothing is retried or discarded by default. */
export type LetterSelection = {
  ids?: readonly string[]
  /** All that were given up at this time (RFC 3339) or earlier. */
  until?: string
  all?: true
}

/** Throws `malformed` unless exactly one of the fields is given. */
export function requireSelection(selection: LetterSelection): LetterSelection {
  const given = Object.values(selection).filter((value) => value !== undefined).length
  if (given !== 1) throw new ServiceError('malformed', 'name the dead letters by exactly one of ids, until and all')
  return selection
}

/** The condition for the selected letters; `columns` are their id and the time at which they were given up. */
export function isSelected({ ids, until, all }: LetterSelection, columns: { id: Sql; at: Sql }): Sql<boolean> {
  if (ids !== undefined) return sql<boolean>`${columns.id} = ANY (${ids}::uuid[])`
  if (until !== undefined) return sql<boolean>`${columns.at} <= ${until}::timestamptz`
  return all === true ? sql<boolean>`true` : sql<boolean>`false`
}
