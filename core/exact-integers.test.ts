import fc from 'fast-check'
import { expect, test } from 'vitest'
import { bigIntegersOf, exactIntegersOf, isExactInteger, parseWithExactIntegers } from './exact-integers.ts'

test.each([
  '9007199254740993',
  '{"serial":-9007199254740993,"list":[1,18446744073709551615,"9007199254740993"],"deep":{"a":[{"b":123456789012345678901234567890}]}}',
  '[9007199254740993, 1]',
])('the integers of %s keep their digits', (text) => {
  expect(JSON.stringify(parseWithExactIntegers(text))).toBe(text.replaceAll(', ', ','))
})

test('any integer keeps its digits, and numbers that a double holds stay numbers', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: -(2n ** 80n), max: 2n ** 80n }), (integer) => {
      const text = `{"a":[${integer}]}`
      const value = parseWithExactIntegers(text) as { a: unknown[] }
      expect(JSON.stringify(value)).toBe(text)
      expect(isExactInteger(value.a[0])).toBe(String(Number(integer)) !== String(integer))
      expect(exactIntegersOf(bigIntegersOf(value))).toEqual(value)
    }),
  )
})

test.each(['9007199254740992', '1e400', '-0', '0.12345678901234567890', '10000000000000000', '"12345678901234567890"'])(
  '%s is read as JSON.parse reads it',
  (text) => expect(parseWithExactIntegers(text)).toBe(JSON.parse(text)),
)
