/**
 * Messages of strangers to the manager never keep the main thread busy for more than 100 ms of processor time at a stretch, and twice as many of
 * them cost at most two and a half times as much. The delay of `/health` is printed, not asserted.
 */
import { afterAll, beforeAll, describe, test } from 'vitest'
import { GRPC_BYTES, TIMEOUT, ledgerOf, platformOfTests } from './protocol-support.ts'
import { filled, leb, openGrpc, protobuf, repeated } from './wires.ts'
import type { Grpc } from './wires.ts'

const platform = platformOfTests()

describe('gRPC of the manager', () => {
  const { requireLinear } = ledgerOf('gRPC', platform)
  const REGISTER = '/skein.cluster.v1.WorkerService/Register'
  const RENEW = '/skein.cluster.v1.WorkerService/Renew'
  const none = Buffer.alloc(0)
  let grpc: Grpc

  beforeAll(() => {
    grpc = openGrpc(platform().ports.grpc)
  })
  afterAll(() => grpc[Symbol.dispose]())

  /** Fields of any message that are small to send: none of them needs to be known. */
  const FIELDS: readonly [string, (bytes: number) => Buffer][] = [
    [
      'labels',
      (bytes) =>
        filled(bytes, (index) =>
          protobuf.bytes(7, Buffer.concat([protobuf.bytes(1, `k${index}`), protobuf.bytes(2, 'v')])),
        ),
    ],
    ['empty labels', (bytes) => repeated(bytes, protobuf.bytes(7, none))],
    ['runtimes', (bytes) => repeated(bytes, protobuf.bytes(13, none))],
    ['digests', (bytes) => repeated(bytes, protobuf.bytes(14, 'sha256:a'))],
    ['a number again and again', (bytes) => repeated(bytes, protobuf.number(12, 1))],
    ['unknown numbers', (bytes) => repeated(bytes, protobuf.number(15_000, 1))],
    ['unknown texts', (bytes) => repeated(bytes, protobuf.bytes(15_000, ''))],
    ['open groups', (bytes) => repeated(bytes, leb(1000 * 8 + 3))],
    ['groups side by side', (bytes) => repeated(bytes, Buffer.concat([leb(1000 * 8 + 3), leb(1000 * 8 + 4)]))],
    ['a long name', (bytes) => protobuf.bytes(4, Buffer.alloc(bytes, 'n'))],
    ['bytes of no kind', (bytes) => Buffer.alloc(bytes, 0xff)],
  ]

  test.each(FIELDS)('Register with %s, without an account', TIMEOUT, async (name, of) => {
    await requireLinear(`Register with ${name}`, GRPC_BYTES, (bytes) => grpc.unary(REGISTER, of(bytes)))
  })

  test.each<[string, (bytes: number) => Buffer]>([
    ['a long request for a certificate', (bytes) => protobuf.bytes(3, Buffer.alloc(bytes, 0x30))],
    ['a long secret', (bytes) => protobuf.bytes(2, Buffer.alloc(bytes, 's'))],
    ['a secret again and again', (bytes) => repeated(bytes, protobuf.bytes(2, 's'))],
    ...FIELDS.slice(-5),
  ])('Renew with %s, without an account', TIMEOUT, async (name, of) => {
    await requireLinear(`Renew with ${name}`, GRPC_BYTES, (bytes) => grpc.unary(RENEW, of(bytes)))
  })
})
