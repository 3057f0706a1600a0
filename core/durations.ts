/** Durations in requests that have bounds. */
import { refusedField } from './errors/index.ts'
import { formatDurationMs, parseDurationMs } from './time.ts'

/** A duration between these, both included. Throws `malformed`. */
export function durationWithin(text: string, path: string, [minMs, maxMs]: readonly [number, number]): number {
  const ms = Math.round(parseDurationMs(text, path))
  if (ms >= minMs && ms <= maxMs) return ms
  throw refusedField(path, `must be between ${formatDurationMs(minMs)} and ${formatDurationMs(maxMs)}`)
}
