import { randomBytes } from 'node:crypto'
import { expect, test } from 'vitest'
import { MAX_CURSOR_CHARS, NextCursor, formatCursor, listingOf, parseCursor } from './cursor.ts'
import type { Place } from './cursor.ts'
import { createKeyring } from './keyring/index.ts'

const SECRET_KEY_BYTES = 32
const keyring = createKeyring(randomBytes(SECRET_KEY_BYTES))

const listing = listingOf('/shelves/:shelf_id/books', { shelf_id: 'd' }, { order: 'name', limit: 10, offset: 0 })

test.each<Place[]>([
  [[1_795_238_794_403_127, 7]],
  [[Number.MAX_SAFE_INTEGER]],
  [['pompe à eau "1"', true, '6b1f0c1e-0000-4000-8000-000000000000']],
])('%j is read from its text unchanged', (place) => {
  expect(parseCursor(keyring, listing, formatCursor(keyring, listing, JSON.stringify(place)))).toEqual(place)
})

test('is valid for another page of the same listing', () => {
  const query = { limit: 50, cursor: 'x', order: 'name' }
  expect(listingOf('/shelves/:shelf_id/books', { shelf_id: 'd' }, query)).toEqual(listing)
})

test.each([
  ['another path', listingOf('/shelves/:shelf_id/maps', { shelf_id: 'd' }, { order: 'name' })],
  ['another shelf', listingOf('/shelves/:shelf_id/books', { shelf_id: 'e' }, { order: 'name' })],
  ['another order', listingOf('/shelves/:shelf_id/books', { shelf_id: 'd' }, { order: 'created_at' })],
  ['a further filter', listingOf('/shelves/:shelf_id/books', { shelf_id: 'd' }, { order: 'name', tag: 'a' })],
])('of %s is refused', (_name, other) => {
  expect(() => parseCursor(keyring, other, formatCursor(keyring, listing, '[7]'))).toThrow('another order')
})

test.each([
  '',
  'x',
  '7',
  'a'.repeat(128),
  formatCursor(keyring, listing, '7'),
  formatCursor(keyring, listing, '[7'),
  formatCursor(keyring, listing, '[null]'),
  formatCursor(keyring, listing, '[[7]]'),
  `${formatCursor(keyring, listing, '[7]')}=`,
])('%j is refused', (text) => {
  expect(() => parseCursor(keyring, listing, text)).toThrow('must be the `next` of a page')
})

test('a page that is cut continues after its last row, and the last page has no cursor', () => {
  const places = ['[1]', '[2]', '[3]']
  const format = (place: string) => `cursor of ${place}`
  expect(new NextCursor(format, { places, hasMore: true }).after()).toBe('cursor of [3]')
  const last = new NextCursor(format, { places, hasMore: false })
  expect(last.after()).toBeUndefined()
  expect(last.after(2)).toBe('cursor of [2]')
})

test('shows nothing of its place, and is refused when it was made with another key', () => {
  const cursor = formatCursor(keyring, listing, '["hidden"]')
  expect(Buffer.from(cursor, 'base64url').toString('latin1')).not.toContain('hidden')
  const other = createKeyring(randomBytes(SECRET_KEY_BYTES))
  expect(() => parseCursor(other, listing, cursor)).toThrow('must be the `next` of a page')
})

test('the place of the longest name fits', () => {
  const name = '\u0001'.repeat(1024)
  const place = JSON.stringify([name, Number.MAX_SAFE_INTEGER, '6b1f0c1e-0000-4000-8000-000000000000'])
  expect(formatCursor(keyring, listing, place).length).toBeLessThanOrEqual(MAX_CURSOR_CHARS)
})
