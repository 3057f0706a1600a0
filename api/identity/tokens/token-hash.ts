/**
 * Hashes of long-lived tokens. Tokens contain random bytes or a signature, so the hash needs neither salt nor key
 * stretching.
 */
import { createHash, timingSafeEqual } from 'node:crypto'

export function hashToken(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}

export function isHashOf(text: string, hash: Uint8Array): boolean {
  return timingSafeEqual(hashToken(text), hash)
}
