/** Parses the JSON of a pack. Invalid UTF-8 is rejected, never replaced. */
import { isUtf8 } from 'node:buffer'
import { refusal } from './refusal.ts'

/** Throws `malformed` for bytes that are not one JSON text in UTF-8 (RFC 8428 section 5). */
export function parseJson(bytes: Uint8Array): unknown {
  if (!isUtf8(bytes)) throw refusal('', 'must be UTF-8')
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString()
  try {
    return JSON.parse(text)
  } catch {
    throw refusal('', 'must be valid JSON')
  }
}
