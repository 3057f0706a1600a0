/** Schedules that users give: a cron expression and its time zone, refused at their fields. */
import { readCron } from './cron.ts'
import { refusedField } from './errors/index.ts'

const MAX_EXPRESSION_CHARS = 256

/** Throws `malformed` naming the field, `schedule` or `timezone`. */
export function requireSchedule(schedule: string, timezone: string): void {
  try {
    new Intl.DateTimeFormat('en', { timeZone: timezone })
  } catch {
    throw refusedField('/timezone', 'must be a time zone such as Europe/Paris')
  }
  if (schedule.length > MAX_EXPRESSION_CHARS)
    throw refusedField('/schedule', `must be at most ${MAX_EXPRESSION_CHARS} characters`)
  let next: Date | null
  try {
    next = readCron(schedule, timezone).nextRun(new Date())
  } catch {
    throw refusedField('/schedule', 'must be a cron expression of five or six fields')
  }
  if (next === null) throw refusedField('/schedule', 'must be a cron expression with a future time')
}
