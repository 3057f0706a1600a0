/** Shapes of the frames that a client sends. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Ack as PositionsToAck, ConsumerName, Nack as PositionsToNack } from '#api/consumers/index.ts'
import { LACKABLE } from '#api/messages/index.ts'

export const MAX_ID_CHARS = 64
const MAX_TOKEN_CHARS = 8_192
const MAX_CHANNEL_CHARS = 1_024
const MAX_POSITION_CHARS = 12_000

const Id = Type.String({ minLength: 1, maxLength: MAX_ID_CHARS })

export const Authenticate = Type.Object({
  type: Type.Literal('authenticate'),
  token: Type.String({ minLength: 1, maxLength: MAX_TOKEN_CHARS }),
})

export const SOURCES = ['events', 'tasks', 'messages', 'consumer'] as const

export const Subscribe = Type.Object({
  type: Type.Literal('subscribe'),
  id: Id,
  source: Type.Enum([...SOURCES]),
  channel: Type.Optional(Type.String({ minLength: 1, maxLength: MAX_CHANNEL_CHARS })),
  subtopic: Type.Optional(Type.String({ maxLength: MAX_CHANNEL_CHARS })),
  consumer: Type.Optional(ConsumerName),
  without: Type.Optional(Type.Array(Type.Enum([...LACKABLE]), { maxItems: LACKABLE.length })),
  position: Type.Optional(Type.String({ maxLength: MAX_POSITION_CHARS })),
})
export type Subscribe = Static<typeof Subscribe>

export const Unsubscribe = Type.Object({ type: Type.Literal('unsubscribe'), id: Id })

/** The frames with which a receiver answers messages of a subscription to a consumer. */
export const Ack = Type.Object({ type: Type.Literal('ack'), id: Id, ...PositionsToAck.properties })
export type Ack = Static<typeof Ack>
export const Nack = Type.Object({ type: Type.Literal('nack'), id: Id, ...PositionsToNack.properties })
export type Nack = Static<typeof Nack>
export type Authenticate = Static<typeof Authenticate>
export type Unsubscribe = Static<typeof Unsubscribe>
