/** Digests of content, as registries write them: `sha256:` and hexadecimal digits. It is the only algorithm that we accept. */
import { createHash } from 'node:crypto'
import type { Hash } from 'node:crypto'

const SHA256 = /^sha256:[a-f0-9]{64}$/

/** True for `sha256:` and 64 hexadecimal digits in lower case. */
export function isDigest(text: string): boolean {
  return SHA256.test(text)
}

/** The digest of bytes that are in memory already. */
export function digestOf(bytes: Uint8Array): string {
  return digestOfHash(createHash('sha256').update(bytes))
}

/** The digest of what a SHA-256 hash was updated with; the hash is finished by it. */
export function digestOfHash(hash: Hash): string {
  return digestOfHex(hash.digest('hex'))
}

/** The digest with these hexadecimal digits, as in the name of a file. */
export function digestOfHex(hex: string): string {
  return `sha256:${hex}`
}

/** The hexadecimal part, which is what file names are made of. */
export function hexOf(digest: string): string {
  return digest.slice('sha256:'.length)
}
