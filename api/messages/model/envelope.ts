/**
 * What a publisher says of a message beside its content, for receivers that understand it: the words are those of MQTT
 * (5.0 section 3.3). It is stored with the batch, as JSON, and handed on unaltered by every node.
 */
export type Envelope = {
  /** Undefined: 1, as of a message that came by another protocol and was acknowledged. */
  qos?: 0 | 2
  /** It was published to be kept for later subscribers. */
  retain?: true
  /** Key of the session that sent it. */
  sender?: number
  /** Epoch milliseconds after which nobody is sent it any more. */
  expiresAtMs?: number
  payloadFormat?: number
  contentType?: string
  responseTopic?: string
  /** base64 */
  correlationData?: string
  /** Pairs in the order in which they were sent. */
  userProperties?: readonly (readonly [string, string])[]
  /** Of an empty message that cleared what was kept of its subtopic: it lies nowhere else. */
  clears?: { channelKey: number; subtopic: string; publisherKey: number | null; publisherId: string }
}

/** JSON text; null for none. */
export function formatEnvelope(envelope: Envelope | undefined): string | null {
  return envelope === undefined ? null : JSON.stringify(envelope)
}

/** Of our own table. */
export function parseEnvelope(text: string | null): Envelope {
  return text === null ? {} : (JSON.parse(text) as Envelope)
}

/** Of our own table. */
export function parseEnvelopes(text: string | null | undefined): Readonly<Record<number, Envelope>> {
  return text === null || text === undefined ? {} : (JSON.parse(text) as Record<number, Envelope>)
}
