import { createServer } from 'node:http'
import { createServer as createTcpServer } from 'node:net'
import type { AddressInfo, Server as TcpServer } from 'node:net'
import { create } from '@bufbuild/protobuf'
import { Server, ServerCredentials, status } from '@grpc/grpc-js'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createChunkBuffer, dialPlainly, readByteStream, sendChunk } from './index.ts'
import { streamBelow } from './byte-stream.ts'
import { FetchRequestSchema, FetchResponseSchema, ModuleService } from './gen/cluster/v1/module_pb.ts'
import { serviceDefinition, type ServiceHandlers } from './grpc.ts'

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
