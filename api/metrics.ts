/** The metrics that the platform shows at `/metrics`, beside those of every program with a database. */
import type { Database } from '#core/database/index.ts'
import type { GaugeSource, MetricSet } from '#core/metrics/index.ts'
import { COAP_METRICS } from './adapters/coap/index.ts'
import { MQTT_METRICS } from './adapters/mqtt/index.ts'
import { QUEUE_METRICS, queueGauges } from './automation/index.ts'
import { COMMAND_METRICS, DEVICE_TOPIC_METRICS, commandGauges } from './devices/index.ts'
import { CONSUMER_METRICS, consumerGauges } from './consumers/index.ts'
import { MAIL_METRICS } from './identity/index.ts'
import {
  ARCHIVE_METRICS,
  INGEST_METRICS,
  PARTITION_METRICS,
  PROJECTOR_METRICS,
  archiveGauges,
  partitionGauges,
  projectorGauges,
} from './messages/index.ts'
import { RULE_METRICS, ruleGauges } from './rules/index.ts'
import { NOTIFICATION_METRICS, notificationGauges } from './provisioning/index.ts'

export const API_METRICS: readonly MetricSet[] = [
  INGEST_METRICS.set,
  PROJECTOR_METRICS.set,
  PARTITION_METRICS.set,
  ARCHIVE_METRICS.set,
  MQTT_METRICS.set,
  COAP_METRICS.set,
  QUEUE_METRICS.set,
  CONSUMER_METRICS.set,
  COMMAND_METRICS.set,
  DEVICE_TOPIC_METRICS.set,
  RULE_METRICS.set,
  NOTIFICATION_METRICS.set,
  MAIL_METRICS.set,
]

export function apiGauges(database: Database): GaugeSource[] {
  return [
    projectorGauges(database),
    partitionGauges(database),
    archiveGauges(database),
    queueGauges(database),
    consumerGauges(database),
    commandGauges(database),
    ruleGauges(database),
    notificationGauges(database),
  ]
}
