/** What a guest may publish. Pure. */
import { ServiceError } from '#core/errors/index.ts'

const MAX_PAYLOAD_BYTES = 256 * 1024

/** The text of a SenML pack; the storing code validates it completely. */
export function requirePack(payload: Uint8Array): string {
  if (payload.byteLength > MAX_PAYLOAD_BYTES)
    throw new ServiceError('too_large', `a message must be at most ${MAX_PAYLOAD_BYTES} bytes`)
  const refusal = new ServiceError('malformed', 'the payload must be a SenML pack: a JSON array of records')
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(payload)
    const pack: unknown = JSON.parse(text)
    const isPack =
      Array.isArray(pack) &&
      pack.length > 0 &&
      pack.every((record) => typeof record === 'object' && record !== null && !Array.isArray(record))
    if (isPack && !text.includes('\0')) return text
  } catch {
    throw refusal
  }
  throw refusal
}
