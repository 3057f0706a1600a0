/**
 * Rows in the binary format of COPY (PostgreSQL documentation, COPY, "Binary Format"): the cheapest form for both
 * sides, since neither writes nor reads numbers as text. The caller writes the fields in the order of the columns.
 */

const SIGNATURE = Buffer.from('PGCOPY\n\xff\r\n\0', 'latin1')
const HEADER_BYTES = SIGNATURE.length + 8
const INITIAL_BYTES = 64 * 1024
/** PostgreSQL counts timestamps in microseconds from 2000-01-01. */
const POSTGRES_EPOCH_SECONDS = 946_684_800
const TWO_TO_32 = 2 ** 32

/** Element types of arrays (PostgreSQL, pg_type.dat). */
export const OIDS = {
  bool: 16,
  bytea: 17,
  int8: 20,
  int2: 21,
  int4: 23,
  text: 25,
  float8: 701,
  timestamptz: 1184,
} as const
/** Number of dimensions, whether there are NULLs, element type, length, lower bound. */
export const ARRAY_HEADER_BYTES = 20

/** The stored value of a time while it is a safe integer: times within 285 years around 2000. */
export function microsSince2000(epochSeconds: number): number {
  const wholeSeconds = Math.floor(epochSeconds)
  // Whole seconds and fraction are converted separately: one product with 1e6 would lose microseconds of large values.
  return (wholeSeconds - POSTGRES_EPOCH_SECONDS) * 1e6 + Math.round((epochSeconds - wholeSeconds) * 1e6)
}

export class BinaryRows {
  /** Undefined before the first row: most batches write to only one of two tables. */
  #buffer = Buffer.alloc(0)
  /** A view of the same bytes: writing numbers through it costs half of the buffer's own methods. */
  #view = viewOf(this.#buffer)
  #at = 0
  #rows = 0
  /** The offset of the array that is being written. */
  #arrayAt = 0

  get rows(): number {
    return this.#rows
  }

  /** Begins a row; exactly `fields` fields must follow. */
  row(fields: number): void {
    if (this.#rows === 0) this.#begin()
    this.#reserve(2)
    this.#view.setInt16(this.#at, fields)
    this.#at += 2
    this.#rows++
  }

  null(): void {
    this.#reserve(4)
    this.#view.setInt32(this.#at, -1)
    this.#at += 4
  }

  int16(value: number): void {
    this.#length(2)
    this.#view.setInt16(this.#at, value)
    this.#at += 2
  }

  int32(value: number): void {
    this.#length(4)
    this.#view.setInt32(this.#at, value)
    this.#at += 4
  }

  /** A safe integer. */
  int64(value: number): void {
    this.#length(8)
    this.#int64(value)
  }

  /** Rounded to microseconds. */
  timestamp(epochSeconds: number): void {
    this.#length(8)
    const total = microsSince2000(epochSeconds)
    if (Number.isSafeInteger(total)) return this.#int64(total)
    const wholeSeconds = Math.floor(epochSeconds)
    const micros = Math.round((epochSeconds - wholeSeconds) * 1e6)
    this.#view.setBigInt64(this.#at, BigInt(wholeSeconds - POSTGRES_EPOCH_SECONDS) * 1_000_000n + BigInt(micros))
    this.#at += 8
  }

  float64(value: number): void {
    this.#length(8)
    this.#view.setFloat64(this.#at, value)
    this.#at += 8
  }

  boolean(value: boolean): void {
    this.#length(1)
    this.#buffer[this.#at++] = value ? 1 : 0
  }

  /** Well-formed text without NUL characters. */
  text(value: string): void {
    const bytes = Buffer.byteLength(value)
    this.#length(bytes)
    this.#at += this.#buffer.write(value, this.#at, 'utf8')
  }

  bytes(value: Uint8Array): void {
    this.#length(value.length)
    this.#buffer.set(value, this.#at)
    this.#at += value.length
  }

  /** Begins a field that is an array; exactly `length` fields of its element type or NULL must follow, then `endArray`. */
  beginArray(oid: number, length: number): void {
    this.#reserve(4 + ARRAY_HEADER_BYTES)
    this.#arrayAt = this.#at
    writeArrayHeader(this.#view, this.#at + 4, oid, length)
    this.#at += 4 + ARRAY_HEADER_BYTES
  }

  /** Ends the array that was begun last. */
  endArray(): void {
    this.#view.setInt32(this.#arrayAt, this.#at - this.#arrayAt - 4)
  }

  /** The finished file, with at least one row; nothing may be written afterwards. */
  end(): Buffer {
    this.#reserve(2)
    this.#view.setInt16(this.#at, -1)
    this.#at += 2
    return this.#buffer.subarray(0, this.#at)
  }

  #begin(): void {
    this.#buffer = Buffer.allocUnsafe(INITIAL_BYTES)
    this.#view = viewOf(this.#buffer)
    SIGNATURE.copy(this.#buffer)
    // Flags and the length of the header extension: both 0.
    this.#buffer.fill(0, SIGNATURE.length, HEADER_BYTES)
    this.#at = HEADER_BYTES
  }

  #length(bytes: number): void {
    this.#reserve(4 + bytes)
    this.#view.setInt32(this.#at, bytes)
    this.#at += 4
  }

  #int64(value: number): void {
    writeInt64(this.#view, this.#at, value)
    this.#at += 8
  }

  #reserve(bytes: number): void {
    const needed = this.#at + bytes
    if (needed <= this.#buffer.length) return
    const larger = Buffer.allocUnsafe(Math.max(needed, this.#buffer.length * 2))
    this.#buffer.copy(larger, 0, 0, this.#at)
    this.#buffer = larger
    this.#view = viewOf(larger)
  }
}

/** A safe integer. */
export function writeInt64(view: DataView, at: number, value: number): void {
  view.setInt32(at, Math.floor(value / TWO_TO_32))
  view.setUint32(at + 4, value >>> 0)
}

/** Writes the header of an array of one dimension that begins at 1. */
export function writeArrayHeader(view: DataView, at: number, oid: number, length: number): void {
  view.setInt32(at, 1)
  // The flag for NULLs stays 0: PostgreSQL checks the elements itself.
  view.setInt32(at + 4, 0)
  view.setInt32(at + 8, oid)
  view.setInt32(at + 12, length)
  view.setInt32(at + 16, 1)
}

export function viewOf({ buffer, byteOffset, byteLength }: Buffer): DataView {
  return new DataView(buffer, byteOffset, byteLength)
}
