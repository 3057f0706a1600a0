/** Reads rows from the binary format of COPY, as their bytes come. */
import type { ColumnType } from './columns.ts'

/** The value of a column: text, a number, a boolean, bytes, or an integer of 64 bits; null: none. */
export type Value = string | number | bigint | boolean | Uint8Array | null

/** `PGCOPY`, flags and the length of an extension that no server sends. */
const HEADER_BYTES = 19
const SIGNATURE = Buffer.from('PGCOPY\n\xFF\r\n\0', 'latin1')
const END_OF_ROWS = -1
const NO_VALUE = -1
/** PostgreSQL counts microseconds from 2000. */
const EPOCH_MICROS = 946_684_800_000_000n
/** Ids and names repeat; longer texts are values, which rarely do. */
const MAX_REPEATED_BYTES = 64
const MAX_REPEATED_TEXTS = 10_000

const NOTHING = Buffer.alloc(0)

/** One statement's rows. Call `take` with each piece, and `end` after the last one. */
export class CopiedRows {
  readonly #types: readonly ColumnType[]
  readonly #row: (values: Value[]) => void
  readonly #texts = new Map<string, string>()
  #left: Buffer = NOTHING
  #isBegun = false
  #isEnded = false

  constructor(types: readonly ColumnType[], row: (values: Value[]) => void) {
    this.#types = types
    this.#row = row
  }

  take(piece: Buffer): void {
    const bytes = this.#left.length === 0 ? piece : Buffer.concat([this.#left, piece])
    let at = 0
    if (!this.#isBegun) {
      if (bytes.length < HEADER_BYTES) {
        this.#left = bytes
        return
      }
      if (!bytes.subarray(0, SIGNATURE.length).equals(SIGNATURE)) throw new Error('the server sent no binary copy')
      this.#isBegun = true
      at = HEADER_BYTES
    }
    for (;;) {
      const next = this.#readRow(bytes, at)
      if (next === undefined) break
      at = next
    }
    // A copy: the piece itself may be large.
    this.#left = at === bytes.length ? NOTHING : Buffer.from(bytes.subarray(at))
  }

  /** Throws when the rows are not complete. */
  end(): void {
    if (!this.#isEnded || this.#left.length > 0) throw new Error('the server sent an incomplete copy')
  }

  /** The place behind the row at `at`; undefined while it is incomplete. */
  #readRow(bytes: Buffer, at: number): number | undefined {
    if (this.#isEnded || at + 2 > bytes.length) return undefined
    const count = bytes.readInt16BE(at)
    at += 2
    if (count === END_OF_ROWS) {
      this.#isEnded = true
      return at
    }
    if (count !== this.#types.length) throw new Error(`the server sent ${count} columns`)
    let end = at
    for (let column = 0; column < count; column++) {
      if (end + 4 > bytes.length) return undefined
      const length = bytes.readInt32BE(end)
      end += 4 + Math.max(length, 0)
    }
    if (end > bytes.length) return undefined
    const values: Value[] = []
    for (const type of this.#types) {
      const length = bytes.readInt32BE(at)
      at += 4
      if (length === NO_VALUE) {
        values.push(null)
        continue
      }
      values.push(this.#read(type, bytes, at, length))
      at += length
    }
    this.#row(values)
    return at
  }

  #read(type: ColumnType, bytes: Buffer, at: number, length: number): Value {
    switch (type) {
      case 'string':
        return this.#text(bytes, at, length)
      case 'timestamptz':
        return bytes.readBigInt64BE(at) + EPOCH_MICROS
      case 'double':
        // Engines disagree on whether -0 equals 0.
        return bytes.readDoubleBE(at) + 0
      case 'boolean':
        return bytes[at] === 1
      case 'binary':
        return Uint8Array.from(bytes.subarray(at, at + length))
      case 'long':
        return bytes.readBigInt64BE(at)
      case 'int':
        return bytes.readInt32BE(at)
    }
  }

  #text(bytes: Buffer, at: number, length: number): string {
    const text = bytes.toString('utf8', at, at + length)
    if (length > MAX_REPEATED_BYTES) return text
    const known = this.#texts.get(text)
    if (known !== undefined) return known
    if (this.#texts.size >= MAX_REPEATED_TEXTS) this.#texts.clear()
    this.#texts.set(text, text)
    return text
  }
}
