/**
 * Cron expressions with time zones (task-manager.md section 1). Pure. Ticks that name their times have one right after a local
 * hour that is skipped, and one in an hour that is repeated; those with `*` or a step in the time of day go on as time does.
 */
import { Cron } from 'croner'
import { refusedField } from '#core/errors/index.ts'

const MAX_EXPRESSION_CHARS = 256

/** Throws what the library says. */
function read(schedule: string, timezone: string): Cron {
  // Otherwise it would be a single moment.
  if (schedule.includes(':')) throw new TypeError('a time is no cron expression')
  return new Cron(schedule, { timezone, paused: true, mode: '5-or-6-parts', fixedTimeRule: 'no-wildcard' })
}

/** The first tick after `after`; undefined: there is none any more. */
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
    // A manager that was away for long does not count every second of it.
    if (missed >= MAX_COUNTED) {
      return { latest: cron.previousRuns(1, now)[0] ?? latest, missed, next: cron.nextRun(now) ?? undefined }
    }
  }
}

const MAX_COUNTED = 1_000

/** Throws `malformed` naming the field. */
export function requireSchedule(schedule: string, timezone: string): void {
  try {
    new Intl.DateTimeFormat('en', { timeZone: timezone })
  } catch {
    throw refusedField('/timezone', 'must be a time zone such as Europe/Paris')
  }
  if (schedule.length > MAX_EXPRESSION_CHARS)
    throw refusedField('/schedule', `must have at most ${MAX_EXPRESSION_CHARS} characters`)
  let next: Date | undefined
  try {
    next = nextTick(schedule, timezone, new Date(0))
  } catch {
    throw refusedField('/schedule', 'must be a cron expression of five or six fields')
  }
  if (next === undefined) throw refusedField('/schedule', 'must be a cron expression that comes true')
}
