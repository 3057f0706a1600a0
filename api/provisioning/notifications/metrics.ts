/** Notifications that wait, and what became of those that were sent. */
import type { Database } from '#core/database/index.ts'
import { counter, defineMetrics, gauge, gaugeValue } from '#core/metrics/index.ts'
import type { GaugeSource } from '#core/metrics/index.ts'
import { sql } from '#core/sql.ts'

/** Rows that are counted; a longer queue shows this number. */
const MAX_COUNTED = 100_000

export const NOTIFICATION_METRICS = defineMetrics('Notifications', {
  waiting: gauge(
    'skein_notifications_waiting',
    'Notifications that wait for their delivery, at most 100,000 are counted',
    {
      aggregator: 'max',
    },
  ),
  oldest: gauge('skein_notifications_overdue_seconds', 'Time since the delivery was due that waits longest', {
    aggregator: 'max',
  }),
  deliveries: counter(
    'skein_notification_deliveries_total',
    'Attempts to deliver a notification by mail or webhook',
    { outcome: 'delivered, retried or given_up' },
    ['delivered', 'retried', 'given_up'].map((outcome) => ({ outcome })),
  ),
})

export function notificationGauges(database: Database): GaugeSource {
  const { waiting, oldest } = NOTIFICATION_METRICS
  return {
    name: 'notifications',
    gauges: [waiting, oldest],
    async read() {
      const { rows } = await sql<{ waiting: number; overdue: number }>`
        SELECT (SELECT count(*) FROM (SELECT FROM notification_deliveries WHERE next_attempt_at IS NOT NULL LIMIT ${MAX_COUNTED}) AS counted) AS waiting,
          greatest(extract(epoch FROM now() - (SELECT min(next_attempt_at) FROM notification_deliveries WHERE next_attempt_at IS NOT NULL)), 0)::float8 AS overdue`.execute(
        database.db,
      )
      return rows.flatMap((row) => [...gaugeValue(waiting, row.waiting), ...gaugeValue(oldest, row.overdue)])
    },
  }
}
