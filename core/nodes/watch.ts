/**
 * A node may consider another one dead only after watching for that long without interruption. While the database was unavailable or
 * this node was suspended, other nodes may have been unable to give a sign of life, or it was not read.
 */

/** A gap of this part of the timeout interrupts the watch. */
const BREAK_SHARE = 1 / 2

/** Call the result for every check, in milliseconds of a monotonic clock; true when nodes may be considered dead. */
export function startWatch(deadAfterMs: number, startedMs: number): (nowMs: number) => boolean {
  let sinceMs = startedMs
  let lastMs = startedMs
  return (nowMs) => {
    if (nowMs - lastMs > deadAfterMs * BREAK_SHARE) sinceMs = nowMs
    lastMs = nowMs
    return nowMs - sinceMs >= deadAfterMs
  }
}
