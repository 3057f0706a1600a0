/** Outgoing HTTP of guests: what the grant permits, what the worker refuses whatever the grant says, and the limits of a run. */
import { createServer } from 'node:http'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer as createTcpServer } from 'node:net'
import type { AddressInfo, LookupFunction, Server, Socket } from 'node:net'
import { create } from '@bufbuild/protobuf'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { arePublic, checkedLookup } from '#core/public-address.ts'
import { HttpGrantSchema, RunRefSchema } from '#proto/index.ts'
import type { HttpGrant } from '#proto/index.ts'
import { GuestHttp } from '#worker/http/index.ts'
import type { HttpCall } from '#worker/runner/index.ts'
import { until } from './pool.ts'
import { runRef } from './scripted-manager.ts'

type Seen = { method: string; url: string; lines: string[]; body: string }

let seen: Seen[] = []
let respond: (request: IncomingMessage, response: ServerResponse) => void
const server = createServer((request, response) => {
  const parts: Buffer[] = []
  request.on('data', (part: Buffer) => parts.push(part))
  request.on('end', () => {
    const lines = request.rawHeaders.flatMap((text, at, all) => (at % 2 === 0 ? [`${text}: ${all[at + 1]}`] : []))
    seen.push({
      method: request.method ?? '',
      url: request.url ?? '',
      lines,
      body: Buffer.concat(parts).toString('latin1'),
    })
    respond(request, response)
  })
})
let origin = ''
let host = ''

beforeAll(async () => {
  host = `127.0.0.1:${await listen(server)}`
  origin = `http://${host}`
})
afterAll(() => {
  server.closeAllConnections()
  server.close()
})
beforeEach(() => {
  seen = []
  respond = (_, response) => void response.writeHead(200, { 'x-one': 'a' }).end('hello')
})

async function listen(listener: Server): Promise<number> {
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve))
  return (listener.address() as AddressInfo).port
}

type Granted = { origin?: string; methods?: string[]; maxRequests?: number; maxBytes?: number; timeoutMs?: number }

function grantOf(given: Granted = {}): HttpGrant {
  return create(HttpGrantSchema, {
    allow: [{ origin: given.origin ?? origin, methods: given.methods ?? ['GET', 'HEAD', 'POST'] }],
    maxRequests: given.maxRequests ?? 100,
    maxBytes: BigInt(given.maxBytes ?? 1_000_000),
    timeoutMs: BigInt(given.timeoutMs ?? 60_000),
  })
}

/** A run with a grant, at a worker whose operator lists the server of this file. */
function runWith(
  given: Granted | null = {},
  options: { isEnabled?: boolean; privateHosts?: string[]; lookup?: LookupFunction } = {},
) {
  const http = new GuestHttp({ isEnabled: true, privateHosts: [host], ...options })
  const assignment = { run: create(RunRefSchema, runRef('run-1')), ...(given === null ? {} : { http: grantOf(given) }) }
  const lines: string[] = []
  let callId = 0
  return {
    lines,
    end: () => http.end(assignment),
    async ask(call: Partial<HttpCall> & { url: string }) {
      const asking = { assignment, parent: undefined, log: (line: string) => lines.push(line) }
      const whole: HttpCall = { kind: 'http', method: 'GET', headers: [], body: '', timeoutMs: null, ...call }
      const reply = await http.ask(asking, ++callId, whole)
      if (!reply.ok) return reply
      const { status, headers, body } = JSON.parse(reply.records) as {
        status: number
        headers: [string, string][]
        body: string
      }
      return { status, headers, body: Buffer.from(body, 'base64').toString('latin1') }
    },
  }
}

describe('the grant', () => {
  test('a request to a granted origin has its response, and a line in the log without path and headers', async () => {
    const run = runWith()
    const answer = await run.ask({ url: `${origin}/a?secret=1`, headers: [['X-Two', 'b']] })
    expect(answer).toMatchObject({ status: 200, body: 'hello' })
    expect((answer as { headers: unknown }).headers).toContainEqual(['x-one', 'a'])
    expect(seen).toHaveLength(1)
    expect(seen[0]).toMatchObject({ method: 'GET', url: '/a?secret=1' })
    expect(seen[0]?.lines).toContain('x-two: b')
    expect(seen[0]?.lines).toContain(`Host: ${host}`)
    expect(run.lines).toHaveLength(1)
    expect(run.lines[0]).toMatch(/^GET http:\/\/127\.0\.0\.1:\d+ 200, \d+ bytes sent, 5 received$/)
  })

  test.each([
    ['no grant', null, '/'],
    ['another port', { origin: 'http://127.0.0.1:1' }, '/'],
    ['another scheme', { origin: 'https://127.0.0.1' }, '/'],
    ['another method', { methods: ['POST'] }, '/'],
  ])('%s is refused without a connection', async (_, given, path) => {
    expect(await runWith(given).ask({ url: `${origin}${path}` })).toMatchObject({ ok: false, kind: 'forbidden' })
    expect(seen).toEqual([])
  })

  test('a worker that is switched off refuses', async () => {
    const answer = await runWith({}, { isEnabled: false }).ask({ url: origin })
    expect(answer).toMatchObject({ ok: false, kind: 'forbidden' })
    expect(seen).toEqual([])
  })

  test.each([
    'http://user:pass@HOST/',
    'http://granted.example@HOST/',
    'not a URL',
    'file:///etc/passwd',
    '//HOST/',
    'ftp://HOST/',
    'data:text/plain,hello',
  ])('%s is no URL that could be requested', async (text) => {
    const answer = await runWith().ask({ url: text.replace('HOST', host) })
    expect(answer).toMatchObject({ ok: false })
    expect(seen).toEqual([])
  })

  test('a host with the granted one in its name is another one', async () => {
    const run = runWith({ origin: 'https://api.example.com' })
    for (const name of ['api.example.com.evil.example', 'evil.example', 'xapi.example.com', 'api.example.com.'])
      expect(await run.ask({ url: `https://${name}/` }), name).toMatchObject({ ok: false, kind: 'forbidden' })
    for (const path of ['@evil.example/', '.evil.example/', ':8443/', '\\@evil.example'])
      expect(await run.ask({ url: `https://api.example.com${path}` }), path).toMatchObject({ ok: false })
  })
})

describe('addresses', () => {
  test.each([
    'https://127.0.0.1',
    'https://[::1]',
    'https://[::ffff:127.0.0.1]',
    'https://[::ffff:a9fe:a9fe]',
    'https://[fe80::1]',
    'https://[fd00:ec2::254]',
    'https://[64:ff9b::7f00:1]',
    'https://[2002:7f00:1::]',
    'https://169.254.169.254',
    'https://10.0.0.1',
    'https://0.0.0.0',
    'https://2130706433',
    'https://0x7f.1',
    'https://017700000001',
    'https://127.1',
  ])('%s is refused though it is granted', async (text) => {
    const { origin: granted } = new URL(text)
    const answer = await runWith({ origin: granted }).ask({ url: text })
    expect(answer).toMatchObject({ ok: false, kind: 'forbidden', message: expect.stringContaining('private') })
  })

  test('plain HTTP needs a host that the operator lists', async () => {
    const answer = await runWith({ origin: 'http://example.com' }).ask({ url: 'http://example.com/' })
    expect(answer).toMatchObject({ ok: false, kind: 'forbidden', message: expect.stringContaining('https') })
  })

  test('localhost is loopback, whatever a name server says', async () => {
    for (const name of ['localhost', 'a.localhost']) {
      const answer = await runWith({ origin: `https://${name}` }).ask({ url: `https://${name}/` })
      expect(answer, name).toMatchObject({ ok: false, kind: 'forbidden' })
    }
  })

  test('a name is resolved once: a server that answers otherwise the second time has no effect', async () => {
    // The first answer is "public" for the check of this test, and nothing listens there; the second is the server of this file.
    const answers = [['192.0.2.1'], ['127.0.0.1']]
    let asked = 0
    const checked: string[] = []
    const lookup = checkedLookup(
      (_, addresses) => {
        checked.push(...addresses.map(({ address }) => address))
        return undefined
      },
      (_hostname, _options, callback) => {
        const addresses = answers[Math.min(asked++, 1)] ?? []
        queueMicrotask(() =>
          callback(
            null,
            addresses.map((address) => ({ address, family: 4 })),
          ),
        )
      },
    )
    const name = `rebind.example:${host.split(':')[1]}`
    const run = runWith({ origin: `https://${name}`, timeoutMs: 300 }, { lookup })
    expect(await run.ask({ url: `https://${name}/` })).toMatchObject({ ok: false, kind: 'unavailable' })
    expect([asked, checked]).toEqual([1, ['192.0.2.1']])
    expect(seen).toEqual([])
  })

  test('a public name with one private address is refused', async () => {
    const lookup = checkedLookup(
      (hostname, addresses) => (arePublic(addresses) ? undefined : new Error(`${hostname} is inside`)),
      (_hostname, _options, callback) =>
        queueMicrotask(() =>
          callback(null, [
            { address: '1.1.1.1', family: 4 },
            { address: '127.0.0.1', family: 4 },
          ]),
        ),
    )
    const answer = await runWith({ origin: 'https://mixed.example' }, { lookup }).ask({ url: 'https://mixed.example/' })
    expect(answer).toMatchObject({ ok: false, message: expect.stringContaining('is inside') })
  })
})

describe('responses', () => {
  test.each([301, 302, 303, 307, 308])('a redirect (%s) is the response, and is not followed', async (status) => {
    respond = (_, response) => void response.writeHead(status, { location: `${origin}/next` }).end()
    const answer = await runWith().ask({ url: `${origin}/first` })
    expect(answer).toMatchObject({ status })
    expect((answer as { headers: unknown }).headers).toContainEqual(['location', `${origin}/next`])
    expect(seen.map(({ url }) => url)).toEqual(['/first'])
  })

  test('HEAD has no body, and headers of the connection are not shown', async () => {
    respond = (_, response) => void response.writeHead(200, { 'content-length': 1_000, connection: 'close' }).end()
    const answer = await runWith().ask({ url: origin, method: 'HEAD' })
    expect(answer).toMatchObject({ status: 200, body: '' })
    const names = (answer as { headers: [string, string][] }).headers.map(([name]) => name.toLowerCase())
    expect(names).not.toContain('connection')
    expect(names).not.toContain('transfer-encoding')
  })

  test('a body that ends with the connection is read to its end', async () => {
    const text = 'x'.repeat(300_000)
    const closing = createTcpServer((socket) => {
      socket.on('error', () => undefined)
      socket.once('data', () => socket.end(`HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n${text}`))
    })
    const at = `127.0.0.1:${await listen(closing)}`
    try {
      const run = runWith({ origin: `http://${at}` }, { privateHosts: [at] })
      const answer = await run.ask({ url: `http://${at}/` })
      expect(answer).toMatchObject({ status: 200 })
      expect((answer as { body: string }).body).toHaveLength(text.length)
    } finally {
      closing.close()
    }
  })

  test('a body that ends early is an error, not a shorter body', async () => {
    respond = (_, response) => {
      response.writeHead(200, { 'content-length': 1_000 })
      response.write('part', () => response.destroy())
    }
    expect(await runWith().ask({ url: origin })).toMatchObject({ ok: false, kind: 'unavailable' })
  })

  test.each([
    ['two lengths', 'HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab'],
    [
      'a length and chunks',
      'HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n',
    ],
    ['a bare line feed', 'HTTP/1.1 200 OK\ncontent-length: 1\n\na'],
    ['no HTTP', 'SSH-2.0-OpenSSH\r\n'],
    ['headers without end', `HTTP/1.1 200 OK\r\nx: ${'a'.repeat(70_000)}`],
    ['another protocol', 'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n'],
  ])('a server that answers with %s', async (_, raw) => {
    const open = new Set<Socket>()
    const hostile = createTcpServer((socket) => {
      open.add(socket)
      socket.on('error', () => undefined)
      socket.once('data', () => socket.end(raw))
    })
    const at = `127.0.0.1:${await listen(hostile)}`
    try {
      const run = runWith({ origin: `http://${at}` }, { privateHosts: [at] })
      expect(await run.ask({ url: `http://${at}/` })).toMatchObject({ ok: false, kind: 'unavailable' })
    } finally {
      for (const socket of open) socket.destroy()
      hostile.close()
    }
  })

  const EMPTY = 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'
  const CHUNKED = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n'
  test.each([
    ['interim responses', `HTTP/1.1 103 Early Hints\r\nlink: ${'a'.repeat(8_000)}\r\n\r\n`.repeat(500) + EMPTY],
    ['extensions of chunks', `${CHUNKED}${`1;x=${'a'.repeat(8_000)}\r\na\r\n`.repeat(500)}0\r\n\r\n`],
  ])('a flood of %s ends the request', async (_, raw) => {
    const open = new Set<Socket>()
    const flooding = createTcpServer((socket) => {
      open.add(socket)
      socket.on('error', () => undefined)
      socket.once('data', () => socket.end(raw))
    })
    const at = `127.0.0.1:${await listen(flooding)}`
    try {
      const run = runWith({ origin: `http://${at}` }, { privateHosts: [at] })
      expect(await run.ask({ url: `http://${at}/` })).toMatchObject({ ok: false, kind: 'too_large' })
    } finally {
      for (const socket of open) socket.destroy()
      flooding.close()
    }
  })

  test('a body in small chunks is no flood', async () => {
    respond = (_, response) => {
      for (let at = 0; at < 20_000; at++) response.write('0123456789')
      response.end()
    }
    const answer = await runWith().ask({ url: origin })
    expect((answer as { body: string }).body).toHaveLength(200_000)
  })
})

describe('headers', () => {
  test.each([
    'Host',
    'hOsT',
    'Connection',
    'Content-Length',
    'content_length',
    'Transfer-Encoding',
    'transfer_encoding',
    'TE',
    'Trailer',
    'Upgrade',
    'Expect',
    'Keep-Alive',
    'Proxy-Authorization',
    'Proxy-Connection',
    'Host ',
    ' Host',
    'Host:',
    'a b',
    '',
    'x\r\nHost: other',
    'ünï',
  ])('a guest cannot set %j', async (name) => {
    const answer = await runWith().ask({ url: origin, headers: [[name, 'x']] })
    expect(answer).toMatchObject({ ok: false, kind: 'malformed' })
    expect(seen).toEqual([])
  })

  test.each(['a\r\nx-injected: 1', 'a\nb', 'a\rb', 'a\0b', 'a\u2028b', 'č', 'a\u0100b', 'a\u010ab', 'a\u560ab'])(
    'the value %j is refused',
    async (value) => {
      const answer = await runWith().ask({ url: origin, headers: [['x-value', value]] })
      expect(answer).toMatchObject({ ok: false, kind: 'malformed' })
      expect(seen).toEqual([])
    },
  )

  test.each(['GET / HTTP/1.1\r\nHost: x\r\n\r\nGET', 'get', 'CONNECT', 'TRACE', '', 'GET '])(
    'the method %j is refused',
    async (method) => {
      const run = runWith({ methods: ['GET', method] })
      expect(await run.ask({ url: origin, method })).toMatchObject({ ok: false, kind: 'malformed' })
      expect(seen).toEqual([])
    },
  )

  test('a line break in the URL does not reach the server as one', async () => {
    await runWith().ask({ url: `${origin}/a\r\nX-Injected: 1\r\n\r\nGET /b` })
    await runWith().ask({ url: `${origin}/a%0d%0aX-Injected:%201` })
    expect(seen.map(({ url }) => url)).toEqual(['/aX-Injected:%201GET%20/b', '/a%0d%0aX-Injected:%201'])
    expect(seen.flatMap(({ lines }) => lines).filter((line) => line.toLowerCase().startsWith('x-injected'))).toEqual([])
  })

  test('a name of JavaScript is a header like any other', async () => {
    const headers: [string, string][] = [
      ['__proto__', 'a'],
      ['constructor', 'b'],
      ['x-many', '1'],
      ['X-Many', '2'],
    ]
    expect(await runWith().ask({ url: origin, headers })).toMatchObject({ status: 200 })
    expect(seen[0]?.lines.filter((line) => /^(__proto__|constructor|x-many)/i.test(line))).toEqual([
      '__proto__: a',
      'constructor: b',
      'x-many: 1',
      'x-many: 2',
    ])
  })

  test('a body has its length and one request; what looks like another one is part of it', async () => {
    const text = 'a=1\r\n\r\nGET /other HTTP/1.1\r\nHost: x\r\n\r\n'
    await runWith().ask({ url: `${origin}/post`, method: 'POST', body: Buffer.from(text).toString('base64') })
    await runWith().ask({ url: `${origin}/get`, body: Buffer.from(text).toString('base64') })
    await runWith().ask({ url: `${origin}/empty`, method: 'POST' })
    expect(seen.map(({ url, body }) => [url, body])).toEqual([
      ['/post', text],
      ['/get', text],
      ['/empty', ''],
    ])
    expect(seen[2]?.lines.map((line) => line.toLowerCase())).toContain('content-length: 0')
  })

  test('a request that changes something has a key that a repeated run has too, unless the guest has one', async () => {
    const call = { url: origin, method: 'POST' } as const
    const first = runWith()
    await first.ask(call)
    await first.ask(call)
    await runWith().ask(call)
    await runWith().ask({ ...call, headers: [['idempotency-key', 'mine']] })
    await runWith().ask({ url: origin })
    const keys = seen.map(({ lines }) => lines.filter((line) => /^idempotency-key/i.test(line)))
    expect(keys).toEqual([
      ['idempotency-key: "run-1-1"'],
      ['idempotency-key: "run-1-2"'],
      ['idempotency-key: "run-1-1"'],
      ['idempotency-key: mine'],
      [],
    ])
  })
})

describe('limits of a run', () => {
  test('requests, those that are refused included', async () => {
    const run = runWith({ maxRequests: 2 })
    expect(await run.ask({ url: 'https://other.example/' })).toMatchObject({ ok: false, kind: 'forbidden' })
    expect(await run.ask({ url: origin })).toMatchObject({ status: 200 })
    expect(await run.ask({ url: origin })).toMatchObject({ ok: false, kind: 'rate_limited' })
    expect(seen).toHaveLength(1)
  })

  test('bytes of a response, which is not read further', async () => {
    respond = (_, response) => {
      response.writeHead(200)
      const more = () => {
        if (!response.destroyed && !response.writableEnded)
          response.write(Buffer.alloc(10_000), () => setImmediate(more))
      }
      more()
    }
    const run = runWith({ maxBytes: 50_000 })
    expect(await run.ask({ url: origin })).toMatchObject({ ok: false, kind: 'too_large' })
    expect(await run.ask({ url: origin })).toMatchObject({ ok: false, kind: 'too_large' })
    expect(seen).toHaveLength(1)
  })

  test('bytes of requests', async () => {
    const run = runWith({ maxBytes: 2_000 })
    const body = Buffer.alloc(1_500).toString('base64')
    expect(await run.ask({ url: origin, method: 'POST', body })).toMatchObject({ status: 200 })
    expect(await run.ask({ url: origin, method: 'POST', body })).toMatchObject({ ok: false, kind: 'too_large' })
    expect(seen).toHaveLength(1)
  })

  test('time, also of a body that drips', async () => {
    respond = (_, response) => {
      response.writeHead(200)
      const drip = setInterval(() => response.write('.'), 10)
      response.on('close', () => clearInterval(drip))
    }
    const run = runWith({ timeoutMs: 200 })
    expect(await run.ask({ url: origin })).toMatchObject({ ok: false, kind: 'unavailable' })
    expect(await run.ask({ url: origin })).toMatchObject({ ok: false, kind: 'rate_limited' })
    expect(seen).toHaveLength(1)
  })

  test('the time that the guest gives itself', async () => {
    respond = () => undefined
    const answer = await runWith().ask({ url: origin, timeoutMs: 50 })
    expect(answer).toMatchObject({ ok: false, kind: 'unavailable', message: 'there was no response within 50 ms' })
  })

  test('the end of the run aborts its request, which is in the log, and permits no other', async () => {
    let isClosed = false
    respond = (request) => void request.on('close', () => (isClosed = true))
    const run = runWith()
    const asked = run.ask({ url: origin })
    await until(() => seen.length === 1)
    run.end()
    expect(await asked).toMatchObject({ ok: false, kind: 'unavailable', message: 'the run has ended' })
    await until(() => isClosed)
    expect(await run.ask({ url: origin })).toMatchObject({ ok: false, kind: 'unavailable' })
    expect(run.lines).toHaveLength(1)
    expect(run.lines[0]).toContain('aborted')
    expect(seen).toHaveLength(1)
  })
})
