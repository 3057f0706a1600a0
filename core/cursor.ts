/**
 * Cursors of listings: the place of the last row of a page, in the order of its listing. Unlike an offset, a cursor costs the same on
 * every page, and rows that are added meanwhile move nothing. It is opaque to callers and gives no right: the conditions of
 * the listing apply to every page.
 */
import { refusedField } from './errors/index.ts'

/** A place in an order: the time of the row in microseconds since 1970, where rows are ordered by it, and its key. */
export type Place = { order: string; timeUs: number | undefined; key: number }

export const MAX_CURSOR_CHARS = 128
const TEXT = /^([a-z_]{1,32}):(-?\d{1,17})?:(\d{1,16})$/

export function formatCursor({ order, timeUs, key }: Place): string {
  return Buffer.from(`${order}:${timeUs ?? ''}:${key}`).toString('base64url')
}

/** Throws `malformed` for another text, and for a cursor of another order. */
export function parseCursor(text: string, order: string): Place {
  const match = TEXT.exec(Buffer.from(text, 'base64url').toString('latin1'))
  const [, named, timeUs, key] = match ?? []
  if (match === null || formatCursor({ order: named ?? '', timeUs: numberOf(timeUs), key: Number(key) }) !== text)
    throw refusedField('cursor', 'must be the `next` of a page')
  if (named !== order) throw refusedField('cursor', 'is of a listing with other filters or another order')
  return { order, timeUs: numberOf(timeUs), key: Number(key) }
}

const numberOf = (text: string | undefined) => (text === undefined ? undefined : Number(text))
