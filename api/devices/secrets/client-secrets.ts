/** Storage of a client's secret: a keyed digest for look-ups and a sealed copy for listings (stack: device secrets). */
import type { Keyring } from '#core/keyring/index.ts'

const PURPOSE = 'client secret'

/**
 * Returns the keyed digest that look-ups compare. Equal secrets have equal digests. It reveals nothing without the
 * secret key.
 */
export function secretMac(keyring: Keyring, secret: string): Buffer {
  return keyring.mac(PURPOSE, secret)
}

/** The client id and the domain bind the sealed copy to its row. */
export function sealSecret(keyring: Keyring, domainKey: number, clientId: string, secret: string): Buffer {
  return keyring.seal(PURPOSE, `${domainKey}/${clientId}`, secret)
}

export function openSecret(
  keyring: Keyring,
  client: { domainKey: number; id: string; secretSealed: Uint8Array },
): string {
  return keyring.open(PURPOSE, `${client.domainKey}/${client.id}`, client.secretSealed)
}
