/**
 * Declares metrics: name, type, help and labels. Each slice declares its metrics in its `metrics.ts`. A metric exists once
 * per process and counts from its declaration. A program exposes the sets that it registers. Label values come from fixed
 * lists in the code, which limits the number of series.
 */
import { Counter, Gauge, Histogram } from 'prom-client'
import type { Metric } from 'prom-client'

/** Maps the name of each label to a description of its values for the documentation. */
export type LabelDescriptions<L extends string> = Readonly<Record<L, string>>

/**
 * How the values of several processes are aggregated: `sum` when each process measures its own part, `max` when all processes
 * measure the same thing.
 */
export type Aggregator = 'sum' | 'max'

export type MetricDeclaration = {
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly help: string
  readonly labels: Readonly<Record<string, string>>
  readonly aggregator: Aggregator
}

type Values<L extends string> = Readonly<Record<L, string>>

/** Upper bounds of buckets, in seconds, for work that takes between a millisecond and ten seconds. */
export const DURATION_BOUNDS_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

export class CounterMetric<L extends string = never> {
  readonly declaration: MetricDeclaration
  readonly instrument: Counter<L>

  constructor(
    name: string,
    help: string,
    { labels, known }: { labels: LabelDescriptions<L>; known: readonly Values<L>[] },
  ) {
    this.declaration = { name, type: 'counter', help, labels, aggregator: 'sum' }
    this.instrument = new Counter({ name, help, labelNames: namesOf(labels), registers: [] })
    for (const values of known) this.add(values, 0)
  }

  add(labels: Values<L>, count = 1): void {
    this.instrument.inc(labels, count)
  }
}

export class HistogramMetric<L extends string = never> {
  readonly declaration: MetricDeclaration
  readonly instrument: Histogram<L>

  constructor(
    name: string,
    help: string,
    { labels, bounds }: { labels: LabelDescriptions<L>; bounds: readonly number[] },
  ) {
    this.declaration = { name, type: 'histogram', help, labels, aggregator: 'sum' }
    this.instrument = new Histogram({ name, help, labelNames: namesOf(labels), buckets: [...bounds], registers: [] })
  }

  observe(labels: Values<L>, value: number): void {
    this.instrument.observe(labels, value)
  }
}

/** One value of a gauge. */
export type Sample<L extends string = string> = { labels: Values<L>; value: number }

/** A gauge that reads its sources on every scrape. It has no sample when no source returns a value. */
export class GaugeMetric<L extends string = never> {
  readonly declaration: MetricDeclaration
  readonly instrument: Gauge<L>
  readonly #sources = new Set<() => Iterable<Sample<L>>>()

  constructor(
    name: string,
    help: string,
    { labels, aggregator }: { labels: LabelDescriptions<L>; aggregator: Aggregator },
  ) {
    this.declaration = { name, type: 'gauge', help, labels, aggregator }
    const collect = () => this.#collect()
    this.instrument = new Gauge({ name, help, labelNames: namesOf(labels), registers: [], collect })
  }

  /** Adds a source, which must return values from memory. Returns a function that removes the source. */
  from(source: () => Iterable<Sample<L>>): () => void {
    this.#sources.add(source)
    return () => void this.#sources.delete(source)
  }

  /** Adds a source of one value without labels. The source returns undefined when it has no value. */
  fromValue(this: GaugeMetric, read: () => number | undefined): () => void {
    return this.from(() => {
      const value = read()
      return value === undefined ? [] : [{ labels: {}, value }]
    })
  }

  #collect(): void {
    const { instrument } = this
    const { labels: names, aggregator } = this.declaration
    const combined = new Map<string, Sample<L>>()
    for (const source of this.#sources) {
      for (const { labels, value } of source()) {
        const key = JSON.stringify(labels)
        const other = combined.get(key)?.value
        const together = other === undefined ? value : aggregator === 'sum' ? other + value : Math.max(other, value)
        combined.set(key, { labels, value: together })
      }
    }
    instrument.reset()
    // `reset` sets a gauge without labels to 0. Nothing measured this 0, so it is removed.
    if (Object.keys(names).length === 0) instrument.remove()
    for (const { labels, value } of combined.values()) instrument.set(labels, value)
  }
}

export type AnyMetric = { readonly declaration: MetricDeclaration; readonly instrument: Metric }

export type MetricSet = {
  /** The subject that the set measures, as a heading. */
  readonly subject: string
  readonly metrics: Readonly<Record<string, AnyMetric>>
}

/** Removes gauge sources when the part that they measure stops. Takes the functions that `from` and `fromValue` return. */
export function removeSources(removers: readonly (() => void)[]): void {
  for (const remove of removers) remove()
}

/** Groups the metrics of one subject. The result has each metric by name, and `set` to expose them together. */
export function defineMetrics<M extends Readonly<Record<string, AnyMetric>>>(
  subject: string,
  metrics: M,
): M & { readonly set: MetricSet } {
  return { ...metrics, set: { subject, metrics } }
}

/**
 * Declares a counter. The label values in `known` start at 0. Without this, a series starts at its first event with 1, and
 * `increase()` misses that event.
 */
export function counter<L extends string = never>(
  name: string,
  help: string,
  labels?: LabelDescriptions<L>,
  known: readonly Values<L>[] = [],
): CounterMetric<L> {
  return new CounterMetric(name, help, { labels: labels ?? ({} as LabelDescriptions<L>), known })
}

type GaugeOptions<L extends string> = { labels?: LabelDescriptions<L>; aggregator?: Aggregator }

export function gauge<L extends string = never>(
  name: string,
  help: string,
  { labels, aggregator = 'sum' }: GaugeOptions<L> = {},
): GaugeMetric<L> {
  return new GaugeMetric(name, help, { labels: labels ?? ({} as LabelDescriptions<L>), aggregator })
}

type HistogramOptions<L extends string> = { labels?: LabelDescriptions<L>; bounds?: readonly number[] }

export function histogram<L extends string = never>(
  name: string,
  help: string,
  { labels, bounds = DURATION_BOUNDS_SECONDS }: HistogramOptions<L> = {},
): HistogramMetric<L> {
  return new HistogramMetric(name, help, { labels: labels ?? ({} as LabelDescriptions<L>), bounds })
}

function namesOf<L extends string>(labels: LabelDescriptions<L>): L[] {
  return Object.keys(labels) as L[]
}
