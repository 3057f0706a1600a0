/**
 * Locates and changes configurations. A change requires `update` on the client. Changes of one configuration are
 * serialized.
 */
import type { DeviceServices, Devices } from '#api/devices/index.ts'
import type { AccessPolicy, DomainAccess, Journal, UserPrincipal } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { inTransaction } from '../joined/index.ts'
import type { BootstrapConfig } from './repository.ts'
import { lockConfig } from './repository.ts'

export type ConfigChangesDeps = { database: Database; journal: Journal; access: AccessPolicy; devices: Devices }

export type ConfigInside = {
  tx: Transaction
  /** Locked until the transaction ends. */
  config: BootstrapConfig
  domain: DomainAccess
  devices: DeviceServices
  record(operation: string, attributes: Record<string, unknown>): void
}

export const notFound = () => new ServiceError('not_found', 'entity not found')

export class ConfigChanges {
  readonly #database: Database
  readonly #journal: Journal
  readonly #access: AccessPolicy
  readonly #devices: Devices

  constructor({ database, journal, access, devices }: ConfigChangesDeps) {
    this.#database = database
    this.#journal = journal
    this.#access = access
    this.#devices = devices
  }

  /** Returns the client of a path. Its configuration has the same key. */
  async locate(caller: UserPrincipal, domainId: string, clientId: string) {
    const { domain, entity } = await this.#access.locate(caller, domainId, 'client', clientId)
    const client = await domain.requireOn(entity, 'update')
    return { domain, client }
  }

  /** Locks the configuration of a path and runs `work`, which changes it and dependent entities. */
  async change<T>(
    caller: UserPrincipal,
    domainId: string,
    clientId: string,
    work: (inside: ConfigInside) => Promise<T>,
  ): Promise<T> {
    const { domain, client } = await this.locate(caller, domainId, clientId)
    return await this.#journal.change(caller, async (tx, record) => {
      const config = await lockConfig(tx, client.key)
      if (config === undefined) throw notFound()
      const joined = inTransaction(
        { database: this.#database, journal: this.#journal, access: this.#access },
        tx,
        record,
        domain,
      )
      return await work({
        tx,
        config,
        domain,
        devices: this.#devices.over(joined),
        record: (operation, attributes) =>
          record({
            operation: `bootstrap.${operation}`,
            domainKey: domain.domainKey,
            entityKeys: [client.key],
            attributes: { client_id: clientId, ...attributes },
          }),
      })
    })
  }
}
