import { expect, test } from 'vitest'
import { Suspects } from './suspects.ts'

test('a module is suspected in the domain whose runners it was found in, and nowhere else', () => {
  const suspects = new Suspects()
  const mine = { domain: 'north', digest: 'sha256:1' }
  const same = { domain: 'south', digest: 'sha256:1' }
  for (let death = 0; death < 3; death++) suspects.foundTogether([mine, mine])
  expect(suspects.mustRunAlone(mine)).toBe(true)
  expect(suspects.mustRunAlone(same)).toBe(false)
  expect([1, 2, 3].map(() => suspects.foundAlone(mine))).toEqual([false, false, true])
  expect(suspects.foundAlone(same)).toBe(false)
})
