/** The metrics of the projections: they show how far the projections are behind. */
import type { Database } from '#core/database/index.ts'
import { counter, defineMetrics, gauge, gaugeValue } from '#core/metrics/index.ts'
import type { GaugeSource } from '#core/metrics/index.ts'
import { sql } from '#core/sql.ts'

export const PROJECTOR_METRICS = defineMetrics('Projector', {
  lag: gauge('skein_projector_lag_seconds', 'Age of the oldest batch of messages that is not projected; 0: all are', {
    aggregator: 'max',
  }),
  failures: counter('skein_projector_failures_total', 'Rounds of the projector that failed and are repeated'),
})

export function projectorGauges(database: Database): GaugeSource {
  return {
    name: 'projector',
    gauges: [PROJECTOR_METRICS.lag],
    async read() {
      const { rows } = await sql<{ lag: number }>`SELECT coalesce((
        SELECT greatest(extract(epoch FROM clock_timestamp() - arrived_at), 0) FROM ingest_batches
         WHERE NOT projected ORDER BY seq LIMIT 1), 0)::float8 AS lag`.execute(database.db)
      return rows.flatMap(({ lag }) => gaugeValue(PROJECTOR_METRICS.lag, lag))
    },
  }
}
