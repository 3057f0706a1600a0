/** What operators see of MQTT: gauges of what is open, totals of packets, refusals and losses (contract section 11). */
import type { Metrics } from '#core/http/index.ts'
import { reasonName } from './packets/reason-codes.ts'

export type Counts = {
  readonly packets: Map<string, number>
  refusal(reasonCode: number): void
  dropped(reason: string, messages?: number): void
  stored(durationMs: number): void
  sent(): void
}

export function createCounts(metrics: Metrics | undefined): Counts {
  const refusals = metrics?.counter('skein_mqtt_refusals_total', 'What MQTT clients were refused, by reason', [
    'reason',
  ])
  const drops = metrics?.counter(
    'skein_mqtt_dropped_messages_total',
    'Messages that were not delivered or not taken, by reason',
    ['reason'],
  )
  const packets = new Map<string, number>()
  let sent = 0
  metrics?.gauge('skein_mqtt_sent_messages', 'Messages sent to subscribers since the start', () => sent)
  return {
    packets,
    refusal: (reasonCode) => refusals?.inc({ reason: reasonName(reasonCode) }),
    dropped: (reason, messages = 1) => drops?.inc({ reason }, messages),
    stored: (durationMs) => metrics?.countRequest('mqtt', 'PUBLISH', 'stored', durationMs / 1000),
    sent: () => void sent++,
  }
}
