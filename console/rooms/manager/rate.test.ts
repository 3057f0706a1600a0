import { expect, test } from 'vitest'
import { rateOf } from './rate.ts'

test.each([
  [{ runs: 100, seconds: 10 }, '10 runs a second'],
  [{ runs: 100, seconds: 0 }, '100 runs a second'],
  [{ runs: 1, seconds: 45 }, '1 run a minute'],
  [{ runs: 100, seconds: 36_000 }, '10 runs an hour'],
  [{ runs: 7, seconds: 604_800 }, '1 run a day'],
  [{ runs: 1, seconds: 900_000 }, 'less than one run a day'],
])('%o is %s', (recent, words) => {
  expect(rateOf(recent)).toBe(words)
})
