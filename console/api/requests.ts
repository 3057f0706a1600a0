/** The last requests of the page, and how to send them from a shell. Tokens and secrets are variables there. */
import { shownBase } from './base.ts'
import { formatJson } from './json.ts'

export type SentRequest = {
  readonly id: number
  readonly method: string
  readonly path: string
  readonly body: unknown
}

const MAX_REQUESTS = 40
let requests: readonly SentRequest[] = []
let nextId = 1
const listeners = new Set<() => void>()

export const sentRequests = () => requests
export function onRequests(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

export function recordRequest(request: Omit<SentRequest, 'id'>): void {
  const others = requests.filter((one) => one.method !== request.method || one.path !== request.path)
  requests = [{ ...request, id: nextId++ }, ...others].slice(0, MAX_REQUESTS)
  for (const listener of listeners) listener()
}

/** A new page begins with an empty list. */
export function clearRequests(): void {
  requests = []
  for (const listener of listeners) listener()
}

const SECRET_FIELD = /secret|password|token/i

function withoutSecrets(value: unknown, name = ''): unknown {
  if (typeof value === 'string' && SECRET_FIELD.test(name)) return `$${name.toUpperCase()}`
  if (Array.isArray(value)) return value.map((one) => withoutSecrets(one, name))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, withoutSecrets(one, key)]))
}

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`

function bodyText(body: unknown): string | undefined {
  if (body === undefined) return undefined
  if (typeof body === 'string') return body
  if (body instanceof Blob || body instanceof FormData) return undefined
  return formatJson(withoutSecrets(body))
}

export function asCurl({ method, path, body }: Omit<SentRequest, 'id'>): string {
  const text = bodyText(body)
  const isFile = body instanceof Blob || body instanceof FormData
  const isJson = typeof body === 'object' && !isFile
  return [
    `curl -s${method === 'GET' ? '' : ` -X ${method}`} "${shownBase}/${path}" -H "Authorization: Bearer $TOKEN"`,
    ...(isJson ? [`-H 'Content-Type: application/json'`] : []),
    ...(text === undefined ? [] : [`-d ${quoted(text)}`]),
    ...(isFile ? [body instanceof FormData ? '-F file=@module.wasm' : '--data-binary @module.wasm'] : []),
  ].join(' \\\n  ')
}

export function asCli({ method, path, body }: Omit<SentRequest, 'id'>): string | undefined {
  if (body instanceof Blob || body instanceof FormData) return undefined
  const text = bodyText(body)
  return [`skein api ${method} ${quoted(`/${path}`)}`, ...(text === undefined ? [] : [`--body ${quoted(text)}`])].join(
    ' ',
  )
}
