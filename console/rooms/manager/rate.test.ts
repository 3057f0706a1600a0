import { expect, test } from 'vitest'
import { rateOf } from './rate.ts'

test.each([
  [{ runs: 100, seconds: 10 }, '10 runs a second'],
  [{ runs: 100, seconds: 0 }, '100 runs a second'],
  [{ runs: 10, seconds: 450 }, '1 run a minute'],
  [{ runs: 100, seconds: 36_000 }, '10 runs an hour'],
  [{ runs: 14, seconds: 1_209_600 }, '1 run a day'],
  [{ runs: 10, seconds: 9_000_000 }, 'less than one run a day'],
])('%o is %s', (recent, words) => {
  expect(rateOf(recent)).toBe(words)
})

test.each([
  [{ runs: 1, seconds: 2 }, '1 run in the last 2.0 s'],
  [{ runs: 1, seconds: 0 }, '1 run in the last 1.0 s'],
  [{ runs: 9, seconds: 7_200 }, '9 runs in the last 2.0 h'],
])('a few runs are counted and make no rate: %o is %s', (recent, words) => {
  expect(rateOf(recent)).toBe(words)
})
