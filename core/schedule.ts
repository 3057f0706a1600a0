/** Schedules that users give: a cron expression and its time zone, refused at their fields. */
import { readCron } from './cron.ts'
import { refusedField } from './errors/index.ts'

const MAX_EXPRESSION_CHARS = 256

/** Throws `malformed` naming the field, `schedule` or `timezone`; `within`: of the object at this path. */
export function requireSchedule(schedule: string, timezone: string, within = ''): void {
  try {
    new Intl.DateTimeFormat('en', { timeZone: timezone })
  } catch {
    throw refusedField(`${within}/timezone`, 'must be a time zone such as Europe/Paris')
  }
  if (schedule.length > MAX_EXPRESSION_CHARS)
    throw refusedField(`${within}/schedule`, `must be at most ${MAX_EXPRESSION_CHARS} characters`)
  let next: Date | null
  try {
    next = readCron(schedule, timezone).nextRun(new Date())
  } catch {
    throw refusedField(`${within}/schedule`, 'must be a cron expression of five or six fields')
  }
  if (next === null) throw refusedField(`${within}/schedule`, 'must be a cron expression with a future time')
}
