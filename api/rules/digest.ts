/** Digests, which are in keys in the place of texts that may be longer than an entry of an index: a subtopic and a name have some 3,000 bytes each. */
import { createHash } from 'node:crypto'

export const digestOf = (text: string): Buffer => createHash('sha256').update(text).digest()

/** Parts that may have any characters give different digests wherever they differ. */
export const digestOfParts = (parts: readonly (string | number | null)[]): Buffer => digestOf(JSON.stringify(parts))
