/**
 * `wasi:http/outgoing-handler` and the part of `wasi:http/types` that it needs, over a function that sends one request and waits for its whole
 * response. A request is sent when the guest asks for its response, after its body is finished: requests of a guest run one after the other.
 */
import {
  HTTP_METHODS,
  MAX_HTTP_BODY_BYTES,
  MAX_HTTP_HEADER_BYTES,
  MAX_HTTP_HEADERS,
  MAX_HTTP_URL_CHARS,
  isHttpHeaderName,
  isHttpHeaderValue,
  isReservedHttpHeader,
} from '../wasm/index.ts'
import type { HttpCall, HttpHeaders } from '../wasm/index.ts'
import { InputStream, OutputStream, Pollable, Resource, denyEverything, throwErr } from './preview2.ts'
import type { Interfaces } from './preview2.ts'

export type SendHttp = (
  call: Omit<HttpCall, 'kind'>,
) => { status: number; headers: HttpHeaders; body: Uint8Array } | { ok: false; kind: string; message: string }

/** A case of a variant. */
type Case = { tag: string; val?: unknown }
type Result<T> = { tag: 'ok'; val: T } | { tag: 'err'; val: Case }
type Entry = [name: string, value: Uint8Array]

const bytesOf = (text: string) => Uint8Array.from(text, (character) => character.charCodeAt(0))
const textOf = (bytes: Uint8Array) => Array.from(bytes, (byte) => String.fromCharCode(byte)).join('')

class Fields extends Resource {
  #entries: Entry[] = []
  #isImmutable = false

  static of(entries: Entry[], { isImmutable }: { isImmutable: boolean }): Fields {
    const fields = new Fields()
    fields.#entries = entries
    fields.#isImmutable = isImmutable
    return fields
  }

  static fromList(entries: Entry[]): Fields {
    const fields = new Fields()
    for (const [name, value] of entries) fields.append(name, value)
    return fields
  }

  get(name: string): Uint8Array[] {
    return this.#entries.filter(isNamed(name)).map(([, value]) => value)
  }

  has(name: string): boolean {
    return this.#entries.some(isNamed(name))
  }

  set(name: string, values: Uint8Array[]): void {
    this.delete(name)
    for (const value of values) this.append(name, value)
  }

  delete(name: string): void {
    this.#requireMutable()
    if (!isHttpHeaderName(name)) throwErr({ tag: 'invalid-syntax' })
    this.#entries = this.#entries.filter((entry) => !isNamed(name)(entry))
  }

  append(name: string, value: Uint8Array): void {
    this.#requireMutable()
    if (!isHttpHeaderName(name) || value.length > MAX_HTTP_HEADER_BYTES || !isHttpHeaderValue(textOf(value)))
      throwErr({ tag: 'invalid-syntax' })
    if (isReservedHttpHeader(name) || this.#entries.length >= MAX_HTTP_HEADERS) throwErr({ tag: 'forbidden' })
    this.#entries.push([name, value])
  }

  entries(): Entry[] {
    return this.#entries.slice()
  }

  clone(): Fields {
    return Fields.of(this.entries(), { isImmutable: false })
  }

  view(): Fields {
    return Fields.of(this.#entries, { isImmutable: true })
  }

  #requireMutable(): void {
    if (this.#isImmutable) throwErr({ tag: 'immutable' })
  }
}

const isNamed = (name: string) => {
  const lower = name.toLowerCase()
  return ([known]: Entry) => known.toLowerCase() === lower
}

class OutgoingBody extends Resource {
  #parts: Uint8Array[] = []
  #bytes = 0
  #isWritten = false
  isFinished = false

  write(): OutputStream {
    if (this.#isWritten) throwErr(undefined)
    this.#isWritten = true
    return new OutputStream({
      write: (data) => {
        this.#bytes += data.length
        if (this.isFinished || this.#bytes > MAX_HTTP_BODY_BYTES) throwErr({ tag: 'closed' })
        this.#parts.push(data.slice())
      },
    })
  }

  static finish(body: OutgoingBody, trailers: Fields | undefined): void {
    if (trailers !== undefined && trailers.entries().length > 0)
      throwErr({ tag: 'internal-error', val: 'trailers are not sent' })
    if (body.#bytes > MAX_HTTP_BODY_BYTES) throwErr({ tag: 'HTTP-request-body-size', val: BigInt(body.#bytes) })
    body.isFinished = true
  }

  base64(): string {
    const all = new Uint8Array(this.#bytes)
    let at = 0
    for (const part of this.#parts) {
      all.set(part, at)
      at += part.length
    }
    return all.toBase64()
  }
}

class OutgoingRequest extends Resource {
  readonly #headers: Fields
  readonly #body = new OutgoingBody()
  #isBodyTaken = false
  #method: Case = { tag: 'get' }
  #path: string | undefined
  #scheme: Case | undefined
  #authority: string | undefined

  constructor(headers: Fields) {
    super()
    this.#headers = headers.view()
  }

  body(): OutgoingBody {
    if (this.#isBodyTaken) throwErr(undefined)
    this.#isBodyTaken = true
    return this.#body
  }

  method(): Case {
    return this.#method
  }

  setMethod(method: Case): void {
    if (methodOf(method) === undefined) throwErr(undefined)
    this.#method = method
  }

  pathWithQuery(): string | undefined {
    return this.#path
  }

  setPathWithQuery(path: string | undefined): void {
    if (path !== undefined && !/^[/?][!-~]*$/.test(path)) throwErr(undefined)
    this.#path = path
  }

  scheme(): Case | undefined {
    return this.#scheme
  }

  setScheme(scheme: Case | undefined): void {
    this.#scheme = scheme
  }

  authority(): string | undefined {
    return this.#authority
  }

  setAuthority(authority: string | undefined): void {
    if (authority !== undefined && !/^[A-Za-z0-9.:[\]-]+$/.test(authority)) throwErr(undefined)
    this.#authority = authority
  }

  headers(): Fields {
    return this.#headers.view()
  }

  /** A request whose body was not taken has none. */
  isComplete(): boolean {
    return !this.#isBodyTaken || this.#body.isFinished
  }

  /** Undefined: it names no URL that could be requested. */
  call(timeoutMs: number | null): Omit<HttpCall, 'kind'> | undefined {
    const scheme = (this.#scheme?.tag ?? 'HTTPS').toLowerCase()
    const method = methodOf(this.#method)
    const path = this.#path ?? '/'
    if (this.#authority === undefined || method === undefined || !['http', 'https'].includes(scheme)) return undefined
    const url = `${scheme}://${this.#authority}${path.startsWith('/') ? path : `/${path}`}`
    if (url.length > MAX_HTTP_URL_CHARS) return undefined
    const headers = this.#headers.entries().map(([name, value]): [string, string] => [name, textOf(value)])
    return { method, url, headers, body: this.#body.base64(), timeoutMs }
  }
}

/** Undefined for a method that is not sent. */
function methodOf({ tag, val }: Case): string | undefined {
  const name = tag === 'other' ? String(val) : tag.toUpperCase()
  return HTTP_METHODS.find((known) => known === name)
}

const NS_PER_MS = 1_000_000n

/** The worker knows one deadline for the whole request: time to connect and to the first byte, if they are given. */
class RequestOptions extends Resource {
  #connect: bigint | undefined
  #firstByte: bigint | undefined
  #betweenBytes: bigint | undefined

  connectTimeout(): bigint | undefined {
    return this.#connect
  }

  setConnectTimeout(duration: bigint | undefined): void {
    this.#connect = duration
  }

  firstByteTimeout(): bigint | undefined {
    return this.#firstByte
  }

  setFirstByteTimeout(duration: bigint | undefined): void {
    this.#firstByte = duration
  }

  betweenBytesTimeout(): bigint | undefined {
    return this.#betweenBytes
  }

  setBetweenBytesTimeout(duration: bigint | undefined): void {
    this.#betweenBytes = duration
  }

  get timeoutMs(): number | null {
    if (this.#firstByte === undefined) return null
    return Math.max(1, Number(((this.#connect ?? 0n) + this.#firstByte) / NS_PER_MS))
  }
}

class IncomingBody extends Resource {
  readonly #stream: InputStream
  #isTaken = false

  constructor(body: Uint8Array) {
    super()
    this.#stream = new InputStream(body)
  }

  stream(): InputStream {
    if (this.#isTaken) throwErr(undefined)
    this.#isTaken = true
    return this.#stream
  }

  static finish(): FutureTrailers {
    return new FutureTrailers()
  }
}

class FutureTrailers extends Resource {
  #isTaken = false

  subscribe(): Pollable {
    return new Pollable()
  }

  get(): Result<Result<undefined>> | undefined {
    if (this.#isTaken) return { tag: 'err', val: undefined as never }
    this.#isTaken = true
    return { tag: 'ok', val: { tag: 'ok', val: undefined } }
  }
}

class IncomingResponse extends Resource {
  readonly #status: number
  readonly #headers: HttpHeaders
  readonly #body: Uint8Array
  #isConsumed = false

  constructor(status: number, headers: HttpHeaders, body: Uint8Array) {
    super()
    this.#status = status
    this.#headers = headers
    this.#body = body
  }

  status(): number {
    return this.#status
  }

  headers(): Fields {
    const entries = this.#headers.map(([name, value]): Entry => [name, bytesOf(value)])
    return Fields.of(entries, { isImmutable: true })
  }

  consume(): IncomingBody {
    if (this.#isConsumed) throwErr(undefined)
    this.#isConsumed = true
    return new IncomingBody(this.#body)
  }
}

/** Longer than any guest runs. */
const NEVER_NS = 1n << 62n

class ResponsePollable extends Pollable {
  readonly #response: FutureIncomingResponse

  constructor(response: FutureIncomingResponse) {
    super()
    this.#response = response
  }

  override ready(): boolean {
    return this.#response.settle()
  }

  override block(): void {
    this.#response.settleNow()
  }

  override waitNs(): bigint {
    return this.#response.canSettle() ? 0n : NEVER_NS
  }
}

class FutureIncomingResponse extends Resource {
  readonly #request: OutgoingRequest
  readonly #send: () => Result<IncomingResponse>
  #result: Result<IncomingResponse> | undefined
  #isTaken = false

  constructor(request: OutgoingRequest, send: () => Result<IncomingResponse>) {
    super()
    this.#request = request
    this.#send = send
  }

  subscribe(): Pollable {
    return new ResponsePollable(this)
  }

  get(): Result<Result<IncomingResponse>> | undefined {
    if (this.#isTaken) return { tag: 'err', val: undefined as never }
    if (!this.settle() || this.#result === undefined) return undefined
    this.#isTaken = true
    return { tag: 'ok', val: this.#result }
  }

  canSettle(): boolean {
    return this.#result !== undefined || this.#request.isComplete()
  }

  settle(): boolean {
    if (!this.canSettle()) return false
    this.#result ??= this.#send()
    return true
  }

  /** The guest does nothing else until there is a response: a body that it has not finished will never be. */
  settleNow(): void {
    if (this.settle()) return
    this.#result = { tag: 'err', val: { tag: 'internal-error', val: 'the body of the request was not finished' } }
  }
}

function errorCode({ kind, message }: { kind: string; message: string }): Case {
  if (kind === 'forbidden') return { tag: 'HTTP-request-denied' }
  if (kind === 'too_large') return { tag: 'HTTP-response-body-size', val: undefined }
  return { tag: 'internal-error', val: message }
}

/** Interfaces by name without version. Everything about incoming requests traps. */
export function createWasiHttp(send: SendHttp): Interfaces {
  const handle = (request: OutgoingRequest, options: RequestOptions | undefined): FutureIncomingResponse => {
    const sendNow = (): Result<IncomingResponse> => {
      const call = request.call(options?.timeoutMs ?? null)
      if (call === undefined) return { tag: 'err', val: { tag: 'HTTP-request-URI-invalid' } }
      const answer = send(call)
      if ('ok' in answer) return { tag: 'err', val: errorCode(answer) }
      return { tag: 'ok', val: new IncomingResponse(answer.status, answer.headers, answer.body) }
    }
    return new FutureIncomingResponse(request, sendNow)
  }
  const types = {
    Fields,
    OutgoingBody,
    OutgoingRequest,
    RequestOptions,
    IncomingBody,
    IncomingResponse,
    FutureTrailers,
    FutureIncomingResponse,
    httpErrorCode: () => undefined,
  }
  return { 'wasi:http/types': denyEverything('wasi:http/types', types), 'wasi:http/outgoing-handler': { handle } }
}
