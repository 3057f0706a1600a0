/** The response to a request, before it is put into a message. */
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { EMPTY_BYTES, codeOfKind } from './message.ts'
import type { CoapOption } from './message.ts'
import { CoapRefusal, OPTIONS, uintOption } from './options.ts'

export type CoapResponse = {
  code: number
  options: readonly CoapOption[]
  payload: Buffer
  /** The kind of request, for the metrics. */
  route: string
  /** The peer has presented a valid secret. Others never receive more than they sent (RFC 7252 section 11.3). */
  isPeerKnown: boolean
  /** Public and short: may be larger than the request, as for a known peer. */
  isPublic: boolean
  /** The request contains data that only the receiver of an earlier response has, which verifies the address. */
  isProof: boolean
  /** The request may have had an effect: a duplicate is answered with this code and not processed again. */
  isRemembered: boolean
  /** Called when the response has been sent. */
  afterwards?: () => void
}

/** A diagnostic payload (RFC 7252 section 5.5.2) is one sentence. */
const MAX_DIAGNOSTIC_CHARS = 200
/** The default `Max-Age` of a retryable error. */
const DEFAULT_RETRY_SECONDS = 1

export function createResponse(code: number, parts: Partial<CoapResponse> = {}): CoapResponse {
  return {
    code,
    options: [],
    payload: EMPTY_BYTES,
    route: 'unknown',
    isPeerKnown: false,
    isPublic: false,
    isProof: false,
    isRemembered: false,
    ...parts,
  }
}

export function refusal(error: unknown, parts: Partial<CoapResponse> = {}): CoapResponse {
  if (error instanceof CoapRefusal) return createResponse(error.code, { ...parts, payload: diagnostic(error.message) })
  const kind = kindOf(error)
  const message = error instanceof ServiceError && kind !== 'internal' ? error.message : 'internal error'
  const retryAfter = error instanceof ServiceError ? error.retryAfterSeconds : undefined
  const options =
    kind === 'unavailable' || retryAfter !== undefined
      ? [uintOption(OPTIONS.maxAge, retryAfter ?? DEFAULT_RETRY_SECONDS)]
      : []
  return createResponse(codeOfKind(kind), { ...parts, options, payload: diagnostic(message) })
}

/** An error that the caller cannot correct and that must be logged. */
export function isFault(error: unknown): boolean {
  return !(error instanceof CoapRefusal) && kindOf(error) === 'internal'
}

function diagnostic(message: string): Buffer {
  return Buffer.from(message.slice(0, MAX_DIAGNOSTIC_CHARS).toWellFormed())
}
