/** What a function returns for the messages that it got: one item for each. Pure. */
import { SEVERITIES } from '../../alarms/schema.ts'
import type { Severity } from '../../alarms/schema.ts'

/** Undefined: the item says nothing that is understood. */
export type Verdict = { holds: boolean; severity?: Severity } | undefined

const ACCEPTED = `true, false, or one of ${SEVERITIES.join(', ')}`
export const NOT_UNDERSTOOD = `the function returned something else than ${ACCEPTED} for a message`

/** A text: why these are no verdicts for so many messages. */
export function verdictsOf(results: unknown, count: number): Verdict[] | string {
  if (!Array.isArray(results)) return `its function must return a list with one item for each message: ${ACCEPTED}`
  if (results.length !== count)
    return `its function returned ${results.length} items for ${count} messages: it must return one for each`
  return results.map(verdictOf)
}

function verdictOf(item: unknown): Verdict {
  if (typeof item === 'boolean') return { holds: item }
  // A component returns null for an option that has no value.
  if (item === null) return { holds: false }
  const severity = SEVERITIES.find((one) => one === item)
  return severity === undefined ? undefined : { holds: true, severity }
}
