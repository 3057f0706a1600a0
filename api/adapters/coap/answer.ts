/** What a request is answered with, before it is known in which message it leaves. */
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { NOTHING, codeOfKind } from './message.ts'
import type { CoapOption } from './message.ts'
import { CoapRefusal, OPTIONS, uintOption } from './options.ts'

export type Answer = {
  code: number
  options: readonly CoapOption[]
  payload: Buffer
  /** What kind of request it was, for the metrics. */
  route: string
  /** The peer has shown a secret that counts. Others are never sent more than they sent (RFC 7252 section 11.3). */
  isPeerKnown: boolean
  /** For everybody, and short: may be larger than the request, as an answer to a peer that is known. */
  isPublic: boolean
  /** The request holds what only a receiver of an earlier answer knows: the peer is at its address. */
  isProof: boolean
  /** The request changed something, or may have: repeated, it is answered with this code and not carried out again. */
  isRemembered: boolean
  /** Called when the answer has been sent. */
  afterwards?: () => void
}

/** A diagnostic payload (RFC 7252 section 5.5.2) is one sentence. */
const MAX_DIAGNOSTIC_CHARS = 200
/** Where nobody says how long to wait. */
const DEFAULT_RETRY_SECONDS = 1

export function answer(code: number, parts: Partial<Answer> = {}): Answer {
  return {
    code,
    options: [],
    payload: NOTHING,
    route: 'unknown',
    isPeerKnown: false,
    isPublic: false,
    isProof: false,
    isRemembered: false,
    ...parts,
  }
}

export function refusal(error: unknown, parts: Partial<Answer> = {}): Answer {
  if (error instanceof CoapRefusal) return answer(error.code, { ...parts, payload: diagnostic(error.message) })
  const kind = kindOf(error)
  const message = error instanceof ServiceError && kind !== 'internal' ? error.message : 'internal error'
  const retryAfter = error instanceof ServiceError ? error.retryAfterSeconds : undefined
  const options =
    kind === 'unavailable' || retryAfter !== undefined
      ? [uintOption(OPTIONS.maxAge, retryAfter ?? DEFAULT_RETRY_SECONDS)]
      : []
  return answer(codeOfKind(kind), { ...parts, options, payload: diagnostic(message) })
}

/** An error that the caller cannot mend and somebody should read. */
export function isFault(error: unknown): boolean {
  return !(error instanceof CoapRefusal) && kindOf(error) === 'internal'
}

function diagnostic(message: string): Buffer {
  return Buffer.from(message.slice(0, MAX_DIAGNOSTIC_CHARS).toWellFormed())
}
