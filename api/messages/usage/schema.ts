/** The wire shape of a domain's usage (decision 54). */
import { Type } from 'typebox'
import type { Static } from 'typebox'

/** Days that an answer shows; totals are of all. */
export const SHOWN_DAYS = 366

const COUNTS = {
  messages: Type.Integer({ description: 'Messages that were stored' }),
  records: Type.Integer({ description: 'Records, JSON objects and raw payloads in them' }),
}
export const DomainUsage = Type.Object({
  domain_id: Type.String(),
  ...COUNTS,
  days: Type.Array(Type.Object({ day: Type.String({ description: 'Of UTC, YYYY-MM-DD' }), ...COUNTS }), {
    description: 'The days on which anything arrived, newest first, at most 366',
  }),
})
export type DomainUsage = Static<typeof DomainUsage>
