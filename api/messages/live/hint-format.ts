/** The format of the hint "this batch was committed": a version, the length of a JSON header, the header, then the payloads. */
import { MAX_HINT_BYTES } from '#core/bus/index.ts'
import type { Envelope } from '../model/envelope.ts'
import type { Protocol } from '../model/message.ts'
import type { LiveMessage } from './live-message.ts'

export type CommittedHint = {
  /** The mark of the node that committed. */
  mark: string
  seq: number
  messages: readonly LiveMessage[]
  /** Channels of the batch whose messages are not included. */
  others: readonly number[]
}

/** A hint without content: something was committed. */
export const NO_CONTENT: Uint8Array = new Uint8Array()

const VERSION = 1
const HEAD_LENGTH_BYTES = 4
const HEAD_AT = 1 + HEAD_LENGTH_BYTES

type Head = Omit<CommittedHint, 'messages'> & {
  messages: {
    index: number
    channel: number
    publisher: number | null
    publisherId: string
    subtopic: string
    protocol: Protocol
    at: number
    type: string
    bytes: number
    envelope?: Envelope
  }[]
}

/** Content that is too large becomes a hint without content. */
export function formatHint({ mark, seq, messages, others }: CommittedHint): Uint8Array {
  const head: Head = {
    mark,
    seq,
    others,
    messages: messages.map((message) => ({
      index: message.index,
      channel: message.channelKey,
      publisher: message.publisherKey,
      publisherId: message.publisherId,
      subtopic: message.subtopic,
      protocol: message.protocol,
      at: message.receivedAtSeconds,
      type: message.contentType,
      bytes: message.payload.length,
      ...(message.envelope === undefined ? {} : { envelope: message.envelope }),
    })),
  }
  const headBytes = Buffer.from(JSON.stringify(head))
  const begin = Buffer.alloc(HEAD_AT)
  begin.writeUInt8(VERSION)
  begin.writeUInt32BE(headBytes.length, 1)
  const hint = Buffer.concat([begin, headBytes, ...messages.map(({ payload }) => payload)])
  return hint.length > MAX_HINT_BYTES ? NO_CONTENT : hint
}

/** Undefined for a hint without content and for another version. `channels`: ids of the wanted channels. */
export function parseHint(hint: Uint8Array, channels: ReadonlyMap<number, string>): CommittedHint | undefined {
  const bytes = Buffer.from(hint)
  if (bytes.length < HEAD_AT || bytes.readUInt8() !== VERSION) return undefined
  try {
    let at = HEAD_AT + bytes.readUInt32BE(1)
    const { mark, seq, others, messages } = JSON.parse(bytes.subarray(HEAD_AT, at).toString()) as Head
    if (!Number.isSafeInteger(seq) || !Array.isArray(others)) return undefined
    const found: LiveMessage[] = []
    for (const message of messages) {
      const payload = bytes.subarray(at, at + message.bytes)
      at += message.bytes
      const channelId = channels.get(message.channel)
      if (channelId === undefined) continue
      found.push({
        batchSeq: seq,
        index: message.index,
        channelKey: message.channel,
        channelId,
        publisherKey: message.publisher,
        publisherId: message.publisherId,
        subtopic: message.subtopic,
        protocol: message.protocol,
        receivedAtSeconds: message.at,
        contentType: message.type,
        payload,
        ...(message.envelope === undefined ? {} : { envelope: message.envelope }),
      })
    }
    return at === bytes.length ? { mark, seq, others, messages: found } : undefined
  } catch {
    return undefined
  }
}
