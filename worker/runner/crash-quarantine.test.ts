import { expect, test } from 'vitest'
import { CrashQuarantine } from './crash-quarantine.ts'

test('a module is quarantined only in the domain whose runners crashed', () => {
  const quarantine = new CrashQuarantine()
  const mine = { domain: 'north', digest: 'sha256:1' }
  const same = { domain: 'south', digest: 'sha256:1' }
  for (let death = 0; death < 3; death++) quarantine.recordSharedCrash([mine, mine])
  expect(quarantine.mustRunAlone(mine)).toBe(true)
  expect(quarantine.mustRunAlone(same)).toBe(false)
  expect([1, 2, 3].map(() => quarantine.recordLoneCrash(mine))).toEqual([false, false, true])
  expect(quarantine.recordLoneCrash(same)).toBe(false)
})
