/** An outgoing message, as every protocol delivers it. */
import type { Envelope } from '../model/envelope.ts'
import type { IncomingMessage, Protocol } from '../model/message.ts'
import { PROTOCOLS } from '../model/message.ts'
import { SENML_JSON } from '../ingest/content.ts'
import { encodeRecords } from '../senml/index.ts'

export type LiveMessage = {
  /** The batch that stored it and its number in the batch, which identify it permanently. */
  batchSeq: number
  index: number
  channelKey: number
  channelId: string
  /** Null when a user published. */
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
  /** The transaction that stored it, for a message from the changelog. */
  xid?: bigint
  /** The sender of a message that this process accepted, if the adapter gave one. */
  sender?: object
}

/** A message that was just stored, with the publisher's bytes if the adapter kept them. */
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

/** The content type of a message that was sent without one, from its bytes. */
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

/** JSON texts as they were sent: one object, or an array of objects. */
export function encodeDocuments(documents: readonly string[]): Buffer {
  const [only, ...more] = documents
  return Buffer.from(more.length === 0 && only !== undefined ? only : `[${documents.join(',')}]`)
}

export function protocolOf(number: number): Protocol {
  return (PROTOCOLS[number] ?? 'http') as Protocol
}
