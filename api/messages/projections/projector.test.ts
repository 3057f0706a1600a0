import { expect, test } from 'vitest'
import { pauseAfter } from './projector.ts'

test('a short round is followed by the interval, a long one by a longer, bounded pause', () => {
  expect(pauseAfter(0, 2_000)).toBe(2_000)
  expect(pauseAfter(900, 2_000)).toBe(2_000)
  expect(pauseAfter(1_500, 2_000)).toBe(3_000)
  expect(pauseAfter(60_000, 2_000)).toBe(6_000)
})
