/**
 * The language of this folder: one line is one row of a table of the contract, sent with `fetch` to a port that listens.
 *
 *     await ann('POST /domains -> 201', { sends: { name: 'plant' }, gives: { id: A_UUID, name: 'plant' } })
 *
 * Beside what a line says, every answer is held to what section 0 and section 12 say of all of them. `WALK_CURL=walk.sh` has
 * every request written there as a command of curl, with what came back as a comment below it.
 */
import { appendFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { expect } from 'vitest'
import { PROTOCOL_STATUS } from '#core/errors/index.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi, TestApiOptions } from '../harness/api.ts'

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
export type Walker = <T = { id: string }>(line: string, row?: Row) => Promise<T>

export type Person = Walker & {
  readonly id: string
  readonly username: string
  readonly email: string
  readonly secret: string
  readonly token: string
  readonly refreshToken: string
}

export type Walk = AsyncDisposable & {
  readonly api: TestApi
  readonly base: string
  readonly nobody: Walker
  /** The platform administrator. */
  readonly root: Walker
  person(): Promise<Person>
  /** A device: `Authorization: Client <secret>`. */
  device(secret: string): Walker
  bearer(token: string): Walker
}

export const A_UUID = expect.stringMatching(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/)
/** RFC 3339 UTC with microseconds. */
export const A_TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6,}Z$/)
export const NEVER = '0001-01-01T00:00:00Z'
export const UNKNOWN_ID = '00000000-0000-4000-8000-000000000000'
export const A_STRING = expect.any(String)

const LINE = /^(?<method>[A-Z]+) (?<path>\/\S*) -> (?<status>\d{3})$/
const REQUEST_DEADLINE_MS = 20_000
const TRANSCRIPT = process.env['WALK_CURL']

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

export async function startWalk(options: TestApiOptions = {}): Promise<Walk> {
  const api = await startTestApi(options)
  await api.app.listen({ host: '127.0.0.1', port: 0 })
  const base = `http://127.0.0.1:${(api.app.server.address() as AddressInfo).port}`

  const walker =
    (authorization: string | undefined): Walker =>
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

  const { access_token: rootToken } = await walker(undefined)<{ access_token: string }>(
    'POST /users/tokens/issue -> 201',
    {
      sends: { identity: 'admin', secret: 'the-first-admin' },
    },
  )
  return {
    api,
    base,
    nobody: walker(undefined),
    root: walker(`Bearer ${rootToken}`),
    device: (secret) => walker(`Client ${secret}`),
    bearer: (token) => walker(`Bearer ${token}`),
    async person() {
      const { id, username, secret, accessToken, refreshToken } = await api.newUser()
      return Object.assign(walker(`Bearer ${accessToken}`), {
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

/** The request as somebody would type it. */
function curlOf(method: string, url: string, headers: Record<string, string>, body: string | undefined): string {
  const named = Object.entries(headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`)
  const data = body === undefined ? [] : [`--data-binary ${quoted(body)}`]
  return [`curl -i -X ${method}`, ...named, ...data, quoted(url)].join(' ')
}

const isJson = (response: Response): boolean =>
  response.headers.get('content-type')?.startsWith('application/json') === true

/** What sections 0 and 12 say of every answer. */
function expectCommon(line: string, response: Response, text: string): void {
  expect(response.headers.get('x-request-id'), `${line}: X-Request-Id`).toBeTruthy()
  if (text === '') return
  if (response.status < 400) return
  expect(response.headers.get('content-type'), line).toMatch(/^application\/json/)
  const body = JSON.parse(text) as { error: keyof typeof PROTOCOL_STATUS; message: string }
  expect(PROTOCOL_STATUS[body.error].http, `${line}: the kind fits the status`).toBe(response.status)
  expect(body.message, line).toMatch(/\S/)
}
