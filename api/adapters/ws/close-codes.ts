/** Close codes and reasons of WebSockets. */
import type { EndReason } from '#api/messages/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'

/** Close codes (RFC 6455 section 7.4.1 and its registry). */
export const CLOSE = {
  unsupportedData: 1003,
  invalidPayload: 1007,
  policyViolation: 1008,
  internal: 1011,
  tryAgainLater: 1013,
  goingAway: 1001,
} as const

/** The close codes of a socket whose delivery has ended. */
export const END_CODES: Readonly<Record<EndReason, { code: number; reason: string }>> = {
  forbidden: { code: CLOSE.policyViolation, reason: 'no longer allowed on this channel' },
  behind: { code: CLOSE.tryAgainLater, reason: 'fallen behind, connect again' },
  stopping: { code: CLOSE.goingAway, reason: 'the server is stopping' },
  closed: { code: 1000, reason: '' },
}

/** A reason has at most 123 bytes (RFC 6455 section 5.5). */
const MAX_REASON_LENGTH = 120

/** The close code for a rejected frame. */
export function closeFor(error: unknown): { code: number; reason: string } {
  const kind = kindOf(error)
  const reason = error instanceof ServiceError ? error.message.slice(0, MAX_REASON_LENGTH) : ''
  if (kind === 'malformed' || kind === 'unprocessable') return { code: CLOSE.invalidPayload, reason }
  if (kind === 'forbidden' || kind === 'not_found' || kind === 'unauthenticated' || kind === 'conflict')
    return { code: CLOSE.policyViolation, reason }
  return kind === 'internal'
    ? { code: CLOSE.internal, reason: 'internal error' }
    : { code: CLOSE.tryAgainLater, reason }
}
