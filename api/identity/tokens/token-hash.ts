/** How long-lived tokens are kept: by a hash of their text. They hold random bytes or a signature, so it needs no salt and no time. */
import { createHash, timingSafeEqual } from 'node:crypto'

export function hashToken(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}

export function isHashOf(text: string, hash: Uint8Array): boolean {
  return timingSafeEqual(hashToken(text), hash)
}
