/**
 * Cron expressions with time zones (task-manager.md section 1). Pure. Expressions with fixed times have one tick right
 * after a skipped local hour, and one in a repeated hour; those with `*` or a step in the time of day follow elapsed
 * time.
 */
import { Cron } from 'croner'
import { refusedField } from '#core/errors/index.ts'

const MAX_EXPRESSION_CHARS = 256

/** Throws the error of the library. */
function read(schedule: string, timezone: string): Cron {
  // The library would accept it as a single moment.
  if (schedule.includes(':')) throw new TypeError('a time is not a cron expression')
  return new Cron(schedule, { timezone, paused: true, mode: '5-or-6-parts', fixedTimeRule: 'no-wildcard' })
}

/** The first tick after `after`; undefined if there are no more. */
export function nextTick(schedule: string, timezone: string, after: Date): Date | undefined {
  return read(schedule, timezone).nextRun(after) ?? undefined
}

/**
 * The newest tick that is due at `now`, and the first one after it. `first` is a tick that is due.
 */
export function dueTicks(
  schedule: string,
  timezone: string,
  first: Date,
  now: Date,
): { latest: Date; missed: number; next: Date | undefined } {
  const cron = read(schedule, timezone)
  let latest = first
  let missed = 0
  for (;;) {
    const next = cron.nextRun(latest) ?? undefined
    if (next === undefined || next > now) return { latest, missed, next }
    latest = next
    missed += 1
    // After a long downtime the manager does not count every missed second.
    if (missed >= MAX_COUNTED) {
      return { latest: cron.previousRuns(1, now)[0] ?? latest, missed, next: cron.nextRun(now) ?? undefined }
    }
  }
}

/** A computed time takes some 50 µs. */
const MAX_COUNTED = 60

/** Throws `malformed` naming the field. */
export function requireSchedule(schedule: string, timezone: string): void {
  try {
    new Intl.DateTimeFormat('en', { timeZone: timezone })
  } catch {
    throw refusedField('/timezone', 'must be a time zone such as Europe/Paris')
  }
  if (schedule.length > MAX_EXPRESSION_CHARS)
    throw refusedField('/schedule', `must be at most ${MAX_EXPRESSION_CHARS} characters`)
  let next: Date | undefined
  try {
    next = nextTick(schedule, timezone, new Date(0))
  } catch {
    throw refusedField('/schedule', 'must be a cron expression of five or six fields')
  }
  if (next === undefined) throw refusedField('/schedule', 'must be a cron expression with a future time')
}
