/** What the module proxy shows at `/metrics` where it runs alone; in the process of a manager it shows what that one does. */
import { COLLECTOR_METRICS, DISK_METRICS } from '#core/metrics/index.ts'
import type { MetricSet } from '#core/metrics/index.ts'
import { PROXY_METRICS as SOURCE_METRICS } from './source/index.ts'

export const PROXY_METRICS: readonly MetricSet[] = [SOURCE_METRICS.set, DISK_METRICS.set, COLLECTOR_METRICS.set]
