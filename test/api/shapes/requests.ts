/**
 * Requests of this folder. One line is one operation, sent with `fetch` to a listening port; the test compares the whole body.
 *
 *     await ann('POST /domains -> 201', { sends: { name: 'plant' }, gives: { id: A_UUID, name: 'plant' } })
 *
 * Every answer must also meet sections 0 and 12 of the contract. `CURL_TRANSCRIPT=requests.sh` appends each request to that
 * file as a curl command, with its answer in a comment below it.
 */
import { appendFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { expect } from 'vitest'
import { PROTOCOL_STATUS } from '#core/errors/index.ts'
import { startTestApi } from '../../harness/api.ts'
import type { TestApi, TestApiOptions } from '../../harness/api.ts'

export type Row = {
  /** The body: JSON unless it is a string, which goes as it is. */
  sends?: unknown
  /** What the body holds at least; '' is an empty body. */
  gives?: unknown
  /** Headers of the request beside those of the caller. */
  with?: Record<string, string>
  /** Headers of the answer. */
  headers?: Record<string, unknown>
}

/** Sends the row, compares, and gives the parsed body. */
export type Sender = <T = { id: string }>(line: string, row?: Row) => Promise<T>

export type Person = Sender & {
  readonly id: string
  readonly username: string
  readonly email: string
  readonly secret: string
  readonly token: string
  readonly refreshToken: string
}

export type Requests = AsyncDisposable & {
  readonly api: TestApi
  readonly base: string
  readonly nobody: Sender
  /** The platform administrator. */
  readonly root: Sender
  person(): Promise<Person>
  /** A device: `Authorization: Client <secret>`. */
  device(secret: string): Sender
  bearer(token: string): Sender
}

export const A_UUID = expect.stringMatching(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/)
/** RFC 3339 UTC with microseconds. */
export const A_TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6,}Z$/)
export const NEVER = '0001-01-01T00:00:00Z'
export const UNKNOWN_ID = '00000000-0000-4000-8000-000000000000'
export const A_STRING = expect.any(String)

const LINE = /^(?<method>[A-Z]+) (?<path>\/\S*) -> (?<status>\d{3})$/
const REQUEST_DEADLINE_MS = 20_000
const TRANSCRIPT = process.env['CURL_TRANSCRIPT']

/** A page of a list: limit, offset, total and the array are always sent (section 0). */
export const page = (
  name: string,
  items: unknown,
  numbers: { total?: unknown; offset?: number; limit?: number } = {},
) => ({
  total: Array.isArray(items) ? items.length : expect.any(Number),
  offset: 0,
  limit: 10,
  ...numbers,
  [name]: items,
})

export const having = (fields: Record<string, unknown>): unknown => expect.objectContaining(fields)
export const holding = (...items: readonly unknown[]): unknown => expect.arrayContaining([...items])

export async function startRequests(options: TestApiOptions = {}): Promise<Requests> {
  const api = await startTestApi(options)
  await api.app.listen({ host: '127.0.0.1', port: 0 })
  const base = `http://127.0.0.1:${(api.app.server.address() as AddressInfo).port}`

  const sender =
    (authorization: string | undefined): Sender =>
    async (line, row = {}) => {
      const { method = '', path = '', status = '' } = LINE.exec(line)?.groups ?? {}
      if (method === '') throw new Error(`not a line of the form "GET /path -> 200": ${line}`)
      const { sends } = row
      const headers = {
        ...(authorization === undefined ? {} : { authorization }),
        ...(sends === undefined ? {} : { 'content-type': 'application/json' }),
        ...row.with,
      }
      const sent = sends === undefined ? undefined : typeof sends === 'string' ? sends : JSON.stringify(sends)
      const response = await fetch(base + path, {
        method,
        headers,
        ...(sent === undefined ? {} : { body: sent }),
        signal: AbortSignal.timeout(REQUEST_DEADLINE_MS),
        redirect: 'manual',
      })
      const text = await response.text()
      const asCurl = curlOf(method, base + path, headers, sent)
      if (TRANSCRIPT !== undefined) appendFileSync(TRANSCRIPT, `${asCurl}\n#-> ${response.status} ${oneLine(text)}\n\n`)
      expect(`${line}: ${response.status} ${text}`, asCurl).toMatch(new RegExp(`: ${status} `))
      expectCommon(line, response, text)
      for (const [name, value] of Object.entries(row.headers ?? {}))
        expect(response.headers.get(name), `${line}: ${name}`).toEqual(value)
      const body: unknown = isJson(response) && text !== '' ? JSON.parse(text) : text
      if (row.gives === '') expect(text, line).toBe('')
      else if (row.gives !== undefined) expect(body, line).toMatchObject(row.gives as object)
      return body as never
    }

  const { access_token: rootToken } = await sender(undefined)<{ access_token: string }>(
    'POST /users/tokens/issue -> 201',
    {
      sends: { identity: 'admin', secret: 'the-first-admin' },
    },
  )
  return {
    api,
    base,
    nobody: sender(undefined),
    root: sender(`Bearer ${rootToken}`),
    device: (secret) => sender(`Client ${secret}`),
    bearer: (token) => sender(`Bearer ${token}`),
    async person() {
      const { id, username, secret, accessToken, refreshToken } = await api.newUser()
      return Object.assign(sender(`Bearer ${accessToken}`), {
        id,
        username,
        email: `${username}@example.com`,
        secret,
        token: accessToken,
        refreshToken,
      })
    },
    [Symbol.asyncDispose]: () => api[Symbol.asyncDispose](),
  }
}

const quoted = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`
const oneLine = (text: string): string => text.replaceAll(/\s*\n\s*/g, ' ')

/** The request as a curl command. */
function curlOf(method: string, url: string, headers: Record<string, string>, body: string | undefined): string {
  const named = Object.entries(headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`)
  const data = body === undefined ? [] : [`--data-binary ${quoted(body)}`]
  return [`curl -i -X ${method}`, ...named, ...data, quoted(url)].join(' ')
}

const isJson = (response: Response): boolean =>
  response.headers.get('content-type')?.startsWith('application/json') === true

/** Rules of sections 0 and 12 for every answer. */
function expectCommon(line: string, response: Response, text: string): void {
  expect(response.headers.get('x-request-id'), `${line}: X-Request-Id`).toBeTruthy()
  if (text === '') return
  if (response.status < 400) return
  expect(response.headers.get('content-type'), line).toMatch(/^application\/json/)
  const body = JSON.parse(text) as { error: keyof typeof PROTOCOL_STATUS; message: string }
  expect(PROTOCOL_STATUS[body.error].http, `${line}: the kind fits the status`).toBe(response.status)
  expect(body.message, line).toMatch(/\S/)
}
