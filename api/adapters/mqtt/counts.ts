/** Counts what MQTT clients send and what they are refused (contract section 11). */
import type { Metrics } from '#http/index.ts'
import { MQTT_METRICS } from './metrics.ts'
import { reasonName } from './packets/reason-codes.ts'

export type Counts = {
  packet(type: string): void
  refusal(reasonCode: number): void
  dropped(reason: string, messages?: number): void
  stored(durationMs: number): void
  sent(): void
  /** Publishes counters that are kept per packet; once a second is enough. */
  flush(): void
}

export function createCounts(metrics: Metrics | undefined): Counts {
  const packets = new Map<string, number>()
  let sent = 0
  return {
    packet: (type) => void packets.set(type, (packets.get(type) ?? 0) + 1),
    refusal: (reasonCode) => MQTT_METRICS.refusals.add({ reason: reasonName(reasonCode) }),
    dropped: (reason, messages = 1) => MQTT_METRICS.drops.add({ reason }, messages),
    stored: (durationMs) => metrics?.countRequest('mqtt', 'PUBLISH', 'stored', durationMs / 1000),
    sent: () => void sent++,
    flush() {
      for (const [type, count] of packets) MQTT_METRICS.packets.add({ type }, count)
      packets.clear()
      MQTT_METRICS.sent.add({}, sent)
      sent = 0
    },
  }
}
