/** The points of a series on a grid of steps: how often it is measured, which gaps are gaps, and what it amounts to. */

/** One value for each step of the grid; null where nothing was measured. */
export type Slots = {
  readonly mean: readonly (number | null)[]
  readonly min: readonly (number | null)[]
  readonly max: readonly (number | null)[]
  /** Records of the step. */
  readonly count: readonly (number | null)[]
}

/** In a line, undefined is passed over and null interrupts it. */
export type LineValues = readonly (number | null | undefined)[]

/** Gaps from so many usual intervals on stay open. */
const BRIDGED_INTERVALS = 3
/** Devices do not measure exactly in time: a plain step may be shorter by this part than the usual interval. */
const JITTER = 0.05
/** Steps that people read at once, in seconds. */
const PLAIN_STEPS = [1, 5, 10, 30, 60, 300, 900, 3_600, 21_600, 86_400]
const ROUNDING = 0.01
/** A plain step is preferred to the exact one up to this factor. */
const PLAIN_FACTOR = 1.5

/** How often a series is measured, in seconds: undefined for fewer than two records. */
export function usualInterval(count: Slots['count'], stepSeconds: number): number | undefined {
  const filled = [...count.keys()].filter((slot) => (count[slot] ?? 0) > 0)
  // A span goes from one step with records to the next, and has the records in between.
  const spans = filled.slice(1).map((slot, at) => {
    const before = filled[at] ?? 0
    return { steps: slot - before, records: count[before] ?? 1 }
  })
  if (spans.length === 0) {
    const only = filled[0] === undefined ? 0 : (count[filled[0]] ?? 0)
    return only > 1 ? stepSeconds / only : undefined
  }
  const perRecord = spans.map(({ steps, records }) => steps / records).toSorted((a, b) => a - b)
  const median = perRecord[Math.floor((perRecord.length - 1) / 2)] ?? 1
  // The mean of the spans without gaps is exact, where the median is a whole number of steps.
  const usual = spans.filter(({ steps, records }) => steps / records < median * BRIDGED_INTERVALS)
  const steps = usual.reduce((sum, span) => sum + span.steps, 0)
  const records = usual.reduce((sum, span) => sum + span.records, 0)
  return records === 0 ? undefined : (steps / records) * stepSeconds
}

/** The step of a series, in steps of the grid: never below its usual interval. */
export function factorOf(usualSeconds: number | undefined, stepSeconds: number): number {
  const least = (usualSeconds ?? 0) * (1 - JITTER)
  if (least <= stepSeconds) return 1
  const plain = PLAIN_STEPS.find((step) => step >= least && step % stepSeconds === 0)
  const exact = Math.ceil((usualSeconds ?? 0) / stepSeconds - ROUNDING)
  return plain !== undefined && plain <= least * PLAIN_FACTOR ? plain / stepSeconds : exact
}

/** Puts `factor` steps of the grid together. `first`: the number of the first slot, from which whole steps count. */
export function coarsened(slots: Slots, factor: number, first: number): Slots {
  if (factor === 1) return slots
  const length = slots.mean.length
  const empty = () => Array.from<number | null>({ length }).fill(null)
  const [mean, min, max, count] = [empty(), empty(), empty(), empty()]
  for (let slot = 0; slot < length; slot++) {
    const records = slots.count[slot] ?? 0
    if (records === 0) continue
    const whole = Math.max(Math.floor((first + slot) / factor) * factor - first, 0)
    const before = count[whole] ?? 0
    mean[whole] = ((mean[whole] ?? 0) * before + (slots.mean[slot] ?? 0) * records) / (before + records)
    min[whole] = Math.min(min[whole] ?? Infinity, slots.min[slot] ?? Infinity)
    max[whole] = Math.max(max[whole] ?? -Infinity, slots.max[slot] ?? -Infinity)
    count[whole] = before + records
  }
  return { mean, min, max, count }
}

/** The values as a line that passes over gaps which are shorter than three usual intervals. Both lengths are in steps of the grid. */
export function bridged(values: readonly (number | null)[], usualSteps: number): LineValues {
  const line: (number | null | undefined)[] = [...values]
  let before: number | undefined
  for (const [slot, value] of values.entries()) {
    if (value === null) continue
    // The neighbouring step is no gap, however dense the records of a step are.
    if (before !== undefined && slot - before < Math.max(usualSteps * BRIDGED_INTERVALS, 2))
      line.fill(undefined, before + 1, slot)
    before = slot
  }
  return line
}

/** Indices of values that no line leads to: on both sides, the next step that is not passed over is a gap or the end. */
export function lonely(values: LineValues): number[] {
  const isAlone = (index: number, direction: 1 | -1) => {
    let at = index + direction
    while (at >= 0 && at < values.length && values[at] === undefined) at += direction
    return (values[at] ?? null) === null
  }
  return [...values.keys()].filter(
    (index) => (values[index] ?? null) !== null && isAlone(index, 1) && isAlone(index, -1),
  )
}

export type Summary = {
  readonly last: number
  readonly min: number
  readonly mean: number
  readonly max: number
}

/** Undefined without a value. The mean is that of the records. */
export function summaryOf({ mean, min, max, count }: Slots): Summary | undefined {
  let records = 0
  let sum = 0
  let last: number | undefined
  for (const [slot, value] of mean.entries()) {
    if (value === null) continue
    const here = count[slot] ?? 1
    sum += value * here
    records += here
    last = value
  }
  if (last === undefined) return undefined
  const given = (values: readonly (number | null)[]) => values.filter((value) => value !== null)
  // The values are not arguments of a call: a grid may have more steps than a call takes.
  const least = given(min).reduce((one, other) => Math.min(one, other), Infinity)
  const most = given(max).reduce((one, other) => Math.max(one, other), -Infinity)
  return { last, min: least, mean: sum / records, max: most }
}

const STEP_UNITS: readonly (readonly [string, number])[] = [
  ['d', 86_400],
  ['h', 3_600],
  ['min', 60],
  ['s', 1],
]

/** `90` is `90 s`, `3600` is `1 h`: in the largest unit of which it is a whole number. */
export function stepText(seconds: number): string {
  const [unit, size] = STEP_UNITS.find(([, one]) => seconds % one === 0) ?? ['s', 1]
  return `${Number((seconds / size).toPrecision(3))} ${unit}`
}
