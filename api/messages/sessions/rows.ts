/** What the tables of sessions hold, as values: who has a session, what it subscribed to, what is on its way to it. */
import type { Envelope } from '../model/envelope.ts'

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
  /** Id of an event of the message log; undefined: where its node stands. Of a shared one: where its group begins if it is new. */
  position: string | undefined
  /** Of a shared one; undefined in rows that were written before there were groups. */
  group?: { name: string; filter: string } | undefined
}

/** A group of a shared subscription: its name, and the canonical filter of subtopics. */
export type GroupName = { channelKey: number; name: string; filter: string }

/** Names a node's turn to read for a group: an older epoch may write nothing more. */
export type GroupRef = { key: number; epoch: number }

/** A message of the log. */
export type PassedMessage = { batchSeq: number; message: number }

export type HeldGroup = GroupRef & {
  name: GroupName
  position: string | undefined
  /** Beyond the position, and not to be given to anybody again. */
  passed: readonly PassedMessage[]
}

export type GroupPosition = GroupRef & {
  /** Undefined: with the node. */
  position: string | undefined
  passed: readonly PassedMessage[]
  /** Whether messages beyond earlier positions were noted. */
  isExact: boolean
  /** The node has no members any more. */
  isReleased: boolean
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
  /** It came of a shared subscription. */
  isShared?: boolean | undefined
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
