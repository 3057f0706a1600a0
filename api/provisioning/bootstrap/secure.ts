/**
 * Encryption of the secure bootstrap: AES-256 in CFB mode with a random IV as prefix (contract 9.1). It does not
 * authenticate the data.
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'
import type { Secret } from '#core/config/index.ts'
import { ServiceError } from '#core/errors/index.ts'

const ALGORITHM = 'aes-256-cfb'
const KEY_BYTES = 32
const IV_BYTES = 16

export type BootstrapCipher = {
  /** Returns IV and cipher text. */
  encrypt(text: string): Buffer
  /** Undefined for text that is not hexadecimal or too short, or when the result is not text. */
  decrypt(hex: string): string | undefined
}

/** Undefined without a key. Throws `malformed` for a key of another length, without repeating it. */
export function bootstrapCipher(secret: Secret | undefined): BootstrapCipher | undefined {
  if (secret === undefined) return undefined
  const text = secret.reveal()
  const key = /^[0-9a-f]{64}$/i.test(text) ? Buffer.from(text, 'hex') : Buffer.from(text, 'utf8')
  if (key.length !== KEY_BYTES)
    throw new ServiceError('malformed', 'SKEIN_BOOTSTRAP_ENCRYPT_KEY must be 32 bytes of text or 64 hexadecimal digits')
  return {
    encrypt(plain) {
      const iv = randomBytes(IV_BYTES)
      const cipher = createCipheriv(ALGORITHM, key, iv)
      return Buffer.concat([iv, cipher.update(plain, 'utf8'), cipher.final()])
    },
    decrypt(hex) {
      if (!/^(?:[0-9a-f]{2})+$/i.test(hex)) return undefined
      const bytes = Buffer.from(hex, 'hex')
      if (bytes.length <= IV_BYTES) return undefined
      const decipher = createDecipheriv(ALGORITHM, key, bytes.subarray(0, IV_BYTES))
      const plain = Buffer.concat([decipher.update(bytes.subarray(IV_BYTES)), decipher.final()])
      return plain.includes(0) ? undefined : plain.toString('utf8')
    },
  }
}
