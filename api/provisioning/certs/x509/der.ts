/** Writing DER (X.690): the few types that certificates, lists of revoked ones and OCSP answers are made of. */

/** Tags of universal types. */
export const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  null: 0x05,
  oid: 0x06,
  enumerated: 0x0a,
  utf8String: 0x0c,
  sequence: 0x30,
  set: 0x31,
  utcTime: 0x17,
  generalizedTime: 0x18,
} as const

const CONTEXT = 0x80
const CONSTRUCTED = 0x20

/** One value with its tag and length (X.690 section 8.1). */
export function tlv(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const length = parts.reduce((sum, part) => sum + part.length, 0)
  return Buffer.concat([Buffer.from([tag, ...lengthBytes(length)]), ...parts])
}

function lengthBytes(length: number): number[] {
  if (length < 0x80) return [length]
  const bytes: number[] = []
  for (let rest = length; rest > 0; rest = Math.floor(rest / 256)) bytes.unshift(rest % 256)
  return [0x80 | bytes.length, ...bytes]
}

export const sequence = (...parts: readonly Uint8Array[]): Buffer => tlv(TAG.sequence, ...parts)
export const octetString = (bytes: Uint8Array): Buffer => tlv(TAG.octetString, bytes)
export const bitString = (bytes: Uint8Array, unusedBits = 0): Buffer =>
  tlv(TAG.bitString, Buffer.from([unusedBits]), bytes)
export const utf8String = (text: string): Buffer => tlv(TAG.utf8String, Buffer.from(text, 'utf8'))
export const nullValue = (): Buffer => tlv(TAG.null)
export const trueValue = (): Buffer => tlv(TAG.boolean, Buffer.from([0xff]))
export const enumerated = (value: number): Buffer => tlv(TAG.enumerated, Buffer.from([value]))

/** Members of a SET OF stand in the order of their bytes (X.690 section 11.6). */
export const setOf = (...parts: readonly Buffer[]): Buffer => tlv(TAG.set, ...parts.toSorted(Buffer.compare))

/** A context-specific tag around complete values: EXPLICIT. */
export const explicit = (number: number, ...parts: readonly Uint8Array[]): Buffer =>
  tlv(CONTEXT | CONSTRUCTED | number, ...parts)
/** A context-specific tag in the place of a primitive type's own: IMPLICIT. */
export const implicit = (number: number, bytes: Uint8Array): Buffer => tlv(CONTEXT | number, bytes)

/** A non-negative integer, from a number or from its big-endian bytes. */
export function integer(value: number | Uint8Array): Buffer {
  const bytes = typeof value === 'number' ? numberBytes(value) : [...value]
  while (bytes.length > 1 && bytes[0] === 0 && (bytes[1] ?? 0) < 0x80) bytes.shift()
  if ((bytes[0] ?? 0) >= 0x80) bytes.unshift(0)
  return tlv(TAG.integer, Buffer.from(bytes))
}

function numberBytes(value: number): number[] {
  const bytes = [value % 256]
  for (let rest = Math.floor(value / 256); rest > 0; rest = Math.floor(rest / 256)) bytes.unshift(rest % 256)
  return bytes
}

/** `1.2.840.10045.2.1` in base-128 digits. */
export function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number)
  const bytes = [first * 40 + second, ...rest].flatMap((arc) => {
    const digits = [arc & 0x7f]
    for (let high = Math.floor(arc / 128); high > 0; high = Math.floor(high / 128)) digits.unshift((high & 0x7f) | 0x80)
    return digits
  })
  return tlv(TAG.oid, Buffer.from(bytes))
}

/** UTCTime until 2049, GeneralizedTime from 2050 on (RFC 5280 section 4.1.2.5). Whole seconds, in UTC. */
export function time(date: Date): Buffer {
  const text = digitsOf(date)
  return date.getUTCFullYear() < 2050
    ? tlv(TAG.utcTime, Buffer.from(`${text.slice(2)}Z`, 'latin1'))
    : generalizedTime(date)
}

export function generalizedTime(date: Date): Buffer {
  return tlv(TAG.generalizedTime, Buffer.from(`${digitsOf(date)}Z`, 'latin1'))
}

const digitsOf = (date: Date) => date.toISOString().slice(0, 19).replaceAll(/[-:T]/g, '')

/** Bits of a named bit list, the first one leftmost; trailing zeros are left out (X.690 section 11.2.2). */
export function namedBits(...bits: readonly number[]): Buffer {
  const highest = Math.max(...bits)
  const bytes = Buffer.alloc(Math.floor(highest / 8) + 1)
  for (const bit of bits) bytes[bit >> 3] = (bytes[bit >> 3] ?? 0) | (0x80 >> (bit & 7))
  return bitString(bytes, 7 - (highest & 7))
}

export function pem(label: string, der: Uint8Array): string {
  const lines = Buffer.from(der)
    .toString('base64')
    .match(/.{1,64}/g)
  return `-----BEGIN ${label}-----\n${(lines ?? []).join('\n')}\n-----END ${label}-----\n`
}
