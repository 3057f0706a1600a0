/**
 * A cache of short strings by their bytes: repeated names need not be created, validated and hashed for each message.
 */

/** The number of slots; a string replaces the one in its slot. With the length below, a table stays below 2 MiB. */
const PLACES = 8192
const MAX_LENGTH = 128
/** FNV-1a, 32 bits. */
const HASH_SEED = 0x811c_9dc5
const HASH_PRIME = 0x0100_0193

/** The first part of a string, and its hash. */
export type Prefix = { readonly text: string; readonly hash: number }

export const NO_PREFIX: Prefix = { text: '', hash: HASH_SEED }

export class KnownStrings {
  readonly #strings: string[] = Array.from({ length: PLACES }, () => '')
  readonly #isValid: (text: string) => boolean

  /** Only valid strings are kept. */
  constructor(isValid: (text: string) => boolean = () => true) {
    this.#isValid = isValid
  }

  /** The prefix and the ASCII characters from `start` to `end` as one string; undefined when it is invalid. */
  get({ text, hash: seed }: Prefix, bytes: Buffer, start: number, end: number): string | undefined {
    let hash = seed
    for (let at = start; at < end; at++) hash = Math.imul(hash ^ (bytes[at] as number), HASH_PRIME)
    const place = (hash ^ (hash >>> 15)) & (PLACES - 1)
    const known = this.#strings[place] as string
    if (isJoined(known, text, bytes, start, end)) return known
    const made = text + bytes.toString('latin1', start, end)
    if (!this.#isValid(made)) return undefined
    if (made.length <= MAX_LENGTH) this.#strings[place] = made
    return made
  }
}

export function prefixOf(text: string): Prefix {
  let hash = HASH_SEED
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), HASH_PRIME)
  return { text, hash }
}

function isJoined(known: string, prefix: string, bytes: Buffer, start: number, end: number): boolean {
  const offset = prefix.length
  const length = end - start
  if (known.length !== offset + length || known === '') return false
  for (let at = 0; at < length; at++) if (known.charCodeAt(offset + at) !== bytes[start + at]) return false
  return known.startsWith(prefix)
}
