/**
 * The part of CBOR (RFC 8949) that SenML uses: integers, floats, decimal fractions (tag 4), text, bytes, arrays,
 * maps, booleans and null. Strict where general decoders are lenient: invalid UTF-8, repeated map keys, other tags and trailing bytes
 * are rejected, and a length never allocates more memory than the input has bytes.
 */
import { isUtf8 } from 'node:buffer'

/** Deeper nesting is rejected: a pack has two levels, extensions may have a few more. */
export const MAX_CBOR_DEPTH = 16

/** The maximum number of data items of one message, including chunks of text and bytes; about 60 ms. */
const MAX_ITEMS = 150_000

/** Thrown for bytes that are not one data item of that part; the message ends the sentence "the pack …". */
export class CborFault extends Error {}

const INDEFINITE = -1
const BREAK = Symbol('break')

export function decodeCbor(bytes: Uint8Array): unknown {
  const reader = new Reader(bytes)
  const value = reader.item(0)
  if (value === BREAK) throw new CborFault('must not contain a break outside an indefinite item')
  if (!reader.atEnd) throw new CborFault('must be one CBOR data item without bytes after it')
  return value
}

class Reader {
  readonly #bytes: Uint8Array
  readonly #view: DataView
  #at = 0
  #items = 0

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  }

  get atEnd(): boolean {
    return this.#at === this.#bytes.length
  }

  #count(): void {
    this.#items += 1
    if (this.#items > MAX_ITEMS) throw new CborFault(`must contain at most ${MAX_ITEMS} data items`)
  }

  item(depth: number): unknown {
    this.#count()
    if (depth > MAX_CBOR_DEPTH) throw new CborFault(`must not nest deeper than ${MAX_CBOR_DEPTH} levels`)
    const initial = this.#byte()
    const major = initial >> 5
    const info = initial & 0x1f
    switch (major) {
      case 0:
        return this.#argument(info)
      case 1:
        return -1 - this.#argument(info)
      case 2:
        return this.#string(info, 2)
      case 3:
        return this.#text(info)
      case 4:
        return this.#array(info, depth)
      case 5:
        return this.#map(info, depth)
      case 6:
        return this.#tagged(this.#argument(info), depth)
      default:
        return this.#simple(info)
    }
  }

  #advance(length: number): number {
    const start = this.#at
    if (length > this.#bytes.length - start) throw new CborFault('must not end in the middle of a data item')
    this.#at = start + length
    return start
  }

  #byte(): number {
    return this.#view.getUint8(this.#advance(1))
  }

  /** The argument of RFC 8949 section 3; 64-bit ones become the nearest double, as SenML numbers are doubles. */
  #argument(info: number): number {
    if (info < 24) return info
    if (info === 24) return this.#byte()
    if (info === 25) return this.#view.getUint16(this.#advance(2))
    if (info === 26) return this.#view.getUint32(this.#advance(4))
    if (info === 27) return Number(this.#view.getBigUint64(this.#advance(8)))
    throw new CborFault('must be well-formed CBOR')
  }

  #length(info: number): number {
    return info === 31 ? INDEFINITE : this.#argument(info)
  }

  #string(info: number, major: 2 | 3): Uint8Array {
    const length = this.#length(info)
    if (length !== INDEFINITE) {
      const start = this.#advance(length)
      return this.#bytes.subarray(start, start + length)
    }
    const chunks: Uint8Array[] = []
    for (let initial = this.#byte(); initial !== 0xff; initial = this.#byte()) {
      // RFC 8949 section 3.2.3: chunks are definite-length strings of the same major type.
      if (initial >> 5 !== major || (initial & 0x1f) === 31) throw new CborFault('must be well-formed CBOR')
      this.#count()
      const chunkLength = this.#argument(initial & 0x1f)
      const start = this.#advance(chunkLength)
      chunks.push(this.#bytes.subarray(start, start + chunkLength))
    }
    return Buffer.concat(chunks)
  }

  #text(info: number): string {
    const bytes = this.#string(info, 3)
    if (!isUtf8(bytes)) throw new CborFault('must contain text in UTF-8 only')
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString()
  }

  #array(info: number, depth: number): unknown[] {
    const length = this.#length(info)
    const values: unknown[] = []
    while (length === INDEFINITE || values.length < length) {
      const value = this.item(depth + 1)
      if (value === BREAK) {
        if (length === INDEFINITE) break
        throw new CborFault('must be well-formed CBOR')
      }
      values.push(value)
    }
    return values
  }

  #map(info: number, depth: number): Map<unknown, unknown> {
    const length = this.#length(info)
    const entries = new Map<unknown, unknown>()
    while (length === INDEFINITE || entries.size < length) {
      const key = this.item(depth + 1)
      if (key === BREAK && length === INDEFINITE) break
      if (typeof key !== 'string' && typeof key !== 'number') throw new CborFault('must have text or integer map keys')
      if (entries.has(key)) throw new CborFault(`must not repeat the map key ${key}`)
      const value = this.item(depth + 1)
      if (value === BREAK) throw new CborFault('must be well-formed CBOR')
      entries.set(key, value)
    }
    return entries
  }

  /** Tag 4 is a decimal fraction, [exponent, mantissa] (RFC 8949 section 3.4.4); SenML uses no other tag. */
  #tagged(tag: number, depth: number): number {
    const pair = tag === 4 ? this.item(depth + 1) : undefined
    if (!Array.isArray(pair) || pair.length !== 2) throw new CborFault('must use no tags other than decimal fractions')
    const [exponent, mantissa] = pair as [unknown, unknown]
    if (typeof exponent !== 'number' || typeof mantissa !== 'number') {
      throw new CborFault('must use no tags other than decimal fractions')
    }
    // Through text, because 27315 * 10 ** -2 is not the double nearest to 273.15.
    return Number(`${mantissa}e${exponent}`)
  }

  #simple(info: number): unknown {
    switch (info) {
      case 20:
        return false
      case 21:
        return true
      case 22:
      case 23:
        return null
      case 25:
        return this.#view.getFloat16(this.#advance(2))
      case 26:
        return this.#view.getFloat32(this.#advance(4))
      case 27:
        return this.#view.getFloat64(this.#advance(8))
      case 31:
        return BREAK
      default:
        throw new CborFault('must use no simple values other than false, true and null')
    }
  }
}
