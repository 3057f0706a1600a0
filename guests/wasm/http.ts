/**
 * Outgoing HTTP as guests use it: imports of core modules (module `skein`), and `wasi:http/outgoing-handler` of components. The worker sends the
 * requests, to the origins that are allowed.
 */
import type { ValueType } from './value-types.ts'

/** Pointers and lengths in bytes into the guest's memory. */
export const HTTP_FUNCTIONS = {
  /** request as JSON, body: the status of the response, otherwise a negative code. */
  http_request: { params: ['i32', 'i32', 'i32', 'i32'], results: ['i32'] },
  /** buffer: the length of status and headers of the last response as JSON, which is truncated to the buffer. */
  http_head: { params: ['i32', 'i32'], results: ['i32'] },
  /** offset, buffer: copies the body of the last response from there; the length of the whole body. */
  http_body: { params: ['i32', 'i32', 'i32'], results: ['i32'] },
} as const satisfies Record<string, { params: readonly ValueType[]; results: readonly ValueType[] }>

/** Workers that send requests of guests name it among their runtimes. */
export const HTTP_RUNTIME = 'http'

export const HTTP_METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const
export type HttpMethod = (typeof HTTP_METHODS)[number]

/** Body of one request. */
export const MAX_HTTP_BODY_BYTES = 1024 * 1024
/** Body of one response: the thread of a guest holds it besides the guest. */
export const MAX_HTTP_RESPONSE_BYTES = 4 * 1024 * 1024
/** Names and values of the headers of one request, and of one response. */
export const MAX_HTTP_HEADER_BYTES = 16 * 1024
export const MAX_HTTP_HEADERS = 64
export const MAX_HTTP_URL_CHARS = 8_192

/** Names and values; a name can occur more than once. Characters of values are bytes (ISO 8859-1). */
export type HttpHeaders = [name: string, value: string][]

/** `body` in base64. `timeoutMs`: null for the time that is left. */
export type HttpCall = {
  kind: 'http'
  method: string
  url: string
  headers: HttpHeaders
  body: string
  timeoutMs: number | null
}

/** The reply to `http`, as JSON; `body` in base64. */
export type HttpAnswer = { status: number; headers: HttpHeaders; body: string }

/**
 * Headers that the connection or the worker sets. A guest that could would choose another virtual host behind a granted address, or where its
 * request ends and another one begins. Servers that pass headers on as variables read `_` as `-`.
 */
const RESERVED: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'expect',
  'host',
  'http2-settings',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$/
const VALUE = /^[\t\u0020-\u007e\u0080-\u00ff]*$/

export const isHttpHeaderName = (name: string): boolean => NAME.test(name)
export const isHttpHeaderValue = (value: string): boolean => VALUE.test(value)
export const isReservedHttpHeader = (name: string): boolean => RESERVED.has(name.toLowerCase().replaceAll('_', '-'))

export const isHttpMethod = (method: string): method is HttpMethod => HTTP_METHODS.some((known) => known === method)

/** Returns what is wrong with headers of a request; undefined: nothing. */
export function refusalOfHeaders(headers: HttpHeaders): string | undefined {
  if (headers.length > MAX_HTTP_HEADERS) return `a request has at most ${MAX_HTTP_HEADERS} headers`
  let bytes = 0
  for (const [name, value] of headers) {
    if (!isHttpHeaderName(name)) return 'the name of a header must be a token (RFC 9110 section 5.6.2)'
    if (isReservedHttpHeader(name)) return `a guest cannot set the header ${name.toLowerCase()}`
    if (!isHttpHeaderValue(value))
      return `the value of the header ${name} has a line break or another control character`
    bytes += name.length + value.length
  }
  return bytes > MAX_HTTP_HEADER_BYTES ? `headers must be at most ${MAX_HTTP_HEADER_BYTES} bytes` : undefined
}
