/** Usage of a domain, and telemetry of a client. */
import type { AccessPolicy, Quotas, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { findStoredRecords, findUsage } from '../projections/usage.ts'
import { findTelemetry } from '../presence/index.ts'
import { SESSION_QUOTAS, countSessionUsage } from '../sessions/index.ts'
import type { ClientTelemetry, DomainUsage } from './schema.ts'
import { SHOWN_DAYS, presentTelemetry } from './schema.ts'

export class UsageService {
  readonly #database: Database
  readonly #access: AccessPolicy
  readonly #quotas: Quotas

  constructor({ database, access, quotas }: { database: Database; access: AccessPolicy; quotas: Quotas }) {
    this.#database = database
    this.#access = access
    this.#quotas = quotas
    quotas.measure(
      'stored_records',
      async (domainKey) => (await findStoredRecords(database.db, [domainKey])).get(domainKey) ?? 0,
    )
    for (const name of SESSION_QUOTAS)
      quotas.measure(
        name,
        async (domainKey) => (await countSessionUsage(database.db, name, [domainKey])).get(domainKey) ?? 0,
      )
  }

  /** Counted within seconds of arrival; deleted messages stay counted. Throws `forbidden` (decision 45). */
  async ofDomain(caller: UserPrincipal, domainId: string): Promise<DomainUsage> {
    const domain = await this.#access.enter(caller, domainId)
    domain.require('read')
    const [usage, ofQuotas] = await Promise.all([
      findUsage(this.#database.db, domain.domainKey, SHOWN_DAYS),
      this.#quotas.usage(domain.domainKey),
    ])
    return { domain_id: domain.domainId, ...usage, quotas: ofQuotas }
  }

  /** Requires `read` on the client. Counted within seconds. Throws `forbidden` and `not_found` (decision 45). */
  async ofClient(caller: UserPrincipal, domainId: string, clientId: string): Promise<ClientTelemetry> {
    const { domain, entity } = await this.#access.locate(caller, domainId, 'client', clientId)
    return presentTelemetry(entity.id, domain.domainId, await findTelemetry(this.#database.db, entity.key))
  }
}
