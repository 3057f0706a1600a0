/** The one way to the API: types by operation, the token, errors, and a record of requests for "show as command". */
import { pathOf } from './address.ts'
import type { Address } from './address.ts'
import { apiBase } from './base.ts'
import { ApiError, readError } from './errors.ts'
import { formatJson, jsonOf } from './json.ts'
import type { Operations } from './operations.ts'
import { takePrepared } from './prepared.ts'
import { recordRequest } from './requests.ts'
import { accessToken } from './session.ts'

/** A text can be sent as the bytes of a file, too. */
type Sendable<Body> = Body extends string ? Body | Blob : Body

export type Operation = keyof Operations
export type Answer<K extends Operation> = Operations[K]['response']
export type Query<K extends Operation> = Operations[K]['query']

export type Input<K extends Operation> = {
  params?: Operations[K]['params']
  query?: { [name in keyof Operations[K]['query']]?: Operations[K]['query'][name] | undefined }
  body?: Sendable<Operations[K]['body']> | undefined
  signal?: AbortSignal
  headers?: Record<string, string>
  /** Requests before a login. */
  isPublic?: boolean
  /** The request is for the frame or for a name: it is not what the page is about, and is not shown as a command. */
  isLookup?: boolean
}

type AnyInput = Address & {
  body?: unknown
  signal?: AbortSignal
  headers?: Record<string, string>
  isPublic?: boolean
  isLookup?: boolean
}

/** Sends an operation of the API and returns its answer. Throws `ApiError`. */
export async function call<K extends Operation>(operation: K, input: Input<K> = {}): Promise<Answer<K>> {
  const response = await send(operation, input as AnyInput)
  if (response.status === 204) return undefined as Answer<K>
  const type = response.headers.get('content-type') ?? ''
  const answer: unknown = type.includes('json') ? await jsonOf(response) : await response.text()
  return (answer === '' ? undefined : answer) as Answer<K>
}

/** The response itself, for streams and files. */
export async function send(operation: Operation, input: AnyInput = {}): Promise<Response> {
  const [method = 'GET'] = operation.split(' ', 1)
  const path = pathOf(operation, input)
  if (input.isLookup !== true) recordRequest({ method, path, body: input.body, type: input.headers?.['Content-Type'] })
  const attempt = async (isRefused: boolean) => {
    const authorization = input.isPublic === true ? {} : { Authorization: `Bearer ${await accessToken(isRefused)}` }
    const isPlain = typeof input.body === 'string' || input.body instanceof Blob || input.body instanceof FormData
    const prepared = method === 'GET' && !isRefused ? takePrepared(path) : undefined
    const sent =
      prepared?.response ??
      fetch(new URL(path, apiBase), {
        method,
        headers: {
          Accept: 'application/json',
          ...authorization,
          ...(input.body === undefined || isPlain ? {} : { 'Content-Type': 'application/json' }),
          ...input.headers,
        },
        ...(input.body === undefined ? {} : { body: isPlain ? (input.body as BodyInit) : formatJson(input.body) }),
        ...(input.signal === undefined ? {} : { signal: input.signal }),
      })
    return await sent.catch((error: unknown) => {
      throw ApiError.unreachable(error)
    })
  }
  let response = await attempt(false)
  if (response.status === 401 && input.isPublic !== true) response = await attempt(true)
  if (!response.ok) throw await readError(response)
  return response
}
