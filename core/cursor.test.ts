import { expect, test } from 'vitest'
import { formatCursor, parseCursor } from './cursor.ts'

test.each([
  { order: 'started', timeUs: 1_795_238_794_403_127, key: 7 },
  { order: 'key', timeUs: undefined, key: Number.MAX_SAFE_INTEGER },
])('%j is decoded from its text', (place) => {
  expect(parseCursor(formatCursor(place), place.order)).toEqual(place)
})

test('a cursor of another order is refused', () => {
  const cursor = formatCursor({ order: 'key', timeUs: undefined, key: 7 })
  expect(() => parseCursor(cursor, 'started')).toThrow('another order')
})

test.each([
  '',
  'x',
  '7',
  'a'.repeat(128),
  Buffer.from('key::7;').toString('base64url'),
  `${Buffer.from('key::7').toString('base64')}=`,
])('%j is not a cursor', (text) => {
  expect(() => parseCursor(text, 'key')).toThrow('must be the `next` of a page')
})
