/** Wire shapes of named consumers. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Id, Name, Timestamp } from '#api/identity/index.ts'
import { PROTOCOLS } from '#api/messages/index.ts'
import { documented } from '#http/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { DURATION_PATTERN, formatDurationMs, formatTime } from '#core/time.ts'
import { formatPlace } from './place.ts'
import { ORDERS } from './order.ts'
import type { ConsumerRecord } from './repository.ts'
import { MAX_TAKEN } from './reading.ts'

/** Channels of one consumer. */
const MAX_CHANNELS = 100
export const MAX_WAIT_MS = 60_000
export const MIN_ACK_WAIT_MS = 100
/** A day. */
export const MAX_DELAY_MS = 86_400_000
const MAX_IN_FLIGHT = 10_000
const MAX_DELIVER = 1_000
const MAX_SUBTOPIC_CHARS = 1_024
const MAX_PUBLISHERS_CHARS = 3_700
const MAX_REASON_CHARS = 500
const MAX_DURATION_CHARS = 32
const DEFAULT_TAKEN = 100

export const DEFAULTS = { maxInFlight: 1_000, ackWaitMs: 30_000, maxDeliver: 5 } as const

const duration = (description: string) =>
  Type.String({ maxLength: MAX_DURATION_CHARS, description, ...documented({ pattern: DURATION_PATTERN }) })

/** A name is a segment of a path, and is not taken for an id. */
export const ConsumerName = Type.String({
  minLength: 1,
  maxLength: 64,
  pattern: '^[A-Za-z0-9][A-Za-z0-9._-]*$',
  description: 'Unique in the domain; not the form of an id',
})

const Position = Type.String({
  maxLength: 64,
  description: 'Position of a message: `<number>-<number>-<number>`',
})

const Begin = Type.String({
  minLength: 1,
  maxLength: 64,
  description: '`earliest`, `latest`, a time (RFC 3339), or the position of a message, which is then the next one',
})

export const ConsumerFilter = Type.Object(
  {
    subtopic: Type.Optional(
      Type.String({
        maxLength: MAX_SUBTOPIC_CHARS,
        description: 'Subtopic with the wildcards + (one element) and # (all that follow); defaults to #',
      }),
    ),
    publisher: Type.Optional(
      Type.String({
        maxLength: MAX_PUBLISHERS_CHARS,
        description: 'Id of the client, or up to 100 ids separated by commas',
      }),
    ),
    protocol: Type.Optional(Type.Enum(PROTOCOLS.filter((name) => name !== ''))),
  },
  { $id: 'ConsumerFilter', description: 'Which messages of the channels it gets; absent: all' },
)
export type ConsumerFilter = Static<typeof ConsumerFilter>

const Channels = Type.Array(Id, {
  minItems: 1,
  maxItems: MAX_CHANNELS,
  description: 'Ids of channels of the domain',
})
const fields = {
  filter: Type.Optional(ConsumerFilter),
  order: Type.Optional(
    Type.Enum([...ORDERS], {
      description:
        'What a message that is not acknowledged holds back: later ones of its `client` (the default), of its `channel`, or `none`',
    }),
  ),
  max_in_flight: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: MAX_IN_FLIGHT,
      description: `Delivered messages that are not acknowledged, at most; defaults to ${DEFAULTS.maxInFlight}`,
    }),
  ),
  ack_wait: Type.Optional(
    duration('After this time a message that is not acknowledged is delivered again, 100ms to 24h; defaults to 30s'),
  ),
  max_deliver: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: MAX_DELIVER,
      description: `Deliveries after which a message becomes a dead letter; defaults to ${DEFAULTS.maxDeliver}`,
    }),
  ),
}

export const NewConsumer = Type.Object(
  { name: ConsumerName, channels: Channels, ...fields, from: Type.Optional(Begin) },
  { $id: 'ConsumerCreate' },
)
export type NewConsumer = Static<typeof NewConsumer>

export const ConsumerUpdate = Type.Object(
  { name: Type.Optional(ConsumerName), channels: Type.Optional(Channels), ...fields },
  { description: 'Absent fields are unchanged. `POST …/seek` moves it' },
)
export type ConsumerUpdate = Static<typeof ConsumerUpdate>

export const ConsumerView = Type.Object(
  {
    id: Id,
    domain_id: Id,
    name: Type.String(),
    channels: Type.Array(Id, { description: 'Deleted channels are left out' }),
    filter: ConsumerFilter,
    order: Type.Enum([...ORDERS]),
    max_in_flight: Type.Integer(),
    ack_wait: Type.String(),
    max_deliver: Type.Integer(),
    position: Type.String({ description: 'Of the next message that was not delivered yet' }),
    behind_since: Type.Optional(
      Type.String({
        format: 'date-time',
        description: 'Arrival of the oldest message that waits for its first delivery; absent: none is known to',
      }),
    ),
    lag_seconds: Type.Number({ description: 'Age of that message; 0: none waits' }),
    in_flight: Type.Integer({ description: 'Messages that were delivered and are not acknowledged' }),
    held: Type.Integer({ description: 'Messages that earlier ones of their client or channel hold back' }),
    dead_letters: Type.Integer(),
    expired: Type.Integer({
      description: 'Messages that were not delivered because they waited for a week, or were deleted',
    }),
    last_error: Type.Optional(
      Type.Object(
        { at: Timestamp, reason: Type.String() },
        { description: 'Why callers get nothing; absent after the next delivery' },
      ),
    ),
    created_by: Id,
    created_at: Timestamp,
    updated_by: Type.Optional(Id),
    updated_at: Timestamp,
  },
  { $id: 'Consumer', description: 'Named consumer: a filter and a position' },
)
export type ConsumerView = Static<typeof ConsumerView>

export const ConsumerQuery = Type.Object({
  ...pageQuery(),
  name: Type.Optional(Name),
  channel: Type.Optional(Type.String({ format: 'uuid', description: 'Reads this channel' })),
})
export type ConsumerQuery = Static<typeof ConsumerQuery>

export const ConsumerPage = Type.Object({ ...pageFields, consumers: Type.Array(ConsumerView) })

export const TakeQuery = Type.Object({
  limit: Type.Integer({ minimum: 1, maximum: MAX_TAKEN, default: DEFAULT_TAKEN }),
  wait: Type.Optional(duration('How long to wait for the first message, at most 60s; defaults to 0s')),
})

/** `payload` is JSON where the content type is, else base64. */
const messageFields = {
  position: Position,
  attempts: Type.Integer({ description: 'Deliveries of this message, this one included' }),
  channel: Id,
  subtopic: Type.String(),
  publisher: Type.String({ description: 'Id of the client; empty for a user or a task' }),
  protocol: Type.String(),
  created: Type.Number({ description: 'Time of reception, seconds since 1970' }),
  content_type: Type.String(),
  run_id: Type.Optional(Type.String({ description: 'The run of a task that published it' })),
  task_id: Type.Optional(Type.String()),
  payload: Type.Unknown({ description: 'JSON where the content type is; base64 otherwise' }),
}
const DeliveredMessage = Type.Object(messageFields, { $id: 'DeliveredMessage' })

export const Delivered = Type.Object({
  messages: Type.Array(DeliveredMessage, { description: 'In order; empty after the wait' }),
})

const Positions = Type.Array(Position, { minItems: 1, maxItems: MAX_TAKEN })

export const Ack = Type.Object({ positions: Positions }, { $id: 'ConsumerAck' })

export const Nack = Type.Object(
  {
    positions: Positions,
    delay: Type.Optional(duration('Time until the next delivery, at most 24h; defaults to 0s')),
    reason: Type.Optional(Type.String({ maxLength: MAX_REASON_CHARS, description: 'Shown with a dead letter' })),
  },
  { $id: 'ConsumerNack' },
)
export type Nack = Static<typeof Nack>

export const Seek = Type.Object({ from: Begin }, { $id: 'ConsumerSeek' })

export const DeadLetterQuery = Type.Object(pageQuery())
export type DeadLetterQuery = Static<typeof DeadLetterQuery>

const DeadLetter = Type.Object({
  id: Id,
  position: Position,
  attempts: Type.Integer(),
  error: Type.String({ description: 'What the last nack said, or that it was not acknowledged' }),
  created_at: Timestamp,
  at: Type.String({ format: 'date-time', description: 'When it was given up' }),
  message: Type.Optional(
    Type.Object(Type.Omit(DeliveredMessage, ['position', 'attempts']).properties, {
      description: 'Absent without `subscribe` on its channel, and when it is no longer stored',
    }),
  ),
})
export const DeadLetterPage = Type.Object({ ...pageFields, dead_letters: Type.Array(DeadLetter) })

export function presentConsumer(record: ConsumerRecord, domainId: string): ConsumerView {
  const { behindSince, lastError, publisherIds, protocol } = record
  const seconds = behindSince === null ? 0 : Math.max(0, (Date.now() - Date.parse(behindSince)) / 1000)
  return {
    id: record.id,
    domain_id: domainId,
    name: record.name,
    channels: record.channels.map(({ id }) => id),
    filter: {
      ...(record.subtopic === '>' ? {} : { subtopic: record.subtopic }),
      ...(publisherIds === null ? {} : { publisher: publisherIds.join(',') }),
      ...(protocol === null ? {} : { protocol: protocol as Exclude<(typeof PROTOCOLS)[number], ''> }),
    },
    order: record.order,
    max_in_flight: record.maxInFlight,
    ack_wait: formatDurationMs(record.ackWaitMs),
    max_deliver: record.maxDeliver,
    position: formatPlace(record.place),
    ...(behindSince === null ? {} : { behind_since: formatTime(behindSince) }),
    lag_seconds: Math.round(seconds * 1000) / 1000,
    in_flight: record.inFlight,
    held: record.held,
    dead_letters: record.deadLetters,
    expired: record.expired,
    ...(lastError === null ? {} : { last_error: { reason: lastError.reason, at: formatTime(lastError.at) } }),
    created_by: record.createdBy,
    created_at: formatTime(record.createdAt),
    ...(record.updatedBy === null ? {} : { updated_by: record.updatedBy }),
    updated_at: formatTime(record.updatedAt),
  }
}
