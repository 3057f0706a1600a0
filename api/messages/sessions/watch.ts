/**
 * Who may say that another node is dead: only a node that has watched for as long as that takes. While the database was away, or this
 * node stood still, the others could perhaps not say that they live, or were not heard.
 */

/** A pause of so much of the time after which a node counts as dead is a break of the watch. */
const BREAK_SHARE = 1 / 2

/** Told of every look at the others; true where what was seen may be judged. Milliseconds of a monotonic clock. */
export function startWatch(deadAfterMs: number, startedMs: number): (nowMs: number) => boolean {
  let sinceMs = startedMs
  let lastMs = startedMs
  return (nowMs) => {
    if (nowMs - lastMs > deadAfterMs * BREAK_SHARE) sinceMs = nowMs
    lastMs = nowMs
    return nowMs - sinceMs >= deadAfterMs
  }
}
