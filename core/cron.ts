/** Cron expressions with time zones: one reading of them, for the program that follows them and for a form that shows what they mean. */
import { Cron } from 'croner'

/**
 * Five fields, or six with seconds first. Expressions with fixed times have one time right after a skipped local hour, and one in a
 * repeated hour; those with `*` or a step in the time of day follow elapsed time. Throws the error of the library.
 */
export function readCron(expression: string, timezone: string): Cron {
  // The library would accept it as a single moment.
  if (expression.includes(':')) throw new TypeError('a time is not a cron expression')
  return new Cron(expression, { timezone, paused: true, mode: '5-or-6-parts', fixedTimeRule: 'no-wildcard' })
}

/** The first times after `after`; fewer than `count`, if there are no more. Throws as `readCron` does. */
export function nextTimes(expression: string, timezone: string, after: Date, count: number): Date[] {
  return readCron(expression, timezone).nextRuns(count, after)
}
