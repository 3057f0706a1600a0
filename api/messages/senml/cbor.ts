/**
 * The part of CBOR (RFC 8949) that SenML uses: integers, floats, decimal fractions (tag 4, with bignums), text, bytes, arrays,
 * maps, booleans and null. All numbers become the nearest double, as those of JSON do. Strict where general decoders are lenient: invalid UTF-8, repeated map keys, other tags and trailing bytes
 * are rejected, and a length never allocates more memory than the input has bytes.
 */
import { isUtf8 } from 'node:buffer'

/** Deeper nesting is rejected: a pack has two levels, extensions may have a few more. */
export const MAX_CBOR_DEPTH = 16

/** The maximum number of data items of one message, including chunks of text and bytes; about 60 ms. */
const MAX_ITEMS = 150_000

/** Thrown for bytes that are not one data item of that part; the message ends the sentence "the pack …". */
export class CborFault extends Error {}

/** The maximum length of a bignum; no double has as many digits. */
const MAX_BIGNUM_BYTES = 1024

const TAGS = { unsignedBignum: 2, negativeBignum: 3, decimalFraction: 4 } as const
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
        // The number is converted in one step: a 64-bit argument as a double would be rounded twice.
        return info === 27 ? Number(this.#negative(info)) : -1 - this.#argument(info)
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
    if (info === 27) return Number(this.#uint64())
    throw new CborFault('must be well-formed CBOR')
  }

  #uint64(): bigint {
    return this.#view.getBigUint64(this.#advance(8))
  }

  #exactArgument(info: number): bigint {
    return info === 27 ? this.#uint64() : BigInt(this.#argument(info))
  }

  #negative(info: number): bigint {
    return -1n - this.#exactArgument(info)
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
    if (tag !== TAGS.decimalFraction || depth >= MAX_CBOR_DEPTH) throw notDecimal()
    this.#count()
    const initial = this.#byte()
    if (initial >> 5 !== 4) throw notDecimal()
    const length = this.#length(initial & 0x1f)
    if (length !== 2 && length !== INDEFINITE) throw notDecimal()
    const exponent = this.#integer(false)
    const mantissa = this.#integer(true)
    if (length === INDEFINITE && this.#byte() !== 0xff) throw notDecimal()
    // The number is parsed from text, because 27315 * 10 ** -2 is not the double nearest to 273.15.
    return Number(`${mantissa}e${exponent}`)
  }

  #integer(mayBeBignum: boolean): bigint {
    this.#count()
    const initial = this.#byte()
    const info = initial & 0x1f
    if (initial >> 5 === 0) return this.#exactArgument(info)
    if (initial >> 5 === 1) return this.#negative(info)
    const tag = initial >> 5 === 6 ? this.#argument(info) : undefined
    if (!mayBeBignum || (tag !== TAGS.unsignedBignum && tag !== TAGS.negativeBignum)) throw notDecimal()
    this.#count()
    const string = this.#byte()
    if (string >> 5 !== 2) throw new CborFault('must be well-formed CBOR')
    const bytes = this.#string(string & 0x1f, 2)
    if (bytes.length > MAX_BIGNUM_BYTES) throw new CborFault(`must have bignums of at most ${MAX_BIGNUM_BYTES} bytes`)
    const value = BigInt(`0x0${Buffer.from(bytes).toString('hex')}`)
    return tag === TAGS.unsignedBignum ? value : -1n - value
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

function notDecimal(): CborFault {
  return new CborFault('must use no tags other than decimal fractions of an integer and a mantissa')
}
