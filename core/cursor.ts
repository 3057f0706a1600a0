/**
 * Cursors of listings: the place of the last row of a page in the order of its listing. The page after it begins with the next row,
 * also when rows were added or removed meanwhile, and costs the same wherever it is. A cursor gives no right: the conditions of the
 * listing apply to every page. It is valid for the listing with the same path and filters. It is encrypted, because a row is ordered by
 * columns that not every caller can read.
 */
import { createHash } from 'node:crypto'
import { refusedField } from './errors/index.ts'

/** The values of the sort columns of a row. Together they identify the row in its listing. */
export type Place = readonly (string | number | boolean)[]

/** The end of a page, from which the cursor of the next page follows. */
export type PageEnd = {
  /** The JSON text of the place of each row, in the order of the page. A page that is cut ends at an earlier row. */
  readonly places: readonly string[]
  /** True when rows follow the last one. */
  readonly hasMore: boolean
}

/** The end of a page that no other follows. */
export const NO_MORE: PageEnd = { places: [], hasMore: false }

/** The place of a name of 1,024 characters that JSON escapes with six characters each, encrypted and in base64. */
export const MAX_CURSOR_CHARS = 8448
/** Bytes of the digest of path and filters in a cursor. */
const LISTING_BYTES = 8
const PURPOSE = 'cursor'

/** Encrypts cursors, with the secret key that all processes of an installation have: the `Keyring`. */
export type CursorKeyring = {
  seal(purpose: string, context: string, text: string): Buffer
  /** Throws when the value was not sealed for this purpose and context. */
  open(purpose: string, context: string, sealed: Uint8Array): string
}
/** Query parameters that select a page and not the rows of a listing, and the credential in a query. */
const NO_FILTERS: ReadonlySet<string> = new Set(['cursor', 'offset', 'limit', 'authorization'])

/** Identifies a listing: its path with the values in it, and its filters with their defaults. */
export function listingOf(route: string, params: object, query: object): Buffer {
  const filters = Object.entries(query).filter(([name, value]) => !NO_FILTERS.has(name) && value !== undefined)
  const text = JSON.stringify([route, sorted(Object.entries(params)), sorted(filters)])
  return createHash('sha256').update(text).digest().subarray(0, LISTING_BYTES)
}

const sorted = (entries: [string, unknown][]) => entries.toSorted(([left], [right]) => (left < right ? -1 : 1))

export function formatCursor(keyring: CursorKeyring, listing: Buffer, place: string): string {
  const sealed = keyring.seal(PURPOSE, listing.toString('hex'), place)
  return Buffer.concat([listing, sealed]).toString('base64url')
}

/** Throws `malformed` for an invalid cursor, and for the cursor of another listing. */
export function parseCursor(keyring: CursorKeyring, listing: Buffer, text: string): Place {
  const bytes = Buffer.from(text, 'base64url')
  const made = bytes.subarray(0, LISTING_BYTES)
  const place = placeOf(() => keyring.open(PURPOSE, made.toString('hex'), bytes.subarray(LISTING_BYTES)))
  if (place === undefined || bytes.toString('base64url') !== text) throw invalidCursor()
  if (!made.equals(listing)) throw refusedField('cursor', 'is of a listing with other filters or another order')
  return place
}

export const invalidCursor = () => refusedField('cursor', 'must be the `next` of a page')

function placeOf(read: () => string): Place | undefined {
  try {
    const place: unknown = JSON.parse(read())
    return Array.isArray(place) && place.every(isValue) ? place : undefined
  } catch {
    return undefined
  }
}

const isValue = (value: unknown): value is Place[number] =>
  typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean'

/** The end of a page, with the form of the cursors of its listing. */
export class NextCursor {
  readonly #format: (place: string) => string
  readonly #end: PageEnd

  constructor(format: (place: string) => string, end: PageEnd) {
    this.#format = format
    this.#end = end
  }

  /** The cursor of the next page; undefined for the last page. `count`: the rows of a page that is cut. */
  after(count?: number): string | undefined {
    const { places, hasMore } = this.#end
    const place = count === undefined ? (hasMore ? places.at(-1) : undefined) : places[count - 1]
    return place === undefined ? undefined : this.#format(place)
  }
}
