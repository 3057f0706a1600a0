import { describe, expect, it } from 'vitest'
import type { WindowFunction } from './window-reader.ts'
import { MAX_WINDOW_VALUES, WindowStore } from './windows.ts'
import type { SeriesKey, WindowTime } from './windows.ts'

const KEY: SeriesKey = { client: 'boiler', channel: 'c1', subtopic: 'hall', name: 'temperature' }
const MINUTE_MS = 60_000

/** A store with values of one series; an arrival is the time of its value where it has none. */
function storeOf(
  values: readonly [timeMs: number, value: number, arrivalMs?: number][],
  options: { windowTime?: WindowTime; keepMs?: number } = {},
) {
  const { windowTime = 'message', keepMs = 5 * MINUTE_MS } = options
  const store = new WindowStore(windowTime, keepMs)
  for (const [timeMs, value, arrivalMs = timeMs] of values) store.add(KEY, { timeMs, arrivalMs, value })
  /** The window is the longest one, except for `last`. */
  const read = (
    wanted: WindowFunction,
    endMs: number,
    durationMs = wanted === 'last' ? undefined : keepMs,
    series?: string,
  ) => store.reader(KEY, { timeMs: endMs, arrivalMs: endMs }).read({ function: wanted, series, durationMs })
  return { store, read }
}

describe('functions', () => {
  it('are over the values of the window', () => {
    const { read } = storeOf([
      [1000, 4],
      [2000, 10],
      [3000, 1],
      [4000, 5],
    ])
    const all = (['mean', 'min', 'max', 'count', 'delta', 'rate', 'last'] as const).map((wanted) => read(wanted, 4000))
    expect(all).toEqual([5, 1, 10, 4, 1, 1 / 3, 5])
  })

  it('have no value without enough of them', () => {
    const { read } = storeOf([
      [1000, 4],
      [1000, 6],
    ])
    expect(read('rate', 1000)).toBeUndefined()
    expect([read('delta', 1000), read('last', 1000)]).toEqual([2, 6])
    const empty = (['mean', 'min', 'max', 'delta', 'rate', 'last'] as const).map((wanted) => read(wanted, 999))
    expect(empty).toEqual(Array(6).fill(undefined))
    expect([read('count', 999), read('count', 1000, 1000, 'other')]).toEqual([0, 0])
    expect(read('last', 1000, undefined, 'other')).toBeUndefined()
  })

  it('end at the record and do not contain the value that is exactly as old as the window', () => {
    const { read } = storeOf([
      [0, 1],
      [1000, 2],
      [2000, 3],
      [3000, 4],
    ])
    expect([read('count', 2000, 2000), read('mean', 2000, 2000)]).toEqual([2, 2.5])
    expect([read('count', 2000, 2001), read('last', 2000)]).toEqual([3, 3])
  })

  it('read other series of the same client, channel and subtopic', () => {
    const { store, read } = storeOf([[1000, 4]])
    store.add({ ...KEY, name: 'fan' }, { timeMs: 900, arrivalMs: 900, value: 7 })
    store.add({ ...KEY, name: 'fan', client: 'other' }, { timeMs: 950, arrivalMs: 950, value: 8 })
    expect([read('last', 1000, undefined, 'fan'), read('mean', 1000, 1000, 'fan')]).toEqual([7, 7])
  })
})

describe('late values', () => {
  const late: [number, number, number][] = [
    [1000, 1, 1000],
    [5000, 5, 5000],
    [3000, 3, 6000],
  ]

  it('have their place by the time of the message', () => {
    const { read } = storeOf(late)
    expect([read('delta', 3000), read('mean', 3000), read('mean', 5000)]).toEqual([2, 2, 3])
    expect(read('last', 5000)).toBe(5)
  })

  it('are the newest by the time of arrival', () => {
    const { read } = storeOf(late, { windowTime: 'arrival' })
    expect([read('delta', 6000), read('last', 6000), read('mean', 5000)]).toEqual([2, 3, 3])
  })

  it('of a backlog have windows over the backlog', () => {
    const arrivalMs = 10_000 * MINUTE_MS
    const backlog = Array.from({ length: 60 }, (_, at): [number, number, number] => [at * MINUTE_MS, at, arrivalMs])
    const { read } = storeOf(backlog)
    expect(read('mean', 59 * MINUTE_MS, 3 * MINUTE_MS)).toBe(58)
    expect(read('mean', 10 * MINUTE_MS, 3 * MINUTE_MS)).toBe(9)
  })
})

describe('a clock of a device', () => {
  const YEARS_MS = 70 * 365 * 24 * 60 * MINUTE_MS

  it.each([YEARS_MS, -YEARS_MS])('that was wrong by %d ms does no harm afterwards', (wrongMs) => {
    const now = 2_000_000_000_000
    const values = Array.from({ length: 12_000 }, (_, at): [number, number, number] => {
      const arrivalMs = now + at * 100
      return [at < 10_500 ? arrivalMs + wrongMs : arrivalMs, at, arrivalMs]
    })
    const { read } = storeOf(values)
    expect(read('count', now + 1_199_900, 1000)).toBe(10)
    expect(read('mean', now + 1_199_900, 1000)).toBe(11_994.5)
    expect(read('count', now + 1_199_900, 150_000)).toBe(1500)
  })

  it('that is wrong once changes no window of the others', () => {
    const values: [number, number, number][] = [
      [1000, 1, 1000],
      [2000 + YEARS_MS, 99, 2000],
      [3000, 3, 3000],
    ]
    expect(storeOf(values).read('mean', 3000)).toBe(2)
  })

  it('that is always wrong has windows in its own time', () => {
    const values = Array.from({ length: 100 }, (_, at): [number, number, number] => [
      at * 1000 - YEARS_MS,
      at,
      at * 1000,
    ])
    expect(storeOf(values).read('mean', 99_000 - YEARS_MS, 3000)).toBe(98)
  })
})

describe('limits', () => {
  it('keep the newest values of a series', () => {
    const count = MAX_WINDOW_VALUES + 500
    const { read } = storeOf(Array.from({ length: count }, (_, at): [number, number] => [at, at]))
    expect([read('count', count), read('min', count)]).toEqual([MAX_WINDOW_VALUES, 500])
  })

  it('keep the values around the last one when a backlog fills the series', () => {
    const newest = Array.from({ length: 100 }, (_, at): [number, number, number] => [1e9 + at, 1, 1e9])
    const backlog = Array.from({ length: MAX_WINDOW_VALUES }, (_, at): [number, number, number] => [at, 2, 1e9 + 1])
    const { read } = storeOf([...newest, ...backlog])
    expect(read('count', MAX_WINDOW_VALUES, MAX_WINDOW_VALUES + 1)).toBe(MAX_WINDOW_VALUES)
  })

  it('drop what is older than the longest window, but not the newest value', () => {
    const hour = 60 * MINUTE_MS
    const { store, read } = storeOf([
      [0, 1],
      [1000, 2],
      [hour, 3],
    ])
    expect(store.keptMs).toBe(15 * MINUTE_MS)
    // The newest of the old values is kept.
    expect([read('count', 1000), read('count', hour)]).toEqual([1, 1])
    expect([read('last', 2 * hour, undefined), read('count', 2 * hour)]).toEqual([3, 0])
    expect(read('last', 25 * hour, undefined)).toBeUndefined()
  })

  it('keep values longer than the longest window, for messages that are late', () => {
    const { read } = storeOf([
      [0, 1, 0],
      [MINUTE_MS, 2, MINUTE_MS],
      [12 * MINUTE_MS, 3, 12 * MINUTE_MS],
    ])
    expect(read('mean', 2 * MINUTE_MS)).toBe(1.5)
  })

  it('are kept for as long as each series says, counted, and forgotten', () => {
    const { store, read } = storeOf([[1000, 4]])
    const fan = { ...KEY, name: 'fan' }
    for (let minute = 0; minute <= 20; minute++) {
      const timeMs = minute * MINUTE_MS
      store.add(fan, { timeMs, arrivalMs: timeMs, value: minute }, 10 * MINUTE_MS)
    }
    // The newest of the old values is kept.
    expect([read('count', 20 * MINUTE_MS, 60 * MINUTE_MS, 'fan'), store.size]).toEqual([11, 12])
    store.forget(KEY)
    expect([read('last', 5000), read('last', 20 * MINUTE_MS, undefined, 'fan'), store.size]).toEqual([
      undefined,
      20,
      11,
    ])
  })
})

/** The windows of a list that is searched as a whole. */
function plainly(values: readonly [timeMs: number, value: number][], endMs: number, durationMs: number) {
  const inside = values
    .filter(([timeMs]) => timeMs > endMs - durationMs && timeMs <= endMs)
    .toSorted(([left], [right]) => left - right)
    .map(([, value]) => value)
  return {
    count: inside.length,
    mean: inside.length === 0 ? undefined : inside.reduce((sum, value) => sum + value, 0) / inside.length,
    min: inside.length === 0 ? undefined : Math.min(...inside),
    max: inside.length === 0 ? undefined : Math.max(...inside),
    last: inside.at(-1),
    delta: inside.length === 0 ? undefined : (inside.at(-1) as number) - (inside[0] as number),
  }
}

it('is what a search of the whole series finds, in any order of arrival', () => {
  // A generator of its own, so that the series are the same in each run.
  let seed = 42
  const random = (below: number) => (seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31) % below
  for (let round = 0; round < 200; round++) {
    const values = Array.from({ length: 100 }, (_, at): [number, number] => [at * 1000 - random(20) * 1000, random(50)])
    const { read } = storeOf(
      values.map(([timeMs, value], at) => [timeMs, value, at * 1000]),
      { keepMs: 1e6 },
    )
    const [endMs, durationMs] = [random(100) * 1000, 1000 + random(60) * 1000]
    for (const [wanted, value] of Object.entries(plainly(values, endMs, durationMs))) {
      expect(read(wanted as WindowFunction, endMs, durationMs), `${wanted} of round ${round}`).toEqual(value)
    }
  }
})
