/**
 * The properties of a message besides its content, in the terms of MQTT (5.0 section 3.3). They are stored with the batch as JSON, and
 * every node forwards them unchanged.
 */
export type Envelope = {
  /** Undefined: 1, as for an acknowledged message of another protocol. */
  qos?: 0 | 2
  /** The message was published with the retain flag. */
  retain?: true
  /** Key of the session that sent it. */
  sender?: number
  /** Epoch milliseconds after which the message is not delivered. */
  expiresAtMs?: number
  payloadFormat?: number
  contentType?: string
  responseTopic?: string
  /** base64 */
  correlationData?: string
  /** Pairs in the order in which they were sent. */
  userProperties?: readonly (readonly [string, string])[]
  /** Place of the publish in its trace (W3C Trace Context); only while tracing is on. */
  traceparent?: string
  /** The run of a task that published the message. The task may be deleted since. */
  run?: { id: string; task: string }
  /** The rule that published the message, and how many rules in a row caused it, this one included. The rule may be deleted since. */
  rule?: { id: string; depth: number }
  /** Set for an empty message that cleared the retained message of its subtopic: it is stored only here. */
  clears?: { channelKey: number; subtopic: string; publisherKey: number | null; publisherId: string }
}

/** JSON text; null without an envelope. */
export function formatEnvelope(envelope: Envelope | undefined): string | null {
  return envelope === undefined ? null : JSON.stringify(envelope)
}

/** Parses text of our own table. */
export function parseEnvelope(text: string | null): Envelope {
  return text === null ? {} : (JSON.parse(text) as Envelope)
}

/** Parses text of our own table. */
export function parseEnvelopes(text: string | null | undefined): Readonly<Record<number, Envelope>> {
  return text === null || text === undefined ? {} : (JSON.parse(text) as Record<number, Envelope>)
}
