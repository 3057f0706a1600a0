/** How often a task runs, in words. Pure. */
import { counted } from '../../design/display.tsx'

const UNITS = [
  ['second', 1],
  ['minute', 60],
  ['hour', 3_600],
  ['day', 86_400],
] as const

/** In the shortest unit in which it is at least one: `3 runs a minute`. */
export function rateOf({ runs, seconds }: { runs: number; seconds: number }): string {
  const perSecond = runs / Math.max(seconds, 1)
  const [unit, size] = UNITS.find(([, one]) => perSecond * one >= 1) ?? ['day', 86_400]
  const rate = Math.round(perSecond * size)
  return rate === 0 ? 'less than one run a day' : `${counted(rate, 'run')} ${unit === 'hour' ? 'an' : 'a'} ${unit}`
}
