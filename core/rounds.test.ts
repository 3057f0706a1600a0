/** Pauses between rounds, wakes that end them, the minimum pause after a wake, and rounds that fail. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { growingPauses, startPeriodicRounds, startRounds } from './rounds.ts'
import type { Pause } from './rounds.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
})
afterEach(() => {
  vi.useRealTimers()
})

/** Records the start of each round, in milliseconds. */
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

test('a wake ends the pause at once, and a wake during a round starts another round', async () => {
  const { rounds, times } = noted({ pauseMs: 1000, isWakeable: true }, () => vi.advanceTimersByTimeAsync(0).then(wake))
  let wakes = 1
  function wake() {
    if (wakes-- > 0) rounds.wake()
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

test('the minimum pause is kept, however often the reader is woken', async () => {
  const { rounds, times } = noted({ pauseMs: 1000, minPauseMs: 100, isWakeable: true })
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

test('no wake extends a pause or ends the backoff after a failure', async () => {
  const short = noted({ pauseMs: 50, minPauseMs: 100, isWakeable: true })
  const failed = noted({ pauseMs: 400, isWakeable: false })
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
  const { rounds, times } = noted({ pauseMs: 60_000, minPauseMs: 60_000, isWakeable: true })
  await vi.advanceTimersByTimeAsync(1)
  rounds.wake()
  await rounds.stop()
  await vi.advanceTimersByTimeAsync(120_000)
  expect(times()).toEqual([0])
})

test('pauses double while nothing is found, up to the maximum, and return to the minimum after a find', () => {
  const pauses = growingPauses(100, 1000)
  expect([true, true, true, true, true].map((isNothing) => pauses.next(isNothing))).toEqual([200, 400, 800, 1000, 1000])
  expect([false, false, true].map((isNothing) => pauses.next(isNothing))).toEqual([100, 100, 200])
})

test('a failed periodic round is reported, and the next one follows after the pause for failures', async () => {
  const times: number[] = []
  const failures: unknown[] = []
  const start = performance.now()
  const away = new Error('the database is away')
  const rounds = startPeriodicRounds({
    firstPauseMs: 100,
    pauseMs: (hasFailed) => (hasFailed ? 10 : 1000),
    round() {
      times.push(performance.now() - start)
      return times.length === 1 ? Promise.reject(away) : Promise.resolve()
    },
    onFailure: (error) => failures.push(error),
  })
  await vi.advanceTimersByTimeAsync(1200)
  await rounds.stop()
  expect(times).toEqual([100, 110, 1110])
  expect(failures).toEqual([away])
})

test('a stop aborts the signal, waits for the periodic round, and no failure that it causes is reported', async () => {
  const seen: string[] = []
  const rounds = startPeriodicRounds({
    firstPauseMs: 0,
    pauseMs: 10,
    async round(signal) {
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      seen.push('ended')
      signal.throwIfAborted()
    },
    onFailure: () => seen.push('reported'),
  })
  await vi.advanceTimersByTimeAsync(100)
  expect(seen).toEqual([])
  await rounds.stop()
  expect(seen).toEqual(['ended'])
  await vi.advanceTimersByTimeAsync(100)
  expect(seen).toEqual(['ended'])
})
