/**
 * Loaded before a program: a probe in its main thread, told what to do by the parent of the process. A turn is what happens between two
 * looks of the event loop; it is measured in processor time of the thread, which others on the machine do not change. Looks are a few
 * milliseconds apart: a loop that looks all the time would be busy all the time, and its sum would be how long the input waited.
 */
import { setTimeout as sleep } from 'node:timers/promises'

export type ProbeOrder = { order: 'begin' | 'end' }
export type ProbeReport = { longestMs: number; totalMs: number }

const LOOK_MS = 5
/**
 * The thread has come to rest when it did less than `REST_MS` in as long as `QUIET_MS`. What waits in the background when the answer has
 * gone, such as a commit, belongs to the input: without it, half of an input would seem to cost less than half of the whole.
 */
const QUIET_MS = 25
const REST_MS = 5
/** Of the wait for rest. */
const REST_DEADLINE_MS = 10_000

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

async function rest(): Promise<void> {
  const deadlineMs = performance.now() + REST_DEADLINE_MS
  for (let beforeUs = 0, nowUs = threadUs(); nowUs - beforeUs > REST_MS * 1000 && performance.now() < deadlineMs;) {
    beforeUs = nowUs
    await sleep(QUIET_MS)
    nowUs = threadUs()
  }
}

process.on('message', ({ order }: ProbeOrder) => {
  if (order === 'begin') {
    longestUs = 0
    beganUs = threadUs()
    lastUs = beganUs
    timer = setInterval(look, LOOK_MS)
    process.send?.('begun')
  } else {
    void rest().then(() => {
      look()
      clearInterval(timer)
      process.send?.({ longestMs: longestUs / 1000, totalMs: (lastUs - beganUs) / 1000 } satisfies ProbeReport)
    })
  }
})
