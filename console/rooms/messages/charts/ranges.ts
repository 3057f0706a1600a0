/** Ranges of time and the steps of a chart. All times are in seconds since 1970. */

export type Range = { readonly from: number; readonly to: number }

export const RANGES: Readonly<Record<string, number>> = {
  '5m': 300,
  '1h': 3_600,
  '6h': 21_600,
  '1d': 86_400,
  '7d': 604_800,
  '30d': 2_592_000,
  '1y': 31_536_000,
}
export const DEFAULT_RANGE = '1h'
/** A zoom does not go below. */
const MIN_SECONDS = 1

const DAY_SECONDS = 86_400
const FOUR_WEEKS_DAYS = 28
const STEPS_SECONDS = [1, 5, 10, 30, 60, 300, 900, 3_600, 21_600, DAY_SECONDS, 7 * DAY_SECONDS]
const MAX_STEPS = 300
/** A Monday, from which steps of several days count. */
const FIRST_MONDAY_SECONDS = 4 * DAY_SECONDS

/** The step in which a range is read. */
export function stepOf(seconds: number): number {
  const fitting = STEPS_SECONDS.find((step) => seconds / step <= MAX_STEPS)
  if (fitting !== undefined) return fitting
  const days = Math.ceil(seconds / MAX_STEPS / DAY_SECONDS)
  return Math.ceil(days / FOUR_WEEKS_DAYS) * FOUR_WEEKS_DAYS * DAY_SECONDS
}

/** The steps that a range touches. `first`: the number of the first one since the origin. */
export type Grid = { readonly start: number; readonly step: number; readonly count: number; readonly first: number }

export function gridOf({ from, to }: Range): Grid {
  const step = stepOf(to - from)
  const origin = step > DAY_SECONDS ? FIRST_MONDAY_SECONDS : 0
  const first = Math.floor((from - origin) / step)
  const start = origin + first * step
  return { start, step, first, count: Math.max(Math.ceil((to - start) / step), 1) }
}

/** Returns the interval as the API reads it: whole days are days of the calendar. */
export const intervalOf = (step: number) => (step >= DAY_SECONDS ? `${step / DAY_SECONDS} days` : `${step}s`)

/** The range half of its length earlier or later. */
export const shifted = ({ from, to }: Range, direction: -1 | 1): Range => {
  const by = ((to - from) / 2) * direction
  return { from: from + by, to: to + by }
}

/** The range with a multiple of its length, around a time in it that stays in its place. */
export function zoomed({ from, to }: Range, factor: number, around = (from + to) / 2): Range {
  const length = Math.max((to - from) * factor, MIN_SECONDS)
  const part = (around - from) / (to - from)
  return { from: around - length * part, to: around + length * (1 - part) }
}

/** The time closest to a range in which there is none. */
export function nearestOf(times: readonly (number | undefined)[], { from, to }: Range): number | undefined {
  const distance = (time: number) => (time < from ? from - time : time - to)
  return times.filter((time) => time !== undefined).toSorted((a, b) => distance(a) - distance(b))[0]
}

/** Undefined for what is no range. */
export function parseRange(from: string | undefined, to: string | undefined): Range | undefined {
  const range = { from: Number(from ?? ''), to: Number(to ?? '') }
  const isRange = from !== undefined && to !== undefined && Number.isFinite(range.from) && range.to > range.from
  return isRange ? range : undefined
}

const CALENDAR = ['Today', 'Yesterday', 'This week', 'Last week', 'This month', 'Last month'] as const

/** Ranges of the calendar at a time, in the zone of the browser or in UTC. A week begins on Monday. */
export function calendarRanges(nowMs: number, isUtc: boolean): { name: string; range: Range }[] {
  const now = new Date(nowMs)
  const [year, month, date, day] = isUtc
    ? [now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate(), now.getUTCDay()]
    : [now.getFullYear(), now.getMonth(), now.getDate(), now.getDay()]
  const at = (inMonth: number, inDays: number) =>
    (isUtc ? Date.UTC(year, inMonth, inDays) : new Date(year, inMonth, inDays).getTime()) / 1_000
  const monday = date - ((day + 6) % 7)
  const bounds: readonly (readonly [number, number])[] = [
    [at(month, date), at(month, date + 1)],
    [at(month, date - 1), at(month, date)],
    [at(month, monday), at(month, monday + 7)],
    [at(month, monday - 7), at(month, monday)],
    [at(month, 1), at(month + 1, 1)],
    [at(month - 1, 1), at(month, 1)],
  ]
  return CALENDAR.map((name, index) => {
    const [from, to] = bounds[index] ?? [0, 0]
    return { name, range: { from, to } }
  })
}
