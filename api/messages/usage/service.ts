/** How much a domain has taken in. */
import type { AccessPolicy, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { findUsage } from '../projections/usage.ts'
import type { DomainUsage } from './schema.ts'
import { SHOWN_DAYS } from './schema.ts'

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
