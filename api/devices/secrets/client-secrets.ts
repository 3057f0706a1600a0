/** How a client's secret is kept: a keyed digest finds it, a sealed copy shows it in listings (stack: device secrets). */
import type { Keyring } from '#core/keyring/index.ts'

const PURPOSE = 'client secret'

/** What the lookup compares; the same for equal secrets, meaningless without the installation's key. */
export function secretMac(keyring: Keyring, secret: string): Buffer {
  return keyring.mac(PURPOSE, secret)
}

/** `clientId` and domain bind the copy to its row. */
export function sealSecret(keyring: Keyring, domainKey: number, clientId: string, secret: string): Buffer {
  return keyring.seal(PURPOSE, `${domainKey}/${clientId}`, secret)
}

export function openSecret(
  keyring: Keyring,
  client: { domainKey: number; id: string; secretSealed: Uint8Array },
): string {
  return keyring.open(PURPOSE, `${client.domainKey}/${client.id}`, client.secretSealed)
}
