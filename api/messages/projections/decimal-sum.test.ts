import { expect, test } from 'vitest'
import { DecimalSum } from './decimal-sum.ts'

function sumOf(...values: number[]): string | null {
  const sum = new DecimalSum()
  for (const value of values) sum.add(value)
  return sum.toNumeric()
}

test('decimals are added exactly, in any order', () => {
  expect(sumOf()).toBe(null)
  expect(sumOf(0.1, 0.2)).toBe('300000e-6')
  expect(sumOf(-1.5)).toBe('-1500000e-6')
  expect(sumOf(1e16, 0.1, -1e16)).toBe('100000e-6')
  expect(sumOf(1 / 3)).toBe('3333333333333333e-16')
  expect(sumOf(1 / 3, 1)).toBe('13333333333333333e-16')
  expect(sumOf(1.25e-7, 2e20)).toBe('200000000000000000000000000125e-9')
})

test('no digit beyond the precision of a double is lost', () => {
  const sum = new DecimalSum()
  for (let turn = 0; turn < 20; turn++) sum.add(999_999_999.999_999)
  expect(sum.toNumeric()).toBe('19999999999999980e-6')
})

test('the smallest and largest doubles are added', () => {
  expect(sumOf(1.7e308, -1.7e308)).toBe('0')
  expect(sumOf(5e-324)).toBe('5e-324')
})

test('the decimal of a large integer is the one that PostgreSQL writes', () => {
  // String() gives 24443399539154030, which lies halfway to the next double.
  expect(sumOf(-24_443_399_539_154_032)).toBe('-24443399539154032')
  expect(sumOf(24_922_153_550_676_912)).toBe('24922153550676912')
  // Of 75599760555289000 too, and 75599760555288990, a digit longer, does not.
  expect(sumOf(75_599_760_555_288_992)).toBe('75599760555288990')
  expect(sumOf(2 ** 53)).toBe('9007199254740992')
  expect(sumOf(1.797_693_134_862_315_7e308)).toBe(`17976931348623157${'0'.repeat(292)}`)
})
