/**
 * Windows over the newest values of series.
 *
 * A window ends at the record that is evaluated and is half open: (end - duration, end]. Its time is the time of the messages or that of their
 * arrival, as the rule chooses:
 *
 * - `message`: values are ordered by their own times. A late or out-of-order record is evaluated over the values up to its own time, and values
 *   with later times are not part of its window. Evaluations that are done are not repeated when a late value arrives.
 * - `arrival`: values are ordered as they arrived, whatever their own times are. Clocks of devices do not matter.
 *
 * A value is dropped when it is farther than the kept duration from the last one, by its arrival and by its time, before or after it: a device
 * whose clock was wrong by years has right windows as soon as its clock is right. The kept duration is the longest window and `LATENESS_MS`, so
 * windows are complete for messages whose times are wrong by at most half of that, or all by the same. Of more than `MAX_WINDOW_VALUES` values of a series, the
 * farthest from the last one are dropped, so a longer window covers fewer values.
 */
import { MAX_WINDOW_MS } from './window-reader.ts'
import type { WindowFunction, WindowReader } from './window-reader.ts'

export const MAX_WINDOW_VALUES = 10_000
/** How much longer than the longest window values are kept, for messages that are late or early. */
export const LATENESS_MS = 10 * 60_000
/** Dropped places at the beginning of the arrays are reused when there are as many. */
const COMPACT_PLACES = 1024

export type WindowTime = 'message' | 'arrival'

export type SeriesSample = { timeMs: number; arrivalMs: number; value: number }

/** The names of a series. The series of one client, channel and subtopic differ by their names. */
export type SeriesKey = { client: string; channel: string; subtopic: string; name: string }

/** The values of one series, ordered by the time of the windows. */
class SeriesValues {
  #times: number[] = []
  #arrivals: number[] = []
  #values: number[] = []
  /** The first place in use. */
  #first = 0
  #newestArrivalMs = -Infinity

  get size(): number {
    return this.#times.length - this.#first
  }

  add(timeMs: number, arrivalMs: number, value: number, keepMs: number): void {
    const place = this.#placeAfter(timeMs)
    if (place === this.#times.length) {
      this.#times.push(timeMs)
      this.#arrivals.push(arrivalMs)
      this.#values.push(value)
    } else {
      this.#times.splice(place, 0, timeMs)
      this.#arrivals.splice(place, 0, arrivalMs)
      this.#values.splice(place, 0, value)
    }
    this.#newestArrivalMs = Math.max(this.#newestArrivalMs, arrivalMs)
    this.#drop(timeMs, keepMs)
  }

  read(request: WindowFunction, endMs: number, durationMs: number): number | undefined {
    const end = this.#placeAfter(endMs)
    const begin = this.#placeAfter(endMs - durationMs)
    if (request === 'count') return end - begin
    if (begin === end) return undefined
    const values = this.#values
    switch (request) {
      case 'last':
        return values[end - 1]
      case 'delta':
        return (values[end - 1] as number) - (values[begin] as number)
      case 'rate': {
        const seconds = ((this.#times[end - 1] as number) - (this.#times[begin] as number)) / 1000
        // One value, or several of one moment, have no rate.
        return seconds === 0 ? undefined : ((values[end - 1] as number) - (values[begin] as number)) / seconds
      }
      case 'mean': {
        let sum = 0
        for (let at = begin; at < end; at++) sum += values[at] as number
        return sum / (end - begin)
      }
      case 'min':
      case 'max': {
        const sign = request === 'min' ? 1 : -1
        let least = Infinity
        for (let at = begin; at < end; at++) least = Math.min(least, sign * (values[at] as number))
        return sign * least
      }
    }
  }

  /** The first place after all values up to `timeMs`. */
  #placeAfter(timeMs: number): number {
    const times = this.#times
    let low = this.#first
    let high = times.length
    // Most values are newer than all others, and most windows end at the newest.
    if (high === low || (times[high - 1] as number) <= timeMs) return high
    while (low < high) {
      const middle = (low + high) >>> 1
      if ((times[middle] as number) <= timeMs) low = middle + 1
      else high = middle
    }
    return low
  }

  #drop(lastMs: number, keepMs: number): void {
    const isOld = (place: number) =>
      (this.#arrivals[place] as number) <= this.#newestArrivalMs - keepMs &&
      Math.abs((this.#times[place] as number) - lastMs) >= keepMs
    // The newest of the old values is read by `last`, for records that are late.
    while (isOld(this.#first) && isOld(this.#first + 1)) this.#first++
    while (isOld(this.#times.length - 1)) this.#dropNewest()
    if (this.#times.length - this.#first > MAX_WINDOW_VALUES) {
      const before = lastMs - (this.#times[this.#first] as number)
      const after = (this.#times.at(-1) as number) - lastMs
      if (before >= after) this.#first++
      else this.#dropNewest()
    }
    if (this.#first >= COMPACT_PLACES && this.#first * 2 >= this.#times.length) {
      this.#times = this.#times.slice(this.#first)
      this.#arrivals = this.#arrivals.slice(this.#first)
      this.#values = this.#values.slice(this.#first)
      this.#first = 0
    }
  }

  #dropNewest(): void {
    this.#times.pop()
    this.#arrivals.pop()
    this.#values.pop()
  }
}

const idOf = ({ client, channel, subtopic, name }: SeriesKey) => `${client}\n${channel}\n${subtopic}\n${name}`

/**
 * The series of rules with one kind of time. It is rebuilt by adding the stored values of the kept duration, and the newest before it, in the order
 * of their arrival.
 */
export class WindowStore {
  readonly #windowTime: WindowTime
  readonly #series = new Map<string, SeriesValues>()
  #size = 0
  /** For so long before the newest arrival, values are kept, and are added when the series are rebuilt; the newest value is always kept. */
  readonly keptMs: number

  constructor(windowTime: WindowTime, longestMs: number) {
    this.#windowTime = windowTime
    this.keptMs = longestMs + LATENESS_MS
  }

  /** How many values there are. */
  get size(): number {
    return this.#size
  }

  /** Adds a value before the record that it belongs to is evaluated, so that its windows contain it. `keptMs`: that of its series, if less. */
  add(key: SeriesKey, sample: SeriesSample, keptMs = this.keptMs): void {
    const id = idOf(key)
    let series = this.#series.get(id)
    if (series === undefined) this.#series.set(id, (series = new SeriesValues()))
    const before = series.size
    series.add(this.#timeOf(sample), sample.arrivalMs, sample.value, keptMs)
    this.#size += series.size - before
  }

  forget(key: SeriesKey): void {
    const id = idOf(key)
    this.#size -= this.#series.get(id)?.size ?? 0
    this.#series.delete(id)
  }

  /** Answers the windows of the record of series `key` at these times. */
  reader(key: SeriesKey, times: Pick<SeriesSample, 'timeMs' | 'arrivalMs'>): WindowReader {
    const endMs = this.#timeOf(times)
    return {
      read: ({ function: wanted, series, durationMs }) => {
        const values = this.#series.get(idOf(series === undefined ? key : { ...key, name: series }))
        if (values === undefined) return wanted === 'count' ? 0 : undefined
        return values.read(wanted, endMs, durationMs ?? MAX_WINDOW_MS)
      },
    }
  }

  #timeOf({ timeMs, arrivalMs }: Pick<SeriesSample, 'timeMs' | 'arrivalMs'>): number {
    return this.#windowTime === 'message' ? timeMs : arrivalMs
  }
}
