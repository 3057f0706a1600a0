import { expect, test } from 'vitest'
import { pauseAfter } from './folder.ts'

test('a round of few rows is followed by the interval, one of many by a longer pause, which is bounded', () => {
  expect(pauseAfter(0, 2_000)).toBe(2_000)
  expect(pauseAfter(20_000, 2_000)).toBe(2_000)
  expect(pauseAfter(100_000, 2_000)).toBe(3_000)
  expect(pauseAfter(1_000_000, 2_000)).toBe(6_000)
  // Tests shorten the interval, and then wait for no longer than three of them.
  expect(pauseAfter(1_000_000, 20)).toBe(60)
})
