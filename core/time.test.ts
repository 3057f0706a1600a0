/** Timestamps in the API and durations in settings (contract section 0). */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { kindOf } from './errors/index.ts'
import { ZERO_TIME, formatDurationMs, formatTime, parseDurationMs, parseInstant, sleep, withDeadline } from './time.ts'

describe('a time', () => {
  test.each([
    [undefined, ZERO_TIME],
    [null, '0001-01-01T00:00:00Z'],
    [new Date(Date.UTC(2026, 10, 21, 1, 2, 3, 4)), '2026-11-21T01:02:03.004000Z'],
    ['2026-11-21 01:02:03.456789+00', '2026-11-21T01:02:03.456789Z'],
    ['2026-11-21 01:02:03+00', '2026-11-21T01:02:03.000000Z'],
    ['2026-11-21 01:02:03.4+00:00', '2026-11-21T01:02:03.400000Z'],
    ['2026-11-21T01:02:03.4Z', '2026-11-21T01:02:03.400000Z'],
  ])('%j is formatted as %j', (value, text) => {
    expect(formatTime(value)).toBe(text)
  })

  test.each(['infinity', '2026-11-21', '2026-11-21 01:02:03+02', '0044-03-15 00:00:00+00 BC'])(
    '%j is not a UTC time of the database',
    (text) => {
      expect(() => formatTime(text)).toThrow('not a UTC timestamp')
    },
  )
})

describe('an instant', () => {
  test.each([
    ['2026-11-21T01:02:03Z', '2026-11-21T01:02:03.0Z'],
    ['2026-11-21t01:02:03.123456789z', '2026-11-21T01:02:03.123456789Z'],
    ['2028-02-29T01:02:03+23:00', '2028-02-28T02:02:03.0Z'],
    ['2026-03-01T00:30:00.5+01:00', '2026-02-28T23:30:00.5Z'],
  ])('%j is %j', (text, utc) => {
    expect(parseInstant(text, 'from')).toBe(utc)
  })

  test.each([
    'yesterday',
    '2026-11-21',
    '2026-11-21T01:02:03',
    '2026-02-30T00:00:00Z',
    '2026-02-29T00:00:00Z',
    '2026-13-01T00:00:00Z',
    '2026-11-21T25:00:00Z',
    '0000-01-01T00:00:00Z',
    '0001-01-01T00:00:00+01:00',
    '9999-12-31T23:59:59-01:00',
  ])('%j is refused', (text) => {
    expect(() => parseInstant(text, 'from')).toThrow('must be a time')
  })
})

describe('a duration', () => {
  test.each([
    ['90s', 90_000],
    ['1h30m', 5_400_000],
    ['1.5h', 5_400_000],
    ['250ms', 250],
    ['1us', 0.001],
    ['1µs', 0.001],
    ['0', 0],
  ])('%j is %d ms', (text, durationMs) => {
    expect(parseDurationMs(text)).toBeCloseTo(durationMs, 9)
  })

  test.each(['', '1', '-1s', '1d', '1 s', 's', '1s ', '1e3s', `${'9'.repeat(400)}h`])(
    '%j is rejected with the name of its field',
    (text) => {
      let refusal: unknown
      try {
        parseDurationMs(text, 'interval')
      } catch (error) {
        refusal = error
      }
      expect(kindOf(refusal)).toBe('malformed')
      expect(String(refusal)).toContain('interval must be a duration such as')
    },
  )

  test('is parsed and formatted without loss, to the millisecond', () => {
    fc.assert(
      fc.property(fc.nat({ max: 10 ** 12 }), (durationMs) => {
        expect(parseDurationMs(formatDurationMs(durationMs))).toBe(durationMs)
      }),
    )
    expect(formatDurationMs(-5)).toBe('0s')
  })
})

describe('waiting', () => {
  test('ends with the reason of the signal, also when it is already aborted', async () => {
    const abort = new AbortController()
    const waiting = sleep(3_600_000, abort.signal)
    abort.abort(new Error('stopping'))
    await expect(waiting).rejects.toThrow('stopping')
    await expect(sleep(3_600_000, abort.signal)).rejects.toThrow('stopping')
  })

  test('longer than the maximum of a timer still waits', async () => {
    const abort = new AbortController()
    const late = withDeadline(sleep(10 ** 12, abort.signal), 10 ** 12, 'the end of days')
    const first = await Promise.race([late, sleep(20).then(() => 'still waiting')])
    expect(first).toBe('still waiting')
    abort.abort(new Error('enough'))
    await expect(late).rejects.toThrow('enough')
  })

  test('for work has a deadline that names the work, and returns its outcome', async () => {
    await expect(withDeadline(new Promise(() => undefined), 1, 'the work')).rejects.toMatchObject({
      kind: 'timeout',
      message: 'the work did not finish within 1ms',
    })
    await expect(withDeadline(Promise.reject(new Error('broken')), 1000, 'the work')).rejects.toThrow('broken')
    expect(await withDeadline(Promise.resolve(7), 1000, 'the work')).toBe(7)
  })
})
