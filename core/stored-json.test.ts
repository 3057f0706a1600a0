import fc from 'fast-check'
import { expect, test } from 'vitest'
import { parseWithExactIntegers } from './exact-integers.ts'
import { storedBytes } from './stored-json.ts'

test.each([
  ['{}', 2],
  ['{"a":"1e308"}', 13],
  ['{"a":"ü"}', 10],
  ['[1,2.5,null,true]', 17],
  ['[123456789012345678901234567890,"2e+5"]', 39],
])('%s has the bytes of its text', (text, bytes) => {
  expect(storedBytes(parseWithExactIntegers(text))).toBe(bytes)
})

test('nothing has no bytes', () => {
  expect(storedBytes(undefined)).toBe(0)
})

/** The digits of a number without an exponent, as PostgreSQL writes them. */
function digitsOf(value: number): number {
  const [, whole = '', fraction = '', exponent = '0'] = /^-?(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(value)) ?? []
  const at = whole.length + Number(exponent)
  const sign = value < 0 ? 1 : 0
  if (at <= 0) return sign + '0.'.length - at + whole.length + fraction.length
  return sign + Math.max(at, whole.length + fraction.length + (at < whole.length + fraction.length ? 1 : 0))
}

test('a number is counted with all of its digits', () => {
  expect(digitsOf(1e308)).toBe(309)
  expect(digitsOf(1e-300)).toBe(302)
  expect(digitsOf(-1.5)).toBe(4)
  fc.assert(
    fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (value) => {
      expect(storedBytes({ a: [value] })).toBeGreaterThanOrEqual('{"a":[]}'.length + digitsOf(value))
    }),
  )
  expect(storedBytes(Array.from({ length: 1000 }, () => 1e308))).toBeGreaterThan(309_000)
})
