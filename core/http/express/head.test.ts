/** Whatever the lane reads as a head, Node's parser reads in the same way; what it does not read is Node's to judge. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { IncomingHttpHeaders } from 'node:http'
import { connect } from 'node:net'
import type { AddressInfo } from 'node:net'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { readHead } from './head.ts'

const TEXT =
  'POST /m/d/c/e/sub/topic HTTP/1.1\r\nHost: localhost:80\r\nAuthorization: Client 6f6a-6ff1\r\nUser-Agent: thing/1.0 (x)\r\n' +
  'Content-Type: application/senml+json\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc'

type Seen = { method: string | undefined; url: string | undefined; headers: IncomingHttpHeaders; body: string }

/** What a server of Node's makes of the first request in the bytes; undefined: nothing. */
async function nodesReading() {
  let seen: Seen | undefined
  const server = createServer({ requireHostHeader: false }, (request, response) => {
    const pieces: Buffer[] = []
    request.on('data', (piece: Buffer) => pieces.push(piece))
    request.on('end', () => {
      const { method, url, headers } = request
      seen ??= { method, url, headers, body: Buffer.concat(pieces).toString('latin1') }
      response.end()
    })
  })
  server.on('clientError', (_error, socket) => socket.destroy())
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    async read(bytes: Buffer): Promise<Seen | undefined> {
      seen = undefined
      const socket = connect({ port, host: '127.0.0.1' })
      socket.on('error', () => undefined)
      socket.resume()
      socket.end(bytes)
      await once(socket, 'close')
      return seen
    },
    [Symbol.asyncDispose]: async () => {
      server.close()
      await once(server, 'close')
    },
  }
}

test('the plain head', () => {
  const bytes = Buffer.from(TEXT, 'latin1')
  const reading = readHead(bytes)
  expect(reading).toEqual({
    kind: 'head',
    bodyStart: bytes.length - 3,
    head: {
      url: '/m/d/c/e/sub/topic',
      headers: {
        host: 'localhost:80',
        authorization: 'Client 6f6a-6ff1',
        'user-agent': 'thing/1.0 (x)',
        'content-type': 'application/senml+json',
        connection: 'keep-alive',
        'content-length': '3',
      },
    },
  })
})

test('of a head that is not whole, as long as it can become one', () => {
  for (let length = 1; length < TEXT.length - 3; length++)
    expect([length, readHead(Buffer.from(TEXT.slice(0, length))).kind]).toEqual([length, 'partial'])
  for (const start of ['G', 'PUT', 'POST  /', 'post /', '\r\n', 'POST h', '\x16\x03'])
    expect([start, readHead(Buffer.from(start)).kind]).toEqual([start, 'foreign'])
})

test('a head longer than Node takes is left to Node, whole or not', () => {
  const long = `POST / HTTP/1.1\r\nHost: x\r\nX-Note: ${'y'.repeat(16_400)}`
  expect(readHead(Buffer.from(long)).kind).toBe('foreign')
  expect(readHead(Buffer.from(`${long}\r\n\r\n`)).kind).toBe('foreign')
})

test('what is read as a head, changed at random in many ways, Node reads alike', async () => {
  await using node = await nodesReading()
  const text = Buffer.from(TEXT, 'latin1')
  const change = fc.record({
    at: fc.nat(text.length - 1),
    by: fc.oneof(
      fc.constantFrom('', '\r', '\n', '\r\n', ' ', '\t', ':', ',', ';', '\0', '0', 'x', '%', '/', '#', '\x7f'),
      fc.constantFrom('\x80', '\xa0', '\xff', 'Host: y\r\n', 'Content-Length: 1\r\n', 'Transfer-Encoding: chunked\r\n'),
      fc.integer({ min: 0, max: 255 }).map((code) => String.fromCodePoint(code)),
    ),
    over: fc.integer({ min: 0, max: 4 }),
  })
  let read = 0
  await fc.assert(
    fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 3 }), async (changes) => {
      let bytes = text
      for (const { at, by, over } of changes)
        bytes = Buffer.concat([bytes.subarray(0, at), Buffer.from(by, 'latin1'), bytes.subarray(at + over)])
      const reading = readHead(bytes)
      if (reading.kind !== 'head') return
      const { url, headers } = reading.head
      // Without a plain length the lane takes nothing (see lane.ts).
      const length = headers['content-length']
      if (typeof length !== 'string' || !/^\d{1,9}$/.test(length) || headers['transfer-encoding'] !== undefined) return
      // Half a body is refused by both.
      if (bytes.length < reading.bodyStart + Number(length)) return
      read += 1
      const body = bytes.toString('latin1', reading.bodyStart, reading.bodyStart + Number(length))
      expect(await node.read(bytes)).toEqual({ method: 'POST', url, headers: { ...headers }, body })
    }),
    { numRuns: 1500 },
  )
  // One in six or so: enough to have looked at something.
  expect(read).toBeGreaterThan(50)
})
