/**
 * Messages of workers and of strangers to the manager never keep the main thread busy for more than 100 ms of processor time at a stretch, and twice as many of
 * them cost at most two and a half times as much. The delay of `/health` is printed, not asserted.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { JSON_VALUES } from './forms.ts'
import { GRPC_BYTES, KIB, MIB, TIMEOUT, ledgerOf, platformOfTests } from './protocol-support.ts'
import { filled, leb, openGrpc, protobuf, repeated } from './wires.ts'
import type { Grpc } from './wires.ts'

const platform = platformOfTests()

describe('gRPC of the manager', () => {
  const { requireLinear } = ledgerOf('gRPC', platform)
  const REGISTER = '/skein.cluster.v1.WorkerService/Register'
  const SESSION = '/skein.cluster.v1.WorkerService/Session'
  const RENEW = '/skein.cluster.v1.WorkerService/Renew'
  const FETCH = '/skein.cluster.v1.ModuleService/Fetch'
  const none = Buffer.alloc(0)
  let grpc: Grpc

  beforeAll(() => {
    grpc = openGrpc(platform().ports.grpc)
  })
  afterAll(() => grpc[Symbol.dispose]())

  const facts = () =>
    Buffer.concat([
      protobuf.bytes(1, platform().workerToken),
      protobuf.bytes(4, 'hostile'),
      protobuf.bytes(5, newId()),
      protobuf.number(12, 4),
      protobuf.bytes(13, 'component'),
    ])

  /** Fields of Hello of a worker that has just registered. */
  async function worker(): Promise<Buffer> {
    const { code, answer } = await grpc.unary(REGISTER, facts())
    expect(code).toBe(0)
    const fields = new Map<number, Buffer | number>()
    for (let at = 0; at < answer.length;) {
      const tag = answer[at++] ?? 0
      let value = 0
      for (let shift = 0; ; shift += 7) {
        const byte = answer[at++] ?? 0
        value += (byte & 0x7f) * 2 ** shift
        if (byte < 0x80) break
      }
      const isBytes = (tag & 7) === 2
      fields.set(tag >> 3, isBytes ? answer.subarray(at, at + value) : value)
      if (isBytes) at += value
    }
    return Buffer.concat([
      protobuf.bytes(1, fields.get(1) as Buffer),
      protobuf.bytes(2, fields.get(2) as Buffer),
      protobuf.number(3, fields.get(3) as number),
      protobuf.bytes(4, newId()),
    ])
  }

  const run = (index: number) =>
    Buffer.concat([
      protobuf.bytes(1, `0198b1d0-0000-7000-8000-${String(index).padStart(12, '0')}`),
      protobuf.number(2, 1),
      protobuf.number(3, index + 1),
    ])

  test('a worker joins and its session is opened', async () => {
    const { code, answers } = await grpc.stream(SESSION, [protobuf.bytes(1, await worker())])
    expect([code, answers[0]?.[0]]).toEqual([0, 10])
  })

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

  test.each(FIELDS.slice(5, 9))('Renew and Fetch with %s', TIMEOUT, async (name, of) => {
    await requireLinear(`Renew with ${name}`, GRPC_BYTES, (bytes) => grpc.unary(RENEW, of(bytes)))
    await requireLinear(`Fetch with ${name}`, GRPC_BYTES, (bytes) => grpc.stream(FETCH, [of(bytes)]))
  })

  const HELLOS: readonly [string, (bytes: number) => Buffer][] = [
    ['runs of nothing', (bytes) => repeated(bytes, protobuf.bytes(5, none))],
    [
      'runs',
      (bytes) =>
        filled(bytes, (index) =>
          protobuf.bytes(5, Buffer.concat([protobuf.bytes(1, run(index)), protobuf.number(2, 2)])),
        ),
    ],
    ['results', (bytes) => filled(bytes, (index) => protobuf.bytes(6, run(index)))],
    ['results of nothing', (bytes) => repeated(bytes, protobuf.bytes(6, none))],
    ['unknown numbers', (bytes) => repeated(bytes, protobuf.number(15_000, 1))],
  ]

  test.each(HELLOS)('Hello with %s, without an account', TIMEOUT, async (name, of) => {
    await requireLinear(`a stranger's Hello with ${name}`, GRPC_BYTES, (bytes) =>
      grpc.stream(SESSION, [protobuf.bytes(1, of(bytes - 64))]),
    )
  })

  test.each(HELLOS)('Hello of a worker with %s', TIMEOUT, async (name, of) => {
    await requireLinear(`Hello with ${name}`, GRPC_BYTES, async (bytes) => {
      const known = await worker()
      await grpc.stream(SESSION, [protobuf.bytes(1, Buffer.concat([known, of(bytes - 256)]))])
    })
  })

  test.each<[string, number, (bytes: number) => Buffer]>([
    ['Heartbeat with digests', 2, (bytes) => repeated(bytes, protobuf.bytes(7, ''))],
    [
      'Heartbeat with other digests',
      2,
      (bytes) => filled(bytes, (index) => protobuf.bytes(index % 2 ? 7 : 8, `d${index}`)),
    ],
    [
      'Heartbeat with components',
      2,
      (bytes) => filled(bytes, (index) => protobuf.bytes(9, protobuf.bytes(1, run(index)))),
    ],
    ['Accept of nothing', 3, (bytes) => repeated(bytes, protobuf.bytes(1, none))],
    ['Accept', 3, (bytes) => filled(bytes, (index) => protobuf.bytes(1, run(index)))],
    ['Reject', 4, (bytes) => Buffer.concat([protobuf.bytes(1, run(1)), protobuf.bytes(3, Buffer.alloc(bytes, 'm'))])],
    ['StateUpdate', 5, (bytes) => filled(bytes, (index) => protobuf.bytes(1, run(index)))],
    ['Result of nothing', 6, (bytes) => repeated(bytes, protobuf.bytes(1, none))],
    [
      'Result',
      6,
      (bytes) =>
        filled(bytes, (index) =>
          protobuf.bytes(1, Buffer.concat([protobuf.bytes(1, run(index)), protobuf.number(2, 3)])),
        ),
    ],
    [
      'Result of nested JSON',
      6,
      (bytes) =>
        protobuf.bytes(
          1,
          Buffer.concat([
            protobuf.bytes(1, run(1)),
            protobuf.number(2, 3),
            protobuf.bytes(5, Buffer.alloc(bytes, '[')),
          ]),
        ),
    ],
    [
      'Result of a list',
      6,
      (bytes) =>
        protobuf.bytes(
          1,
          Buffer.concat([
            protobuf.bytes(1, run(1)),
            protobuf.number(2, 3),
            protobuf.bytes(5, JSON_VALUES.find(({ name }) => name === 'a list of empty objects')?.of(bytes) ?? ''),
          ]),
        ),
    ],
    ['LogChunk of unknown fields', 7, (bytes) => repeated(bytes, protobuf.number(15_000, 1))],
  ])('%s', TIMEOUT, async (name, field, of) => {
    await requireLinear(name, GRPC_BYTES, async (bytes) => {
      const hello = protobuf.bytes(1, await worker())
      await grpc.stream(SESSION, [hello, protobuf.bytes(field, of(bytes - 256))])
    })
  })

  test.each<[string, Buffer]>([
    [
      'LogChunk',
      protobuf.bytes(7, Buffer.concat([protobuf.bytes(1, run(1)), protobuf.number(2, 1), protobuf.bytes(4, 'a')])),
    ],
    [
      'GuestCall',
      protobuf.bytes(11, Buffer.concat([protobuf.bytes(1, run(1)), protobuf.number(2, 1), protobuf.bytes(3, none)])),
    ],
    ['messages of nothing', none],
    ['CancelAck', protobuf.bytes(8, protobuf.bytes(1, run(1)))],
    ['Heartbeat', protobuf.bytes(2, protobuf.number(1, 1))],
    ['StateUpdate', protobuf.bytes(5, protobuf.bytes(1, run(1)))],
  ])('10,000 times %s', TIMEOUT, async (name, message) => {
    await requireLinear(`many times ${name}`, 10_000, async (count) => {
      const hello = protobuf.bytes(1, await worker())
      await grpc.stream(SESSION, [hello, ...Array.from({ length: count }, () => message)])
    })
  })

  test('large parts of logs and of results', TIMEOUT, async () => {
    for (const [name, field, data] of [
      ['LogChunk', 7, 4],
      ['ResultChunk', 10, 4],
    ] as const) {
      const message = protobuf.bytes(
        field,
        Buffer.concat([protobuf.bytes(1, run(1)), protobuf.bytes(data, Buffer.alloc(256 * KIB))]),
      )
      await requireLinear(`large ${name}`, 128, async (count) => {
        const hello = protobuf.bytes(1, await worker())
        await grpc.stream(SESSION, [hello, ...Array.from({ length: count }, () => message)])
      })
    }
  })

  test('messages that are compressed and become many more', TIMEOUT, async () => {
    using compressing = openGrpc(platform().ports.grpc, 2)
    await requireLinear('a compressed bomb', 64 * MIB, (bytes) => compressing.unary(REGISTER, Buffer.alloc(bytes)))
    await requireLinear('compressed fields', GRPC_BYTES, (bytes) =>
      compressing.unary(REGISTER, repeated(bytes, protobuf.number(15_000, 1))),
    )
  })
})
