/**
 * HTTP requests of guests, which this process sends: runners have no network. The grant of the task names where to and how much; what a run has
 * used counts for all of its calls, also if its runner was restarted in between. Each request is in the trace and in the log of the run.
 */
import type { LookupFunction } from 'node:net'
import type { Assignment, RunRef } from '#proto/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { monotonicMs } from '#core/time.ts'
import { withSpan } from '#core/tracing/index.ts'
import type { Span } from '#core/tracing/index.ts'
import { MAX_HTTP_RESPONSE_BYTES, refuseCall } from '../runner/index.ts'
import type { GuestReply, HttpAnswer, HttpCall, HttpHeaders } from '../runner/index.ts'
import { permitRequest } from './permit.ts'
import type { PermittedRequest } from './permit.ts'
import { sendRequest } from './send.ts'

export type GuestHttpOptions = {
  isEnabled: boolean
  /** Hosts, or `host:port`, that can be private and use plain HTTP. */
  privateHosts: readonly string[]
  /** Resolves names of other hosts; default: to public addresses alone. */
  lookup?: LookupFunction
}

/** A run that asks; `log` adds a line to its log. */
export type AskingRun = {
  assignment: Pick<Assignment, 'http'> & { run: RunRef }
  parent: string | undefined
  log: (line: string) => void
}

/** What a run has used, and the request that it waits for. */
type Use = {
  requests: number
  bytes: number
  waitedMs: number
  waiting: { abort: AbortController; logEnd: () => void } | undefined
  hasEnded: boolean
}

const RUN_ENDED = 'the run has ended'
const MAX_MESSAGE_CHARS = 300
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])

export class GuestHttp {
  readonly #options: GuestHttpOptions
  readonly #uses = new WeakMap<AskingRun['assignment'], Use>()

  constructor(options: GuestHttpOptions) {
    this.#options = options
  }

  /** Never rejects. A run that ends first must be passed to `end`. */
  async ask(asking: AskingRun, callId: number, call: HttpCall): Promise<GuestReply> {
    const { run, http: grant } = asking.assignment
    if (!this.#options.isEnabled)
      return refuseCall('forbidden', 'this worker sends no requests of guests (SKEIN_WORKER_HTTP)')
    if (grant === undefined) return refuseCall('forbidden', 'the task has no grant for HTTP')
    const use = this.#useOf(asking.assignment)
    if (use.hasEnded) return refuseCall('unavailable', RUN_ENDED)
    // A guest waits for the response of one request before the next: its runner was restarted.
    abandon(use)
    if (use.requests >= grant.maxRequests)
      return refuseCall('rate_limited', `a run of the task can send ${grant.maxRequests} requests`)
    use.requests += 1
    const permitted = permitRequest(grant, call, this.#options.privateHosts)
    if ('ok' in permitted) {
      asking.log(`HTTP request refused: ${permitted.message}`)
      return permitted
    }
    const headers = withKey(call.headers, permitted.method, `${run.runId}-${callId}`)
    const body = Buffer.from(call.body, 'base64')
    const sentBytes = sizeOf(permitted, headers) + body.length
    const left = { bytes: Number(grant.maxBytes) - use.bytes - sentBytes, ms: Number(grant.timeoutMs) - use.waitedMs }
    if (left.bytes < 0) return refuseCall('too_large', `requests of a run can have ${grant.maxBytes} bytes together`)
    if (left.ms <= 0) return refuseCall('rate_limited', `requests of a run can take ${grant.timeoutMs} ms together`)
    use.bytes += sentBytes
    const waitMs = Math.min(left.ms, call.timeoutMs ?? Infinity)
    return await this.#send(asking, use, { permitted, headers, body, sentBytes, left, waitMs })
  }

  /** The run has ended: its request is aborted, and nothing more is logged. */
  end(assignment: AskingRun['assignment']): void {
    if (assignment.http === undefined) return
    const use = this.#useOf(assignment)
    use.hasEnded = true
    abandon(use)
  }

  #useOf(assignment: AskingRun['assignment']): Use {
    let use = this.#uses.get(assignment)
    if (use === undefined) {
      use = { requests: 0, bytes: 0, waitedMs: 0, waiting: undefined, hasEnded: false }
      this.#uses.set(assignment, use)
    }
    return use
  }

  async #send(
    { parent, log }: AskingRun,
    use: Use,
    { permitted, headers, body, sentBytes, left, waitMs }: Prepared,
  ): Promise<GuestReply> {
    const { url, method } = permitted
    const abort = new AbortController()
    const logEnd = () => log(`${method} ${url.origin} aborted, ${sentBytes} bytes sent: ${RUN_ENDED}`)
    const waiting = { abort, logEnd }
    use.waiting = waiting
    const beganMs = monotonicMs()
    const timer = setTimeout(
      () => abort.abort(new ServiceError('unavailable', `there was no response within ${Math.ceil(waitMs)} ms`)),
      waitMs,
    )
    let receivedBytes = 0
    const onReceived = (bytes: number) => {
      receivedBytes += bytes
      use.bytes += bytes
    }
    const attributes = {
      'http.request.method': method,
      'server.address': url.hostname,
      'server.port': Number(url.port === '' ? (url.protocol === 'https:' ? 443 : 80) : url.port),
    }
    try {
      const work = async (span: Span) => {
        const maxResponseBytes = Math.min(left.bytes, MAX_HTTP_RESPONSE_BYTES)
        const { lookup } = this.#options
        const sending = { headers, body, maxResponseBytes, onReceived, signal: abort.signal }
        const response = await sendRequest(permitted, { ...sending, ...(lookup === undefined ? {} : { lookup }) })
        span.setAttributes({
          'http.response.status_code': response.status,
          'http.request.body.size': body.length,
          'http.response.body.size': receivedBytes,
        })
        return response
      }
      const {
        status,
        headers: answered,
        body: content,
      } = await withSpan('send HTTP request', { kind: 'client', parent, attributes }, work)
      if (use.waiting !== waiting) return refuseCall('unavailable', RUN_ENDED)
      use.bytes += answered.reduce((sum, [name, value]) => sum + name.length + value.length, 0)
      log(`${method} ${url.origin} ${status}, ${sentBytes} bytes sent, ${receivedBytes} received`)
      const answer: HttpAnswer = { status, headers: answered, body: content.toString('base64') }
      return { ok: true, records: JSON.stringify(answer) }
    } catch (error) {
      const failure: unknown = abort.signal.aborted ? abort.signal.reason : error
      const refusal = refusalOf(failure)
      if (use.waiting === waiting)
        log(`${method} ${url.origin} failed, ${sentBytes} bytes sent, ${receivedBytes} received: ${refusal.message}`)
      return refusal
    } finally {
      clearTimeout(timer)
      use.waitedMs += monotonicMs() - beganMs
      if (use.waiting === waiting) use.waiting = undefined
    }
  }
}

/** Nobody waits for the response of the request any more. */
function abandon(use: Use): void {
  const { waiting } = use
  use.waiting = undefined
  waiting?.logEnd()
  waiting?.abort.abort(new ServiceError('unavailable', RUN_ENDED))
}

type Prepared = {
  permitted: PermittedRequest
  headers: HttpHeaders
  body: Uint8Array
  sentBytes: number
  left: { bytes: number }
  waitMs: number
}

/**
 * A run that is repeated sends its requests again. Its key is the same, if its calls are: a service that knows the header then does its work
 * once. A key of the guest stays.
 */
function withKey(headers: HttpHeaders, method: string, key: string): HttpHeaders {
  if (SAFE_METHODS.has(method) || headers.some(([name]) => name.toLowerCase() === 'idempotency-key')) return headers
  return [...headers, ['Idempotency-Key', `"${key}"`]]
}

function sizeOf({ url, method }: PermittedRequest, headers: HttpHeaders): number {
  return headers.reduce((sum, [name, value]) => sum + name.length + value.length, url.href.length + method.length)
}

/** Errors of the connection have a code; a message can name the address that was tried. */
function refusalOf(error: unknown): Extract<GuestReply, { ok: false }> {
  if (error instanceof ServiceError) return refuseCall(kindOf(error), error.message)
  const message = error instanceof Error ? error.message : String(error)
  // A message can have text of the server, such as names of its certificate: a line break would begin another line of the log.
  const line = JSON.stringify(message).slice(1, -1)
  return refuseCall('unavailable', `the request failed: ${line}`.slice(0, MAX_MESSAGE_CHARS))
}
