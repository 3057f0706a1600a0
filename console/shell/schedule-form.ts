/** A schedule as a person chooses it, and as a cron expression. Pure. */

export type Rhythm = 'none' | 'minutes' | 'hourly' | 'daily' | 'weekdays' | 'weekly' | 'monthly' | 'cron'

export type ScheduleForm = {
  readonly rhythm: Rhythm
  /** The interval of `minutes`. */
  readonly every: string
  /** The minute of `hourly`. */
  readonly minute: string
  /** `HH:MM`. */
  readonly time: string
  /** The day of `weekly`: 0 is Sunday. */
  readonly weekday: string
  /** The day of `monthly`. */
  readonly day: string
  readonly cron: string
}

export const RHYTHMS: readonly (readonly [Rhythm, string])[] = [
  ['none', 'No schedule'],
  ['minutes', 'Every few minutes'],
  ['hourly', 'Every hour'],
  ['daily', 'Every day'],
  ['weekdays', 'From Monday to Friday'],
  ['weekly', 'Every week'],
  ['monthly', 'Every month'],
  ['cron', 'A cron expression'],
]
/** Divisors of an hour: with others, the last interval of an hour is shorter. */
export const MINUTES: readonly string[] = ['1', '2', '5', '10', '15', '20', '30']
export const WEEKDAYS: readonly (readonly [string, string])[] = [
  ['1', 'Monday'],
  ['2', 'Tuesday'],
  ['3', 'Wednesday'],
  ['4', 'Thursday'],
  ['5', 'Friday'],
  ['6', 'Saturday'],
  ['0', 'Sunday'],
]

const EMPTY: ScheduleForm = {
  rhythm: 'none',
  every: '15',
  minute: '0',
  time: '09:00',
  weekday: '1',
  day: '1',
  cron: '',
}

/** Empty for no schedule. */
export function cronOf({ rhythm, every, minute, time, weekday, day, cron }: ScheduleForm): string {
  const [hours = '0', minutes = '0'] = time.split(':')
  const at = `${Number(minutes)} ${Number(hours)}`
  switch (rhythm) {
    case 'none':
      return ''
    case 'minutes':
      return every === '1' ? '* * * * *' : `*/${every} * * * *`
    case 'hourly':
      return `${Number(minute)} * * * *`
    case 'daily':
      return `${at} * * *`
    case 'weekdays':
      return `${at} * * 1-5`
    case 'weekly':
      return `${at} * * ${weekday}`
    case 'monthly':
      return `${at} ${Number(day)} * *`
    case 'cron':
      return cron.trim()
  }
}

/** What is none of the rhythms stays a cron expression. */
export function formOf(schedule: string): ScheduleForm {
  const cron = schedule.trim()
  if (cron === '') return EMPTY
  const [minute = '', hour = '', day = '', month = '', weekday = '', ...others] = cron.split(/\s+/)
  const asCron: ScheduleForm = { ...EMPTY, rhythm: 'cron', cron }
  if (others.length > 0 || month !== '*') return asCron
  const isAny = day === '*' && weekday === '*'
  const step = minute === '*' ? '1' : (/^\*\/(\d{1,2})$/.exec(minute)?.[1] ?? '')
  if (isAny && hour === '*' && MINUTES.includes(step)) return { ...asCron, rhythm: 'minutes', every: step }
  if (!isBetween(minute, 0, 59)) return asCron
  if (isAny && hour === '*') return { ...asCron, rhythm: 'hourly', minute }
  if (!isBetween(hour, 0, 23)) return asCron
  const at = { ...asCron, time: `${hour.padStart(2, '0')}:${minute.padStart(2, '0')}` }
  if (isAny) return { ...at, rhythm: 'daily' }
  if (day === '*' && weekday === '1-5') return { ...at, rhythm: 'weekdays' }
  if (day === '*' && isBetween(weekday, 0, 6)) return { ...at, rhythm: 'weekly', weekday }
  if (weekday === '*' && isBetween(day, 1, 31)) return { ...at, rhythm: 'monthly', day }
  return asCron
}

const isBetween = (text: string, least: number, most: number) =>
  /^\d{1,2}$/.test(text) && Number(text) >= least && Number(text) <= most
