/** Medians, percentiles and the printed row: what every bench shares. */

export function percentile(values: readonly number[], fraction: number): number {
  const sorted = values.toSorted((left, right) => left - right)
  return sorted[Math.min(sorted.length - 1, Math.floor(fraction * sorted.length))] ?? NaN
}

export const median = (values: readonly number[]): number => percentile(values, 0.5)

/** Runs the measurement `repeats` times after `warmUps` that do not count. */
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
  /** Of what was measured to what it is compared with, in the same run. */
  ratio?: string
  /** What the figure must reach. */
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
