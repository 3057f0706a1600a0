/**
 * Comparisons of external keys, which give access to the secrets of their devices (contract, decisions 73 and 87). A wrong key of a device,
 * and a new configuration for an external id of another domain with another key, which may be a guess of that key, count against the same
 * limits, and the owners of the external id find them in their journal. Right keys cost nothing.
 */
import { timingSafeEqual } from 'node:crypto'
import { networkOf, outsideTrial } from '#api/identity/index.ts'
import type { Journal, LoginThrottle, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { findByExternalId } from './repository.ts'
import type { ExternalMatch } from './repository.ts'

export type FactoryKeysDeps = {
  database: Database
  journal: Journal
  /** Limits wrong keys of an external id and from an address. */
  throttle: LoginThrottle
  /** Limits wrong keys of a user, whatever their external ids are. */
  callers: LoginThrottle
}

export class FactoryKeys {
  readonly #deps: FactoryKeysDeps

  constructor(deps: FactoryKeysDeps) {
    this.#deps = deps
  }

  /**
   * The configuration that a device is served. `mac` is undefined when its key could not be decrypted, which counts as a wrong key. Throws
   * `not_found` for an unknown external id, `forbidden` for a wrong key, `rate_limited` after too many of them.
   */
  async match(externalId: string, mac: Buffer | undefined, address: string): Promise<ExternalMatch> {
    const { database, throttle } = this.#deps
    const admission = await throttle.admit({ account: externalId, address: networkOf(address), isKnown: false })
    try {
      if (mac === undefined) {
        admission.fail()
        throw refusal('the external key cannot be decrypted')
      }
      const found = await findByExternalId(database.db, externalId, mac)
      if (found.length === 0) throw new ServiceError('not_found', 'entity not found')
      const match = found.find((one) => timingSafeEqual(one.externalKeyMac, mac))
      if (match === undefined) {
        admission.fail()
        await this.#record(found, { external_id: externalId, source: 'device', address })
        throw refusal('wrong external key')
      }
      return match
    } finally {
      admission.release()
    }
  }

  /**
   * Call it before a configuration of the domain gets the pair. It compares the key with those of other domains for this external id. The
   * creation does not depend on the result. Throws `rate_limited` after too many keys that others do not have.
   */
  async compare(caller: UserPrincipal, domainKey: number, externalId: string, mac: Buffer): Promise<void> {
    const { database, throttle, callers } = this.#deps
    const others = (await findByExternalId(database.db, externalId, mac)).filter((one) => one.domainKey !== domainKey)
    if (others.length === 0) return
    const address = networkOf(caller.origin?.address ?? '')
    const admissions = [await callers.admit({ account: `user ${caller.key}`, address, isKnown: false })]
    try {
      admissions.push(await throttle.admit({ account: externalId, address, isKnown: false }))
      if (others.some((one) => timingSafeEqual(one.externalKeyMac, mac))) return
      for (const admission of admissions) admission.fail()
      await this.#record(others, { external_id: externalId, source: 'configuration' })
    } finally {
      for (const admission of admissions) admission.release()
    }
  }

  /**
   * Records a refusal for the owners of the external id, also in a dry run. The record does not name the caller, who may belong to another
   * domain.
   */
  async #record(owners: readonly ExternalMatch[], attributes: Readonly<Record<string, unknown>>): Promise<void> {
    await outsideTrial(
      async () =>
        await this.#deps.journal.change('system', (_tx, record) => {
          for (const { domainKey, clientKey, clientId } of owners) {
            record({
              operation: 'client.refuse_external_key',
              domainKey,
              entityKeys: [clientKey],
              attributes: { id: clientId, ...attributes },
            })
          }
          return Promise.resolve()
        }),
    )
  }
}

const refusal = (reason: string) => new ServiceError('forbidden', `failed to perform authorization: ${reason}`)
