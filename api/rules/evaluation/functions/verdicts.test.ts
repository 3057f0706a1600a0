import { expect, test } from 'vitest'
import { verdictsOf } from './verdicts.ts'

test('each item is a boolean, a severity, or nothing', () => {
  expect(verdictsOf([true, false, null, 'major', 'loud', 1, {}], 7)).toEqual([
    { holds: true },
    { holds: false },
    { holds: false },
    { holds: true, severity: 'major' },
    undefined,
    undefined,
    undefined,
  ])
})

test('a result that is no list, or has another length, decides nothing', () => {
  for (const results of [true, null, 'major', { holds: true }])
    expect(verdictsOf(results, 1)).toMatch(/^its function must return a list with one item for each message/)
  expect(verdictsOf([true], 2)).toBe('its function returned 1 items for 2 messages: it must return one for each')
})
