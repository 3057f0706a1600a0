/** The host functions with which core modules send HTTP requests. The last response stays until the next request. */
import {
  HTTP_METHODS,
  MAX_HTTP_BODY_BYTES,
  MAX_HTTP_URL_CHARS,
  isHttpMethod,
  refusalOfHeaders,
  refuseCall,
} from '../wasm/index.ts'
import type { GuestReply, HTTP_FUNCTIONS, HttpAnswer, HttpCall, HttpHeaders } from '../wasm/index.ts'
import type { CoreMemory } from './core-memory.ts'
import type { GuestHost } from './guest-host.ts'

type CoreImports = Record<keyof typeof HTTP_FUNCTIONS, (...parameters: number[]) => number>

type Refusal = Extract<GuestReply, { ok: false }>
type Response = { status: number; headers: HttpHeaders; body: Uint8Array }

const NO_RESPONSE = { kind: 'not_found', message: 'no request of this run has a response' }

export function coreHttp(host: GuestHost, memory: CoreMemory): CoreImports {
  let last: Response | undefined
  return {
    http_request(requestAt = 0, requestBytes = 0, bodyAt = 0, bodyBytes = 0) {
      last = undefined
      const call = parseRequest(() => memory.text(requestAt, requestBytes), memory.bytes(bodyAt, bodyBytes))
      const response = 'ok' in call ? call : sendHttp(host, call)
      if ('ok' in response) return memory.refuse(response)
      last = response
      return response.status
    },
    http_head(bufferAt = 0, capacity = 0) {
      if (last === undefined) return memory.refuse(NO_RESPONSE)
      const { status, headers } = last
      return memory.writeText(bufferAt, capacity, JSON.stringify({ status, headers }))
    },
    http_body(offset = 0, bufferAt = 0, capacity = 0) {
      if (last === undefined) return memory.refuse(NO_RESPONSE)
      memory.write(bufferAt, capacity, last.body.subarray(offset >>> 0))
      return last.body.length
    },
  }
}

/** A request within the limits, or why it is refused. */
export function sendHttp(host: GuestHost, call: Omit<HttpCall, 'kind'>): Response | Refusal {
  if (!isHttpMethod(call.method)) return refuseCall('malformed', `the method must be one of ${HTTP_METHODS.join(', ')}`)
  if (call.url.length > MAX_HTTP_URL_CHARS) return refuseCall('malformed', 'the URL is too long')
  const refusal = refusalOfHeaders(call.headers)
  if (refusal !== undefined) return refuseCall('malformed', refusal)
  const reply = host.call({ kind: 'http', ...call })
  if (!reply.ok) return reply
  const { status, headers, body } = JSON.parse(reply.records) as HttpAnswer
  return { status, headers, body: Uint8Array.fromBase64(body) }
}

/** `{"method": "POST", "url": "https://…", "headers": [["content-type", "text/plain"]]}`, of which `url` is required. */
function parseRequest(read: () => string, body: Uint8Array): Omit<HttpCall, 'kind'> | Refusal {
  if (body.length > MAX_HTTP_BODY_BYTES)
    return refuseCall('too_large', `the body of a request must be at most ${MAX_HTTP_BODY_BYTES} bytes`)
  let request: unknown
  try {
    request = JSON.parse(read())
  } catch (error) {
    if (error instanceof RangeError) throw error
    return refuseCall('malformed', 'the request must be a JSON object in UTF-8')
  }
  if (typeof request !== 'object' || request === null || Array.isArray(request))
    return refuseCall('malformed', 'the request must be a JSON object in UTF-8')
  const { method = 'GET', url, headers = [], timeout_ms: timeoutMs = null } = request as Record<string, unknown>
  if (typeof method !== 'string' || typeof url !== 'string')
    return refuseCall('malformed', 'method and url must be strings')
  if (timeoutMs !== null && !(typeof timeoutMs === 'number' && timeoutMs >= 1))
    return refuseCall('malformed', 'timeout_ms must be a number of milliseconds')
  if (!isHeaders(headers)) return refuseCall('malformed', 'headers must be a list of [name, value]')
  return { method, url, headers, body: body.toBase64(), timeoutMs }
}

const isHeaders = (value: unknown): value is HttpHeaders =>
  Array.isArray(value) &&
  value.every(
    (pair: unknown) => Array.isArray(pair) && pair.length === 2 && pair.every((part) => typeof part === 'string'),
  )
