/** Requests of the matrix to the app, and what openapi.json says of their responses. */
import type { FullApp } from '../../tools/generate/full-app.ts'
import { faultsOfAnswer } from '../fuzz/conformance.ts'
import type { Received } from '../fuzz/conformance.ts'
import { OPERATIONS } from '../fuzz/document.ts'
import type { Operation } from '../fuzz/document.ts'

export type Answer = Received

/** Their response does not end. */
const STREAMS = /\/(events|live)$/

export type Requests = {
  send(token: string | undefined, method: string, url: string, body?: unknown): Promise<Answer>
  /** The body of a success; throws when the request fails. */
  made<T>(token: string | undefined, method: string, url: string, body?: unknown): Promise<T>
  logIn(identity: string, secret: string, domainId?: string): Promise<{ access_token: string; refresh_token: string }>
}

export function createRequests({ app }: FullApp): Requests {
  async function send(token: string | undefined, method: string, url: string, body?: unknown): Promise<Answer> {
    const isStream = STREAMS.test(url.split('?', 1)[0] ?? '')
    const response = await app.inject({
      method: method as 'GET',
      url,
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      ...(body === undefined ? {} : { payload: body as object }),
      ...(isStream ? { payloadAsStream: true } : {}),
    })
    const { statusCode: status, headers } = response
    const contentType = String(headers['content-type'] ?? '')
    if (!isStream) return { status, contentType, text: response.body }
    if (status === 200) {
      response.stream().destroy()
      return { status, contentType, text: '' }
    }
    return { status, contentType, text: await new Response(response.stream() as unknown as ReadableStream).text() }
  }
  async function made<T>(token: string | undefined, method: string, url: string, body?: unknown): Promise<T> {
    const { status, text } = await send(token, method, url, body)
    if (status >= 300) throw new Error(`${method} ${url}: ${status} ${text}`)
    return (text === '' ? {} : JSON.parse(text)) as T
  }
  return {
    send,
    made,
    logIn: (identity, secret, domainId) =>
      made(undefined, 'POST', '/users/tokens/issue', { identity, secret, domain_id: domainId }),
  }
}

/** `GET /:domain_id/clients` as the document names it. */
export const nameOf = ({ method, url }: { method: string; url: string }) =>
  `${method} ${url.replaceAll(/:([a-z_]+)/g, '{$1}').replace('*', '{rest}')}`

const operations = new Map<string, Operation>(OPERATIONS.map((operation) => [operation.name, operation]))

/** What of a response is a fault of the product, or lacks in the document. */
export function undeclared(route: { method: string; url: string }, answer: Answer): string[] {
  const operation = operations.get(nameOf(route))
  if (operation === undefined) return [`${nameOf(route)} is not in openapi.json: npm run generate`]
  return faultsOfAnswer(operation, answer).map(
    (fault) => `${nameOf(route)} answers ${answer.status}: ${fault} ${answer.text.slice(0, 200)}`,
  )
}
