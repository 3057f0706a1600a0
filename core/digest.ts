/** Digests of content in the form of content registries: `sha256:` and hexadecimal digits. No other algorithm is accepted. */
import { createHash } from 'node:crypto'
import type { Hash } from 'node:crypto'

const SHA256 = /^sha256:[a-f0-9]{64}$/

/** True for `sha256:` and 64 hexadecimal digits in lower case. */
export function isDigest(text: string): boolean {
  return SHA256.test(text)
}

/** The digest of bytes in memory. */
export function digestOf(bytes: Uint8Array): string {
  return digestOfHash(createHash('sha256').update(bytes))
}

/** The digest of a SHA-256 hash, which is finished by the call. */
export function digestOfHash(hash: Hash): string {
  return digestOfHex(hash.digest('hex'))
}

/** The digest with these hexadecimal digits. */
export function digestOfHex(hex: string): string {
  return `sha256:${hex}`
}

/** The hexadecimal part, which is used in file names. */
export function hexOf(digest: string): string {
  return digest.slice('sha256:'.length)
}
