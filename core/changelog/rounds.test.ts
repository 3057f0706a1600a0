/** The rhythm of readers: pauses, pokes that end them, and what remains of a pause when poked. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { growingPauses, startRounds } from './rounds.ts'
import type { Pause } from './rounds.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
})
afterEach(() => {
  vi.useRealTimers()
})

/** Rounds whose begins are noted, in milliseconds. */
function noted(pause: Pause, work: () => Promise<void> = () => Promise.resolve()) {
  const begins: number[] = []
  const rounds = startRounds(async () => {
    begins.push(performance.now())
    await work()
    return pause
  })
  const start = performance.now()
  return { rounds, times: () => begins.map((begin) => begin - start) }
}

test('a wake ends the pause at once, and one that comes while a round is under way has another one follow', async () => {
  const { rounds, times } = noted({ pauseMs: 1000, isPokable: true }, () => vi.advanceTimersByTimeAsync(0).then(wake))
  let pokes = 1
  function wake() {
    if (pokes-- > 0) rounds.wake()
  }
  await vi.advanceTimersByTimeAsync(300)
  expect(times()).toEqual([0, 0])
  rounds.wake()
  await vi.advanceTimersByTimeAsync(0)
  expect(times()).toEqual([0, 0, 300])
  await vi.advanceTimersByTimeAsync(1000)
  expect(times()).toEqual([0, 0, 300, 1300])
  await rounds.stop()
})

test('what has to remain of a pause remains, however often it is poked', async () => {
  const { rounds, times } = noted({ pauseMs: 1000, restMs: 100, isPokable: true })
  for (let ms = 0; ms < 250; ms += 10) {
    rounds.wake()
    await vi.advanceTimersByTimeAsync(10)
  }
  expect(times()).toEqual([0, 100, 200])
  await vi.advanceTimersByTimeAsync(550)
  rounds.wake()
  await vi.advanceTimersByTimeAsync(0)
  expect(times()).toEqual([0, 100, 200, 300, 800])
  await rounds.stop()
})

test('no wake makes a pause longer, or ends that of a reader which failed', async () => {
  const short = noted({ pauseMs: 50, restMs: 100, isPokable: true })
  const failed = noted({ pauseMs: 400, isPokable: false })
  await vi.advanceTimersByTimeAsync(10)
  short.rounds.wake()
  failed.rounds.wake()
  await vi.advanceTimersByTimeAsync(100)
  expect(short.times()).toEqual([0, 50, 100])
  expect(failed.times()).toEqual([0])
  await vi.advanceTimersByTimeAsync(300)
  expect(failed.times()).toEqual([0, 400])
  await Promise.all([short.rounds.stop(), failed.rounds.stop()])
})

test('a stop ends the pause', async () => {
  const { rounds, times } = noted({ pauseMs: 60_000, restMs: 60_000, isPokable: true })
  await vi.advanceTimersByTimeAsync(1)
  rounds.wake()
  await rounds.stop()
  await vi.advanceTimersByTimeAsync(120_000)
  expect(times()).toEqual([0])
})

test('pauses double while nothing is found, up to the longest, and are the shortest again with the first find', () => {
  const pauses = growingPauses(100, 1000)
  expect([true, true, true, true, true].map((isNothing) => pauses.next(isNothing))).toEqual([200, 400, 800, 1000, 1000])
  expect([false, false, true].map((isNothing) => pauses.next(isNothing))).toEqual([100, 100, 200])
})
