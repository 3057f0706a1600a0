/**
 * The windows of the rules of one domain, in the memory of the process that evaluates them. A series is read from the store when a rule first asks for
 * it, for as long as the windows of the rules are that ask; a process that takes a domain over reads them again.
 */
import { comparePlaces } from '#api/consumers/index.ts'
import type { Place } from '#api/consumers/index.ts'
import type { LiveMessage } from '#api/messages/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { monotonicMs } from '#core/time.ts'
import { createTurns } from '#core/turns.ts'
import { LATENESS_MS, MAX_WINDOW_VALUES, WindowStore } from '../engine/index.ts'
import type { SeriesKey, WindowReader, WindowTime } from '../engine/index.ts'
import type { CompiledRule } from '../compile.ts'
import type { Meeting } from './meetings.ts'
import { readValues } from './repository.ts'
import { keyOf } from './samples.ts'
import type { Sample, Series } from './samples.ts'

/** The interval between two looks for series that nothing reads any more. */
const PRUNE_INTERVAL_MS = 60_000
/** Clients, channels and subtopics whose series one step reads from the store, and their values. */
const MAX_SOURCES = 50
const MAX_READ = 500_000
/** A series takes as much memory as so many values. */
const VALUES_OF_SERIES = 20

/** A series that rules ask for. */
type Kept = { key: SeriesKey; keptMs: number; usedMs: number }
type Timed = { store: WindowStore; kept: Map<string, Kept> }

/** A series that is not known, or not for as long. */
type Lacking = { series: Series; key: SeriesKey; atMs: number; keptMs: number; times: Map<WindowTime, number> }

export type Loaded = {
  /** The first message that is left for the next step. */
  left: LiveMessage | undefined
  /** There are more values than one step reads. */
  isTooMuch: boolean
}

const seriesKeyOf = ({ message, series }: Sample, name: string): SeriesKey => ({
  client: series.publisherId,
  channel: message.channelId,
  subtopic: series.subtopic,
  name,
})

export class DomainWindows {
  readonly #times: ReadonlyMap<WindowTime, Timed>
  #prunedMs = monotonicMs()
  #usedMs = monotonicMs()
  /** What was added is before it. */
  #place: Place | undefined

  private constructor(rules: readonly CompiledRule[]) {
    const longestMs = Math.max(...rules.map(({ windowMs }) => windowMs))
    this.#times = new Map(
      (['arrival', 'message'] as const)
        .filter((time) => rules.some(({ windowTime }) => windowTime === time))
        .map((time) => [time, { store: new WindowStore(time, longestMs), kept: new Map() }]),
    )
  }

  /** Undefined: none of the rules has a window. */
  static of(rules: readonly CompiledRule[]): DomainWindows | undefined {
    const windowed = rules.filter(({ windowMs }) => windowMs > 0)
    return windowed.length === 0 ? undefined : new DomainWindows(windowed)
  }

  /** What they take of the memory, in values. */
  get size(): number {
    return this.#times.values().reduce((sum, { store, kept }) => sum + store.size + kept.size * VALUES_OF_SERIES, 0)
  }

  /** When a step used them last. */
  get usedMs(): number {
    return this.#usedMs
  }

  /** Whether the next message after what was added is that at the place. */
  standsAt(place: Place): boolean {
    return this.#place === undefined || comparePlaces(this.#place, place) === 0
  }

  /** Reads the series that the rules ask for with these samples, up to the place, as far as they are not known. */
  async load(db: Queryable, meetings: readonly Meeting[], before: Place): Promise<Loaded> {
    this.#usedMs = monotonicMs()
    const { lacking, left } = await this.#findLacking(meetings)
    if (lacking.size === 0) return { left, isTooMuch: false }
    const wanted = [...lacking.values()]
    const values = await readValues(
      db,
      wanted.map(({ series, atMs, keptMs }) => ({ ...series, sinceSeconds: (atMs - keptMs) / 1000 })),
      { before, perSeries: MAX_WINDOW_VALUES, limit: MAX_READ + 1 },
    )
    for (const [id, { key, times }] of lacking)
      for (const [time, keptMs] of times) {
        const timed = this.#timed(time)
        // It is read again, for longer.
        timed.store.forget(key)
        timed.kept.set(id, { key, keptMs, usedMs: this.#usedMs })
      }
    const turns = createTurns()
    for (const { value, timeMs, arrivalMs, ...series } of values) {
      if (turns.isOver) await turns.next()
      const found = lacking.get(keyOf(series))
      for (const [time, keptMs] of found?.times ?? [])
        if (found !== undefined) this.#timed(time).store.add(found.key, { timeMs, arrivalMs, value }, keptMs)
    }
    return { left, isTooMuch: values.length > MAX_READ }
  }

  /** Adds the value of a sample, if its series is known, before the sample is evaluated. */
  add(sample: Sample): void {
    const { value } = sample.variables
    if (value === undefined) return
    const id = keyOf(sample.series)
    for (const { store, kept } of this.#times.values()) {
      const found = kept.get(id)
      if (found !== undefined)
        store.add(found.key, { timeMs: sample.timeMs, arrivalMs: sample.atMs, value }, found.keptMs)
    }
  }

  readerOf({ windowMs, windowTime }: CompiledRule, sample: Sample): WindowReader | undefined {
    if (windowMs === 0) return undefined
    const key = seriesKeyOf(sample, sample.series.name)
    return this.#times.get(windowTime)?.store.reader(key, { timeMs: sample.timeMs, arrivalMs: sample.atMs })
  }

  /** Call it after the commit of a step that added everything before the place. */
  moved(place: Place): void {
    this.#place = place
    const nowMs = monotonicMs()
    if (nowMs - this.#prunedMs < PRUNE_INTERVAL_MS) return
    this.#prunedMs = nowMs
    // What nothing asked for is read from the store when something does again.
    for (const { store, kept } of this.#times.values())
      for (const [id, { key, keptMs, usedMs }] of kept)
        if (nowMs - usedMs > keptMs) {
          kept.delete(id)
          store.forget(key)
        }
  }

  #timed(time: WindowTime): Timed {
    const timed = this.#times.get(time)
    if (timed === undefined) throw new Error('no rule has windows of this time')
    return timed
  }

  async #findLacking(
    meetings: readonly Meeting[],
  ): Promise<{ lacking: ReadonlyMap<string, Lacking>; left: LiveMessage | undefined }> {
    const lacking = new Map<string, Lacking>()
    const sources = new Set<string>()
    const turns = createTurns()
    for (const { sample, rules } of meetings)
      for (const { windowMs, windowTime, windowNames } of rules) {
        if (windowMs === 0) continue
        if (turns.isOver) await turns.next()
        for (const name of [sample.series.name, ...windowNames]) {
          const series = { ...sample.series, name }
          const id = keyOf(series)
          const known = this.#timed(windowTime).kept.get(id)
          const keptMs = windowMs + LATENESS_MS
          if (known !== undefined && known.keptMs >= keptMs) {
            known.usedMs = this.#usedMs
            continue
          }
          // The samples of a message have one source.
          const source = keyOf({ ...series, name: '' })
          if (!sources.has(source) && sources.size >= MAX_SOURCES) return { lacking, left: sample.message }
          sources.add(source)
          let found = lacking.get(id)
          if (found === undefined) {
            found = { series, key: seriesKeyOf(sample, name), atMs: sample.atMs, keptMs: 0, times: new Map() }
            lacking.set(id, found)
          }
          found.keptMs = Math.max(found.keptMs, keptMs)
          found.atMs = Math.min(found.atMs, sample.atMs)
          found.times.set(windowTime, Math.max(found.times.get(windowTime) ?? 0, keptMs))
        }
      }
    return { lacking, left: undefined }
  }
}
