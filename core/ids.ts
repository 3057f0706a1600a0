/** Identifiers: UUIDs in lower case (contract section 0), and random bytes for tokens. */
import { randomBytes, randomUUID } from 'node:crypto'

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

/** A new UUID version 4. */
export function newId(): string {
  return randomUUID()
}

/** True for a UUID in its lower-case text form, of any version. */
export function isId(text: string): boolean {
  return UUID.test(text)
}

/** URL-safe random text of `bytes` bytes of entropy. */
export function newToken(bytes = 32): string {
  return randomBytes(bytes).toString('base64url')
}
