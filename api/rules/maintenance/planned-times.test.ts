import { expect, test } from 'vitest'
import { PlannedTimes, neverEnds } from './planned-times.ts'

const HOUR_MS = 3_600_000
const at = (text: string) => Date.parse(text)
const scheduled = (
  expression: string,
  timezone: string,
  durationMs: number,
  bounds: { from?: string; to?: string } = {},
) =>
  new PlannedTimes({
    startsAtMs: bounds.from === undefined ? null : at(bounds.from),
    endsAtMs: bounds.to === undefined ? null : at(bounds.to),
    schedule: { expression, timezone, durationMs },
  })

/** When the maintenance ends that the time is in. */
const endOf = (times: PlannedTimes, text: string) => {
  const ms = times.endAt(at(text))
  return ms === undefined ? undefined : new Date(ms).toISOString()
}

test('once: from its start until before its end', () => {
  const times = new PlannedTimes({ startsAtMs: 1_000, endsAtMs: 2_000, schedule: null })
  expect([999, 1_000, 1_999, 2_000].map((ms) => times.endAt(ms))).toEqual([undefined, 2_000, 2_000, undefined])
  expect([999, 1_000].map((ms) => times.nextStart(ms))).toEqual([1_000, undefined])
})

test.each([
  // Each Sunday at 02:00 in winter and in summer.
  ['0 2 * * 0', '2026-01-04T00:59:59.999Z', undefined],
  ['0 2 * * 0', '2026-01-04T01:00:00.000Z', '2026-01-04T03:00:00.000Z'],
  ['0 2 * * 0', '2026-01-04T02:59:59.999Z', '2026-01-04T03:00:00.000Z'],
  ['0 2 * * 0', '2026-01-04T03:00:00.000Z', undefined],
  ['0 2 * * 0', '2026-07-05T00:00:00.000Z', '2026-07-05T02:00:00.000Z'],
  ['0 2 * * 0', '2026-07-06T00:00:00.000Z', undefined],
  // The night in which 02:00 to 03:00 is skipped: it starts right after, and lasts as long.
  ['30 2 * * *', '2026-03-29T00:59:59.999Z', undefined],
  ['30 2 * * *', '2026-03-29T01:00:00.000Z', '2026-03-29T03:00:00.000Z'],
  ['30 2 * * *', '2026-03-29T03:00:00.000Z', undefined],
  // It began before the hour that is skipped.
  ['30 1 * * *', '2026-03-29T02:29:00.000Z', '2026-03-29T02:30:00.000Z'],
  // The night in which 02:00 to 03:00 is twice: it starts once, and lasts as long.
  ['30 2 * * *', '2026-10-25T00:29:59.999Z', undefined],
  ['30 2 * * *', '2026-10-25T00:30:00.000Z', '2026-10-25T02:30:00.000Z'],
  ['30 2 * * *', '2026-10-25T01:30:00.000Z', '2026-10-25T02:30:00.000Z'],
  ['30 2 * * *', '2026-10-25T02:30:00.000Z', undefined],
])('%s for 2 h in Berlin at %s', (expression, text, end) => {
  expect(endOf(scheduled(expression, 'Europe/Berlin', 2 * HOUR_MS), text)).toBe(end)
})

test('is the same in whatever order it is asked', () => {
  const times = scheduled('0 2 * * *', 'Europe/Berlin', 2 * HOUR_MS)
  const asked = Array.from({ length: 24 * 12 }, (_, step) => at('2026-10-25T00:00:00Z') + (step * HOUR_MS) / 12)
  const alone = (ms: number) => scheduled('0 2 * * *', 'Europe/Berlin', 2 * HOUR_MS).endAt(ms)
  expect(asked.map((ms) => times.endAt(ms))).toEqual(asked.map(alone))
  expect(asked.toReversed().map((ms) => times.endAt(ms))).toEqual(asked.toReversed().map(alone))
})

test('times that follow each other are one', () => {
  const times = scheduled('0 2,3 * * *', 'UTC', HOUR_MS)
  expect(endOf(times, '2026-05-01T02:30:00Z')).toBe('2026-05-01T04:00:00.000Z')
  expect(endOf(times, '2026-05-01T04:00:00Z')).toBeUndefined()
})

test('nothing is outside of its bounds', () => {
  const times = scheduled('0 2 * * *', 'UTC', 2 * HOUR_MS, { from: '2026-05-02T03:00:00Z', to: '2026-05-04T02:30:00Z' })
  expect(endOf(times, '2026-05-02T02:30:00Z')).toBeUndefined()
  expect(endOf(times, '2026-05-02T03:00:00Z')).toBe('2026-05-02T04:00:00.000Z')
  expect(endOf(times, '2026-05-04T02:00:00Z')).toBe('2026-05-04T02:30:00.000Z')
  expect(endOf(times, '2026-05-04T02:30:00Z')).toBeUndefined()
  const starts = ['2026-05-01T00:00:00Z', '2026-05-02T03:00:00Z', '2026-05-04T02:00:00Z'].map((text) => {
    const ms = times.nextStart(at(text))
    return ms === undefined ? undefined : new Date(ms).toISOString()
  })
  expect(starts).toEqual(['2026-05-02T03:00:00.000Z', '2026-05-03T02:00:00.000Z', undefined])
})

test.each([
  ['0 2 * * *', 24, true],
  ['0 2 * * *', 22, false],
  // The day of 23 hours is among the starts.
  ['0 2 * * *', 23, true],
  ['0 2 * * 0', 24, false],
])('%s for %i h never ends: %s', (expression, hours, expected) => {
  const schedule = { expression, timezone: 'Europe/Berlin', durationMs: hours * HOUR_MS }
  expect(neverEnds({ startsAtMs: null, endsAtMs: null, schedule }, at('2026-03-20T00:00:00Z'))).toBe(expected)
})
