/**
 * The windows of the rules of one domain, in the memory of the process that evaluates them. Series are read from the store when a rule first asks for
 * them; a process that takes a domain over reads them again.
 */
import { comparePlaces } from '#api/consumers/index.ts'
import type { Place } from '#api/consumers/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { MAX_WINDOW_VALUES, WindowStore } from '../engine/index.ts'
import type { SeriesKey, WindowReader, WindowTime } from '../engine/index.ts'
import type { CompiledRule } from '../compile.ts'
import { monotonicMs } from '#core/time.ts'
import { readValues } from './repository.ts'
import type { Sample } from './samples.ts'

/** The interval between two looks for series that nothing reads any more. */
const PRUNE_INTERVAL_MS = 60_000

type Source = { channelKey: number; channelId: string; publisherId: string; subtopic: string }

const sourceOf = ({ series, message }: Sample): Source => ({
  channelKey: series.channelKey,
  channelId: message.channelId,
  publisherId: series.publisherId,
  subtopic: series.subtopic,
})
const nameOf = ({ channelKey, publisherId, subtopic }: Omit<Source, 'channelId'>) =>
  `${channelKey}\n${publisherId}\n${subtopic}`
const seriesOf = ({ channelId, publisherId, subtopic }: Source, name: string): SeriesKey => ({
  client: publisherId,
  channel: channelId,
  subtopic,
  name,
})

export class DomainWindows {
  readonly #stores: ReadonlyMap<WindowTime, WindowStore>
  readonly #sources = new Set<string>()
  #prunedMs = monotonicMs()
  /** What was added is before it. */
  #place: Place | undefined

  private constructor(rules: readonly CompiledRule[]) {
    const longestMs = Math.max(...rules.map(({ windowMs }) => windowMs))
    this.#stores = new Map(
      (['arrival', 'message'] as const)
        .filter((time) => rules.some(({ windowTime }) => windowTime === time))
        .map((time) => [time, new WindowStore(time, longestMs)]),
    )
  }

  /** Undefined: none of the rules has a window. */
  static of(rules: readonly CompiledRule[]): DomainWindows | undefined {
    const windowed = rules.filter(({ windowMs }) => windowMs > 0)
    return windowed.length === 0 ? undefined : new DomainWindows(windowed)
  }

  /** Whether the next message after what was added is that at the place. */
  standsAt(place: Place): boolean {
    return this.#place === undefined || comparePlaces(this.#place, place) === 0
  }

  /** Reads the series of these samples that are not known, up to the place. */
  async load(db: Queryable, samples: readonly Sample[], before: Place): Promise<void> {
    const lacking = new Map<string, Source>()
    for (const sample of samples) {
      const source = sourceOf(sample)
      if (!this.#sources.has(nameOf(source))) lacking.set(nameOf(source), source)
    }
    if (lacking.size === 0) return
    const firstMs = Math.min(...samples.map(({ atMs }) => atMs))
    const keptMs = Math.max(...this.#stores.values().map((store) => store.keptMs))
    const values = await readValues(db, [...lacking.values()], {
      before,
      sinceSeconds: (firstMs - keptMs) / 1000,
      perSeries: MAX_WINDOW_VALUES,
    })
    for (const { value, timeMs, arrivalMs, name, ...series } of values) {
      const source = lacking.get(nameOf(series))
      if (source !== undefined) this.#addTo(seriesOf(source, name), { timeMs, arrivalMs, value })
    }
    for (const name of lacking.keys()) this.#sources.add(name)
  }

  /** Adds the value of a sample, if its series is known, before the sample is evaluated. */
  add(sample: Sample): void {
    const { value } = sample.variables
    const source = sourceOf(sample)
    if (value === undefined || !this.#sources.has(nameOf(source))) return
    this.#addTo(seriesOf(source, sample.series.name), { timeMs: sample.timeMs, arrivalMs: sample.atMs, value })
  }

  readerOf({ windowMs, windowTime }: CompiledRule, sample: Sample): WindowReader | undefined {
    if (windowMs === 0) return undefined
    const key = seriesOf(sourceOf(sample), sample.series.name)
    return this.#stores.get(windowTime)?.reader(key, { timeMs: sample.timeMs, arrivalMs: sample.atMs })
  }

  /** Call it after the commit of a step that added everything before the place. */
  moved(place: Place): void {
    this.#place = place
    if (monotonicMs() - this.#prunedMs < PRUNE_INTERVAL_MS) return
    this.#prunedMs = monotonicMs()
    for (const store of this.#stores.values()) store.prune(Date.now())
  }

  #addTo(key: SeriesKey, sample: { timeMs: number; arrivalMs: number; value: number }): void {
    for (const store of this.#stores.values()) store.add(key, sample)
  }
}
