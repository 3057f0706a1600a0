/**
 * Parses packs in the plainest form of JSON directly from their bytes: most devices send this form. It creates no JSON values, and
 * repeated names are not created again. Any other form, and any invalid pack, is left to `parseJson` and `resolvePack`, which alone
 * decide about validity and errors.
 */
import type { Prefix } from './known-strings.ts'
import { KnownStrings, NO_PREFIX, prefixOf } from './known-strings.ts'
import { MAX_NAME_LENGTH, nameFault } from './names.ts'
import type { ResolvedRecord } from './record.ts'
import type { Fields } from './resolution.ts'
import {
  MAX_UNIT_LENGTH,
  SENML_VERSION,
  newBase,
  noFields,
  requireRecordLimit,
  requireRecords,
  resolveFields,
} from './resolution.ts'

const code = (character: string) => character.charCodeAt(0)
const [TAB, LINE_FEED, RETURN, SPACE] = [code('\t'), code('\n'), code('\r'), code(' ')] as const
const [QUOTE, BACKSLASH, COLON, COMMA] = [code('"'), code('\\'), code(':'), code(',')] as const
const [ARRAY, END_OF_ARRAY, OBJECT, END_OF_OBJECT] = [code('['), code(']'), code('{'), code('}')] as const
const [ZERO, MINUS, DOT, SMALL_E, LARGE_E] = [code('0'), code('-'), code('.'), code('e'), code('E')] as const
const END_OF_ASCII = 0x80
/** The value of the next byte at the end of the input. */
const END = -1
const TRUE = Buffer.from('true')
const FALSE = Buffer.from('false')

/** Labels by their bytes, the first in front; `vd` and `l` are seldom. */
const BN = 0x62_6e
const BT = 0x62_74
const BU = 0x62_75
const BV = 0x62_76
const BS = 0x62_73
const BVER = 0x62_76_65_72
const N = 0x6e
const U = 0x75
const V = 0x76
const VS = 0x76_73
const VB = 0x76_62
const S = 0x73
const T = 0x74
const UT = 0x75_74
const MAX_LABEL_BYTES = 4
/** Bits of the labels that a record has; those of base fields are the lower ones. */
const BASE_BITS = 0b11_1111

/** Smaller integers are exact, and so is their nearest double after a division by an exact power of ten. */
const EXACT_END = 2 ** 53
const POWERS_OF_TEN = Array.from({ length: 23 }, (_, exponent) => Number(`1e${exponent}`))

const names = new KnownStrings((name) => nameFault(name) === undefined)
const texts = new KnownStrings()

/** Thrown and caught in this file; its stack is not used. */
const NOT_PLAIN = new Error('not a plain pack')

/** The result of `resolvePack`; undefined when `resolvePack` must parse the bytes. */
export function resolvePlainPack(bytes: Buffer, receivedAtSeconds: number): ResolvedRecord[] | undefined {
  try {
    return new PackReader(bytes, receivedAtSeconds).read()
  } catch {
    return undefined
  }
}

class PackReader {
  readonly #bytes: Buffer
  readonly #receivedAtSeconds: number
  readonly #base = newBase()
  #baseName: Prefix = NO_PREFIX
  #at = 0
  /** The bounds of the text that was parsed last. */
  #textStart = 0
  #textEnd = 0

  constructor(bytes: Buffer, receivedAtSeconds: number) {
    this.#bytes = bytes
    this.#receivedAtSeconds = receivedAtSeconds
  }

  read(): ResolvedRecord[] {
    const records: ResolvedRecord[] = []
    this.#pass(ARRAY)
    let index = 0
    do {
      requireRecordLimit(index + 1)
      const record = resolveFields(this.#record(), this.#base, index++, this.#receivedAtSeconds)
      if (record !== undefined) records.push(record)
    } while (this.#isPassed(COMMA))
    this.#pass(END_OF_ARRAY)
    if (this.#next() !== END) throw NOT_PLAIN
    return requireRecords(records)
  }

  #record(): Fields {
    const fields = noFields()
    const base = this.#base
    let given = 0
    let [nameStart, nameEnd] = [0, 0]
    this.#pass(OBJECT)
    do {
      const label = this.#label()
      switch (label) {
        case N:
          given = once(given, 1 << 6)
          this.#passText()
          nameStart = this.#textStart
          nameEnd = this.#textEnd
          break
        case V:
          given = once(given, 1 << 7)
          fields.value = this.#number()
          fields.values++
          break
        case U:
          given = once(given, 1 << 8)
          fields.unit = this.#unit()
          break
        case T:
          given = once(given, 1 << 9)
          fields.timeSeconds = this.#number()
          break
        case VS:
          given = once(given, 1 << 10)
          this.#passText()
          fields.stringValue = this.#bytes.toString('latin1', this.#textStart, this.#textEnd)
          fields.values++
          break
        case VB:
          given = once(given, 1 << 11)
          fields.boolValue = this.#boolean()
          fields.values++
          break
        case S:
          given = once(given, 1 << 12)
          fields.sum = this.#number()
          break
        case UT:
          given = once(given, 1 << 13)
          fields.updateTimeSeconds = this.#number()
          break
        case BN:
          given = once(given, 1)
          base.name = this.#text()
          if (base.name.length > MAX_NAME_LENGTH) throw NOT_PLAIN
          this.#baseName = prefixOf(base.name)
          break
        case BT:
          given = once(given, 1 << 1)
          base.timeSeconds = this.#number()
          break
        case BU:
          given = once(given, 1 << 2)
          base.unit = this.#unit()
          break
        case BV:
          given = once(given, 1 << 3)
          base.value = this.#number()
          break
        case BS:
          given = once(given, 1 << 4)
          base.sum = this.#number()
          break
        case BVER:
          given = once(given, 1 << 5)
          fields.version = this.#version()
          break
        default:
          throw NOT_PLAIN
      }
    } while (this.#isPassed(COMMA))
    this.#pass(END_OF_OBJECT)
    fields.isBaseOnly = (given & ~BASE_BITS) === 0
    // Joined at the end of the record: the base name may follow the name.
    if (!fields.isBaseOnly) fields.knownName = this.#name(nameStart, nameEnd)
    return fields
  }

  #name(start: number, end: number): string {
    const name = names.get(this.#baseName, this.#bytes, start, end)
    if (name === undefined) throw NOT_PLAIN
    return name
  }

  /** The next byte that is not white space, without consuming it. */
  #next(): number {
    const bytes = this.#bytes
    while (this.#at < bytes.length) {
      const byte = bytes[this.#at] as number
      if (byte !== SPACE && byte !== LINE_FEED && byte !== RETURN && byte !== TAB) return byte
      this.#at++
    }
    return END
  }

  #isPassed(byte: number): boolean {
    if (this.#next() !== byte) return false
    this.#at++
    return true
  }

  #pass(byte: number): void {
    if (!this.#isPassed(byte)) throw NOT_PLAIN
  }

  /** Consumes a label and the colon after it. */
  #label(): number {
    this.#passText()
    const [start, end] = [this.#textStart, this.#textEnd]
    if (end - start > MAX_LABEL_BYTES) throw NOT_PLAIN
    let label = 0
    for (let at = start; at < end; at++) label = (label << 8) | (this.#bytes[at] as number)
    this.#pass(COLON)
    return label
  }

  #passText(): void {
    this.#pass(QUOTE)
    const bytes = this.#bytes
    const start = this.#at
    let at = start
    for (; at < bytes.length; at++) {
      const byte = bytes[at] as number
      if (byte === QUOTE) break
      if (byte < SPACE || byte >= END_OF_ASCII || byte === BACKSLASH) throw NOT_PLAIN
    }
    if (at === bytes.length) throw NOT_PLAIN
    this.#textStart = start
    this.#textEnd = at
    this.#at = at + 1
  }

  /** A text from the cache of repeated strings. */
  #text(): string {
    this.#passText()
    return texts.get(NO_PREFIX, this.#bytes, this.#textStart, this.#textEnd) as string
  }

  #unit(): string {
    const unit = this.#text()
    if (unit.length > MAX_UNIT_LENGTH) throw NOT_PLAIN
    return unit
  }

  /** RFC 8259 section 6, without exponents and only while it is exact. */
  #number(): number {
    const isNegative = this.#next() === MINUS
    if (isNegative) this.#at++
    const start = this.#at
    let mantissa = this.#digits(0)
    const integerDigits = this.#at - start
    if (integerDigits === 0 || (integerDigits > 1 && this.#bytes[start] === ZERO)) throw NOT_PLAIN
    let decimals = 0
    if (this.#byte() === DOT) {
      const from = ++this.#at
      mantissa = this.#digits(mantissa)
      decimals = this.#at - from
      if (decimals === 0) throw NOT_PLAIN
    }
    const byte = this.#byte()
    if (byte === SMALL_E || byte === LARGE_E || mantissa >= EXACT_END) throw NOT_PLAIN
    const power = POWERS_OF_TEN[decimals]
    if (power === undefined) throw NOT_PLAIN
    const value = decimals === 0 ? mantissa : mantissa / power
    return isNegative ? -value : value
  }

  /** Appends the following digits to those that were parsed. */
  #digits(before: number): number {
    let value = before
    for (;;) {
      const digit = this.#byte() - ZERO
      if (digit < 0 || digit > 9) return value
      value = value * 10 + digit
      this.#at++
    }
  }

  #byte(): number {
    return this.#at < this.#bytes.length ? (this.#bytes[this.#at] as number) : END
  }

  #boolean(): boolean {
    this.#next()
    if (this.#isWord(TRUE)) return true
    if (this.#isWord(FALSE)) return false
    throw NOT_PLAIN
  }

  #isWord(word: Buffer): boolean {
    for (let at = 0; at < word.length; at++) if (this.#bytes[this.#at + at] !== word[at]) return false
    this.#at += word.length
    return true
  }

  #version(): number {
    const version = this.#number()
    if (!Number.isInteger(version) || version < 1 || version > SENML_VERSION) throw NOT_PLAIN
    return version
  }
}

/** JSON uses the second of two fields with one label. */
function once(given: number, bit: number): number {
  if ((given & bit) !== 0) throw NOT_PLAIN
  return given | bit
}
