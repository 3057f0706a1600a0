import { expect, test } from 'vitest'
import { startWatch } from './watch.ts'

test('a node that has just begun to watch declares no other node dead', () => {
  const mayDeclareDead = startWatch(1000, 0)
  expect([200, 400, 600, 800].map(mayDeclareDead)).toEqual([false, false, false, false])
  expect(mayDeclareDead(1000)).toBe(true)
})

test('a node that could not watch for a while, or was suspended, declares none dead until it has watched for the full time again', () => {
  const mayDeclareDead = startWatch(1000, 0)
  for (const at of [400, 800, 1200]) mayDeclareDead(at)
  expect(mayDeclareDead(1600)).toBe(true)
  expect([20_000, 20_400, 20_800].map(mayDeclareDead)).toEqual([false, false, false])
  expect(mayDeclareDead(21_000)).toBe(true)
})
