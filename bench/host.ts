/** What the host did meanwhile: a virtual machine whose processors are lent to others shows less than it can. */
import { readFileSync } from 'node:fs'

export type ProcessorTime = { total: number; idle: number; stolen: number }

/** From here on a figure says more about the neighbours than about what is measured. */
const NOTICEABLE_SHARE = 0.03

/** Ticks of all processors since the start of the machine; undefined where the kernel does not say (other than Linux). */
export function processorTime(): ProcessorTime | undefined {
  try {
    // cpu user nice system idle iowait irq softirq steal (proc_stat(5)); guests' time is in user's already.
    const ticks = readFileSync('/proc/stat', 'latin1').split('\n', 1)[0]?.split(/\s+/).slice(1, 9).map(Number) ?? []
    const [, , , idle = 0, iowait = 0, , , stolen = 0] = ticks
    return { total: ticks.reduce((sum, value) => sum + value, 0), idle: idle + iowait, stolen }
  } catch {
    return undefined
  }
}

/** A line for below the figures: how much of the processors' time was idle, and how much the host gave to others. */
export function describeHost(before: ProcessorTime | undefined, after: ProcessorTime | undefined): string {
  if (before === undefined || after === undefined || after.total === before.total) return ''
  const share = (key: 'idle' | 'stolen') => (after[key] - before[key]) / (after.total - before.total)
  const percent = (value: number) => `${(value * 100).toFixed(1)} %`
  const warning =
    share('stolen') < NOTICEABLE_SHARE ? '' : ': the figures above are too low, measure again in a calmer hour'
  return `  processors: ${percent(share('idle'))} idle, ${percent(share('stolen'))} taken by the host for others${warning}\n`
}
