/**
 * Requests to an S3-compatible store: signed, with a deadline each, and repeated after failures that may pass. Keys are in the signature only:
 * no error repeats what a store says, except its code.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { AwsV4Signer } from 'aws4fetch'
import { monotonicMs } from '#core/time.ts'
import { codeOf } from './s3-answers.ts'
import { S3Error, TOO_LONG, isPassing } from './s3-error.ts'
import type { S3Operation } from './s3-error.ts'
import { RETRY_LIMITS } from './s3-target.ts'
import type { S3Target } from './s3-target.ts'

const MAX_PAUSE_MS = 10_000
/** A page of a listing has 1000 keys of at most 1024 bytes, each encoded in up to three. */
const MAX_ANSWER_BYTES = 8 * 1024 * 1024

export type S3Request = {
  operation: S3Operation
  method: 'GET' | 'HEAD' | 'PUT' | 'POST' | 'DELETE'
  /** `s3://bucket/key`, or the bucket alone. */
  url: string
  query?: Readonly<Record<string, string>>
  headers?: Readonly<Record<string, string>>
  body?: Uint8Array<ArrayBuffer>
}

export type S3Answer = {
  status: number
  headers: Headers
  text: string
  /** Whether an earlier attempt may have been carried out: its answer did not arrive, or did not say. */
  isRepeated: boolean
}

/** Rejects with an `S3Error`, or with the reason of the signal. */
export async function requestS3(target: S3Target, request: S3Request, signal?: AbortSignal): Promise<S3Answer> {
  const { attemptMs, pieceMs, deadlineMs, pauseMs } = target.retry ?? RETRY_LIMITS
  const endMs = monotonicMs() + deadlineMs
  const address = addressOf(target, request)
  const limitMs = request.operation === 'UploadPart' || request.operation === 'PutObject' ? pieceMs : attemptMs
  let isRepeated = false
  for (let attempt = 0; ; attempt++) {
    signal?.throwIfAborted()
    const outcome = await attemptOnce(target, { ...request, address }, { limitMs, signal, isRepeated })
    if ('answer' in outcome) return outcome.answer
    const { error, afterMs } = outcome
    const backoffMs = Math.min(pauseMs * 2 ** Math.min(attempt, 16), MAX_PAUSE_MS)
    const waitMs = Math.max(backoffMs * (0.5 + Math.random() / 2), Math.min(afterMs, MAX_PAUSE_MS))
    if (!isPassing(error) || monotonicMs() + waitMs > endMs) throw error
    isRepeated ||= error.status === 0 || error.status >= 500
    await pause(waitMs, undefined, signal === undefined ? {} : { signal }).catch(() => signal?.throwIfAborted())
  }
}

type AddressedRequest = S3Request & { address: string }
type Outcome = { answer: S3Answer } | { error: S3Error; afterMs: number }

async function attemptOnce(
  target: S3Target,
  request: AddressedRequest,
  { limitMs, signal, isRepeated }: { limitMs: number; signal: AbortSignal | undefined; isRepeated: boolean },
): Promise<Outcome> {
  const { operation } = request
  const timeout = AbortSignal.timeout(limitMs)
  let status: number
  let headers: Headers
  let text: string
  try {
    const response = await send(target, request, signal === undefined ? timeout : AbortSignal.any([signal, timeout]))
    ;({ status, headers } = response)
    text = await boundedText(response)
  } catch (error) {
    signal?.throwIfAborted()
    const code = timeout.aborted ? 'no answer in time' : networkCodeOf(error)
    return { error: new S3Error({ operation, status: 0, code, isRepeated }, { cause: error }), afterMs: 0 }
  }
  const code = codeOf(text) || codeWithoutText(status, headers)
  // A long completion is answered with 200 before it is known whether it succeeds.
  const isFault = status >= 300 || (operation === 'CompleteMultipartUpload' && code !== '')
  if (!isFault) return { answer: { status, headers, text, isRepeated } }
  const error = new S3Error({ operation, status, code, isRepeated })
  const afterSeconds = Number(headers.get('retry-after') ?? 0)
  return { error, afterMs: Number.isFinite(afterSeconds) ? Math.max(afterSeconds, 0) * 1000 : 0 }
}

/** What a store allows. */
const MAX_SKEW_MS = 900_000

/** The answer to a HEAD has no code. With clocks that differ, the keys would be blamed. */
function codeWithoutText(status: number, headers: Headers): string {
  const skewMs = Math.abs(Date.parse(headers.get('date') ?? '') - Date.now())
  return status === 403 && skewMs > MAX_SKEW_MS ? 'RequestTimeTooSkewed' : ''
}

async function send(target: S3Target, request: AddressedRequest, signal: AbortSignal): Promise<Response> {
  const { address, body, method } = request
  const signer = new AwsV4Signer({
    method,
    url: address,
    headers: { ...request.headers, 'x-amz-content-sha256': await sha256Of(body) },
    accessKeyId: target.accessKey.reveal(),
    secretAccessKey: target.secretKey.reveal(),
    service: 's3',
    region: target.region,
  })
  const { url, headers } = await signer.sign()
  // A redirect would send the signature elsewhere.
  return await fetch(url, { method, headers, signal, redirect: 'manual', ...(body === undefined ? {} : { body }) })
}

const EMPTY = new Uint8Array(0)

/** In a thread of its own: pieces are large. The store compares it with what arrives. */
async function sha256Of(body: Uint8Array<ArrayBuffer> = EMPTY): Promise<string> {
  return Buffer.from(await crypto.subtle.digest('SHA-256', body)).toString('hex')
}

/** `s3://bucket/key` in its parts; an empty key is the bucket. */
export function partsOf(url: string): { bucket: string; key: string } {
  const [, bucket, key = ''] = /^s3:\/\/([^/]+)(?:\/(.*))?$/s.exec(url) ?? []
  if (bucket === undefined) throw new Error(`not an object of the archive: ${url}`)
  return { bucket, key }
}

/** Keys of the archive hold no character that must be encoded, and no step that an address leaves out. */
const PLAIN = /^[\w.=/-]*$/
const isPlain = (key: string) => PLAIN.test(key) && key.split('/').every((part) => part !== '.' && part !== '..')

function addressOf({ endpoint, isPathStyle }: S3Target, { url, query }: S3Request): string {
  const { bucket, key } = partsOf(url)
  if (!isPlain(key)) throw new Error('not a file of the archive')
  const address = new URL(isPathStyle ? `${endpoint}/${bucket}/${key}` : `${endpoint}/${key}`)
  if (isPathStyle && key === '') address.pathname = `/${bucket}`
  if (!isPathStyle) address.hostname = `${bucket}.${address.hostname}`
  for (const [name, value] of Object.entries(query ?? {})) address.searchParams.set(name, value)
  return address.href
}

async function boundedText(response: Response): Promise<string> {
  const pieces: Uint8Array[] = []
  let bytes = 0
  for await (const piece of response.body ?? []) {
    bytes += piece.length
    if (bytes > MAX_ANSWER_BYTES) throw new Error(TOO_LONG)
    pieces.push(piece)
  }
  return Buffer.concat(pieces).toString('utf8')
}

const NETWORK_CODE = /^[A-Z][A-Z\d_]{1,63}$/

/** `ECONNREFUSED`: the first code of the error and its causes. */
function networkCodeOf(error: unknown): string {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const { code } = cause as NodeJS.ErrnoException
    if (typeof code === 'string' && NETWORK_CODE.test(code)) return code
  }
  return error instanceof Error && error.message === TOO_LONG ? TOO_LONG : 'the connection failed'
}
