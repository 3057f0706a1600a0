/** What a change of one side of a document writes, and whether the device must be notified of it. Pure. */
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { differenceOf, isEmpty, isPartOf, isSame, requireWithinLimits } from './document.ts'
import type { JsonObject } from './document.ts'
import type { StateRecord, StateWrite } from './repository.ts'
import { presentState } from './schema.ts'

/** Undefined: the document is as it was. Throws `too_large` and `malformed` above the limits. */
export function writeOf(before: StateRecord, side: 'desired' | 'reported', next: JsonObject): StateWrite | undefined {
  if (before.version > 0 && isSame(before[side], next)) return undefined
  requireWithinLimits(next, side)
  const { clientKey, name, version } = before
  const desired = side === 'desired' ? next : before.desired
  const reported = side === 'reported' ? next : before.reported
  const delta = differenceOf(desired, reported)
  // A device knows what it reports: it is notified only when that leaves a difference of which it does not know.
  const isNotified =
    side === 'desired' ? !isSame(delta, before.delta) : !isEmpty(delta) && !isPartOf(delta, before.delta)
  return { clientKey, name, desired, reported, delta, version, isNotified, side }
}

/** Throws `precondition_failed` with the document, unless it has this version. Undefined: any. */
export function requireVersion(state: StateRecord, version: number | undefined): void {
  if (version === undefined || version === state.version) return
  throw new ServiceError('precondition_failed', `the document has version ${state.version}, not ${version}`, {
    current: presentState(state),
  })
}

/** The version of a header If-Match: a number, also as an entity tag (`"7"`). */
export function parseIfMatch(header: string | undefined): number | undefined {
  if (header === undefined) return undefined
  const digits = /^(?:"(\d{1,15})"|(\d{1,15}))$/.exec(header.trim())
  if (digits === null) throw refusedField('if-match', 'must be the version of the document')
  return Number(digits[1] ?? digits[2])
}
