/** What the HTTP edge answers to honest, careless and hostile requests (contract sections 0, 11, 12; decisions 42, 44, 45, 49). */
import { readFileSync } from 'node:fs'
import { request as httpRequest } from 'node:http'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Type } from 'typebox'
import { recordOf, responses } from '#http/index.ts'
import { until } from '../harness/until.ts'
import { openRaw, parseAnswer, startEdge } from './edge.ts'
import type { TestEdge } from './edge.ts'

let edge: TestEdge
beforeAll(async () => {
  edge = await startEdge({ corsOrigins: ['https://console.example.com'] })
})
afterAll(() => edge[Symbol.asyncDispose]())

async function call(
  method: string,
  path: string,
  body?: string | Buffer<ArrayBuffer>,
  headers: Record<string, string> = {},
) {
  const response = await fetch(`${edge.url}${path}`, { method, headers, ...(body === undefined ? {} : { body }) })
  const text = await response.text()
  return {
    status: response.status,
    headers: response.headers,
    text,
    json: () =>
      JSON.parse(text) as {
        error: string
        message: string
        details?: { path: string; message: string }[]
        request_id?: string
      },
  }
}
const postJson = (body: string | Buffer<ArrayBuffer>, headers = {}) =>
  call('POST', '/pumps', body, { 'content-type': 'application/json', ...headers })

describe('paths and methods', () => {
  test.each([
    ['GET', '/nowhere'],
    ['GET', '/pumps/1/nowhere'],
    ['GET', '/docs/static/nothing.js'],
    ['DELETE', '/nowhere'],
    ['GET', '/docs/guides/nothing.md'],
    ['GET', '/docs/guides/..%2f..%2fREADME.md'],
    ['GET', '/docs/guides/__proto__'],
  ])('%s %s is 404 with the error body', async (method, path) => {
    const answer = await call(method, path)
    expect(answer.status).toBe(404)
    expect(answer.json()).toEqual({
      error: 'not_found',
      message: expect.stringMatching(/^(no such path|there is no guide with this name)$/),
    })
  })

  test.each([
    ['DELETE', '/pumps', 'GET, HEAD, POST'],
    ['PUT', '/pumps/7', 'GET, HEAD'],
    ['GET', '/pumps/7/start', 'POST'],
    ['PROPFIND', '/pumps', 'GET, HEAD, POST'],
    ['QUERY', '/pumps', 'GET, HEAD, POST'],
    ['POST', '/health', 'GET, HEAD'],
    ['DELETE', '/', 'GET, HEAD'],
  ])('%s %s is 405 and names the accepted methods', async (method, path, allow) => {
    const answer = await call(method, path)
    expect(answer.status).toBe(405)
    expect(answer.headers.get('allow')).toBe(allow)
    expect(answer.headers.get('x-request-id')).toMatch(/^\S+$/)
    expect(answer.json().error).toBe('method_not_allowed')
  })

  test('an unknown path is 404 with any body', async () => {
    expect((await call('POST', '/nowhere', '{broken', { 'content-type': 'application/json' })).status).toBe(404)
    expect((await call('POST', '/nowhere', 'x'.repeat(100), { 'content-type': 'text/html' })).status).toBe(404)
  })

  test('a path with an invalid escape is 400 and has a request id', async () => {
    const answer = await call('GET', '/pumps/%zz?authorization=a-secret-of-somebody')
    expect(answer.text).not.toContain('somebody')
    expect(answer.status).toBe(400)
    expect(answer.json().error).toBe('malformed')
    expect(answer.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/)
  })

  test('an id of any length in the path is answered, not refused by the router', async () => {
    expect((await call('GET', `/pumps/${'a'.repeat(1000)}`)).status).toBe(200)
    expect((await call('GET', `/pumps/${'a'.repeat(3000)}`)).status).toBeLessThan(500)
  })
})

describe('queries', () => {
  test('a repeated key is 400 with its name', async () => {
    const answer = await call('GET', '/pumps?limit=1&limit=2')
    expect(answer.status).toBe(400)
    expect(answer.json().details).toEqual([{ path: 'limit', message: 'must be given once' }])
  })

  test.each(['0', '101', 'ten', '', '1.5', '0x10', ' 1', '99999999999999999999', '1e400'])(
    'limit=%j is 400',
    async (limit) => {
      const answer = await call('GET', `/pumps?limit=${encodeURIComponent(limit)}`)
      expect(answer.status).toBe(400)
      expect(answer.json().details?.[0]?.path).toBe('limit')
    },
  )

  test('defaults are filled in and unknown parameters are ignored', async () => {
    expect((await call('GET', '/pumps?colour=blue')).text).toBe('{"limit":10}')
  })

  test.each(['/pumps?name=%00', '/pumps?name=%00%zz', '/pumps?%00=1', '/pumps/%00', '/pumps/a%00b'])(
    'a NUL character in %s is 400',
    async (path) => {
      const answer = await call('GET', path)
      expect(answer.status).toBe(400)
      expect(answer.json().message).toContain('NUL')
    },
  )
})

describe('bodies', () => {
  test('a valid body is accepted, with parameters of the content type, and undeclared fields are removed from the response', async () => {
    const answer = await postJson('{"name":"pump","colour":"blue"}', {
      'content-type': 'Application/JSON; charset=utf-8',
    })
    expect(answer.status).toBe(201)
    expect(answer.text).toBe('{"id":"1","name":"pump"}')
  })

  test.each([
    ['{"name":"a\\u0000b"}', 'name must not contain a NUL character'],
    ['{"name":"a\\ud800"}', 'name must not contain a lone surrogate'],
    ['{"name":"a","size":1e400}', 'size must be a finite double'],
    ['{"name":"a","deep":{"list":[1,-1e999]}}', 'deep.list.1 must be a finite double'],
    ['{"name":"a","__proto__":{"admin":true}}', 'the body must not have a key __proto__'],
    ['{"name":"a","k\\u0000":1}', 'the body has a key that must not contain a NUL character'],
    [`{"name":"a","deep":${'['.repeat(70)}${']'.repeat(70)}}`, 'not be nested deeper than 64 levels'],
    ['{"size":1}', 'name is required'],
    ['{"name":""}', 'name must not be empty'],
    ['{"name":"a","size":"1"}', 'size must be a number'],
    ['[]', 'the body must be an object'],
    ['null', 'the request requires a JSON body'],
    ['"text"', 'the body must be an object'],
    ['', 'the request requires a JSON body'],
  ])('%s is 400 with the reason', async (body, message) => {
    const answer = await postJson(body)
    expect(answer.status).toBe(400)
    expect(answer.json().error).toBe('malformed')
    expect(answer.json().message).toContain(message)
    expect(Array.isArray(answer.json().details)).toBe(true)
  })

  test.each(['{"name":hunter2}', '{"name":"hunter2",}', '{"name":"hunter2"', 'hunter2'])(
    'invalid JSON is 400 and none of it is repeated: %s',
    async (body) => {
      const before = edge.lines.length
      const answer = await postJson(body)
      expect(answer.status).toBe(400)
      expect(answer.json().message).toMatch(/^invalid JSON/)
      expect(answer.text).not.toContain('unter')
      expect(JSON.stringify(edge.lines.slice(before))).not.toContain('unter')
    },
  )

  test('bytes with invalid UTF-8 are 400', async () => {
    expect((await postJson(Buffer.from([0x22, 0xff, 0x22]))).json().message).toBe('the body must be UTF-8')
  })

  test('brackets without end are 400, not a stack overflow', async () => {
    await using roomy = await startEdge({ maxBodyBytes: 4_000_000 })
    const response = await fetch(`${roomy.url}/pumps`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '['.repeat(1_000_000) + ']'.repeat(1_000_000),
    })
    expect(response.status).toBe(400)
  })

  test('a body above the limit is 413 with the limit, declared or not', async () => {
    const declared = await postJson(JSON.stringify({ name: 'x'.repeat(2000) }))
    expect([declared.status, declared.json().message]).toEqual([413, 'the body must have at most 1024 bytes'])
    const raw = openRaw(edge.port)
    raw.socket.write(
      'POST /pumps HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n',
    )
    raw.socket.write(`800\r\n${'x'.repeat(0x800)}\r\n`)
    expect(parseAnswer(await raw.closed)).toMatchObject({ status: 413, body: { error: 'too_large' } })
  })

  test('a body above the limit is 413 also for a caller that reads the response after sending everything', async () => {
    // More than the buffers of both sides hold: closing the connection at once would reset it for the caller.
    const size = 8 * 1024 * 1024
    for (const isDeclared of [true, false]) {
      const raw = openRaw(edge.port)
      raw.socket.pause()
      const length = isDeclared ? `Content-Length: ${size}` : 'Transfer-Encoding: chunked'
      raw.socket.write(`POST /pumps HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n${length}\r\n\r\n`)
      const body = 'x'.repeat(size)
      await new Promise<void>((resolve, reject) => {
        raw.socket.once('error', reject)
        raw.socket.write(isDeclared ? body : `${size.toString(16)}\r\n${body}\r\n0\r\n\r\n`, () => resolve())
      })
      raw.socket.resume()
      expect(parseAnswer(await raw.closed)).toMatchObject({ status: 413, body: { error: 'too_large' } })
    }
  })

  test.each([['text/plain'], ['application/xml'], ['multipart/form-data'], ['nonsense']])(
    'a body of type %s is 415',
    async (type) => {
      const answer = await call('POST', '/pumps', '{"name":"a"}', { 'content-type': type })
      expect([answer.status, answer.json().error]).toEqual([415, 'unsupported_media_type'])
    },
  )

  test('a body without a content type is 415', async () => {
    const raw = openRaw(edge.port)
    raw.socket.write('POST /pumps HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 12\r\n\r\n{"name":"a"}')
    expect(parseAnswer(await raw.closed).status).toBe(415)
  })

  test('a compressed body is 415 where compression is not supported', async () => {
    expect((await postJson('{"name":"a"}', { 'content-encoding': 'gzip' })).status).toBe(415)
    expect((await postJson('{"name":"a"}', { 'content-encoding': 'identity' })).status).toBe(201)
  })

  test.each([
    ['application/json', ''],
    ['application/json', '{broken'],
    ['application/x-www-form-urlencoded', 'a=b'],
    ['text/html', '<p>'],
  ])('a request that requires no body accepts any: %s %j', async (type, body) => {
    expect((await call('POST', '/pumps/1/start', body, { 'content-type': type })).status).toBe(200)
  })

  test('an unneeded body is still bounded, and the response arrives', async () => {
    const raw = openRaw(edge.port)
    raw.socket.write(
      'POST /pumps/1/start HTTP/1.1\r\nHost: a\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n',
    )
    raw.socket.write(`800\r\n${'x'.repeat(0x800)}\r\n`)
    expect(parseAnswer(await raw.closed)).toMatchObject({ status: 413, body: { error: 'too_large' } })
  })
})

describe('credentials and errors', () => {
  test('a missing or wrong credential is 401 with a challenge, before any other error of the request', async () => {
    const answer = await call('GET', '/private')
    expect([answer.status, answer.json().error, answer.headers.get('www-authenticate')]).toEqual([
      401,
      'unauthenticated',
      'Bearer',
    ])
    expect((await call('GET', '/private', undefined, { authorization: 'Bearer good' })).status).toBe(200)
  })

  test('a bug is 500 with only the request id, and the log contains the error', async () => {
    const answer = await call('GET', '/broken', undefined, { 'x-request-id': 'trace-1' })
    expect(answer.status).toBe(500)
    expect(answer.json()).toEqual({ error: 'internal', message: 'internal error', request_id: 'trace-1' })
    expect(edge.lines.some((line) => line['reqId'] === 'trace-1' && line['level'] === 50)).toBe(true)
  })

  test.each(['', ' ', 'two words', 'a'.repeat(129), 'ä'])(
    'a request id with characters that are unsafe in a log is replaced: %j',
    async (id) => {
      const raw = openRaw(edge.port)
      raw.socket.write(
        Buffer.from(`GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Request-Id: ${id}\r\n\r\n`, 'latin1'),
      )
      expect(parseAnswer(await raw.closed).headers).toMatch(/x-request-id: [0-9a-f-]{36}/)
    },
  )

  test('every response is JSON and declares it', async () => {
    for (const path of ['/nowhere', '/broken', '/private', '/pumps?limit=0', '/pumps'])
      expect((await call('GET', path)).headers.get('content-type')).toMatch(/^application\/json/)
  })
})

describe('browsers', () => {
  const preflight = (origin: string) =>
    call('OPTIONS', '/pumps', undefined, { origin, 'access-control-request-method': 'POST' })

  test('a page of a listed origin may preflight and call', async () => {
    const origin = 'https://console.example.com'
    const asked = await preflight(origin)
    expect([asked.status, asked.headers.get('access-control-allow-origin')]).toEqual([204, origin])
    const called = await postJson('{"name":"a"}', { origin })
    expect([called.status, called.headers.get('access-control-allow-origin')]).toEqual([201, origin])
    expect(called.headers.get('access-control-expose-headers')).toBe('Location')
  })

  test.each(['https://evil.example.com', 'null', 'https://console.example.com.evil.com', 'nonsense'])(
    'a page of %s may change nothing, and gets no permission to read',
    async (origin) => {
      const asked = await preflight(origin)
      expect(asked.headers.get('access-control-allow-origin')).toBeNull()
      expect((await postJson('{"name":"a"}', { origin })).status).toBe(403)
      expect((await call('POST', '/pumps/1/start', '', { origin, 'content-type': 'text/plain' })).status).toBe(403)
      const read = await call('GET', '/pumps', undefined, { origin })
      expect([read.status, read.headers.get('access-control-allow-origin')]).toEqual([200, null])
    },
  )

  test('responses that depend on the origin declare it to caches', async () => {
    expect((await call('GET', '/pumps')).headers.get('vary')).toBe('Origin')
  })

  test('a page of our own address may call', async () => {
    expect((await postJson('{"name":"a"}', { origin: edge.url })).status).toBe(201)
  })
})

describe('bytes below HTTP', () => {
  test.each([
    ['no HTTP at all', 'hello\r\n\r\n', 400, 'malformed'],
    ['a broken header', 'GET / HTTP/1.1\r\nHo st: a\r\n\r\n', 400, 'malformed'],
    ['headers without end', `GET / HTTP/1.1\r\nHost: a\r\nX-Long: ${'x'.repeat(40_000)}\r\n\r\n`, 413, 'too_large'],
    ['no host', 'GET /health HTTP/1.1\r\n\r\n', 400, 'malformed'],
    [
      'two lengths',
      'POST /pumps HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n',
      400,
      'malformed',
    ],
    [
      'a length and chunks',
      'POST /pumps HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n',
      400,
      'malformed',
    ],
  ])('%s is refused with the error body, and the connection ends', async (_what, bytes, status, error) => {
    const raw = openRaw(edge.port)
    raw.socket.write(bytes)
    const answer = parseAnswer(await raw.closed)
    expect(answer).toMatchObject({ status, body: { error } })
    expect(answer.headers).toMatch(/^x-request-id: \S+$/m)
  })

  test('an unknown expectation is ignored, and the request is answered', async () => {
    const raw = openRaw(edge.port)
    raw.socket.write('GET /health HTTP/1.1\r\nHost: a\r\nExpect: a-miracle\r\nConnection: close\r\n\r\n')
    expect(parseAnswer(await raw.closed)).toMatchObject({ status: 200, body: { status: 'pass' } })
  })

  test('an incomplete body is refused at the deadline', async () => {
    await using hasty = await startEdge({ requestDeadlineMs: 200 })
    const raw = openRaw(hasty.port)
    raw.socket.write(
      'POST /pumps HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{"na',
    )
    expect(parseAnswer(await raw.closed)).toMatchObject({
      status: 400,
      body: { message: 'the request did not arrive in time' },
    })
  })

  test('an aborted request is not an error: nothing hangs, and nothing is logged as an error', async () => {
    const before = edge.lines.length
    for (let index = 0; index < 20; index++) {
      const raw = openRaw(edge.port)
      raw.socket.write(
        'POST /pumps HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{"na',
        () => raw.socket.destroy(),
      )
      await raw.closed
    }
    expect((await postJson('{"name":"a"}')).status).toBe(201)
    const kinds = edge.lines.slice(before).map((line) => line['kind'])
    expect(kinds.filter((kind) => kind !== 'malformed')).toEqual([])
    expect(edge.lines.slice(before).filter((line) => Number(line['level']) > 30)).toEqual([])
  })

  test('a client that offers HTTP/2 by an upgrade is answered in HTTP/1.1', async () => {
    const raw = openRaw(edge.port)
    raw.socket.write(
      'GET /pumps HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n',
    )
    await until(() => raw.received().includes('{"limit":10}'), 'the answer arrives')
    expect(raw.received()).toMatch(/^HTTP\/1\.1 200/)
    raw.socket.destroy()
  })

  test('pipelined requests are answered in their order', async () => {
    const raw = openRaw(edge.port)
    raw.socket.write(
      ['/pumps/a', '/pumps/b', '/pumps/c']
        .map((path, index) => `GET ${path} HTTP/1.1\r\nHost: a\r\n${index === 2 ? 'Connection: close\r\n' : ''}\r\n`)
        .join(''),
    )
    expect([...(await raw.closed).matchAll(/"id":"(.)"/g)].map((match) => match[1])).toEqual(['a', 'b', 'c'])
  })
})

describe('HEAD (RFC 9110 section 9.3.2)', () => {
  test('returns the headers of GET without the body', async () => {
    const get = await call('GET', '/pumps/a')
    const head = await call('HEAD', '/pumps/a')
    expect([head.status, head.text]).toEqual([get.status, ''])
    expect(head.headers.get('content-length')).toBe(String(Buffer.byteLength(get.text)))
    expect(head.headers.get('content-type')).toBe(get.headers.get('content-type'))
  })

  test('affects only its own response among several requests on one connection', async () => {
    const raw = openRaw(edge.port)
    const lines = (method: string, end = '') => `${method} /pumps/a HTTP/1.1\r\nHost: a\r\n${end}\r\n`
    raw.socket.write(lines('GET') + lines('HEAD') + lines('GET', 'Connection: close\r\n'))
    const text = await raw.closed
    expect(text.match(/HTTP\/1\.1 200 OK/g)).toHaveLength(3)
    expect(text.match(/"id":"a"/g)).toHaveLength(2)
  })

  test('is refused for endless responses, for requests that GET refuses, and for unknown paths', async () => {
    for (const [path, status, allow] of [
      ['/endless', 405, 'GET'],
      ['/pumps/7/start', 405, 'POST'],
      ['/nowhere', 404, null],
    ] as const) {
      const answer = await call('HEAD', path)
      expect([answer.status, answer.headers.get('allow'), answer.text], path).toEqual([status, allow, ''])
    }
    expect((await call('POST', '/pumps/a')).headers.get('allow')).toContain('HEAD')
    expect((await call('POST', '/endless')).headers.get('allow')).toBe('GET')
  })
})

describe('health, metrics, document', () => {
  test('health answers GET and HEAD with its record', async () => {
    const answer = await call('GET', '/health')
    expect(answer.status).toBe(200)
    expect(answer.headers.get('content-type')).toMatch(/^application\/json/)
    expect(JSON.parse(answer.text)).toEqual({
      status: 'pass',
      version: '1.2.3',
      commit: 'abc',
      description: `port ${edge.port} service`,
      build_time: '2026-11-21T00:00:00Z',
      instance_id: expect.stringMatching(/^[0-9a-f-]{36}$/) as string,
    })
    const head = await call('HEAD', '/health')
    expect([head.status, head.text]).toEqual([200, ''])
    const asked = await call('GET', '/health', undefined, { accept: 'application/health+json' })
    expect(asked.headers.get('content-type')).toMatch(/^application\/health\+json/)
  })

  test('metrics count requests by protocol and route, with their duration, and unknown paths together', async () => {
    await call('GET', '/nowhere/1')
    await call('GET', '/nowhere/2')
    const { text, headers } = await call('GET', '/metrics')
    expect(headers.get('content-type')).toMatch(/^text\/plain/)
    expect(text).toMatch(/^skein_requests_total\{protocol="http",route="POST \/pumps",outcome="201"\} \d+$/m)
    expect(text).toMatch(
      /^skein_request_duration_seconds_bucket\{le="0.005",protocol="http",route="GET \/pumps\/:id"\} \d+$/m,
    )
    expect(text).toContain('nodejs_eventloop_lag_seconds')
    expect(text).not.toContain('/nowhere')
  })

  test('the document is OpenAPI 3.1 whose references resolve and whose error responses have the error body', async () => {
    const document = JSON.parse((await call('GET', '/openapi.json')).text) as Record<string, unknown>
    expect(document['openapi']).toBe('3.1.0')
    const text = JSON.stringify(document)
    for (const [, reference = ''] of text.matchAll(/"\$ref":"#\/([^"]+)"/g)) {
      const target = reference
        .split('/')
        .reduce<unknown>((at, key) => (at as Record<string, unknown> | undefined)?.[key], document)
      expect(target, reference).toBeTypeOf('object')
    }
    const operation = (
      document['paths'] as Record<string, Record<string, { responses: Record<string, unknown>; security: unknown }>>
    )['/pumps']?.['post']
    expect(Object.keys(operation?.responses ?? {})).toEqual(['201', '400', '403', '405', '413', '415', '500', '503'])
    expect(operation?.security).toEqual([])
    expect(document['paths']).not.toHaveProperty('/docs')
  })

  test('the page for browsing it loads nothing from outside', async () => {
    const page = await call('GET', '/docs')
    expect(page.status).toBe(200)
    expect(page.headers.get('content-type')).toMatch(/^text\/html/)
    const files = [...page.text.matchAll(/(?:src|href)="([^"]+)"/g)].map(
      (match) => new URL(match[1] ?? '', `${edge.url}/docs/`),
    )
    expect(files.length).toBeGreaterThan(2)
    for (const file of files) {
      expect(file.origin).toBe(edge.url)
      const response = await fetch(file)
      expect(response.status, file.pathname).toBe(200)
      await response.arrayBuffer()
    }
  })
})

describe('a stop', () => {
  test('lets a running request finish, closes its connection and idle ones, and ends', async () => {
    const release = Promise.withResolvers<void>()
    const began = Promise.withResolvers<void>()
    const stopping = await startEdge({
      routes: (app) => {
        app.get('/slow', { config: { isPublic: true } }, async () => {
          began.resolve()
          await release.promise
          return { done: true }
        })
      },
    })
    const idle = openRaw(stopping.port)
    idle.socket.write('GET /health HTTP/1.1\r\nHost: a\r\n\r\n')
    await until(() => idle.received().includes('instance_id'), 'the idle connection was used')
    const busy = openRaw(stopping.port)
    busy.socket.write('GET /slow HTTP/1.1\r\nHost: a\r\n\r\n')
    await began.promise
    // Far longer than this test may take: the stop must not need it.
    const stopped = stopping.listeners.stop(3_600_000)
    await idle.closed
    release.resolve()
    expect(parseAnswer(await busy.closed)).toMatchObject({ status: 200, body: { done: true } })
    await stopped
  })

  test('closes connections that do not end by its deadline', async () => {
    const stopping = await startEdge({
      routes: (app) => void app.get('/never', { config: { isPublic: true } }, () => new Promise(() => undefined)),
    })
    const request = httpRequest({ port: stopping.port, host: '127.0.0.1', path: '/never' })
    const ended = new Promise((resolve) => request.on('error', resolve))
    request.end()
    await until(async () => {
      const { connections } = await fetch(`${stopping.url}/health`).then(() => ({ connections: 1 }))
      return connections === 1
    }, 'the server answers')
    await stopping.listeners.stop(100)
    expect(await ended).toBeInstanceOf(Error)
  })
})

describe('pages for people', () => {
  test('the first page links to the documents and the guides, and to the console if there is one', async () => {
    const answer = await call('GET', '/')
    expect(answer.status).toBe(200)
    expect(answer.headers.get('content-type')).toBe('text/html; charset=utf-8')
    expect(answer.headers.get('content-security-policy')).toContain("default-src 'self'")
    const paths = [...answer.text.matchAll(/href="([^"]+)"/g)].map(([, path]) => path ?? '')
    expect(paths).toEqual(['/docs', '/docs/guides', '/openapi.json', '/health'])
    for (const path of paths) expect((await call('GET', path)).status, path).toBe(200)
    await using withConsole = await startEdge({
      routes: (app) => {
        app.get('/console', { config: { isPublic: true }, schema: { hide: true } }, () => 'console')
      },
    })
    expect(await (await fetch(withConsole.url)).text()).toContain('href="/console"')
  })

  test('guides are pages, and every link in them leads to a page and a part that exist', async () => {
    const pages = new Map<string, string>()
    const left = ['/docs/guides']
    for (let path = left.pop(); path !== undefined; path = left.pop()) {
      if (pages.has(path)) continue
      const answer = await call('GET', path)
      expect(answer.status, path).toBe(200)
      pages.set(path, answer.text)
      for (const [, next = ''] of answer.text.matchAll(/href="(\/docs\/guides[^"#]*)/g)) left.push(next)
    }
    expect(pages.size).toBeGreaterThan(20)
    const dead = [...pages].flatMap(([path, text]) =>
      [...text.matchAll(/href="([^"#]*)#([^"]+)"/g)]
        .filter(([, to = '']) => to === '' || to.startsWith('/'))
        .filter(([, to = '', part]) => pages.get(to === '' ? path : to)?.includes(` id="${part}"`) !== true)
        .map(([link]) => `${path} ${link}`),
    )
    expect(dead).toEqual([])
    // Nothing is left of the Markdown.
    const raw = [...pages].filter(([, text]) => {
      const words = text.replaceAll(/<pre>[^]*?<\/pre>|<code>[^]*?<\/code>/g, '')
      return /^#{1,6} |```|\]\(|\|---/m.test(words)
    })
    expect(raw.map(([path]) => path)).toEqual([])
    const guide = await call('GET', '/docs/guides/modules.md')
    expect(guide.text).toContain('<title>Modules from registries</title>')
    expect(guide.text).toContain('<h2 id="push">Push</h2>')
    expect(guide.text).not.toContain('<domain id>')
    expect(guide.text).toContain('&lt;domain id&gt;')
  })

  test('the page of the API has the sign and the title of Skein', async () => {
    const page = await call('GET', '/docs')
    expect(page.text).toContain('<title>Skein API</title>')
    expect(page.text).not.toMatch(/favicon-\d+x\d+/)
    const initializer = await call('GET', '/docs/static/swagger-initializer.js')
    const logo = /data:image\/svg\+xml;base64,([A-Za-z0-9+/=]+)/.exec(initializer.text)?.[1] ?? ''
    expect(Buffer.from(logo, 'base64').toString()).toBe(readFileSync('console/icon.svg', 'utf8').trim())
    for (const [, path = ''] of page.text.matchAll(/(?:href|src)="\.?(\/[^"]+)"/g))
      expect((await call('GET', path.startsWith('/docs') ? path : `/docs${path}`)).status, path).toBe(200)
  })
})

describe('names that a route does not know (contract decisions 64 and 71)', () => {
  const Valve = Type.Object({ name: Type.Optional(Type.String()), opens_at: Type.Optional(Type.String()) })
  const Plant = Type.Object({
    schedule: Type.Optional(Type.String()),
    max_retries: Type.Optional(Type.Integer()),
    metadata: Type.Optional(recordOf(Type.Unknown())),
    valves: Type.Optional(Type.Array(Valve)),
    either: Type.Optional(Type.Union([Valve, Type.Null()])),
  })
  let plants: TestEdge
  beforeAll(async () => {
    plants = await startEdge({
      maxBodyBytes: 1024 * 1024,
      routes: (app) => {
        app.post(
          '/plants',
          { config: { isPublic: true }, schema: { body: Plant, response: responses({ 200: Plant }) } },
          () => ({}),
        )
        app.post(
          '/plants/bulk',
          { config: { isPublic: true }, schema: { body: Type.Array(Plant), response: responses({ 200: Plant }) } },
          () => ({}),
        )
      },
    })
  })
  afterAll(() => plants[Symbol.asyncDispose]())

  const hintOf = async (path: string, body?: unknown) => {
    const method = body === undefined ? 'GET' : 'POST'
    const text = body === undefined ? null : typeof body === 'string' ? body : JSON.stringify(body)
    const headers = { 'content-type': 'application/json' }
    const response = await fetch(`${plants.url}${path}`, { method, headers, body: text })
    await response.text()
    return { status: response.status, hint: response.headers.get('skein-hint') }
  }

  test('an unknown parameter is ignored and reported, with the nearest known one', async () => {
    expect(await hintOf('/pumps?limit=5&name=x')).toEqual({ status: 200, hint: null })
    expect(await hintOf('/pumps?limt=5')).toEqual({ status: 200, hint: 'limt: did you mean limit?' })
    expect(await hintOf('/pumps?colour=red&Name=x')).toEqual({
      status: 200,
      hint: 'colour: unknown parameter, ignored; Name: did you mean name?',
    })
    expect(await hintOf('/pumps/7?limit=1')).toEqual({ status: 200, hint: 'limit: unknown parameter, ignored' })
  })

  test('an error response has the hint too', async () => {
    expect(await hintOf('/pumps', { nmae: 'x' })).toEqual({ status: 400, hint: 'nmae: did you mean name?' })
    expect(await hintOf('/nowhere?limt=5')).toEqual({ status: 404, hint: null })
  })

  test.each<[string, unknown, string | null]>([
    ['a field that looks like a known one', { shedule: 'x' }, 'shedule: did you mean schedule?'],
    ['another way to write it', { maxRetries: 1 }, 'maxRetries: did you mean max_retries?'],
    ['a field that looks like none', { colour: 'red' }, null],
    [
      'a field of an object in a list, once',
      { valves: [{ nmae: 'a' }, { nmae: 'b' }] },
      'valves.nmae: did you mean name?',
    ],
    ['a field in one of several forms', { either: { open_at: 'x' } }, 'either.open_at: did you mean opens_at?'],
    ['names of the caller', { metadata: { shedule: 1, nmae: { max_retry: 2 } } }, null],
    ['a name that no header can carry', { 'schedule\n': 1, 'sch\u00e9dule': 2 }, null],
    ['names of every object', '{"constructor":1,"toString":{},"hasOwnProperty":[],"valueOf":null}', null],
  ])('of a body: %s', async (_what, body, hint) => {
    expect(await hintOf('/plants', body)).toEqual({ status: 200, hint })
  })

  test('names in nested objects are treated like others', async () => {
    const { status, hint } = await hintOf('/pumps?__proto__=1&constructor=2&toString=3&hasOwnProperty=4&valueOf=5')
    expect(status).toBe(200)
    expect(hint?.split('; ')).toHaveLength(5)
  })

  test('at most five names of 64 characters are reported, and fifty compared', async () => {
    const many = Object.fromEntries(
      Array.from({ length: 20 }, (_, index) => [`schedule${String.fromCharCode(97 + index)}`, 1]),
    )
    expect((await hintOf('/plants', many)).hint?.split('; ')).toHaveLength(5)
    expect((await hintOf(`/pumps?${'l'.repeat(65)}=1`)).hint).toBeNull()
    const strangers = Object.fromEntries(Array.from({ length: 60 }, (_, index) => [`stranger${index}`, 1]))
    expect((await hintOf('/plants', { ...strangers, shedule: 'x' })).hint).toBeNull()
    expect((await hintOf('/plants', { shedule: 'x', ...strangers })).hint).toBe('shedule: did you mean schedule?')
  })

  test('thousands of names that nearly match cost no more than a few', async () => {
    const costOf = async (body: unknown) => {
      const text = JSON.stringify(body)
      const tries = []
      for (let count = 0; count < 5; count++) {
        const started = performance.now()
        expect((await hintOf(Array.isArray(body) ? '/plants/bulk' : '/plants', text)).status).toBe(200)
        tries.push(performance.now() - started)
      }
      return Math.min(...tries)
    }
    const names = Object.fromEntries(Array.from({ length: 25_000 }, (_, index) => [`max_retrie${index}`, 1]))
    const items = Array.from({ length: 9000 }, (_, index) => ({ [`schedule${index}`]: 1, [`max_retr${index}`]: 1 }))
    expect(await costOf(names)).toBeLessThan(500)
    expect(await costOf(items)).toBeLessThan(500)
  })
})
