/** Seals the secrets of a configuration, bound to their row in the database. */
import { refusedField } from '#core/errors/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { BootstrapConfig } from './repository.ts'
import { parseWithExactIntegers } from '#core/exact-integers.ts'

const EXTERNAL_KEY = 'bootstrap external key'
const PRIVATE_KEY = 'bootstrap private key'
const RENDER_CONTEXT = 'bootstrap render context'

/** The row of a secret. */
type Place = { domainKey: number; clientKey: number }

export type ConfigSealing = ReturnType<typeof createConfigSealing>

/** Minimum length of new external keys, unless SKEIN_BOOTSTRAP_WEAK_KEYS is set. */
const MIN_EXTERNAL_KEY_CHARS = 16

export function createConfigSealing(keyring: Keyring, { allowsWeakKeys }: { allowsWeakKeys: boolean }) {
  const contextOf = ({ domainKey, clientKey }: Place) => `${domainKey}/${clientKey}`
  return {
    externalKeyMac: (key: string) => keyring.mac(EXTERNAL_KEY, key),
    /** Throws `malformed` for a key that is too short. */
    newExternalKey(place: Place, key: string): { externalKeyMac: Buffer; externalKeySealed: Buffer } {
      if (!allowsWeakKeys && key.length < MIN_EXTERNAL_KEY_CHARS)
        throw refusedField('/external_key', `must contain at least ${MIN_EXTERNAL_KEY_CHARS} characters`)
      return {
        externalKeyMac: keyring.mac(EXTERNAL_KEY, key),
        externalKeySealed: keyring.seal(EXTERNAL_KEY, contextOf(place), key),
      }
    },
    externalKeyOf: (config: BootstrapConfig) => keyring.open(EXTERNAL_KEY, contextOf(config), config.externalKeySealed),
    /** Null without a key. */
    sealPrivateKey: (place: Place, key: string | undefined) =>
      key === undefined || key === '' ? null : keyring.seal(PRIVATE_KEY, contextOf(place), key),
    privateKeyOf: (config: BootstrapConfig) =>
      config.privateKeySealed === null ? '' : keyring.open(PRIVATE_KEY, contextOf(config), config.privateKeySealed),
    /** Null without variables. */
    sealVariables: (place: Place, variables: Record<string, unknown> | undefined) =>
      variables === undefined || Object.keys(variables).length === 0
        ? null
        : keyring.seal(RENDER_CONTEXT, contextOf(place), JSON.stringify(variables)),
    variablesOf: (config: BootstrapConfig): Record<string, unknown> =>
      config.renderContextSealed === null
        ? {}
        : (parseWithExactIntegers(
            keyring.open(RENDER_CONTEXT, contextOf(config), config.renderContextSealed),
          ) as Record<string, unknown>),
  }
}
