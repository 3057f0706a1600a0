/** A message on its way out, as every protocol delivers it. */
import type { Envelope } from '../model/envelope.ts'
import type { IncomingMessage, Protocol } from '../model/message.ts'
import { PROTOCOLS } from '../model/message.ts'
import { SENML_JSON } from '../ingest/content.ts'
import type { ResolvedRecord } from '../senml/index.ts'
import { formatBase64Url } from '../senml/index.ts'

export type LiveMessage = {
  /** The batch that stored it and its number in there: together they name it for ever. */
  batchSeq: number
  index: number
  channelKey: number
  channelId: string
  /** Null where a user published. */
  publisherKey: number | null
  publisherId: string
  /** Canonical: elements joined by `.`. */
  subtopic: string
  protocol: Protocol
  /** Epoch seconds. */
  receivedAtSeconds: number
  contentType: string
  payload: Buffer
  envelope?: Envelope
  /** The transaction that stored it, of a message that was read from the log. */
  xid?: bigint
  /** Of a message that this process took, where the adapter named one. */
  sender?: object
}

/** What was just stored, with the bytes that the publisher sent where the adapter kept them. */
export function fromIncoming(message: IncomingMessage, batchSeq: number, index: number): LiveMessage {
  const { access, content, original } = message
  return {
    batchSeq,
    index,
    channelKey: access.channelKey,
    channelId: access.channelId,
    publisherKey: access.publisherKey,
    publisherId: access.publisherId ?? '',
    subtopic: message.subtopic,
    protocol: message.protocol,
    receivedAtSeconds: message.receivedAtSeconds,
    contentType: original?.contentType ?? typeOfContent(content),
    payload: original?.body ?? encode(content),
    ...(message.envelope === undefined ? {} : { envelope: message.envelope }),
    ...(message.sender === undefined ? {} : { sender: message.sender }),
  }
}

/** Of a message that came without one: the type that its bytes were judged to have. */
export function typeOfContent(content: IncomingMessage['content']): string {
  return content.kind === 'records' ? SENML_JSON : content.contentType
}

function encode(content: IncomingMessage['content']): Buffer {
  switch (content.kind) {
    case 'records':
      return encodeRecords(content.records)
    case 'documents':
      return encodeDocuments(content.documents)
    case 'raw':
      return Buffer.from(content.body)
  }
}

/** Resolved records as a SenML pack (RFC 8428 section 4.6): no base fields, absolute times. */
export function encodeRecords(records: readonly ResolvedRecord[]): Buffer {
  const pack = records.map((record) => ({
    n: record.name,
    ...(record.unit === '' ? {} : { u: record.unit }),
    t: record.timeSeconds,
    ...(record.value === undefined ? {} : { v: record.value }),
    ...(record.stringValue === undefined ? {} : { vs: record.stringValue }),
    ...(record.boolValue === undefined ? {} : { vb: record.boolValue }),
    ...(record.dataValue === undefined ? {} : { vd: formatBase64Url(record.dataValue) }),
    ...(record.sum === undefined ? {} : { s: record.sum }),
    ...(record.updateTimeSeconds === undefined ? {} : { ut: record.updateTimeSeconds }),
  }))
  return Buffer.from(JSON.stringify(pack))
}

/** JSON texts as they were sent: one object, or an array of them. */
export function encodeDocuments(documents: readonly string[]): Buffer {
  const [only, ...more] = documents
  return Buffer.from(more.length === 0 && only !== undefined ? only : `[${documents.join(',')}]`)
}

export function protocolOf(number: number): Protocol {
  return (PROTOCOLS[number] ?? 'http') as Protocol
}
