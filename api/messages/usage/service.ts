/** How much a domain has taken in. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import type { AccessPolicy, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { findUsage } from '../projections/usage.ts'

/** Days that an answer shows; totals are of all. */
const SHOWN_DAYS = 366

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

export type UsageService = {
  /** Counted within seconds of arrival; what is deleted stays counted. Throws `forbidden` as decision 45 says. */
  ofDomain(caller: UserPrincipal, domainId: string): Promise<DomainUsage>
}

export function createUsageService({ database, access }: { database: Database; access: AccessPolicy }): UsageService {
  return {
    async ofDomain(caller, domainId) {
      const domain = await access.enter(caller, domainId)
      domain.require('read')
      return { domain_id: domain.domainId, ...(await findUsage(database.db, domain.domainKey, SHOWN_DAYS)) }
    },
  }
}
