/** Wire shapes of subscriptions to notifications (contract section 13, decision 57). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { recordOf } from '#core/http/index.ts'
import { Id, Timestamp } from '#api/identity/index.ts'
import { MAX_OFFSET, pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { MAX_TOKEN_CHARS } from './confirmation.ts'
import type { DeliveryRecord, SubscriptionRecord } from './repository.ts'

const MAX_TOPIC_CHARS = 1200
const MAX_CONTACT_CHARS = 2048
const DEFAULT_LIMIT = 20
/** What `limit=-1`, no limit, is answered with at most. */
export const MAX_LISTED = 1000

export const NewSubscription = Type.Object(
  {
    topic: Type.String({
      minLength: 1,
      maxLength: MAX_TOPIC_CHARS,
      description:
        'm/<domain>/c/<channel>[/<subtopic>], channels/<channel>/messages[/…] or <channel>[.<subtopic>], with wildcards in the subtopic',
    }),
    contact: Type.String({
      minLength: 1,
      maxLength: MAX_CONTACT_CHARS,
      description: 'An email address, or an https address that messages are posted to',
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
      description: 'pending: the address of a mail has not followed its link yet, and is sent nothing else',
    }),
    signing_secret: Type.Optional(
      Type.String({ description: 'Of an https contact: the key of the signature that comes with each post' }),
    ),
    pending: Type.Optional(Type.Integer({ description: 'Messages that wait to be delivered' })),
    missed: Type.Optional(Type.Integer({ description: 'Messages that were left out, because too many waited' })),
  },
  { $id: 'Subscription', description: 'Whoever is told of the messages of a channel' },
)

export const ConfirmQuery = Type.Object({ token: Type.String({ minLength: 1, maxLength: MAX_TOKEN_CHARS }) })

export const SubscriptionQuery = Type.Object({
  topic: Type.Optional(Type.String({ maxLength: MAX_TOPIC_CHARS })),
  contact: Type.Optional(Type.String({ maxLength: MAX_CONTACT_CHARS })),
  offset: Type.Integer({ minimum: 0, maximum: MAX_OFFSET, default: 0 }),
  limit: Type.Integer({
    minimum: -1,
    maximum: MAX_LISTED,
    default: DEFAULT_LIMIT,
    description: `-1: all, at most ${MAX_LISTED}`,
  }),
})
export type SubscriptionQuery = Static<typeof SubscriptionQuery>

export const SubscriptionPage = Type.Object({ ...pageFields, subscriptions: Type.Array(Subscription) })

export const DeadLetterQuery = Type.Object(pageQuery())
export type DeadLetterQuery = Static<typeof DeadLetterQuery>

export const DeadLetter = Type.Object({
  message: recordOf(Type.Unknown(), { description: 'As it would have been posted' }),
  attempts: Type.Integer(),
  error: Type.String({ description: 'Why the last attempt failed' }),
  created_at: Timestamp,
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
  }
}

export function presentDeadLetter(record: DeliveryRecord): Static<typeof DeadLetter> {
  return {
    message: record.payload,
    attempts: record.attempts,
    error: record.lastError ?? '',
    created_at: formatTime(record.createdAt),
  }
}
