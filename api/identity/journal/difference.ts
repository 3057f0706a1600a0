/** The values of a record before and after a change. */
import { isDeepStrictEqual } from 'node:util'

/** Attributes of a record in the journal, with their wire names. They never contain a secret. */
export type Facts = Readonly<Record<string, unknown>>

/** Returns the attributes that differ, with their old and new values. */
export function difference(before: Facts, after: Facts): { before: Facts; after: Facts } {
  const changed = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter(
    (name) => !isDeepStrictEqual(before[name], after[name]),
  )
  const of = (facts: Facts) => Object.fromEntries(changed.map((name) => [name, facts[name] ?? null]))
  return { before: of(before), after: of(after) }
}
