/** The interval of an aggregation: a Go duration, or words (contract section 8). */
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { parseDurationMs } from '#core/time.ts'

/**
 * A length below a day, which counts from midnight of a time zone, or a number of calendar units, which begin at midnight. Multiples of 24
 * hours are days, and weeks are 7 days.
 */
export type Interval = { kind: 'fixed'; seconds: number } | { kind: 'calendar'; unit: 'day' | 'month'; count: number }

const WORDS = /^(\d{1,9}) ?(second|minute|hour|day|week|month|year)s?$/i
const SECONDS: Readonly<Record<string, number>> = { second: 1, minute: 60, hour: 3600 }
/** Longer intervals would exceed the range of times. */
const MAX_YEARS = 1000
export const DAY_SECONDS = 86_400
const MAX_SECONDS = MAX_YEARS * 365 * DAY_SECONDS
const MAX_COUNTS = { day: MAX_YEARS * 365, month: MAX_YEARS * 12 } as const
/** PostgreSQL stores times in microseconds. */
const MIN_SECONDS = 1e-6

/** Throws `malformed` for anything that is neither, for zero, for more than 1000 years, and for a day and a part of one. */
export function parseInterval(text: string): Interval {
  const words = WORDS.exec(text.trim())
  const interval = words === null ? parseFixed(text) : inWords(Number(words[1]), (words[2] as string).toLowerCase())
  const tooLong =
    interval.kind === 'fixed'
      ? !(interval.seconds >= MIN_SECONDS && interval.seconds <= MAX_SECONDS)
      : interval.count < 1 || interval.count > MAX_COUNTS[interval.unit]
  if (tooLong) throw refusal()
  return interval.kind === 'fixed' ? inDays(interval.seconds) : interval
}

function inDays(seconds: number): Interval {
  if (seconds < DAY_SECONDS) return { kind: 'fixed', seconds }
  if (seconds % DAY_SECONDS === 0) return { kind: 'calendar', unit: 'day', count: seconds / DAY_SECONDS }
  throw refusedField('interval', 'must be shorter than a day or a whole number of days, such as 24h or 2 days')
}

function parseFixed(text: string): Interval {
  try {
    return { kind: 'fixed', seconds: parseDurationMs(text, 'interval') / 1000 }
  } catch (error) {
    throw error instanceof ServiceError ? refusal() : error
  }
}

function inWords(count: number, unit: string): Interval {
  const seconds = SECONDS[unit]
  if (seconds !== undefined) return { kind: 'fixed', seconds: count * seconds }
  if (unit === 'year') return { kind: 'calendar', unit: 'month', count: count * 12 }
  if (unit === 'week') return { kind: 'calendar', unit: 'day', count: count * 7 }
  return { kind: 'calendar', unit: unit as 'day' | 'month', count }
}

const refusal = () =>
  refusedField('interval', 'must be a duration such as 90s or 1h30m, or words such as 15 minutes, 1 day or 1 month')
