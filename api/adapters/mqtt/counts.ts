/** What operators see of MQTT: gauges of what is open, totals of packets, refusals and losses (contract section 11). */
import type { Metrics } from '#core/http/index.ts'
import { reasonName } from './packets/reason-codes.ts'

export type Counts = {
  packet(type: string): void
  refusal(reasonCode: number): void
  dropped(reason: string, messages?: number): void
  stored(durationMs: number): void
  sent(): void
  /** Hands on what was counted packet by packet; once a second is enough. */
  flush(): void
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
  const totals = metrics?.counter('skein_mqtt_packets_total', 'Packets that clients sent, by type', ['type'])
  const packets = new Map<string, number>()
  let sent = 0
  metrics?.gauge('skein_mqtt_sent_messages', 'Messages sent to subscribers since the start', () => sent)
  return {
    packet: (type) => void packets.set(type, (packets.get(type) ?? 0) + 1),
    refusal: (reasonCode) => refusals?.inc({ reason: reasonName(reasonCode) }),
    dropped: (reason, messages = 1) => drops?.inc({ reason }, messages),
    stored: (durationMs) => metrics?.countRequest('mqtt', 'PUBLISH', 'stored', durationMs / 1000),
    sent: () => void sent++,
    flush() {
      for (const [type, count] of packets) totals?.inc({ type }, count)
      packets.clear()
    },
  }
}
