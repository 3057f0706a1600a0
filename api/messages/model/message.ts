/** An incoming message. Adapters create it, ingest stores it. */
import type { ChannelAccess } from '#api/devices/index.ts'
import type { Envelope } from './envelope.ts'
import type { ResolvedRecord } from '../senml/index.ts'

/** Protocols by their stored number; 0 is none. New ones are appended. */
export const PROTOCOLS = ['', 'http', 'mqtt', 'coap', 'ws', 'task', 'rule'] as const
export type Protocol = Exclude<(typeof PROTOCOLS)[number], ''>

export function protocolNumber(protocol: Protocol): number {
  return PROTOCOLS.indexOf(protocol)
}

/** Days that messages are kept; each has its own partitions. 0 means without limit. */
export const RETENTION_CLASSES = [7, 30, 90, 365, 3650] as const

/** The class that keeps messages for at least this many days; null is unlimited. */
export function retentionClassOf(days: number | null): number {
  return days === null ? 0 : (RETENTION_CLASSES.find((kept) => kept >= days) ?? 0)
}

export type MessageContent =
  | { kind: 'records'; records: ResolvedRecord[] }
  /** JSON texts of objects, with the format name that readers request. */
  | { kind: 'documents'; format: string; contentType: string; documents: string[] }
  | { kind: 'raw'; contentType: string; body: Uint8Array }

export type IncomingMessage = {
  /** The channel and the publisher; the client is absent when a user publishes. */
  access: ChannelAccess
  /** Canonical: elements joined by `.`. */
  subtopic: string
  protocol: Protocol
  /** Epoch seconds. */
  receivedAtSeconds: number
  content: MessageContent
  /** The publisher's bytes, which followers receive unchanged. */
  original?: { contentType: string; body: Buffer }
  idempotency?: Idempotency
  envelope?: Envelope
  /** Set on a message that may be sent again and counts once until it is released. */
  receipt?: Receipt
  /** Replaces the retained message of its subtopic; `original` is set. */
  isRetained?: true
  /** The sender, for adapters that must not send the message back; known in this process only. */
  sender?: object
  /** Place of the publisher in its trace, in the form of the header; see `core/tracing`. */
  traceparent?: string | undefined
}

/** An empty retained message: it clears the retained message of its subtopic and is not stored. */
export function isClearing({ isRetained, original }: IncomingMessage): boolean {
  return isRetained === true && original?.body.length === 0
}

/** Identifies an unreleased message of a session; rejected when it comes from an older connection of the session. */
export type Receipt = { sessionKey: number; epoch: number; packetId: number }

/** A publish that may be repeated: the same scope stores once; the same scope with another digest is rejected. */
export type Idempotency = {
  /** SHA-256 over caller, channel, subtopic and key. */
  scope: Buffer
  /** SHA-256 over content type and body. */
  requestDigest: Buffer
}
