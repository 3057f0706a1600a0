/** Metrics of MQTT: open connections and sessions, and totals of packets, refusals and dropped messages. */
import { counter, defineMetrics, gauge } from '#core/metrics/index.ts'

export const MQTT_METRICS = defineMetrics('MQTT', {
  connections: gauge('skein_mqtt_connections', 'Open connections'),
  sessions: gauge('skein_mqtt_sessions', 'Sessions that this process holds'),
  subscriptions: gauge('skein_mqtt_subscriptions', 'Subscriptions of these sessions'),
  inFlight: gauge('skein_mqtt_in_flight_messages', 'Messages sent to subscribers and not acknowledged'),
  queued: gauge('skein_mqtt_queued_messages', 'Messages that wait until earlier ones are acknowledged'),
  pending: gauge('skein_mqtt_pending_publishes', 'Published messages that wait for their commit'),
  refusals: counter('skein_mqtt_refusals_total', 'Refused connections, subscriptions and publications', {
    reason: 'name of an MQTT reason code',
  }),
  drops: counter('skein_mqtt_dropped_messages_total', 'Messages that were not delivered or not accepted', {
    reason: 'a constant of the code, such as slow or expired',
  }),
  packets: counter('skein_mqtt_packets_total', 'Packets that clients sent', { type: 'name of an MQTT packet' }),
  sent: counter('skein_mqtt_sent_messages_total', 'Messages sent to subscribers'),
})
