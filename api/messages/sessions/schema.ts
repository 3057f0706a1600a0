/** API schemas of sessions of a client and retained messages of a channel. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import type { RetainedMessage } from '../retained/retained.ts'
import type { SessionRow } from './listing.ts'

const Moment = Type.String({ format: 'date-time' })

export const MqttSession = Type.Object({
  client_identifier: Type.String(),
  connected: Type.Boolean(),
  protocol_version: Type.Integer({ description: '3 is MQTT 3.1, 4 is 3.1.1, 5 is 5.0' }),
  address: Type.String({ description: 'Of the peer, or where it was last' }),
  expiry_seconds: Type.Integer({ description: 'How long it outlives its connection; 0: not at all' }),
  connected_at: Moment,
  disconnected_at: Type.String({ format: 'date-time', description: 'The zero time while it is connected' }),
  ends_at: Type.String({ format: 'date-time', description: 'When it ends without a connection' }),
  has_will: Type.Boolean(),
  subscriptions: Type.Array(Type.Object({ filter: Type.String(), qos: Type.Integer() })),
  queued_messages: Type.Integer({ description: 'On their way to the client, as far as they are written down' }),
  unreleased_messages: Type.Integer({ description: 'Received with QoS 2 and not released by the client' }),
  skipped_messages: Type.Integer({
    description:
      'Missed while it was away and never sent: older than 7 days, or beyond the newest 100,000 of a channel',
  }),
})

/** A client has one session for each identifier that it connects with. */
const MAX_SESSIONS = 1000

export const MqttSessionQuery = Type.Object(pageQuery({ limit: MAX_SESSIONS, maxLimit: MAX_SESSIONS }))
export const MqttSessions = Type.Object({ ...pageFields, sessions: Type.Array(MqttSession) })
export type MqttSessions = Static<typeof MqttSessions>

export const RetainedPage = Type.Object({
  ...pageFields,
  messages: Type.Array(
    Type.Object({
      channel: Type.String(),
      subtopic: Type.String(),
      publisher: Type.String(),
      qos: Type.Integer(),
      stored_at: Moment,
      content_type: Type.Optional(Type.String({ description: 'As its publisher said' })),
      payload: Type.String({ description: 'base64' }),
    }),
  ),
})
export type RetainedPage = Static<typeof RetainedPage>

export function presentSession(row: SessionRow): Static<typeof MqttSession> {
  return {
    client_identifier: row.client_identifier,
    connected: row.is_connected,
    protocol_version: row.version,
    address: row.address,
    expiry_seconds: row.expiry_seconds,
    connected_at: formatTime(row.connected_at),
    disconnected_at: formatTime(row.disconnected_at),
    ends_at: formatTime(row.ends_at),
    has_will: row.has_will,
    subscriptions: row.subscriptions,
    queued_messages: row.queued,
    unreleased_messages: row.unreleased,
    skipped_messages: row.skipped_messages,
  }
}

export function presentRetained(channelId: string, message: RetainedMessage): RetainedPage['messages'][number] {
  const { subtopic, publisherId, qos, storedAt, envelope, payload } = message
  return {
    channel: channelId,
    subtopic,
    publisher: publisherId,
    qos,
    stored_at: formatTime(storedAt),
    ...(envelope.contentType === undefined ? {} : { content_type: envelope.contentType }),
    payload: payload.toString('base64'),
  }
}
