/** RFC 9110 section 14.1.2: Range headers of bytes. */
import { expect, test } from 'vitest'
import { parseRange } from './ranges.ts'

test.each([
  ['bytes=0-', { start: 0, end: 10 }],
  ['bytes=3-', { start: 3, end: 10 }],
  ['bytes=3-5', { start: 3, end: 6 }],
  ['bytes=3-3', { start: 3, end: 4 }],
  ['bytes=3-99', { start: 3, end: 10 }],
  ['bytes=-4', { start: 6, end: 10 }],
  ['bytes=-99', { start: 0, end: 10 }],
])('%s of ten bytes is a part of them', (header, range) => {
  expect(parseRange(header, 10)).toEqual(range)
})

test.each(['bytes=10-', 'bytes=99-', 'bytes=-0'])('%s of ten bytes is beyond them', (header) => {
  expect(parseRange(header, 10)).toBe('beyond')
})

test.each([undefined, '', 'bytes=', 'bytes=-', 'bytes=5-3', 'bytes=0-1,3-4', 'items=0-', `bytes=${'9'.repeat(40)}-`])(
  '%s asks for all of it',
  (header) => {
    expect(parseRange(header, 10)).toBeUndefined()
  },
)
