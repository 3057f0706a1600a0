/** How often a task runs, in words. Pure. */
import { counted, formatDuration } from '../../design/display.tsx'

const UNITS = [
  ['second', 1],
  ['minute', 60],
  ['hour', 3_600],
  ['day', 86_400],
] as const
/** Fewer runs say little of others: one of a second ago is not 60 a minute. */
const FEWEST_RUNS = 10

/** Returns the rate in the shortest unit in which it is at least one: `3 runs a minute`. A few runs are counted: `3 runs in the last 2 min`. */
export function rateOf({ runs, seconds }: { runs: number; seconds: number }): string {
  if (runs < FEWEST_RUNS) return `${counted(runs, 'run')} in the last ${formatDuration(Math.max(seconds, 1) * 1_000)}`
  const perSecond = runs / Math.max(seconds, 1)
  const [unit, size] = UNITS.find(([, one]) => perSecond * one >= 1) ?? ['day', 86_400]
  const rate = Math.round(perSecond * size)
  return rate === 0 ? 'less than one run a day' : `${counted(rate, 'run')} ${unit === 'hour' ? 'an' : 'a'} ${unit}`
}
