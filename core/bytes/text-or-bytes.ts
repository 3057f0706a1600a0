/** Bytes as JSON: text where they are UTF-8, otherwise base64. */
import { isUtf8 } from 'node:buffer'

export type Base64 = { base64: string }
export type TextOrBytes = string | Base64

const NUL = 0

/** Text with NUL is given as base64 too: the text type of PostgreSQL does not allow it. */
export function textOrBytes(bytes: Uint8Array): TextOrBytes {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return isUtf8(buffer) && !buffer.includes(NUL) ? buffer.toString('utf8') : { base64: buffer.toString('base64') }
}

/** Undefined unless the text is base64 as RFC 4648 section 4 writes it. */
export function parseBase64(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64')
  return bytes.toString('base64') === text ? bytes : undefined
}

/** The bytes of a valid value. */
export function bytesOf(value: TextOrBytes): Buffer {
  return typeof value === 'string' ? Buffer.from(value) : Buffer.from(value.base64, 'base64')
}

/** The length without a character at the end whose last bytes are missing. */
export function wholeCharactersLength(bytes: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] as number
    // A byte within a character: its first byte comes before.
    if ((byte & 0xc0) === 0x80) continue
    const size = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return size > back ? bytes.length - back : bytes.length
  }
  return bytes.length
}
