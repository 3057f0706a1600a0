import { createServer } from 'node:http'
import { createServer as createTcpServer } from 'node:net'
import type { AddressInfo, Server as TcpServer, Socket } from 'node:net'
import { create } from '@bufbuild/protobuf'
import { Server, ServerCredentials, status } from '@grpc/grpc-js'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createChunkBuffer, dialPlainly, readByteStream, sendChunk } from './index.ts'
import { FetchRequestSchema, FetchResponseSchema, ModuleService } from './gen/cluster/v1/module_pb.ts'
import { FRAME_HEAD_BYTES, frameInPlace } from './byte-frames.ts'
import { encodeHeaders } from './hpack.ts'
import { ACK, END_HEADERS, END_STREAM, FRAME, Http2FrameReader, frameOf, settingsFrame } from './http2-frames.ts'
import type { Frame } from './http2-frames.ts'
import { serviceDefinition, type ServiceHandlers } from './grpc.ts'
import { streamBelow } from './send-chunk.ts'

const CHUNK_BYTES = 256 * 1024
const CHUNKS = 12
const server = new Server()
let address = ''
let isDirect = false
const cancelled = Promise.withResolvers<void>()

type Call = Parameters<ServiceHandlers<typeof ModuleService>['fetch']>[0]

/** Chunk after chunk in one buffer, each filled with its number. */
async function sendAll(call: Call): Promise<void> {
  const buffer = createChunkBuffer(CHUNK_BYTES)
  const send = (size: number) => sendChunk(call, buffer, size, (data) => create(FetchResponseSchema, { data }))
  await send(0)
  for (let index = 0; index < CHUNKS; index++) {
    buffer.space.fill(index)
    await send(CHUNK_BYTES - index)
  }
  call.end()
}

beforeAll(async () => {
  server.addService(serviceDefinition(ModuleService), {
    resolve: (_call, callback) => callback({ code: status.UNIMPLEMENTED }),
    fetch: (call) => {
      isDirect = streamBelow(call) !== undefined
      const { digest } = call.request
      if (digest === 'refused') return void call.emit('error', { code: status.NOT_FOUND, details: 'nö: 100 %' })
      call.once('cancelled', () => cancelled.resolve())
      if (digest === 'breaks') {
        call.write(create(FetchResponseSchema, { data: Uint8Array.of(7) }))
        return void call.emit('error', { code: status.UNAVAILABLE, details: 'damaged' })
      }
      if (digest === 'silent') return void call.write(create(FetchResponseSchema))
      if (digest === call.metadata.get('authorization')[0]) void sendAll(call)
    },
  } satisfies ServiceHandlers<typeof ModuleService>)
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    )
  })
  address = `127.0.0.1:${port}`
})

afterAll(() => server.forceShutdown())

function read(digest: string, signal = new AbortController().signal, at = address): AsyncGenerator<Buffer> {
  const request = create(FetchRequestSchema, { digest })
  const method = ModuleService.method.fetch
  return readByteStream({ address: at, dialling: dialPlainly(), method, request, authorization: digest }, signal)
}

async function all(pieces: AsyncGenerator<Buffer>): Promise<Buffer[]> {
  const found: Buffer[] = []
  for await (const piece of pieces) found.push(Buffer.from(piece))
  return found
}

async function listen(other: TcpServer): Promise<string> {
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve))
  return `127.0.0.1:${(other.address() as AddressInfo).port}`
}

test('chunks that are sent from one buffer arrive as they were', async () => {
  const pieces = await all(read('Bearer a'))
  const sent = Array.from({ length: CHUNKS }, (_, index) => Buffer.alloc(CHUNK_BYTES - index, index))
  expect(Buffer.concat(pieces).equals(Buffer.concat(sent))).toBe(true)
})

test('chunks leave without a copy: the installed grpc-js shows its stream', async () => {
  await all(read('Bearer a'))
  expect(isDirect).toBe(true)
  expect(streamBelow({})).toBeUndefined()
})

test('a reader that takes its time gets every byte', async () => {
  let size = 0
  for await (const piece of read('Bearer a')) {
    await new Promise((resolve) => setImmediate(resolve))
    size += piece.length
  }
  expect(size).toBe(CHUNKS * CHUNK_BYTES - (CHUNKS * (CHUNKS - 1)) / 2)
})

test('a refusal says its code and its sentence', async () => {
  await expect(all(read('refused'))).rejects.toMatchObject({ code: status.NOT_FOUND, message: 'nö: 100 %' })
})

test('what came before a failure is handed on, and then the failure', async () => {
  const found: number[] = []
  const reading = (async () => {
    for await (const piece of read('breaks')) found.push(...piece)
  })()
  await expect(reading).rejects.toMatchObject({ code: status.UNAVAILABLE, message: 'damaged' })
  expect(found).toEqual([7])
})

test('a signal ends a call with its reason, and the other side learns of it', async () => {
  const leaving = new AbortController()
  const pieces = read('silent', leaving.signal)
  expect((await pieces.next()).value).toHaveLength(0)
  const next = pieces.next()
  leaving.abort(new Error('enough'))
  await expect(next).rejects.toThrow('enough')
  await cancelled.promise
  await expect(all(read('silent', leaving.signal))).rejects.toThrow('enough')
})

test('nobody there, somebody else there and somebody who hangs up are unavailable', async () => {
  const closed = createTcpServer()
  const nobody = await listen(closed)
  await new Promise((resolve) => closed.close(resolve))
  const web = createServer((_request, response) => response.end('hello'))
  const rude = createTcpServer((socket) => socket.destroy())
  try {
    for (const at of [nobody, await listen(web), await listen(rude)]) {
      await expect(all(read('Bearer a', undefined, at))).rejects.toMatchObject({ code: status.UNAVAILABLE })
    }
  } finally {
    web.close()
    rude.close()
  }
})

const bytesOf = (data: Buffer) => frameInPlace(Buffer.concat([Buffer.alloc(FRAME_HEAD_BYTES), data]), data.length)
const OK = { ':status': '200', 'content-type': 'application/grpc' }

type Script = { frames: readonly Buffer[]; onFrame?: (frame: Frame, socket: Socket) => void; onClose?: () => void }

/** A server of frames that a test writes. It ends the connection behind them, unless it looks at what the reader sends. */
async function scripted({ frames, onFrame, onClose }: Script): Promise<string> {
  const other = createTcpServer((socket) => {
    const reader = new Http2FrameReader({
      onData: () => undefined,
      onFrame: (frame) => onFrame?.(frame, socket),
    })
    let skipped = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'.length
    socket.on('error', () => undefined)
    socket.on('data', (data: Buffer) => {
      const rest = data.subarray(skipped)
      skipped -= data.length - rest.length
      reader.take(rest)
    })
    socket.on('close', () => {
      other.close()
      onClose?.()
    })
    socket.write(Buffer.concat(frames))
    if (onFrame === undefined) socket.end()
  })
  return await listen(other)
}

test('headers in parts, padding, pings, and frames that nobody knows are as good as any', async () => {
  const [head, tail] = [encodeHeaders({ ...OK, a: 'b'.repeat(300) }), encodeHeaders({ 'grpc-status': '0' })]
  const heard: Frame[] = []
  const at = await scripted({
    frames: [
      settingsFrame([[3, 100]]),
      frameOf(FRAME.headers, 0, 1, head.subarray(0, 100)),
      frameOf(FRAME.continuation, END_HEADERS, 1, head.subarray(100)),
      frameOf(FRAME.data, 0x8, 1, Buffer.concat([Buffer.of(3), bytesOf(Buffer.from('abc')), Buffer.alloc(3)])),
      frameOf(0xbe, 0xff, 77, Buffer.from('whatever')),
      frameOf(FRAME.goaway, 0, 0, Buffer.from([0, 0, 0, 1, 0, 0, 0, 0])),
      frameOf(FRAME.ping, 0, 0, Buffer.from('12345678')),
    ],
    onFrame: (frame, socket) => {
      if (frame.flags === ACK) heard.push(frame)
      if (frame.type === FRAME.ping) socket.end(frameOf(FRAME.headers, END_HEADERS | END_STREAM, 1, tail))
    },
  })
  expect(Buffer.concat(await all(read('x', undefined, at))).toString()).toBe('abc')
  // The end of the request has the same bit.
  expect(heard.map(({ type }) => type)).toEqual([FRAME.data, FRAME.settings, FRAME.ping])
  expect(heard.at(-1)?.payload.toString()).toBe('12345678')
})

const whole = frameOf(FRAME.headers, END_HEADERS, 1, encodeHeaders(OK))
const chunk = frameOf(FRAME.data, 0, 1, bytesOf(Buffer.alloc(16_000)))

test.for([
  ['ends without trailers', [whole, frameOf(FRAME.data, END_STREAM, 1, Buffer.alloc(0))], 'the call broke'],
  ['breaks off', [whole], 'the connection broke'],
  ['is cut', [whole, frameOf(FRAME.resetStream, 0, 1, Buffer.alloc(4))], 'the call was cut'],
  ['was never begun', [frameOf(FRAME.goaway, 0, 0, Buffer.alloc(8))], 'the call was not begun'],
  ['is of another stream', [whole, frameOf(FRAME.data, 0, 3, Buffer.alloc(4))], 'data of stream 3'],
  ['has headers of another stream', [frameOf(FRAME.headers, END_HEADERS, 3, Buffer.alloc(0))], 'headers of stream 3'],
  ['interrupts its headers', [frameOf(FRAME.headers, 0, 1, Buffer.alloc(0)), chunk], 'headers that do not end'],
  ['goes on with headers', [frameOf(FRAME.continuation, 0, 1, Buffer.alloc(0))], 'without a beginning'],
  ['pushes', [frameOf(FRAME.pushPromise, END_HEADERS, 1, Buffer.alloc(4))], 'a push'],
  ['has headers without end', headersWithoutEnd(), 'headers of more than 65536 bytes'],
  ['says that the page is gone', [frameOf(FRAME.headers, END_HEADERS, 1, encodeHeaders({ ':status': '404' }))], '404'],
] as const)('a call that %s is unavailable', async ([, frames, reason]) => {
  const at = await scripted({ frames })
  const failure = expect(all(read('x', undefined, at))).rejects
  await failure.toMatchObject({ code: status.UNAVAILABLE, message: expect.stringContaining(reason) as string })
})

function headersWithoutEnd(): Buffer[] {
  const more = Array.from({ length: 5 }, () => frameOf(FRAME.continuation, 0, 1, Buffer.alloc(16_000)))
  return [frameOf(FRAME.headers, 0, 1, Buffer.alloc(0)), ...more]
}

test('more than the window allows is refused, and what was allowed is handed on', async () => {
  const closed = Promise.withResolvers<void>()
  const frames = [whole, ...Array.from({ length: 200 }, () => chunk)]
  const at = await scripted({ frames, onClose: () => closed.resolve() })
  const sizes: number[] = []
  const reading = (async () => {
    for await (const piece of read('x', undefined, at)) {
      sizes.push(piece.length)
      await closed.promise
    }
  })()
  await expect(reading).rejects.toMatchObject({
    message: expect.stringContaining('more data than the window') as string,
  })
  expect(sizes.length).toBeGreaterThan(0)
})

test('a message larger than the window comes in several pieces', async () => {
  const large = Buffer.alloc(2 * 1024 * 1024 - 1, 5)
  const big = new Server()
  big.addService(serviceDefinition(ModuleService), {
    resolve: (_call, callback) => callback({ code: status.UNIMPLEMENTED }),
    fetch: (call) => {
      call.write(create(FetchResponseSchema, { data: large }))
      call.end()
    },
  } satisfies ServiceHandlers<typeof ModuleService>)
  const port = await new Promise<number>((resolve, reject) => {
    big.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    )
  })
  try {
    const pieces = await all(read('x', undefined, `127.0.0.1:${port}`))
    expect(Buffer.concat(pieces).equals(large)).toBe(true)
  } finally {
    big.forceShutdown()
  }
})
