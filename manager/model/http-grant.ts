/** The field `http` of a task: which HTTP requests its runs can send. Parsing, canonical form and limits. */
import { refusedField } from '#core/errors/index.ts'
import { formatDurationMs, parseDurationMs } from '#core/time.ts'
import type { HttpMethod } from '#guests/wasm/index.ts'
import { DEFAULT_HTTP_BYTES, DEFAULT_HTTP_REQUESTS, DEFAULT_HTTP_TIMEOUT_MS, MAX_HTTP_TIMEOUT_MS } from './limits.ts'

/** As it is stored and shown: with all limits, and origins in the form of `URL.origin`. */
export type HttpGrant = {
  allow: { origin: string; methods: HttpMethod[] }[]
  max_requests: number
  max_bytes: number
  timeout: string
}

export type GivenHttpGrant = {
  allow: readonly { origin: string; methods?: readonly HttpMethod[] }[]
  max_requests?: number
  max_bytes?: number
  timeout?: string
}

const DEFAULT_METHODS: readonly HttpMethod[] = ['GET', 'HEAD']

/** Throws `malformed` naming the field. */
export function readHttpGrant(given: GivenHttpGrant): HttpGrant {
  const timeoutMs =
    given.timeout === undefined ? DEFAULT_HTTP_TIMEOUT_MS : Math.round(parseDurationMs(given.timeout, '/http/timeout'))
  if (timeoutMs < 1 || timeoutMs > MAX_HTTP_TIMEOUT_MS)
    throw refusedField('/http/timeout', `must be between 1ms and ${MAX_HTTP_TIMEOUT_MS / 60_000}m`)
  return {
    allow: given.allow.map(({ origin, methods = DEFAULT_METHODS }, index) => ({
      origin: canonicalOrigin(origin, `/http/allow/${index}/origin`),
      methods: [...new Set(methods)],
    })),
    max_requests: given.max_requests ?? DEFAULT_HTTP_REQUESTS,
    max_bytes: given.max_bytes ?? DEFAULT_HTTP_BYTES,
    timeout: formatDurationMs(timeoutMs),
  }
}

/** A path in it would look like a limit, and is none. */
function canonicalOrigin(text: string, path: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined
  const isOrigin =
    url !== undefined &&
    (url.protocol === 'https:' || url.protocol === 'http:') &&
    url.href === `${url.origin}/` &&
    !/[?#]/.test(text)
  if (!isOrigin)
    throw refusedField(path, 'must be a scheme, a host and, if needed, a port, such as https://api.example.com:8443')
  return url.origin
}

/** As text, for the journal. */
export function formatHttpGrant(grant: HttpGrant | null | undefined): string {
  if (grant === null || grant === undefined) return 'none'
  const allowed = grant.allow.map(({ origin, methods }) => `${methods.join(',')} ${origin}`).join('; ')
  return `${allowed}; ${grant.max_requests} requests, ${grant.max_bytes} bytes, ${grant.timeout}`
}
