/** Due times of cron expressions: which one is acted upon after a while in which nobody looked. Pure. */
import { readCron as read } from './cron.ts'

/** A tick that is later than this is missed. */
export const LATE_MS = 60_000
/** A computed time takes some 50 µs. */
const MAX_COUNTED = 60

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
    // After a long time not every missed second is counted.
    if (missed >= MAX_COUNTED) {
      return { latest: cron.previousRuns(1, now)[0] ?? latest, missed, next: cron.nextRun(now) ?? undefined }
    }
  }
}

export type TickPlan = {
  /** The time to act upon; undefined: none. */
  start: Date | undefined
  /** The newest due time. */
  latest: Date
  next: Date | undefined
  /** Earlier due times, which are skipped. */
  skipped: number
}

/** `catchUp` once: the newest due time is acted upon however late it is. */
export function planTicks(
  { schedule, timezone, catchUp }: { schedule: string; timezone: string; catchUp: 'none' | 'once' },
  first: Date,
  now: Date,
): TickPlan {
  const { latest, missed, next } = dueTicks(schedule, timezone, first, now)
  const isLate = now.getTime() - latest.getTime() > LATE_MS
  return { start: isLate && catchUp === 'none' ? undefined : latest, latest, next, skipped: missed }
}
