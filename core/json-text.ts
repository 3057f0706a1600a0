/**
 * JSON texts that others sent, before they become values: what a text holds is counted in its bytes, because making values of a megabyte can take
 * longer than the process may be busy at a stretch, and a long list is read item by item, in turns.
 */
import { isUtf8 } from 'node:buffer'
import { ServiceError } from './errors/index.ts'
import { createTurns } from './turns.ts'

/** Deeper JSON is no honest document and costs the stack of whoever walks it. */
export const MAX_JSON_DEPTH = 64
/** Items and fields of one document, or of one item of a long list; some 30 ms with their check. */
const MAX_VALUES = 100_000
/** Fields among them, the names of which are what costs most; some 40 ms. */
const MAX_FIELDS = 30_000
/** A document, or an item of a long list, which becomes values at once. */
const MAX_WHOLE_BYTES = 2 * 1024 * 1024
/** A text below this holds too little to be counted. */
export const SMALL_JSON_BYTES = 64 * 1024
/** Blanks before and after a list. */
const MAX_BLANKS = 64 * 1024
/** Bytes between two looks at the clock. */
const BYTES_PER_LOOK = 64 * 1024

const [QUOTE, COMMA, COLON, BACKSLASH] = [0x22, 0x2c, 0x3a, 0x5c] as const
const [ARRAY, END_OF_ARRAY, OBJECT, END_OF_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d] as const

/** Passes over the bytes of a JSON text without making values; whether it is JSON at all is for the parser to say. */
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
   * Goes on to `end`, but not beyond the next comma or closing bracket at `depth`: its place, or undefined where `end` was met. Throws
   * `too_large` for more than one document may hold, `malformed` where it is nested too deep.
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

  /** Steps over what was found; a next item is counted anew. */
  step(): void {
    this.at += 1
    this.values = 0
    this.fields = 0
  }
}

/** Throws `too_large` or `malformed` where a text would become more values than can be made at once. */
export function requireBoundedJson(bytes: Uint8Array): void {
  if (bytes.length <= SMALL_JSON_BYTES) return
  if (bytes.length > MAX_WHOLE_BYTES) throw tooMuch(`${MAX_WHOLE_BYTES} bytes`)
  new Scanner(bytes).findEnd(-1, bytes.length)
}

/**
 * The value of a JSON text in UTF-8, of which a list is read in turns. `parse` makes the value of a whole document, or of one item with its
 * index. Throws `malformed`, and `too_large` for a list of more than `maxItems`.
 */
export async function readJsonInTurns(
  bytes: Buffer,
  { maxItems, parse }: { maxItems: number; parse: (bytes: Buffer, index: number | undefined) => unknown },
): Promise<unknown> {
  const begin = findText(bytes, 0)
  if (bytes[begin] !== ARRAY) {
    requireBoundedJson(bytes)
    return parse(bytes, undefined)
  }
  if (!isUtf8(bytes)) throw new ServiceError('malformed', 'the body must be UTF-8')
  const turns = createTurns()
  const scanner = new Scanner(bytes)
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
    const isEmpty = closing !== COMMA && items.length === 0 && findText(bytes, itemBegin) === end
    if (!isEmpty) {
      if (items.length === maxItems) throw tooMuch(`${maxItems} items`)
      items.push(parse(bytes.subarray(itemBegin, end), items.length))
    }
    scanner.step()
    if (closing === COMMA) continue
    if (closing === END_OF_ARRAY && findText(bytes, scanner.at) === bytes.length) return items
    throw new ServiceError('malformed', `invalid JSON after item ${items.length - 1}`)
  }
}

/** The first byte from there on that is no blank, or that of the last blank that is looked at. */
function findText(bytes: Uint8Array, from: number): number {
  const end = from + MAX_BLANKS
  let at = from
  while (at < end && (bytes[at] === 0x20 || bytes[at] === 0x0a || bytes[at] === 0x0d || bytes[at] === 0x09)) at += 1
  return at
}

const tooMuch = (most: string) => new ServiceError('too_large', `the body must have at most ${most}`)

export const tooDeep = () =>
  new ServiceError('malformed', `the body must not be nested deeper than ${MAX_JSON_DEPTH} levels`)
