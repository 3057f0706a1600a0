import { create } from '@bufbuild/protobuf'
import { Server, ServerCredentials, credentials, status } from '@grpc/grpc-js'
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  FetchResponseSchema,
  ModuleService,
  RegisterResponseSchema,
  SessionRequestSchema,
  SessionResponseSchema,
  WorkerService,
  createServiceClient,
  serviceDefinition,
  type ServiceHandlers,
} from './index.ts'

const server = new Server()
let address = ''

beforeAll(async () => {
  const workers: ServiceHandlers<typeof WorkerService> = {
    register: (call, callback) => {
      if (call.request.joinToken === 'wrong') callback({ code: status.UNAUTHENTICATED, details: 'no such token' })
      else callback(null, create(RegisterResponseSchema, { workerId: call.request.name, sessionEpoch: 2n ** 60n }))
    },
    renew: (_call, callback) => callback({ code: status.UNIMPLEMENTED }),
    session: (call) => {
      call.on('data', (request) => {
        if (request.message.case !== 'heartbeat') return
        const { sequence } = request.message.value
        call.write(create(SessionResponseSchema, { message: { case: 'leaseRenewed', value: { sequence } } }))
      })
      call.on('end', () => call.end())
    },
  }
  const modules: ServiceHandlers<typeof ModuleService> = {
    resolve: (_call, callback) => callback({ code: status.UNIMPLEMENTED, details: 'uploads only' }),
    fetch: (call) => {
      for (const byte of [1, 2, 3]) call.write(create(FetchResponseSchema, { data: Uint8Array.of(byte) }))
      call.end()
    },
  }
  server.addService(serviceDefinition(WorkerService), workers)
  server.addService(serviceDefinition(ModuleService), modules)
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    )
  })
  address = `127.0.0.1:${port}`
})

afterAll(() => server.forceShutdown())

test('a unary call carries messages both ways, 64-bit numbers included', async () => {
  const client = createServiceClient(WorkerService, address, credentials.createInsecure())
  const answer = await client.register({ name: 'edge' }, { deadlineMs: 5_000 })
  expect(answer.workerId).toBe('edge')
  expect(answer.sessionEpoch).toBe(2n ** 60n)
  await expect(client.register({ joinToken: 'wrong' }, { deadlineMs: 5_000 })).rejects.toMatchObject({
    code: status.UNAUTHENTICATED,
  })
  client.close()
})

test('a unary call ends as cancelled when its signal is aborted', async () => {
  const client = createServiceClient(WorkerService, address, credentials.createInsecure())
  await expect(
    client.register({ name: 'edge' }, { deadlineMs: 5_000, signal: AbortSignal.abort() }),
  ).rejects.toMatchObject({ code: status.CANCELLED })
  client.close()
})

test('a bidirectional stream keeps the order of messages', async () => {
  const client = createServiceClient(WorkerService, address, credentials.createInsecure())
  const stream = client.session()
  for (let sequence = 1n; sequence <= 3n; sequence++) {
    stream.write(create(SessionRequestSchema, { message: { case: 'heartbeat', value: { sequence } } }))
  }
  stream.end()
  const seen: bigint[] = []
  for await (const response of stream) {
    if (response.message.case === 'leaseRenewed') seen.push(response.message.value.sequence)
  }
  expect(seen).toEqual([1n, 2n, 3n])
  client.close()
})

test('a server stream ends after its last chunk', async () => {
  const client = createServiceClient(ModuleService, address, credentials.createInsecure())
  const bytes: number[] = []
  for await (const chunk of client.fetch({ digest: 'sha256:00' })) bytes.push(...chunk.data)
  expect(bytes).toEqual([1, 2, 3])
  client.close()
})
