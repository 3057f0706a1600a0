/** Ticks of cron expressions with time zones: which are due, which were missed, and what is made up for. Pure. */
import { readCron as read } from './cron.ts'

/** A tick that is later than this is missed. */
export const LATE_TICK_MS = 60_000

export type Timetable = { schedule: string; timezone: string; catchUp: 'none' | 'once' }

export type TickPlan = {
  /** The time to start something for; undefined: none. */
  start: Date | undefined
  /** The newest due time. */
  latest: Date
  next: Date | undefined
  /** Earlier due times, which start nothing. */
  skipped: number
}

/** `first` is a tick that is due. Those that were missed are caught up once with the newest, or not at all. */
export function planTicks({ schedule, timezone, catchUp }: Timetable, first: Date, now: Date): TickPlan {
  const { latest, missed, next } = dueTicks(schedule, timezone, first, now)
  const isLate = now.getTime() - latest.getTime() > LATE_TICK_MS
  return { start: isLate && catchUp === 'none' ? undefined : latest, latest, next, skipped: missed }
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
    // After a long downtime not every missed second is counted.
    if (missed >= MAX_COUNTED) {
      return { latest: cron.previousRuns(1, now)[0] ?? latest, missed, next: cron.nextRun(now) ?? undefined }
    }
  }
}

/** A computed time takes some 50 µs. */
const MAX_COUNTED = 60
