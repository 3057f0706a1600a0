/**
 * Gauges whose values must be asked for: one background loop reads them, so that showing metrics never waits for a database or
 * a disk. A value that could not be read again disappears, and the age of each reading says since when.
 */
import type { Logger } from '../logging/index.ts'
import { monotonicMs, sleep, withDeadline } from '../time.ts'
import { counter, defineMetrics, gauge } from './define.ts'
import type { GaugeMetric, Sample } from './define.ts'

/** The pause between two rounds of the collector. */
export const COLLECT_INTERVAL_MS = 10_000
/** The pause between the first readings of two sources. If they ran together, each would open a database connection of its own. */
const STAGGER_MS = 50
/** One reading may take so long. */
const READ_DEADLINE_MS = 5_000
/** A value that was read longer ago is not shown. */
const MAX_AGE_MS = 45_000

const COLLECTED = 'a part of what the collector reads: database, disk, runs and others'

export const COLLECTOR_METRICS = defineMetrics('Collector', {
  age: gauge(
    'skein_collector_age_seconds',
    'Time since the reading last succeeded, or since the start of the program',
    {
      labels: { reading: COLLECTED },
      aggregator: 'max',
    },
  ),
  failures: counter('skein_collector_failures_total', 'Readings that failed or exceeded their deadline', {
    reading: COLLECTED,
  }),
})

/** One value that was read. */
export type GaugeValue = readonly [gauge: GaugeMetric<string>, labels: Readonly<Record<string, string>>, value: number]

export type GaugeSource = {
  /** The value of the label `reading`. */
  name: string
  /** Gauges that `read` gives values for. */
  gauges: readonly GaugeMetric<never>[]
  /** The interval between two readings; defaults to 10 seconds. It is longer for values that are expensive to read and change slowly. */
  intervalMs?: number
  read: () => Promise<readonly GaugeValue[]>
}

/** A value for a gauge; null and undefined: there is none. */
export function gaugeValue<L extends string>(
  gauge: GaugeMetric<L>,
  value: number | null | undefined,
  labels?: Readonly<Record<L, string>>,
): GaugeValue[] {
  // The labels of a gauge are known where it is named; the collector treats all gauges alike.
  return value === null || value === undefined ? [] : [[gauge as unknown as GaugeMetric<string>, labels ?? {}, value]]
}

export type CollectorOptions = {
  collected: readonly GaugeSource[]
  logger: Logger
  intervalMs?: number
  deadlineMs?: number
  maxAgeMs?: number
}

/** Begins at once, with one source after the other, and returns without waiting for the first values. */
export function startCollector({
  collected,
  logger,
  intervalMs: defaultIntervalMs = COLLECT_INTERVAL_MS,
  deadlineMs = READ_DEADLINE_MS,
  maxAgeMs = MAX_AGE_MS,
}: CollectorOptions): { stop(): Promise<void> } {
  const stopping = new AbortController()
  const loops = collected.map((one, index) => collect(one, index * STAGGER_MS))
  const removeAgeSource = COLLECTOR_METRICS.age.from(() =>
    loops.map(({ name, ageMs }) => ({ labels: { reading: name }, value: ageMs() / 1000 })),
  )

  function collect({ name, gauges, read, intervalMs = defaultIntervalMs }: GaugeSource, firstPauseMs: number) {
    const shownMs = maxAgeMs * Math.max(1, intervalMs / defaultIntervalMs)
    let atMs = monotonicMs()
    let values: readonly GaugeValue[] = []
    let isFailing = false
    let pending: Promise<unknown> | undefined
    const ageMs = () => monotonicMs() - atMs
    const sources = gauges.map((gauge) =>
      gauge.from(() => (ageMs() > shownMs ? [] : values.flatMap((one) => sampleOf(one, gauge)))),
    )

    async function round(): Promise<void> {
      // A reading that exceeded its deadline may still wait for its answer. Another one behind it would not be faster.
      if (pending !== undefined) return COLLECTOR_METRICS.failures.add({ reading: name })
      const work = read()
      pending = work.then(
        () => (pending = undefined),
        () => (pending = undefined),
      )
      try {
        values = await withDeadline(work, deadlineMs, `reading the metrics of ${name}`)
        atMs = monotonicMs()
        if (isFailing) logger.info({ reading: name }, 'metrics can be read again')
        isFailing = false
      } catch (error) {
        COLLECTOR_METRICS.failures.add({ reading: name })
        if (!isFailing && !stopping.signal.aborted)
          logger.warn({ err: error, reading: name }, 'failed to read metrics; they disappear until they can be read')
        isFailing = true
      }
    }

    const pause = (pauseMs: number) => sleep(pauseMs, stopping.signal).catch(() => undefined)

    async function loop(): Promise<void> {
      if (firstPauseMs > 0) await pause(firstPauseMs)
      while (!stopping.signal.aborted) {
        await round()
        await pause(intervalMs)
      }
      for (const removeSource of sources) removeSource()
    }
    return { name, ageMs, done: loop() }
  }

  return {
    async stop() {
      stopping.abort()
      await Promise.all(loops.map(({ done }) => done))
      removeAgeSource()
    },
  }
}

function sampleOf([gauge, labels, value]: GaugeValue, wanted: GaugeMetric<never>): Sample<never>[] {
  return (gauge as unknown) === wanted ? [{ labels, value }] : []
}
