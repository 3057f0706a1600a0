// task-manager.md section 1 and mechanisms section 6: schedules with time zones
import { expect, test } from 'vitest'
import { dueTicks, nextTick } from './ticks.ts'

const at = (text: string) => new Date(text)

test('a schedule is interpreted in its time zone', () => {
  expect(nextTick('0 9 * * *', 'Europe/Paris', at('2026-07-01T00:00:00Z'))).toEqual(at('2026-07-01T07:00:00Z'))
  expect(nextTick('0 9 * * *', 'Europe/Paris', at('2026-12-01T00:00:00Z'))).toEqual(at('2026-12-01T08:00:00Z'))
  expect(nextTick('0 9 * * *', 'UTC', at('2026-12-01T00:00:00Z'))).toEqual(at('2026-12-01T09:00:00Z'))
})

test('a local hour that is skipped runs once right after it', () => {
  // In Paris 02:00 to 03:00 of 29 March 2026 does not exist: 03:00 is 01:00 UTC.
  const first = nextTick('30 2 * * *', 'Europe/Paris', at('2026-03-28T12:00:00Z'))
  expect(first && first >= at('2026-03-29T01:00:00Z') && first <= at('2026-03-29T01:30:00Z')).toBe(true)
  expect(nextTick('30 2 * * *', 'Europe/Paris', first as Date)).toEqual(at('2026-03-30T00:30:00Z'))
})

test('a local hour that is repeated runs once', () => {
  // In Paris 02:00 to 03:00 of 25 October 2026 comes twice: at 00:00 and at 01:00 UTC.
  const first = nextTick('30 2 * * *', 'Europe/Paris', at('2026-10-24T12:00:00Z'))
  expect(first).toEqual(at('2026-10-25T00:30:00Z'))
  expect(nextTick('30 2 * * *', 'Europe/Paris', first as Date)).toEqual(at('2026-10-26T01:30:00Z'))
})

test('times in a list are skipped and repeated as one time is', () => {
  const ticks = (schedule: string, from: string, count: number) => {
    const found = [at(from)]
    while (found.length <= count) found.push(nextTick(schedule, 'Europe/Paris', found.at(-1) as Date) as Date)
    return found.slice(1).map((tick) => tick.toISOString())
  }
  expect(ticks('30 2,14 * * *', '2026-10-24T22:00:00Z', 3)).toEqual(
    ['2026-10-25T00:30:00Z', '2026-10-25T13:30:00Z', '2026-10-26T01:30:00Z'].map((text) => at(text).toISOString()),
  )
  expect(ticks('30 2,14 * * *', '2026-03-28T23:00:00Z', 3)).toEqual(
    ['2026-03-29T01:00:00Z', '2026-03-29T12:30:00Z', '2026-03-30T00:30:00Z'].map((text) => at(text).toISOString()),
  )
})

test('an hourly schedule continues through a repeated hour', () => {
  const next = nextTick('0 * * * *', 'Europe/Paris', at('2026-10-25T00:00:00Z'))
  expect(next).toEqual(at('2026-10-25T01:00:00Z'))
})

test('the newest of several due ticks is used', () => {
  const due = dueTicks('*/10 * * * *', 'UTC', at('2026-01-01T00:00:00Z'), at('2026-01-01T00:25:00Z'))
  expect(due).toEqual({ latest: at('2026-01-01T00:20:00Z'), missed: 2, next: at('2026-01-01T00:30:00Z') })
})

test('a year of missed seconds is not iterated one by one', () => {
  const due = dueTicks('* * * * * *', 'UTC', at('2025-01-01T00:00:00Z'), at('2026-01-01T00:00:00.500Z'))
  expect(due.latest.getTime()).toBeGreaterThan(at('2025-12-31T23:59:58Z').getTime())
  expect(due.next).toEqual(at('2026-01-01T00:00:01Z'))
})
