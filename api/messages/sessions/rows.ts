/** What the tables of sessions hold, as values: who has a session, what it subscribed to, what is on its way to it. */
import type { Envelope } from '../envelope.ts'

export type SessionOwner = { clientKey: number; clientIdentifier: string }

/** Names a connection of a session: an older epoch may write nothing more. */
export type SessionName = { key: number; epoch: number }

export type StoredWill = {
  topic: string
  channelKey: number
  subtopic: string
  payload: Buffer
  qos: 0 | 1 | 2
  isRetained: boolean
  delaySeconds: number
  envelope: Envelope | undefined
}

export type StoredSubscription = {
  filter: string
  channelKey: number
  /** The byte of SUBSCRIBE (MQTT 5.0 section 3.8.3.1). */
  options: number
  identifier: number | undefined
  /** Id of an event of the message log; undefined: where its node stands. */
  position: string | undefined
}

/** Where a subscription stands; undefined: with its node. */
export type SubscriptionPosition = { filter: string; position: string | undefined }

/** How far a message has come on its way to the client. */
export const OUTBOUND_STATES = { waiting: 0, sent: 1, released: 2, done: 3 } as const
export type OutboundState = keyof typeof OUTBOUND_STATES

export type StoredOutbound = {
  ordinal: number
  /** 0: it was not sent. */
  packetId: number
  qos: 1 | 2
  state: OutboundState
  /** Undefined: it came from what is retained. */
  batchSeq: number | undefined
  message: number
  channelKey: number
  subtopic: string
  facts: OutboundFacts
  payload: Buffer
}

/** How the message is put into a packet. */
export type OutboundFacts = {
  /** What stands before the subtopic. */
  prefix: string | undefined
  retain: boolean
  identifiers?: readonly number[] | undefined
  envelope?: Envelope | undefined
}

export type OpenSession = SessionOwner & {
  isClean: boolean
  version: number
  address: string
  expirySeconds: number
  will: StoredWill | undefined
}

export type OpenedSession = SessionName & {
  isPresent: boolean
  subscriptions: StoredSubscription[]
  received: number[]
  outbound: StoredOutbound[]
  /** Of the connection before: to be sent now. */
  endedWill: StoredWill | undefined
}

export type CloseSession = SessionName & {
  expirySeconds: number
  /** Sent when its delay is over, if no connection comes before. */
  will: StoredWill | undefined
  /** Where its subscriptions stand. */
  positions: readonly { filter: string; position: string }[]
  outbound: readonly StoredOutbound[]
}
