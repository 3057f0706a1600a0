/** A message on its way in: who sends what where. Made by the adapters, taken by ingest. */
import type { MessageAccess } from '#api/devices/index.ts'
import type { Envelope } from './envelope.ts'
import type { ResolvedRecord } from '../senml/index.ts'

/** Protocols by the number that is stored; 0 is none. New ones are appended. */
export const PROTOCOLS = ['', 'http', 'mqtt', 'coap', 'ws', 'task'] as const
export type Protocol = Exclude<(typeof PROTOCOLS)[number], ''>

export function protocolNumber(protocol: Protocol): number {
  return PROTOCOLS.indexOf(protocol)
}

/** Days that messages are kept; each is a family of partitions. 0 is for ever. */
const RETENTION_CLASSES = [7, 30, 90, 365, 3650] as const

/** The class that keeps messages for at least so many days; null is for ever. */
export function retentionClassOf(days: number | null): number {
  return days === null ? 0 : (RETENTION_CLASSES.find((kept) => kept >= days) ?? 0)
}

export type MessageContent =
  | { kind: 'records'; records: ResolvedRecord[] }
  /** JSON texts of objects, under the name that readers ask for. */
  | { kind: 'documents'; format: string; contentType: string; documents: string[] }
  | { kind: 'raw'; contentType: string; body: Uint8Array }

export type IncomingMessage = {
  /** The channel, and who publishes: no client where a user does. */
  access: MessageAccess
  /** Canonical: elements joined by `.`. */
  subtopic: string
  protocol: Protocol
  /** Epoch seconds. */
  receivedAtSeconds: number
  content: MessageContent
  /** What the publisher sent, which followers are given as it is. */
  original?: { contentType: string; body: Buffer }
  idempotency?: Idempotency
  envelope?: Envelope
  /** Of a message that may be sent again and counts once until it is released. */
  receipt?: Receipt
  /** It takes the place of what is kept for later subscribers of its subtopic; its original is given. */
  isRetained?: true
  /** Whoever sent it, for adapters that must not send it back; known in this process alone. */
  sender?: object
}

/** An empty message that was to be retained: nothing is kept of its subtopic any more, and it is stored nowhere. */
export function isClearing({ isRetained, original }: IncomingMessage): boolean {
  return isRetained === true && original?.body.length === 0
}

/** Names a message among those of its session that are not released; of an older connection of the session it is refused. */
export type Receipt = { sessionKey: number; epoch: number; packetId: number }

/** A publish that may be repeated: the same scope stores once, the same scope with another digest is refused. */
export type Idempotency = {
  /** SHA-256 over caller, channel, subtopic and key. */
  scope: Buffer
  /** SHA-256 over content type and body. */
  requestDigest: Buffer
}
