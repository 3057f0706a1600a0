import { expect, it } from 'vitest'
import { retryAfterMs } from './retry-after.ts'

it('reads seconds and dates, and a date in the past as now', () => {
  const now = Date.parse('2026-11-21T10:00:00Z')
  expect(retryAfterMs('7', now)).toBe(7000)
  expect(retryAfterMs('Sat, 21 Nov 2026 10:00:30 GMT', now)).toBe(30_000)
  expect(retryAfterMs('Sat, 21 Nov 2026 09:00:00 GMT', now)).toBe(0)
  expect(retryAfterMs(undefined, now)).toBeUndefined()
  expect(retryAfterMs('soon', now)).toBeUndefined()
})
