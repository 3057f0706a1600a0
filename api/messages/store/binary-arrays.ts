/**
 * Arrays in the binary format of PostgreSQL (`array_recv`), as parameters of statements: some thousand numbers cost a tenth of what
 * they do as text, on both sides.
 */
import { ARRAY_HEADER_BYTES, OIDS, viewOf, writeArrayHeader, writeInt64 } from './binary-rows.ts'

const LENGTH_BYTES = 4
/** The sizes in bytes of the types that numbers are written as. */
const NUMBER_BYTES = { int2: 2, int4: 4, int8: 8, timestamptz: 8, float8: 8 } as const

export type NumberType = keyof typeof NUMBER_BYTES

/** NaN is NULL; timestamps are microseconds since 2000, as safe integers. */
export function numberArray(type: NumberType, values: Float64Array): Buffer {
  const bytes = NUMBER_BYTES[type]
  const buffer = Buffer.allocUnsafe(ARRAY_HEADER_BYTES + values.length * (LENGTH_BYTES + bytes))
  const view = viewOf(buffer)
  writeArrayHeader(view, 0, OIDS[type], values.length)
  let at = ARRAY_HEADER_BYTES
  for (const value of values) {
    const isNull = Number.isNaN(value)
    view.setInt32(at, isNull ? -1 : bytes)
    at += LENGTH_BYTES
    if (isNull) continue
    if (type === 'float8') view.setFloat64(at, value)
    else if (bytes === 8) writeInt64(view, at, value)
    else if (bytes === 4) view.setInt32(at, value)
    else view.setInt16(at, value)
    at += bytes
  }
  return buffer.subarray(0, at)
}

/** Writes a number of each row as `numberArray` does; undefined is NULL too. */
export function numbersOf<Row>(
  type: NumberType,
  rows: Iterable<Row>,
  numberOf: (row: Row, index: number) => number | undefined,
): Buffer {
  return numberArray(
    type,
    Float64Array.from(rows, (row, index) => numberOf(row, index) ?? NaN),
  )
}

export function booleanArray(values: readonly (boolean | undefined)[]): Buffer {
  return byteArrays(
    OIDS.bool,
    values.map((value) => (value === undefined ? undefined : Buffer.of(value ? 1 : 0))),
  )
}

/** Well-formed texts without NUL characters. */
export function textArray(values: readonly (string | undefined)[]): Buffer {
  return byteArrays(
    OIDS.text,
    values.map((value) => (value === undefined ? undefined : Buffer.from(value))),
  )
}

export function byteaArray(values: readonly (Uint8Array | undefined)[]): Buffer {
  return byteArrays(OIDS.bytea, values)
}

function byteArrays(oid: number, elements: readonly (Uint8Array | undefined)[]): Buffer {
  const buffer = Buffer.allocUnsafe(
    elements.reduce((sum, element) => sum + LENGTH_BYTES + (element?.length ?? 0), ARRAY_HEADER_BYTES),
  )
  const view = viewOf(buffer)
  writeArrayHeader(view, 0, oid, elements.length)
  let at = ARRAY_HEADER_BYTES
  for (const element of elements) {
    view.setInt32(at, element?.length ?? -1)
    at += LENGTH_BYTES
    if (element === undefined) continue
    buffer.set(element, at)
    at += element.length
  }
  return buffer
}
