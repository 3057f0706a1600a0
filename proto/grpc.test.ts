import { create } from '@bufbuild/protobuf'
import { Server, ServerCredentials, credentials, status } from '@grpc/grpc-js'
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  RegisterResponseSchema,
  SessionRequestSchema,
  SessionResponseSchema,
  WorkerService,
  createServiceClient,
  serviceDefinition,
  sessionRequests,
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
      const answerAll = async () => {
        for await (const request of sessionRequests(call)) {
          if (request.message.case !== 'heartbeat') continue
          const { sequence } = request.message.value
          call.write(create(SessionResponseSchema, { message: { case: 'leaseRenewed', value: { sequence } } }))
        }
        call.end()
      }
      void answerAll()
    },
  }
  server.addService(serviceDefinition(WorkerService), workers)
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
