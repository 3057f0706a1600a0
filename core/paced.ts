/** Work whose result many callers ask for, and which is done at most once in an interval. */
import { monotonicMs } from './time.ts'

/**
 * Returns the result of the last call of `work` that began within the interval, or calls it. Callers share one call, and its failure,
 * which is not kept.
 */
export function pacedWork<T>(work: () => Promise<T>, intervalMs: number, nowMs = monotonicMs): () => Promise<T> {
  let last: { result: Promise<T>; beganMs: number; isRunning: boolean } | undefined
  return () => {
    if (last !== undefined && (last.isRunning || nowMs() - last.beganMs < intervalMs)) return last.result
    const mine = { result: work(), beganMs: nowMs(), isRunning: true }
    last = mine
    const end = () => void (mine.isRunning = false)
    mine.result.then(end, () => {
      end()
      if (last === mine) last = undefined
    })
    return mine.result
  }
}
