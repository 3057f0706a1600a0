/**
 * CPU time that the host took meanwhile: the figures of a virtual machine are too low while its host gives the processors
 * to others. And whether a process may open as many files as a bench needs.
 */
import { readFileSync } from 'node:fs'

export type ProcessorTime = { total: number; idle: number; stolen: number }

/** Above this share the figures are not reliable. */
const NOTICEABLE_SHARE = 0.03

/** Ticks of all processors since the start of the machine; undefined on systems other than Linux. */
export function processorTime(): ProcessorTime | undefined {
  try {
    // cpu user nice system idle iowait irq softirq steal (proc_stat(5)); user includes the time of guests.
    const ticks = readFileSync('/proc/stat', 'latin1').split('\n', 1)[0]?.split(/\s+/).slice(1, 9).map(Number) ?? []
    const [, , , idle = 0, iowait = 0, , , stolen = 0] = ticks
    return { total: ticks.reduce((sum, value) => sum + value, 0), idle: idle + iowait, stolen }
  } catch {
    return undefined
  }
}

/** A line below the figures: how much of the CPU time was idle, and how much the host took. */
export function describeHost(before: ProcessorTime | undefined, after: ProcessorTime | undefined): string {
  if (before === undefined || after === undefined || after.total === before.total) return ''
  const share = (key: 'idle' | 'stolen') => (after[key] - before[key]) / (after.total - before.total)
  const percent = (value: number) => `${(value * 100).toFixed(1)} %`
  const warning = share('stolen') < NOTICEABLE_SHARE ? '' : ': the figures above are too low; measure again later'
  return `  processors: ${percent(share('idle'))} idle, ${percent(share('stolen'))} taken by the host for others${warning}\n`
}

/** Files of a process beside the connections that a bench opens. */
const OTHER_FILES = 500

/**
 * Throws when a process may not have as many connections. Node.js raises the soft limit of its process to the hard one, which the processes of the
 * platform inherit: only the hard one counts.
 */
export function requireOpenFiles(connections: number): void {
  const hard = hardOpenFiles()
  const needed = connections + OTHER_FILES
  if (hard >= needed) return
  throw new Error(
    `a process may open ${hard} files, and ${connections} connections need ${needed}: as root, run "prlimit --nofile=${needed} npm run bench -- …"`,
  )
}

/** Infinity on systems other than Linux. */
function hardOpenFiles(): number {
  try {
    const [, hard] = /^Max open files +\S+ +(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1')) ?? []
    return hard === undefined ? Infinity : Number(hard)
  } catch {
    return Infinity
  }
}
