/** Time for a guest in a thread of a runner. */
import { hrtime } from 'node:process'
import type { GuestClock } from '#guests/wasi/index.ts'

/** The longest wait of the engine; the run's deadline is far below. */
const MAX_WAIT_MS = 2 ** 31 - 1
const never = new Int32Array(new SharedArrayBuffer(4))

function nowNs(): bigint {
  return hrtime.bigint()
}

/** Ending the thread ends the wait. The engine counts in whole microseconds at best, so it can take a second round. */
function waitFor(waitNs: bigint): void {
  const untilNs = nowNs() + waitNs
  for (let left = waitNs; left > 0n; left = untilNs - nowNs()) {
    Atomics.wait(never, 0, 0, Math.min(MAX_WAIT_MS, Number(left) / 1e6))
  }
}

export const guestClock: GuestClock = { nowNs, waitFor }
