/** Data values in JSON: base64 with the URL-safe alphabet, padding omitted (RFC 8428 section 5). */

const BASE64URL = /^[A-Za-z0-9_-]*$/

/** The bytes, or undefined for text in another alphabet, with padding, or of an impossible length. */
export function parseBase64Url(text: string): Uint8Array | undefined {
  if (text.length % 4 === 1 || !BASE64URL.test(text)) return undefined
  return Buffer.from(text, 'base64url')
}

export function formatBase64Url(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64url')
}
