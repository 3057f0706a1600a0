/**
 * Loaded before a program: a probe in its main thread, told what to do by the parent of the process. A turn is what happens between two
 * looks of the event loop; it is measured in processor time of the thread, which others on the machine do not change. Looks are a few
 * milliseconds apart: a loop that looks all the time would be busy all the time, and its sum would be how long the input waited.
 */

export type ProbeOrder = { order: 'begin' | 'end' }
export type ProbeReport = { longestMs: number; totalMs: number }

const LOOK_MS = 5

let timer: NodeJS.Timeout | undefined
let beganUs = 0
let lastUs = 0
let longestUs = 0

function threadUs(): number {
  const { user, system } = process.threadCpuUsage()
  return user + system
}

function look(): void {
  const nowUs = threadUs()
  longestUs = Math.max(longestUs, nowUs - lastUs)
  lastUs = nowUs
}

process.on('message', ({ order }: ProbeOrder) => {
  if (order === 'begin') {
    longestUs = 0
    beganUs = threadUs()
    lastUs = beganUs
    timer = setInterval(look, LOOK_MS)
    process.send?.('begun')
  } else {
    // What this turn has done so far belongs to it.
    look()
    clearInterval(timer)
    process.send?.({ longestMs: longestUs / 1000, totalMs: (lastUs - beganUs) / 1000 } satisfies ProbeReport)
  }
})
