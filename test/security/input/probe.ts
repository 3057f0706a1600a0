/**
 * Loaded before a program: a probe in its main thread, told what to do by the parent of the process. A turn is what happens between two looks of the event loop;
 * it is measured in processor time of the thread, which others on the machine do not change.
 */

export type ProbeOrder = { order: 'begin' | 'end' }
export type ProbeReport = { longestMs: number; totalMs: number }

/** A shorter turn is not counted into the sum. */
const MIN_COUNTED_US = 1000

let isMeasuring = false
let lastUs = 0
let totalUs = 0
let longestUs = 0

function threadUs(): number {
  const { user, system } = process.threadCpuUsage()
  return user + system
}

function look(): void {
  if (!isMeasuring) return
  const nowUs = threadUs()
  const turnUs = nowUs - lastUs
  longestUs = Math.max(longestUs, turnUs)
  // The look itself, and what the process does without being asked, belongs to nobody.
  if (turnUs >= MIN_COUNTED_US) totalUs += turnUs
  lastUs = nowUs
  setImmediate(look)
}

process.on('message', ({ order }: ProbeOrder) => {
  if (order === 'begin') {
    isMeasuring = true
    longestUs = 0
    totalUs = 0
    lastUs = threadUs()
    setImmediate(look)
    process.send?.('begun')
  } else {
    // What this turn has done so far belongs to it.
    look()
    isMeasuring = false
    process.send?.({ longestMs: longestUs / 1000, totalMs: totalUs / 1000 } satisfies ProbeReport)
  }
})
