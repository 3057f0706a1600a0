/** Bytes as JSON: text where they are UTF-8, otherwise base64. */

export type Base64 = { base64: string }
export type TextOrBytes = string | Base64

const encoder = new TextEncoder()
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Text with NUL is given as base64 too: the text type of PostgreSQL does not allow it. */
export function textOrBytes(bytes: Uint8Array): TextOrBytes {
  const text = decoded(bytes)
  return text === undefined || text.includes('\0') ? { base64: bytes.toBase64() } : text
}

function decoded(bytes: Uint8Array): string | undefined {
  try {
    return utf8.decode(bytes)
  } catch {
    return undefined
  }
}

/** Undefined unless the text is base64 as RFC 4648 section 4 writes it. */
export function parseBase64(text: string): Uint8Array | undefined {
  try {
    const bytes = Uint8Array.fromBase64(text)
    // It skips spaces.
    return bytes.toBase64() === text ? bytes : undefined
  } catch {
    return undefined
  }
}

/** The bytes of a valid value. Throws for invalid base64. */
export function bytesOf(value: TextOrBytes): Uint8Array<ArrayBuffer> {
  return typeof value === 'string' ? encoder.encode(value) : Uint8Array.fromBase64(value.base64)
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
