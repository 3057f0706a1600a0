import { expect, test } from 'vitest'
import { startWatch } from './watch.ts'

test('a node that has just begun to watch says of nobody that it is dead', () => {
  const mayJudge = startWatch(1000, 0)
  expect([200, 400, 600, 800].map(mayJudge)).toEqual([false, false, false, false])
  expect(mayJudge(1000)).toBe(true)
})

test('nor does one that could not look for a while, or stood still, until it has watched as long again', () => {
  const mayJudge = startWatch(1000, 0)
  for (const at of [400, 800, 1200]) mayJudge(at)
  expect(mayJudge(1600)).toBe(true)
  expect([20_000, 20_400, 20_800].map(mayJudge)).toEqual([false, false, false])
  expect(mayJudge(21_000)).toBe(true)
})
