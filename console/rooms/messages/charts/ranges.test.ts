import { expect, test } from 'vitest'
import { calendarRanges, gridOf, intervalOf, nearestOf, parseRange, shifted, stepOf, zoomed } from './ranges.ts'

const DAY = 86_400

test('a step divides a range into at most 300, for any range', () => {
  for (const seconds of [1, 300, 3_600, DAY, 30 * DAY, 365 * DAY, 5_000 * DAY, 400_000 * DAY])
    expect(seconds / stepOf(seconds), `${seconds}`).toBeLessThanOrEqual(300)
  expect([300, 3_600, DAY, 7 * DAY].map(stepOf)).toEqual([1, 30, 300, 3_600])
})

test('the grid holds the range, begins with a whole step, and weeks begin on Monday', () => {
  const range = { from: 1_700_000_007, to: 1_700_003_607 }
  const { start, step, count, first } = gridOf(range)
  expect({ start, step, count, first }).toEqual({ start: 1_699_999_980, step: 30, count: 121, first: 56_666_666 })
  const years = gridOf({ from: 1_600_000_000, to: 1_700_000_000 })
  expect(new Date(years.start * 1_000).getUTCDay()).toBe(1)
  expect(intervalOf(years.step)).toBe('7 days')
  expect(intervalOf(90)).toBe('90s')
})

test('a range is shifted by half of it, and zoomed around a time', () => {
  expect(shifted({ from: 100, to: 200 }, -1)).toEqual({ from: 50, to: 150 })
  expect(shifted({ from: 100, to: 200 }, 1)).toEqual({ from: 150, to: 250 })
  expect(zoomed({ from: 100, to: 200 }, 2)).toEqual({ from: 50, to: 250 })
  expect(zoomed({ from: 100, to: 200 }, 0.5, 125)).toEqual({ from: 112.5, to: 162.5 })
  expect(zoomed({ from: 100, to: 101 }, 0.001, 100)).toEqual({ from: 100, to: 101 })
})

test('the nearest time is the one closest to the range, before or after it', () => {
  const range = { from: 100, to: 200 }
  expect(nearestOf([], range)).toBeUndefined()
  expect(nearestOf([undefined], range)).toBeUndefined()
  expect(nearestOf([90, 230, undefined], range)).toBe(90)
  expect(nearestOf([10, 230], range)).toBe(230)
})

test('an address that is no range is none', () => {
  expect(parseRange('1', '2')).toEqual({ from: 1, to: 2 })
  for (const [from, to] of [
    ['2', '1'],
    ['1', undefined],
    ['x', '2'],
    ['1', ''],
  ] as const)
    expect(parseRange(from, to)).toBeUndefined()
})

test('days, weeks and months of the calendar begin at midnight of the zone', () => {
  const now = Date.UTC(2026, 2, 1, 12)
  const shown = Object.fromEntries(
    calendarRanges(now, true).map(({ name, range }) => [
      name,
      [range.from, range.to].map((at) => new Date(at * 1_000).toISOString().slice(0, 10)),
    ]),
  )
  expect(shown).toEqual({
    Today: ['2026-03-01', '2026-03-02'],
    Yesterday: ['2026-02-28', '2026-03-01'],
    'This week': ['2026-02-23', '2026-03-02'],
    'Last week': ['2026-02-16', '2026-02-23'],
    'This month': ['2026-03-01', '2026-04-01'],
    'Last month': ['2026-02-01', '2026-03-01'],
  })
  const local = calendarRanges(now, false)[0]?.range.from ?? 0
  expect(new Date(local * 1_000).getHours()).toBe(0)
})
