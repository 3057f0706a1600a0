/** The metrics of CoAP beside those of its requests. */
import { counter, defineMetrics, gauge } from '#core/metrics/index.ts'

export const COAP_METRICS = defineMetrics('CoAP', {
  observations: gauge('skein_coap_observations', 'Open observations'),
  remembered: gauge('skein_coap_remembered_requests', 'Requests whose repetition gets the same answer'),
  unanswered: gauge('skein_coap_unanswered_requests', 'Requests that wait for their answer'),
  unacknowledged: gauge(
    'skein_coap_unacknowledged_messages',
    'Messages that are sent again until they are acknowledged',
  ),
  unread: counter(
    'skein_coap_unread_datagrams_total',
    'Received datagrams that were dropped because too many waited for the process',
  ),
  dropped: counter('skein_coap_dropped_datagrams_total', 'Datagrams that could not be sent'),
})
