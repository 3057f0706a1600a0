/** The metrics of the readers of logs: they show how far the readers are behind. */
import { counter, defineMetrics, gauge } from '../metrics/index.ts'

const CONSUMER = { consumer: 'name of the consumer, a constant of the code' }

export const CHANGELOG_METRICS = defineMetrics('Changelog', {
  tailAge: gauge(
    'skein_changelog_tail_age_seconds',
    'Time since the last successful read of the log for caches; beyond 0.9 seconds answers from caches are refused',
    { labels: { log: 'table of the log' }, aggregator: 'max' },
  ),
  lag: gauge('skein_changelog_lag_seconds', 'Time since the consumer had applied everything that was committed', {
    labels: CONSUMER,
    aggregator: 'max',
  }),
  failures: counter('skein_changelog_failures_total', 'Rounds of a consumer that failed and are repeated', CONSUMER),
})
