/** API schemas of a domain's usage (decision 54) and of a client's telemetry (contract section 10). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { DomainQuotaUsage } from '#api/identity/index.ts'
import { formatTime } from '#core/time.ts'
import type { TelemetryRow } from '../presence/index.ts'

/** The number of days in a response; totals cover all days. */
export const SHOWN_DAYS = 366

const COUNTS = {
  messages: Type.Integer({ description: 'Messages that were stored' }),
  records: Type.Integer({ description: 'Records, JSON objects and raw payloads in them' }),
}
export const DomainUsage = Type.Object({
  domain_id: Type.String(),
  ...COUNTS,
  quotas: DomainQuotaUsage,
  days: Type.Array(Type.Object({ day: Type.String({ description: 'Of UTC, YYYY-MM-DD' }), ...COUNTS }), {
    description: 'The days on which anything arrived, newest first, at most 366',
  }),
})
export type DomainUsage = Static<typeof DomainUsage>

const MOMENT = 'the zero time: never'
export const ClientTelemetry = Type.Object({
  client_id: Type.String(),
  domain_id: Type.String(),
  subscriptions: Type.Integer({ description: 'Filters that its open sessions follow' }),
  inbound_messages: Type.Integer({ description: 'Messages that it published and that were stored' }),
  outbound_messages: Type.Integer({ description: 'Messages that were handed to its sessions' }),
  first_seen: Type.String({ format: 'date-time', description: MOMENT }),
  last_seen: Type.String({
    format: 'date-time',
    description: `When it published, or a session of it began or ended; ${MOMENT}`,
  }),
  online: Type.Boolean({ description: 'It has a session open: MQTT, a WebSocket, an event stream or an observation' }),
  online_changed_at: Type.String({ format: 'date-time', description: `Since when it is online or offline; ${MOMENT}` }),
  unparsed_messages: Type.Integer({
    description:
      'Invalid messages: refused over HTTP and CoAP; over MQTT they look like SenML or JSON and were stored as something else',
  }),
  last_error: Type.String({ description: 'What was wrong with the last of them; empty: there was none' }),
  last_error_at: Type.String({ format: 'date-time', description: `When it was received; ${MOMENT}` }),
})
export type ClientTelemetry = Static<typeof ClientTelemetry>

export function presentTelemetry(clientId: string, domainId: string, row: TelemetryRow): ClientTelemetry {
  return {
    client_id: clientId,
    domain_id: domainId,
    subscriptions: row.subscriptions,
    inbound_messages: row.inbound_messages,
    outbound_messages: row.outbound_messages,
    first_seen: formatTime(row.first_seen),
    last_seen: formatTime(row.last_seen),
    online: row.is_online,
    online_changed_at: formatTime(row.state_since),
    unparsed_messages: row.unparsed_messages,
    last_error: row.last_error ?? '',
    last_error_at: formatTime(row.last_error_at),
  }
}
