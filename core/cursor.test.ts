import { expect, test } from 'vitest'
import { NextCursor, formatCursor, listingOf, parseCursor } from './cursor.ts'
import type { Place } from './cursor.ts'

const listing = listingOf('/shelves/:shelf_id/books', { shelf_id: 'd' }, { order: 'name', limit: 10, offset: 0 })

test.each<Place[]>([
  [[1_795_238_794_403_127, 7]],
  [[Number.MAX_SAFE_INTEGER]],
  [['pompe à eau "1"', true, '6b1f0c1e-0000-4000-8000-000000000000']],
])('%j is read from its text unchanged', (place) => {
  expect(parseCursor(listing, formatCursor(listing, JSON.stringify(place)))).toEqual(place)
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
  expect(() => parseCursor(other, formatCursor(listing, '[7]'))).toThrow('another order')
})

test.each([
  '',
  'x',
  '7',
  'a'.repeat(128),
  formatCursor(listing, '7'),
  formatCursor(listing, '[7'),
  formatCursor(listing, '[null]'),
  formatCursor(listing, '[[7]]'),
  `${formatCursor(listing, '[7]')}=`,
])('%j is refused', (text) => {
  expect(() => parseCursor(listing, text)).toThrow('must be the `next` of a page')
})

test('a page that is cut continues after its last row, and the last page has no cursor', () => {
  const places = ['[1]', '[2]', '[3]']
  expect(new NextCursor(listing, { places, hasMore: true }).after()).toBe(formatCursor(listing, '[3]'))
  const last = new NextCursor(listing, { places, hasMore: false })
  expect(last.after()).toBeUndefined()
  expect(last.after(2)).toBe(formatCursor(listing, '[2]'))
})
