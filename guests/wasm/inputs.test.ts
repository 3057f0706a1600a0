import fc from 'fast-check'
import { expect, test } from 'vitest'
import { parseInputs } from './inputs.ts'
import { presentResult } from './numbers.ts'
import type { ValueType } from './value-types.ts'

test('accepts numbers and decimal text for each type', () => {
  expect(parseInputs([5, '7', 1.5, '2.5e3'], ['i32', 'i64', 'f32', 'f64'], 'f')).toEqual([5, 7n, 1.5, 2500])
})

test.each<[string, (number | string)[], ValueType[], string]>([
  ['too few', [1], ['i32', 'i32'], 'f takes 2 inputs (i32, i32), not 1'],
  ['too many', [1], [], 'f takes 0 inputs (), not 1'],
  ['a fraction for an integer', [1.5], ['i32'], 'input 0 must be an integer from -2147483648 to 4294967295'],
  ['an i32 above 2^32', [2 ** 32], ['i32'], 'input 0 must be an integer'],
  ['an i64 above 2^64', ['18446744073709551616'], ['i64'], 'input 0 must be an integer'],
  ['an unsafe number for an i64', [2 ** 60], ['i64'], 'as decimal text beyond 2^53'],
  ['text that is no number', ['five'], ['f64'], 'within the range of f64'],
  ['hexadecimal text', ['0x10'], ['i32'], 'input 0 must be an integer'],
  ['a number beyond f32', [1e39], ['f32'], 'within the range of f32'],
  ['an infinity in disguise', ['1e400'], ['f64'], 'within the range of f64'],
  ['a reference', [0], ['externref'], 'which cannot be given as JSON'],
])('rejects %s and lists the accepted inputs', (_, inputs, params, sentence) => {
  expect(parseInputs(inputs, params, 'f')).toEqual({ refused: expect.stringContaining(sentence) as string })
})

test('formats integers beyond 2^53 as decimal text without loss', () => {
  expect(presentResult(2n ** 53n)).toBe(9007199254740992)
  expect(presentResult(2n ** 53n + 1n)).toBe('9007199254740993')
  fc.assert(
    fc.property(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }), (value) => {
      expect(BigInt(presentResult(value))).toBe(value)
    }),
  )
})

test('formats values that JSON cannot represent by name', () => {
  expect([NaN, Infinity, -Infinity].map(presentResult)).toEqual(['NaN', 'Infinity', '-Infinity'])
})
