/** Metrics of the topics of devices themselves. */
import { defineMetrics, gauge } from '#core/metrics/index.ts'

export const DEVICE_TOPIC_METRICS = defineMetrics('Topics of devices', {
  subscriptions: gauge<'noun'>(
    'skein_device_subscriptions',
    'Subscriptions and observations of connected devices to what is desired of them, and to their commands',
    { labels: { noun: '`state` or `commands`' } },
  ),
})
