/**
 * Keys derived from the one secret of an installation. Each purpose has its own key (HKDF, RFC 5869), so that a value of one
 * purpose is invalid for another.
 */
import { createCipheriv, createDecipheriv, createHash, createHmac, hkdfSync, randomBytes } from 'node:crypto'
import { ServiceError } from '../errors/index.ts'

/** Length of the installation's secret key. */
export const MASTER_KEY_BYTES = 32
const NONCE_BYTES = 12
/** Generating random bytes costs as much as sealing a secret, so nonces are generated in batches. */
const NONCES_AT_ONCE = 256
const TAG_BYTES = 16
/** The length of a stored MAC: 128 bits identify a secret. */
const MAC_BYTES = 16

export type Keyring = {
  /** Identifies the key without revealing it. */
  readonly fingerprint: string
  /** Keyed digest of a secret, for lookups by equality. */
  mac(purpose: string, text: string): Buffer
  /** AES-256-GCM; `context` binds the value to its row, so that it cannot be moved. */
  seal(purpose: string, context: string, text: string): Buffer
  /** Throws `internal` when the value was not sealed with this key for this purpose and context. */
  open(purpose: string, context: string, sealed: Uint8Array): string
}

export function createKeyring(masterKey: Uint8Array): Keyring {
  if (masterKey.byteLength !== MASTER_KEY_BYTES) throw new Error(`the secret key must have ${MASTER_KEY_BYTES} bytes`)
  const derived = new Map<string, Buffer>()
  const keyFor = (purpose: string): Buffer => {
    let key = derived.get(purpose)
    if (key === undefined) {
      key = Buffer.from(hkdfSync('sha256', masterKey, 'skein', purpose, MASTER_KEY_BYTES))
      derived.set(purpose, key)
    }
    return key
  }
  const newNonce = createNonces()
  return {
    fingerprint: createHash('sha256').update(keyFor('fingerprint')).digest('hex').slice(0, 32),
    mac: (purpose, text) =>
      createHmac('sha256', keyFor(`mac ${purpose}`))
        .update(text)
        .digest()
        .subarray(0, MAC_BYTES),
    seal(purpose, context, text) {
      const nonce = newNonce()
      const cipher = createCipheriv('aes-256-gcm', keyFor(`seal ${purpose}`), nonce, { authTagLength: TAG_BYTES })
      cipher.setAAD(Buffer.from(context))
      const body = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()])
      return Buffer.concat([nonce, cipher.getAuthTag(), body])
    },
    open(purpose, context, sealed) {
      const bytes = Buffer.from(sealed)
      try {
        const decipher = createDecipheriv('aes-256-gcm', keyFor(`seal ${purpose}`), bytes.subarray(0, NONCE_BYTES), {
          authTagLength: TAG_BYTES,
        })
        decipher.setAAD(Buffer.from(context))
        decipher.setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES))
        const body = bytes.subarray(NONCE_BYTES + TAG_BYTES)
        return Buffer.concat([decipher.update(body), decipher.final()]).toString('utf8')
      } catch (error) {
        throw new ServiceError('internal', 'failed to decrypt a stored secret with the secret key', { cause: error })
      }
    },
  }
}

/** Each nonce is used once. */
function createNonces(): () => Buffer {
  let bytes = Buffer.alloc(0)
  let given = 0
  return () => {
    if (given === bytes.length) {
      bytes = randomBytes(NONCE_BYTES * NONCES_AT_ONCE)
      given = 0
    }
    given += NONCE_BYTES
    return bytes.subarray(given - NONCE_BYTES, given)
  }
}
