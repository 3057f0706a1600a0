/**
 * Checks of untrusted JSON before it is parsed: values are counted in the bytes, because parsing a megabyte can block the process
 * for too long. A long list is parsed item by item, in turns of the event loop.
 */
import { isUtf8 } from 'node:buffer'
import { ServiceError } from './errors/index.ts'
import { createTurns } from './turns.ts'

/** Deeper JSON is rejected: it could overflow the stack of recursive functions. */
export const MAX_JSON_DEPTH = 64
/** The maximum number of items and fields of a document, or of one item of a long list; about 30 ms with validation. */
const MAX_VALUES = 100_000
/** The maximum number of fields, whose names cost most; about 40 ms. */
const MAX_FIELDS = 30_000
/** The maximum size of a document, or of an item of a long list, that is parsed at once. */
const MAX_WHOLE_BYTES = 2 * 1024 * 1024
/** A smaller text cannot contain too many values and is not counted. */
export const SMALL_JSON_BYTES = 64 * 1024
/** The maximum number of blanks before a list, and after it. */
const MAX_BLANKS = 64 * 1024
/** The number of bytes between two checks of the clock. */
const BYTES_PER_LOOK = 64 * 1024

const [QUOTE, COMMA, COLON, BACKSLASH] = [0x22, 0x2c, 0x3a, 0x5c] as const
const [ARRAY, END_OF_ARRAY, OBJECT, END_OF_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d] as const

/** Scans a JSON text without parsing values; validity is left to the parser. */
class Scanner {
  readonly #bytes: Uint8Array
  at = 0
  depth = 0
  values = 0
  fields = 0
  #isInText = false

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
  }

  /**
   * Scans up to `end`, or to the next comma or closing bracket at `depth`: returns its position, or undefined at `end`. Throws
   * `too_large` for too many values, and `malformed` for a nesting that is too deep.
   */
  findEnd(depth: number, end: number): number | undefined {
    const bytes = this.#bytes
    for (; this.at < end; this.at++) {
      const byte = bytes[this.at]
      if (this.#isInText) {
        if (byte === BACKSLASH) this.at += 1
        else if (byte === QUOTE) this.#isInText = false
        continue
      }
      switch (byte) {
        case QUOTE:
          this.#isInText = true
          break
        case COMMA:
          if (this.depth === depth) return this.at
          this.#countValue()
          break
        case COLON:
          this.fields += 1
          if (this.fields > MAX_FIELDS) throw tooMuch(`${MAX_FIELDS} fields`)
          break
        case ARRAY:
        case OBJECT:
          this.depth += 1
          if (this.depth > MAX_JSON_DEPTH) throw tooDeep()
          this.#countValue()
          break
        case END_OF_ARRAY:
        case END_OF_OBJECT:
          if (this.depth === depth) return this.at
          this.depth -= 1
          break
        default:
      }
    }
    return undefined
  }

  #countValue(): void {
    this.values += 1
    if (this.values > MAX_VALUES) throw tooMuch(`${MAX_VALUES} values`)
  }

  /** Advances past the found byte and resets the counts for the next item. */
  step(): void {
    this.at += 1
    this.values = 0
    this.fields = 0
  }
}

/** Throws `too_large` or `malformed` for a text with more values than can be parsed at once. */
export function requireBoundedJson(bytes: Uint8Array): void {
  if (bytes.length <= SMALL_JSON_BYTES) return
  if (bytes.length > MAX_WHOLE_BYTES) throw tooMuch(`${MAX_WHOLE_BYTES} bytes`)
  new Scanner(bytes).findEnd(-1, bytes.length)
}

/**
 * The value of a JSON text in UTF-8; a list is parsed in turns. `parse` creates the value of a whole document, or of the item with
 * this index. Throws `malformed`, and `too_large` for a list of more than `maxItems`.
 */
export async function readJsonInTurns(
  bytes: Buffer,
  {
    maxItems,
    maxWholeBytes = MAX_WHOLE_BYTES,
    parse,
  }: {
    maxItems: number
    /** The maximum size of a document that is not a list: larger than usual where it contains one long text. */
    maxWholeBytes?: number
    parse: (bytes: Buffer, index: number | undefined) => unknown
  },
): Promise<unknown> {
  const begin = findText(bytes, 0)
  const turns = createTurns()
  const scanner = new Scanner(bytes)
  if (bytes[begin] !== ARRAY) {
    if (bytes.length > maxWholeBytes) throw tooMuch(`${maxWholeBytes} bytes`)
    while (scanner.at < bytes.length) {
      scanner.findEnd(-1, Math.min(bytes.length, scanner.at + BYTES_PER_LOOK))
      if (turns.isOver) await turns.next()
    }
    await turns.next()
    return parse(bytes, undefined)
  }
  if (!isUtf8(bytes)) throw new ServiceError('malformed', 'the body must be UTF-8')
  scanner.at = begin + 1
  const items: unknown[] = []
  for (let itemBegin = scanner.at; ; itemBegin = scanner.at) {
    let end: number | undefined
    while (end === undefined) {
      if (scanner.at >= bytes.length) throw new ServiceError('malformed', 'invalid JSON: unexpected end')
      end = scanner.findEnd(0, Math.min(bytes.length, scanner.at + BYTES_PER_LOOK))
      if (scanner.at - itemBegin > MAX_WHOLE_BYTES) throw tooMuch(`${MAX_WHOLE_BYTES} bytes in one item`)
      if (turns.isOver) await turns.next()
    }
    const closing = bytes[end]
    const isEmpty = closing !== COMMA && items.length === 0 && findText(bytes, itemBegin, end) === end
    if (!isEmpty) {
      if (items.length === maxItems) throw tooMuch(`${maxItems} items`)
      items.push(parse(bytes.subarray(itemBegin, end), items.length))
    }
    scanner.step()
    if (closing === COMMA) continue
    if (closing !== END_OF_ARRAY) throw new ServiceError('malformed', 'invalid JSON: a list must end with ]')
    if (findText(bytes, scanner.at) === bytes.length) return items
    throw new ServiceError('malformed', `invalid JSON: only blanks are accepted after the list, at most ${MAX_BLANKS}`)
  }
}

/** The index of the first byte that is not a blank, or `end`. */
function findText(bytes: Uint8Array, from: number, end = from + MAX_BLANKS): number {
  let at = from
  while (at < end && (bytes[at] === 0x20 || bytes[at] === 0x0a || bytes[at] === 0x0d || bytes[at] === 0x09)) at += 1
  return at
}

const tooMuch = (most: string) => new ServiceError('too_large', `the body must have at most ${most}`)

export const tooDeep = () =>
  new ServiceError('malformed', `the body must not be nested deeper than ${MAX_JSON_DEPTH} levels`)
