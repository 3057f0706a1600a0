/** The metrics of every program with a database, beside those of its own subjects. */
import { CHANGELOG_METRICS } from '#core/changelog/index.ts'
import { DATABASE_METRICS, databaseGauges } from '#core/database/index.ts'
import { COLLECTOR_METRICS, DISK_METRICS, LIMIT_METRICS, diskGauges, startCollector } from '#core/metrics/index.ts'
import type { GaugeSource, MetricSet } from '#core/metrics/index.ts'
import type { Lifecycle } from '#core/program/index.ts'
import { STREAM_METRICS } from '#core/streams/index.ts'
import type { Infrastructure } from './infrastructure.ts'

export const INFRASTRUCTURE_METRICS: readonly MetricSet[] = [
  DATABASE_METRICS.set,
  CHANGELOG_METRICS.set,
  DISK_METRICS.set,
  STREAM_METRICS.set,
  LIMIT_METRICS.set,
  COLLECTOR_METRICS.set,
]

/** Reads in the background what the program shows beside its own counts. */
export async function startGaugeCollection(
  life: Lifecycle,
  { database, dataDir, logger }: Infrastructure,
  readings: readonly GaugeSource[],
): Promise<void> {
  const collected = [...databaseGauges(database), diskGauges(dataDir), ...readings]
  await life.start('metrics collector', () => {
    const value = startCollector({ collected, logger })
    return Promise.resolve({ value, stop: () => value.stop() })
  })
}
