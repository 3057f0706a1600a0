/** Positions order rows by transaction, then by number (mechanisms section 2). */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { kindOf } from '../errors/index.ts'
import { LOG_START, comparePositions, formatPosition, parsePosition } from './position.ts'

const position = fc.record({
  xid: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  seq: fc.nat({ max: Number.MAX_SAFE_INTEGER }),
})

test('the text of a position reads back as the same position', () => {
  fc.assert(
    fc.property(position, (one) => {
      expect(parsePosition(formatPosition(one))).toEqual(one)
    }),
  )
})

test('LOG_START precedes every position, and the transaction takes precedence over the number', () => {
  fc.assert(
    fc.property(position, (one) => {
      expect(comparePositions(LOG_START, one)).toBeLessThanOrEqual(0)
    }),
  )
  expect(comparePositions({ xid: 2n, seq: 1 }, { xid: 1n, seq: 9 })).toBe(1)
  expect(comparePositions({ xid: 2n, seq: 1 }, { xid: 2n, seq: 9 })).toBeLessThan(0)
})

test.each([
  '',
  '1',
  '1-',
  '-1',
  '1-2-3',
  'a-1',
  '1-1.5',
  '99999999999999999999999-1',
  '18446744073709551616-1',
  '1-9999999999999999',
])('rejects %j as a position', (text) => {
  let refusal: unknown
  try {
    parsePosition(text)
  } catch (error) {
    refusal = error
  }
  expect(kindOf(refusal)).toBe('malformed')
})
