/** Digests of content, as registries write them: `sha256:` and hexadecimal digits. It is the only algorithm that we accept. */
import { createHash } from 'node:crypto'

const SHA256 = /^sha256:[a-f0-9]{64}$/

/** True for `sha256:` and 64 hexadecimal digits in lower case. */
export function isDigest(text: string): boolean {
  return SHA256.test(text)
}

/** The digest of bytes that are in memory already. */
export function digestOf(bytes: Uint8Array): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`
}

/** The hexadecimal part, which is what file names are made of. */
export function hexOf(digest: string): string {
  return digest.slice('sha256:'.length)
}
