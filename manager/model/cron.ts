/** Ticks of cron expressions with time zones (task-manager.md section 1). Pure. */
import { readCron as read } from '#core/cron.ts'

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
