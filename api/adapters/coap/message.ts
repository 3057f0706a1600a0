/**
 * Parses and encodes CoAP messages (RFC 7252 section 3). The parser checks every datagram and rejects exactly the format errors of
 * that section.
 */
import { PROTOCOL_STATUS } from '#core/errors/index.ts'
import type { ErrorKind } from '#core/errors/index.ts'

export const TYPES = { confirmable: 0, nonConfirmable: 1, acknowledgement: 2, reset: 3 } as const
export type MessageType = (typeof TYPES)[keyof typeof TYPES]

/** RFC 7252 section 12.1.1, RFC 8132 section 7. */
export const METHODS = { get: 1, post: 2, put: 3, delete: 4, patch: 6, iPatch: 7 } as const

/** Success codes, and error codes that only CoAP has; all others are in the table of error kinds. */
export const CODES = {
  empty: parseCode('0.00'),
  deleted: parseCode('2.02'),
  changed: parseCode('2.04'),
  content: parseCode('2.05'),
  continue: parseCode('2.31'),
  badOption: parseCode('4.02'),
  notAcceptable: parseCode('4.06'),
  requestEntityIncomplete: parseCode('4.08'),
  proxyingNotSupported: parseCode('5.05'),
} as const

export type CoapOption = { number: number; value: Buffer }

export type CoapMessage = {
  type: MessageType
  /** Class in the upper three bits, detail in the lower five. */
  code: number
  messageId: number
  token: Buffer
  /** The options are in the order of their numbers. */
  options: readonly CoapOption[]
  payload: Buffer
}

/** A message format error: a confirmable message is rejected with a reset, another one is dropped. */
export type MalformedMessage = { malformed: true; type: MessageType; messageId: number }

export const EMPTY_BYTES: Buffer = Buffer.alloc(0)
const HEADER_BYTES = 4
const MAX_TOKEN_BYTES = 8
/** The maximum number of options in a message. An option can be 1 byte long, so a datagram could contain 60,000 options. */
const MAX_OPTIONS = 256
const PAYLOAD_MARKER = 0xff
const VERSION = 1

const KIND_CODES = new Map(
  Object.entries(PROTOCOL_STATUS).map(([kind, { coap }]) => [kind as ErrorKind, parseCode(coap)] as const),
)

export function parseCode(text: `${number}.${string}`): number {
  return (Number(text[0]) << 5) | Number(text.slice(2))
}

export function codeOfKind(kind: ErrorKind): number {
  return KIND_CODES.get(kind) as number
}

/** `2.04`. */
export function formatCode(code: number): string {
  return `${code >> 5}.${String(code & 31).padStart(2, '0')}`
}

/** Header, token, the options of responses with a message (Observe, Content-Format, ETag, Block2, Echo), and the marker. */
const MAX_HEAD_BYTES = 43

/** The bytes that remain for the payload in a message of this size. */
export const maxPayloadBytes = (messageBytes: number): number => messageBytes - MAX_HEAD_BYTES

export const isRequest = (code: number): boolean => code >> 5 === 0 && code !== CODES.empty

/** Undefined for other protocols and versions, which are ignored (section 3). */
export function parseMessage(datagram: Buffer): CoapMessage | MalformedMessage | undefined {
  if (datagram.length < HEADER_BYTES) return undefined
  const first = datagram[0] as number
  if (first >> 6 !== VERSION) return undefined
  const type = ((first >> 4) & 3) as MessageType
  const tokenBytes = first & 15
  const code = datagram[1] as number
  const messageId = datagram.readUInt16BE(2)
  const malformed: MalformedMessage = { malformed: true, type, messageId }
  const isReserved = code >> 5 === 1 || code >> 5 > 5
  if (tokenBytes > MAX_TOKEN_BYTES || HEADER_BYTES + tokenBytes > datagram.length || isReserved) return malformed
  if (code === CODES.empty && datagram.length > HEADER_BYTES) return malformed
  const token = datagram.subarray(HEADER_BYTES, HEADER_BYTES + tokenBytes)
  const options: CoapOption[] = []
  let at = HEADER_BYTES + tokenBytes
  let number = 0
  while (at < datagram.length) {
    const head = datagram[at++] as number
    if (head === PAYLOAD_MARKER) {
      // A marker without a payload is a format error.
      if (at === datagram.length) return malformed
      return { type, code, messageId, token, options, payload: datagram.subarray(at) }
    }
    let delta = head >> 4
    let length = head & 15
    if (delta === 15 || length === 15) return malformed
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
    // The condition is also true for NaN.
    if (!(at + length <= datagram.length) || !(number + delta <= 0xffff)) return malformed
    if (options.length === MAX_OPTIONS) return malformed
    number += delta
    options.push({ number, value: datagram.subarray(at, at + length) })
    at += length
  }
  return { type, code, messageId, token, options, payload: EMPTY_BYTES }
}

/** Encodes a message. Options are sorted by number. Options with the same number keep their order. */
export function encodeMessage({ type, code, messageId, token, options, payload }: CoapMessage): Buffer {
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
  return encodeMessage({ type, code: CODES.empty, messageId, token: EMPTY_BYTES, options: [], payload: EMPTY_BYTES })
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
