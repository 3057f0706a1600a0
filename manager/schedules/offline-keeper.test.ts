// decision 0161: when an offline task changes hands
import { expect, test } from 'vitest'
import { firstTickOf } from './offline-keeper.ts'

const NOW = new Date('2026-11-30T08:59:50Z')
const first = (schedule: string, next: string | null) =>
  firstTickOf({ schedule, timezone: 'UTC', next_tick_at: next }, NOW)

test('the worker starts with the next tick, if no manager can be starting it', () => {
  expect(first('0 9 * * *', '2026-11-30T09:00:00Z')).toEqual({
    firstTick: new Date('2026-11-30T09:00:00Z'),
    skipped: 0,
  })
})

test.each([
  ['that is near', '2026-11-30T08:59:54Z'],
  ['that is due', '2026-11-30T08:59:50Z'],
  ['that is due since years', '2020-01-01T09:00:00Z'],
  ['that does not exist', null],
])('a tick %s is left to the manager', (_what, next) => {
  expect(first('0 9 * * *', next)).toBeUndefined()
  expect(first('* * * * * *', next === '2026-11-30T08:59:54Z' ? null : next)).toBeUndefined()
})

test('a schedule without a pause that is long enough skips some ticks, and counts them', () => {
  expect(first('* * * * * *', '2026-11-30T08:59:51Z')).toEqual({
    firstTick: new Date('2026-11-30T08:59:56Z'),
    skipped: 5,
  })
})
