import { createServer } from 'node:http2'
import type { ServerHttp2Stream } from 'node:http2'
import { connect } from 'node:net'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { decodeHeaders, encodeHeaders } from './hpack.ts'
import { END_HEADERS, END_STREAM, FRAME, Http2FrameReader, frameOf, settingsFrame } from './http2-frames.ts'

const hex = (text: string) => Buffer.from(text.replaceAll(' ', ''), 'hex')
const coded = (name: string, codedValue: string) =>
  Buffer.concat([
    Buffer.of(0, name.length),
    Buffer.from(name),
    Buffer.of(0x80 | hex(codedValue).length),
    hex(codedValue),
  ])
const PRINTABLE = Array.from({ length: 94 }, (_, index) => String.fromCharCode(33 + index)).join('')

test('fields come out as they went in, however long they are', () => {
  for (const length of [0, 1, 126, 127, 128, 255, 10_000]) {
    const fields = { ':path': '/x', authorization: 'a'.repeat(length) }
    expect(Object.fromEntries(decodeHeaders(encodeHeaders(fields)))).toEqual(fields)
  }
})

test('no field that is written may be put into an index', () => {
  expect(encodeHeaders({ authorization: 'secret' })[0]).toBe(0x10)
})

test('texts of RFC 7541 Appendix C are read', () => {
  expect(decodeHeaders(coded('a', 'f1e3 c2e5 f23a 6ba0 ab90 f4ff')).get('a')).toBe('www.example.com')
  expect(decodeHeaders(coded('a', 'd07a be94 1054 d444 a820 0595 040b 8166 e082 a62d 1bff')).get('a')).toBe(
    'Mon, 21 Oct 2013 20:13:21 GMT',
  )
  const response = `4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d
    29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3`.replaceAll(/\s/g, '')
  expect(decodeHeaders(hex(response)).get(':status')).toBe('302')
  expect(decodeHeaders(hex('88')).get(':status')).toBe('200')
})

test('every printable character that a real server codes is read', async () => {
  const server = createServer()
  server.on('stream', (stream: ServerHttp2Stream) => {
    stream.respond({ ':status': 200, 'grpc-message': PRINTABLE, 'grpc-status': '14' })
    stream.end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
  try {
    const block = await new Promise<Buffer>((resolve, reject) => {
      const reader = new Http2FrameReader({
        onData: () => undefined,
        onFrame: ({ type, payload }) => type === FRAME.headers && resolve(payload),
      })
      socket.on('data', (data: Buffer) => reader.take(data))
      socket.on('error', reject)
      const request = encodeHeaders({ ':method': 'GET', ':scheme': 'http', ':path': '/', ':authority': 'a' })
      socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
      socket.write(settingsFrame([[1, 0]]))
      socket.write(frameOf(FRAME.headers, END_HEADERS | END_STREAM, 1, request))
    })
    const fields = decodeHeaders(block)
    expect([fields.get(':status'), fields.get('grpc-status')]).toEqual(['200', '14'])
    expect(fields.get('grpc-message')).toBe(PRINTABLE)
  } finally {
    socket.destroy()
    server.close()
  }
})

test.for([
  ['an entry that there is not', 'bf'],
  ['an entry of no number', '80'],
  ['a dynamic table that was not offered', '3f e1 1f'],
  ['a text that is longer than the block', '00 05 61'],
  ['a name without a value', '00 01 61'],
  ['a number without an end', '7f ff ff ff ff ff ff ff'],
  ['a text that holds the end of texts', '00 01 61 84 ff ff ff ff'],
  ['a text with more padding than a byte', '00 01 61 82 1f ff'],
  ['a text whose padding is not all ones', '00 01 61 81 18'],
] as const)('a block with %s is refused', ([, block]) => {
  expect(() => decodeHeaders(hex(block))).toThrow(/^headers: /)
})
