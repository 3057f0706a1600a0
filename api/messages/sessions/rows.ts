/** Values of the session tables: owners, subscriptions and messages in flight. */
import type { Envelope } from '../model/envelope.ts'

export type SessionOwner = { clientKey: number; clientIdentifier: string }

/** Identifies a connection of a session: an older epoch may write nothing more. */
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
  /** Null: a topic of the device itself, which follows no channel. */
  channelKey: number | null
  /** The byte of SUBSCRIBE (MQTT 5.0 section 3.8.3.1). */
  options: number
  identifier: number | undefined
  /** Id of an event of the changelog; undefined: the node's position. A shared subscription has the start of a new group here. */
  position: string | undefined
  /** The group of a shared subscription. Undefined in rows that are older than groups. */
  group?: { name: string; filter: string } | undefined
}

/** A group of a shared subscription: its name, and the canonical filter of subtopics. */
export type GroupName = { channelKey: number; name: string; filter: string }

/** Identifies an assignment of a group to a node: an older epoch may write nothing more. */
export type GroupRef = { key: number; epoch: number }

/** A message of the changelog. */
export type PassedMessage = { batchSeq: number; message: number }

export type ServedGroup = GroupRef & {
  name: GroupName
  position: string | undefined
  /** Messages beyond the position that must not be delivered again. */
  passed: readonly PassedMessage[]
}

export type GroupPosition = GroupRef & {
  /** Undefined: the node's position. */
  position: string | undefined
  passed: readonly PassedMessage[]
  /** Whether deliveries beyond earlier positions were stored. */
  isExact: boolean
  /** The node has no members any more. */
  isReleased: boolean
}

/** The position of a subscription; undefined: that of its node. */
export type SubscriptionPosition = { filter: string; position: string | undefined }

/** The delivery state of a message. */
export const OUTBOUND_STATES = { waiting: 0, sent: 1, released: 2, done: 3 } as const
export type OutboundState = keyof typeof OUTBOUND_STATES

export type StoredOutbound = {
  ordinal: number
  /** 0: not sent yet. */
  packetId: number
  qos: 1 | 2
  state: OutboundState
  /** Undefined for a retained message. */
  batchSeq: number | undefined
  message: number
  channelKey: number
  subtopic: string
  facts: OutboundFacts
  payload: Buffer
}

/** Parameters of the packet of a message. */
export type OutboundFacts = {
  /** The topic before the subtopic. */
  prefix: string | undefined
  retain: boolean
  identifiers?: readonly number[] | undefined
  envelope?: Envelope | undefined
  /** The message came through a shared subscription. */
  isShared?: boolean | undefined
}

export type OpenSession = SessionOwner & {
  /** The domain of the client. */
  domainKey: number
  isClean: boolean
  version: number
  address: string
  expirySeconds: number
  will: StoredWill | undefined
}

export type OpenedSession = SessionName & {
  isPresent: boolean
  /** Counts as one more session, and as one more connection, of its domain. */
  isNewSession: boolean
  isNewConnection: boolean
  subscriptions: StoredSubscription[]
  received: number[]
  outbound: StoredOutbound[]
  /** The will of the previous connection, to be sent now. */
  endedWill: StoredWill | undefined
}

export type CloseSession = SessionName & {
  domainKey: number
  expirySeconds: number
  /** Sent after its delay, unless a connection comes before. */
  will: StoredWill | undefined
  /** The positions of its subscriptions. */
  positions: readonly { filter: string; position: string }[]
  outbound: readonly StoredOutbound[]
}
