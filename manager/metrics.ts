/** What the task manager shows at `/metrics`, beside what every program with a database does. */
import type { Database } from '#core/database/index.ts'
import type { GaugeSource, MetricSet } from '#core/metrics/index.ts'
import { WORKER_METRICS } from './placement/metrics.ts'
import { RUN_METRICS, runQueueGauges } from './writer/metrics.ts'

export const MANAGER_METRICS: readonly MetricSet[] = [RUN_METRICS.set, WORKER_METRICS.set]

export function managerGauges(database: Database): GaugeSource[] {
  return [runQueueGauges(database)]
}
