/** Wire shapes of subscriptions to notifications (contract section 13, decision 57). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { SECRET, recordOf } from '#http/index.ts'
import { Id, Timestamp } from '#api/identity/index.ts'
import { Cursor, MAX_OFFSET, pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { MAX_TOKEN_CHARS } from './confirmation.ts'
import type { DeliveryRecord, SubscriptionRecord } from './repository.ts'

const MAX_TOPIC_CHARS = 1200
const MAX_CONTACT_CHARS = 2048
const DEFAULT_LIMIT = 20
/** Maximum number of items for `limit=-1`, no limit. */
export const MAX_LISTED = 1000

export const NewSubscription = Type.Object(
  {
    topic: Type.String({
      minLength: 1,
      maxLength: MAX_TOPIC_CHARS,
      description:
        'Topic: m/<domain>/c/<channel>[/<subtopic>], channels/<channel>/messages[/…] or <channel>[.<subtopic>]; the subtopic may contain wildcards',
    }),
    contact: Type.String({
      minLength: 1,
      maxLength: MAX_CONTACT_CHARS,
      description: 'Email address, or https URL of a webhook',
    }),
  },
  { $id: 'SubscriptionCreate' },
)
export type NewSubscription = Static<typeof NewSubscription>

export const Subscription = Type.Object(
  {
    id: Id,
    owner_id: Id,
    contact: Type.String(),
    topic: Type.String(),
    status: Type.Enum(['active', 'pending'], {
      description: '`pending` until the email address is confirmed',
    }),
    signing_secret: Type.Optional(
      Type.String({ ...SECRET, description: 'Key of the signature of webhook requests; only for an https contact' }),
    ),
    pending: Type.Optional(Type.Integer({ description: 'Number of messages that wait for delivery' })),
    last_error: Type.Optional(
      Type.Object(
        { at: Timestamp, reason: Type.String(), count: Type.Integer() },
        { description: 'The last failure since the last delivery, and the number of failures since then' },
      ),
    ),
    missed: Type.Optional(
      Type.Integer({ description: 'Number of messages that waited for longer than a week, and were not delivered' }),
    ),
    behind_since: Type.Optional(
      Type.String({
        format: 'date-time',
        description:
          'Arrival of the oldest message that waits in its channel because 1,000 wait for delivery already; absent: none does',
      }),
    ),
  },
  { $id: 'Subscription', description: 'Subscription to notifications about messages' },
)

export const ConfirmQuery = Type.Object({ token: Type.String({ minLength: 1, maxLength: MAX_TOKEN_CHARS }) })

export const SubscriptionQuery = Type.Object({
  topic: Type.Optional(Type.String({ maxLength: MAX_TOPIC_CHARS })),
  contact: Type.Optional(Type.String({ maxLength: MAX_CONTACT_CHARS })),
  offset: Type.Integer({ minimum: 0, maximum: MAX_OFFSET, default: 0 }),
  cursor: Type.Optional(Cursor),
  limit: Type.Integer({
    minimum: -1,
    maximum: MAX_LISTED,
    default: DEFAULT_LIMIT,
    description: `Number of rows to return; -1 for all, at most ${MAX_LISTED}`,
  }),
})
export type SubscriptionQuery = Static<typeof SubscriptionQuery>

export const SubscriptionPage = Type.Object({ ...pageFields, subscriptions: Type.Array(Subscription) })

export const DeadLetterQuery = Type.Object(pageQuery())
export type DeadLetterQuery = Static<typeof DeadLetterQuery>

export const DeadLetter = Type.Object({
  id: Id,
  message: recordOf(Type.Unknown(), { description: 'Body of the webhook request' }),
  attempts: Type.Integer(),
  error: Type.String({ description: 'Error of the last attempt' }),
  created_at: Timestamp,
  at: Type.String({ format: 'date-time', description: 'When it was given up' }),
})
export const DeadLetterPage = Type.Object({ ...pageFields, dead_letters: Type.Array(DeadLetter) })

export function presentSubscription(record: SubscriptionRecord, signingSecret: string): Static<typeof Subscription> {
  return {
    id: record.id,
    owner_id: record.ownerId,
    contact: record.contact,
    topic: record.topic,
    status: record.isConfirmed ? 'active' : 'pending',
    ...(record.contact.includes('://') ? { signing_secret: signingSecret } : {}),
    pending: record.pending,
    missed: record.missed,
    ...(record.behindSince === null ? {} : { behind_since: formatTime(record.behindSince) }),
    ...(record.lastError === null ? {} : { last_error: { ...record.lastError, at: formatTime(record.lastError.at) } }),
  }
}

export function presentDeadLetter(record: DeliveryRecord): Static<typeof DeadLetter> {
  return {
    id: record.id,
    message: record.payload,
    attempts: record.attempts,
    error: record.lastError ?? '',
    created_at: formatTime(record.createdAt),
    at: formatTime(record.givenUpAt),
  }
}
