/** What a chart shows of a series: a line, its figures, and both as text. */
import { bridged, coarsened, factorOf, stepText, summaryOf, usualInterval } from '../../../charts/points.ts'
import type { LineValues, Slots, Summary } from '../../../charts/points.ts'
import { csvOf } from '../../../shell/files.ts'
import type { Grid } from './ranges.ts'
import type { Reading, Readings } from './readings.ts'
import { namedSeries } from './series.ts'
import type { NamedSeries, Series } from './series.ts'

export type Line = NamedSeries & {
  /** Numeric values in the range. */
  readonly records: number
  /** The width of a point, in steps of the grid. */
  readonly factor: number
  readonly slots: Slots
  readonly mean: LineValues
  readonly min: LineValues
  readonly max: LineValues
  /** Undefined without a value in the range. */
  readonly summary: Summary | undefined
}

const NOTHING: Slots = { mean: [], min: [], max: [], count: [] }

/** The lines of the chosen series, with values or without, or of all readings, in natural order of their names. */
export function linesOf(
  { grid, readings }: Readings,
  chosen: readonly Series[] | undefined,
  deviceName: (publisher: string) => string,
): Line[] {
  const byKey = new Map(readings.map((reading) => [reading.series.key, reading]))
  // Readings of the choice before may still be shown: what is not chosen any more is not.
  const shown = new Map((chosen ?? readings.map(({ series }) => series)).map((one) => [one.key, one]))
  return namedSeries([...shown.values()], deviceName, chosen !== undefined).map((series) =>
    lineOf(series, byKey.get(series.key), grid),
  )
}

function lineOf(series: NamedSeries, reading: Reading | undefined, grid: Grid): Line {
  const read = reading?.slots ?? NOTHING
  const usualSeconds = usualInterval(read.count, grid.step)
  const factor = factorOf(usualSeconds, grid.step)
  const slots = coarsened(read, factor, grid.first)
  const usualSteps = Math.max((usualSeconds ?? 0) / grid.step, factor)
  return {
    ...series,
    records: reading?.records ?? 0,
    factor,
    slots,
    mean: bridged(slots.mean, usualSteps),
    min: bridged(slots.min, usualSteps),
    max: bridged(slots.max, usualSteps),
    summary: summaryOf(slots),
  }
}

export const timesOf = ({ start, step, count }: Grid) =>
  Array.from({ length: count }, (_none, slot) => start + slot * step)

/** The mean of the step that a slot belongs to; where the line passes over a gap, the one before it. */
export function valueAt({ mean, factor }: Line, slot: number, { first }: Grid): number | undefined {
  let at = Math.max(Math.floor((first + slot) / factor) * factor - first, 0)
  while (at > 0 && mean[at] === undefined) at -= 1
  return mean[at] ?? undefined
}

/** `a point is 1 min` or `a point is 1 min to 1 h`. */
export function stepsText(lines: readonly Line[], { step }: Grid): string {
  const steps = lines.filter(({ records }) => records > 0).map(({ factor }) => factor * step)
  const [least, most] = [Math.min(...steps, Infinity), Math.max(...steps, 0)]
  if (most === 0 || least === most) return stepText(most === 0 ? step : most)
  return `${stepText(least)} to ${stepText(most)}`
}

/** The slots in which at least one line has a value. */
export const filledSlots = (lines: readonly Line[], { count }: Grid) =>
  Array.from({ length: count }, (_none, slot) => slot).filter((slot) =>
    lines.some(({ slots }) => (slots.mean[slot] ?? null) !== null),
  )

/** Spreadsheets run texts with these prefixes as a formula, and devices are not trusted: an apostrophe makes them text. */
const FORMULA = /^[=+\-@\t\r]/
const asText = (text: string) => (FORMULA.test(text) ? `'${text}` : text)

/** What a chart shows, as CSV: a row for each step, with mean, minimum and maximum of each series. */
export function csvOfLines(lines: readonly Line[], grid: Grid): string {
  const unitOf = ({ unit }: Line) => (unit === '' ? '' : ` (${unit})`)
  const head = [
    'time',
    ...lines.flatMap((line) => ['mean', 'minimum', 'maximum'].map((name) => `${line.label} ${name}${unitOf(line)}`)),
  ]
  const rows = filledSlots(lines, grid).map((slot) => [
    new Date((grid.start + slot * grid.step) * 1_000).toISOString(),
    ...lines.flatMap(({ slots }) => [slots.mean, slots.min, slots.max].map((column) => column[slot]?.toString() ?? '')),
  ])
  // A number may begin with a minus.
  return csvOf(head.map(asText), rows)
}
