/**
 * Messages of CoAP as bytes (RFC 7252 section 3). A parser of our own, because what a stranger sends must be refused where
 * the section calls it a format error, and every datagram passes here.
 */
import { PROTOCOL_STATUS } from '#core/errors/index.ts'
import type { ErrorKind } from '#core/errors/index.ts'

export const TYPES = { confirmable: 0, nonConfirmable: 1, acknowledgement: 2, reset: 3 } as const
export type MessageType = (typeof TYPES)[keyof typeof TYPES]

export const METHODS = { get: 1, post: 2 } as const

/** Codes of success, and refusals that CoAP alone knows; those of other refusals stand in the table of error kinds. */
export const CODES = {
  empty: codeOf('0.00'),
  changed: codeOf('2.04'),
  content: codeOf('2.05'),
  continue: codeOf('2.31'),
  badOption: codeOf('4.02'),
  notAcceptable: codeOf('4.06'),
  requestEntityIncomplete: codeOf('4.08'),
  proxyingNotSupported: codeOf('5.05'),
} as const

export type CoapOption = { number: number; value: Buffer }

export type CoapMessage = {
  type: MessageType
  /** Class in the upper three bits, detail in the lower five. */
  code: number
  messageId: number
  token: Buffer
  /** In the order of their numbers. */
  options: readonly CoapOption[]
  payload: Buffer
}

/** A message format error: a confirmable one is rejected with a reset, another is dropped. */
export type Unreadable = { unreadable: true; type: MessageType; messageId: number }

export const NOTHING: Buffer = Buffer.alloc(0)
const HEADER_BYTES = 4
const MAX_TOKEN_BYTES = 8
/** Of one message; an option of no bytes takes one, so that a datagram could have 60,000 of them. */
const MAX_OPTIONS = 256
const PAYLOAD_MARKER = 0xff
const VERSION = 1

const KIND_CODES = new Map(
  Object.entries(PROTOCOL_STATUS).map(([kind, { coap }]) => [kind as ErrorKind, codeOf(coap)] as const),
)

export function codeOf(text: `${number}.${string}`): number {
  return (Number(text[0]) << 5) | Number(text.slice(2))
}

export function codeOfKind(kind: ErrorKind): number {
  return KIND_CODES.get(kind) as number
}

/** `2.04`. */
export function formatCode(code: number): string {
  return `${code >> 5}.${String(code & 31).padStart(2, '0')}`
}

/** Header, token, the options that answers with a message have (Observe, Content-Format, ETag, Block2, Echo), and the marker. */
const MAX_HEAD_BYTES = 43

/** Bytes that a message of so many leaves to its payload. */
export const payloadRoom = (messageBytes: number): number => messageBytes - MAX_HEAD_BYTES

export const isRequest = (code: number): boolean => code >> 5 === 0 && code !== CODES.empty

/** Undefined for what is no CoAP of version 1 at all, which is ignored (section 3). */
export function parseMessage(datagram: Buffer): CoapMessage | Unreadable | undefined {
  if (datagram.length < HEADER_BYTES) return undefined
  const first = datagram[0] as number
  if (first >> 6 !== VERSION) return undefined
  const type = ((first >> 4) & 3) as MessageType
  const tokenBytes = first & 15
  const code = datagram[1] as number
  const messageId = datagram.readUInt16BE(2)
  const unreadable: Unreadable = { unreadable: true, type, messageId }
  const isReserved = code >> 5 === 1 || code >> 5 > 5
  if (tokenBytes > MAX_TOKEN_BYTES || HEADER_BYTES + tokenBytes > datagram.length || isReserved) return unreadable
  if (code === CODES.empty && datagram.length > HEADER_BYTES) return unreadable
  const token = datagram.subarray(HEADER_BYTES, HEADER_BYTES + tokenBytes)
  const options: CoapOption[] = []
  let at = HEADER_BYTES + tokenBytes
  let number = 0
  while (at < datagram.length) {
    const head = datagram[at++] as number
    if (head === PAYLOAD_MARKER) {
      // A marker with nothing behind it is a format error.
      if (at === datagram.length) return unreadable
      return { type, code, messageId, token, options, payload: datagram.subarray(at) }
    }
    let delta = head >> 4
    let length = head & 15
    if (delta === 15 || length === 15) return unreadable
    const extended = (nibble: number): number => {
      if (nibble < 13) return nibble
      const bytes = nibble === 13 ? 1 : 2
      if (at + bytes > datagram.length) return NaN
      const value = bytes === 1 ? 13 + (datagram[at] as number) : 269 + datagram.readUInt16BE(at)
      at += bytes
      return value
    }
    delta = extended(delta)
    length = extended(length)
    // Also true for NaN.
    if (!(at + length <= datagram.length) || !(number + delta <= 0xffff)) return unreadable
    if (options.length === MAX_OPTIONS) return unreadable
    number += delta
    options.push({ number, value: datagram.subarray(at, at + length) })
    at += length
  }
  return { type, code, messageId, token, options, payload: NOTHING }
}

/** The options may come in any order; of one number they stay in theirs. */
export function formatMessage({ type, code, messageId, token, options, payload }: CoapMessage): Buffer {
  const sorted = options.length > 1 ? options.toSorted((left, right) => left.number - right.number) : options
  let size = HEADER_BYTES + token.length + (payload.length === 0 ? 0 : 1 + payload.length)
  let previous = 0
  for (const { number, value } of sorted) {
    size += 1 + extendedBytes(number - previous) + extendedBytes(value.length) + value.length
    previous = number
  }
  const bytes = Buffer.allocUnsafe(size)
  bytes[0] = (VERSION << 6) | (type << 4) | token.length
  bytes[1] = code
  bytes.writeUInt16BE(messageId, 2)
  bytes.set(token, HEADER_BYTES)
  let at = HEADER_BYTES + token.length
  previous = 0
  for (const { number, value } of sorted) {
    const delta = number - previous
    previous = number
    bytes[at++] = (nibbleOf(delta) << 4) | nibbleOf(value.length)
    at = writeExtended(bytes, delta, at)
    at = writeExtended(bytes, value.length, at)
    bytes.set(value, at)
    at += value.length
  }
  if (payload.length > 0) {
    bytes[at++] = PAYLOAD_MARKER
    bytes.set(payload, at)
  }
  return bytes
}

/** An empty message: an acknowledgement, a reset, or a ping. */
export function emptyMessage(type: MessageType, messageId: number): Buffer {
  return formatMessage({ type, code: CODES.empty, messageId, token: NOTHING, options: [], payload: NOTHING })
}

function nibbleOf(value: number): number {
  return value < 13 ? value : value < 269 ? 13 : 14
}

function extendedBytes(value: number): number {
  return value < 13 ? 0 : value < 269 ? 1 : 2
}

function writeExtended(bytes: Buffer, value: number, at: number): number {
  if (value < 13) return at
  if (value < 269) return bytes.writeUInt8(value - 13, at)
  return bytes.writeUInt16BE(value - 269, at)
}
