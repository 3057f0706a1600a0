/**
 * Unsigned LEB128 in the shortest form: seven bits per byte, least significant group first. WebAssembly encodes integers this
 * way (Binary Format, "Integers"); MQTT calls it a variable byte integer ([MQTT5] 1.5.5).
 */

/** The encoded length in bytes. */
export function leb128Length(value: number): number {
  let length = 1
  for (let rest = value; rest >= 0x80; rest = Math.floor(rest / 0x80)) length++
  return length
}

/** Writes the number at offset `at` and returns the offset after it. */
export function writeLeb128(bytes: Uint8Array, at: number, value: number): number {
  let rest = value
  let end = at
  while (rest >= 0x80) {
    bytes[end++] = (rest % 0x80) | 0x80
    rest = Math.floor(rest / 0x80)
  }
  bytes[end++] = rest
  return end
}

/** Throws a `RangeError` above 2^53. */
export function leb128(value: number | bigint): Uint8Array {
  const number = Number(value)
  if (!Number.isSafeInteger(number) || number < 0) throw new RangeError(`${value} is not an integer from 0 to 2^53 - 1`)
  const bytes = new Uint8Array(leb128Length(number))
  writeLeb128(bytes, 0, number)
  return bytes
}
