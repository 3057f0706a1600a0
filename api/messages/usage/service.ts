/** How much a domain has taken in, and what is known of a client's sessions and messages. */
import type { AccessPolicy, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { findUsage } from '../projections/usage.ts'
import { findTelemetry } from '../presence/index.ts'
import type { ClientTelemetry, DomainUsage } from './schema.ts'
import { SHOWN_DAYS, presentTelemetry } from './schema.ts'

export type UsageService = {
  /** Counted within seconds of arrival; what is deleted stays counted. Throws `forbidden` as decision 45 says. */
  ofDomain(caller: UserPrincipal, domainId: string): Promise<DomainUsage>
  /** Needs `read` on the client. Counted within seconds. Throws `forbidden` and `not_found` as decision 45 says. */
  ofClient(caller: UserPrincipal, domainId: string, clientId: string): Promise<ClientTelemetry>
}

export function createUsageService({ database, access }: { database: Database; access: AccessPolicy }): UsageService {
  return {
    async ofDomain(caller, domainId) {
      const domain = await access.enter(caller, domainId)
      domain.require('read')
      return { domain_id: domain.domainId, ...(await findUsage(database.db, domain.domainKey, SHOWN_DAYS)) }
    },
    async ofClient(caller, domainId, clientId) {
      const { domain, entity } = await access.locate(caller, domainId, 'client', clientId)
      return presentTelemetry(entity.id, domain.domainId, await findTelemetry(database.db, entity.key))
    },
  }
}
