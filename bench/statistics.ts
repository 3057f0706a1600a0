/** Medians, percentiles and the printed row, shared by all benches. */

export function percentile(values: readonly number[], fraction: number): number {
  const sorted = values.toSorted((left, right) => left - right)
  return sorted[Math.min(sorted.length - 1, Math.floor(fraction * sorted.length))] ?? NaN
}

export const median = (values: readonly number[]): number => percentile(values, 0.5)

/**
 * The 99th percentile in the median of several windows, and in the best and worst of them: one moment without processors
 * is the worst hundredth of its window and does not affect the others.
 */
export function windowedP99(windows: readonly (readonly number[])[]): { value: number; text: string } {
  const each = windows.map((values) => percentile(values, 0.99))
  const value = median(each)
  const [best, worst] = [Math.min(...each), Math.max(...each)]
  return {
    value,
    text: `${milliseconds(value)} (of ${each.length} windows ${milliseconds(best)} to ${milliseconds(worst)})`,
  }
}

/** Runs the measurement `repeats` times after `warmUps` runs that are not counted. */
export async function repeat<T>(warmUps: number, repeats: number, measure: () => Promise<T>): Promise<T[]> {
  const results: T[] = []
  for (let round = 0; round < warmUps + repeats; round++) {
    const result = await measure()
    if (round >= warmUps) results.push(result)
  }
  return results
}

export type Row = {
  name: string
  figure: string
  /** The ratio of the figure to its comparison in the same run. */
  ratio?: string
  /** The target of the figure. */
  target?: string
  isReached?: boolean
}

export function printTable(title: string, rows: readonly Row[]): void {
  const width = Math.max(...rows.map((row) => row.name.length))
  process.stdout.write(`\n${title}\n`)
  for (const { name, figure, ratio, target, isReached } of rows) {
    const verdict =
      target === undefined
        ? ''
        : `   target ${target}${isReached === true ? ' reached' : isReached === false ? ' MISSED' : ''}`
    process.stdout.write(`  ${name.padEnd(width)}  ${figure}${ratio === undefined ? '' : `   ${ratio}`}${verdict}\n`)
  }
}

export const perSecond = (value: number, unit: string): string => `${Math.round(value).toLocaleString('en')} ${unit}/s`
export const milliseconds = (value: number): string => `${value.toFixed(value < 10 ? 2 : 0)} ms`
