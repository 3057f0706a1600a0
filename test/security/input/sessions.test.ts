/**
 * Nothing that a worker with a name says on its session keeps the main thread busy for more than 100 ms of processor time at a stretch, and twice as
 * much of it costs at most two and a half times as much. The delay of `/health` is printed, not asserted.
 */
import { fromBinary } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { RegisterResponseSchema, SessionResponseSchema } from '#proto/index.ts'
import { GRPC_BYTES, KIB, MIB, TIMEOUT, ledgerOf, made, platformOfTests } from './protocol-support.ts'
import { filled, leb, openGrpc, protobuf, repeated, talkWithoutReading, wasm } from './wires.ts'
import type { Grpc, Outcome } from './wires.ts'

const platform = platformOfTests()

describe('sessions of workers', () => {
  const { requireLinear } = ledgerOf('sessions', platform)
  /** Of one message beside the runs that the worker holds. */
  const MESSAGE_BYTES = GRPC_BYTES - 64 * KIB
  const { bytes: field, number } = protobuf
  const none = Buffer.alloc(0)
  const SERVICE = '/skein.cluster.v1.WorkerService'
  /** Runs that the worker holds. */
  const RUNS = 400
  /** A heartbeat of this number is the last message of each session: when it is answered, what came before it is read. */
  const LAST_BEAT = 77_777
  /** None; malformed, too large, void, unavailable, unauthenticated. */
  const REFUSALS = [0, 3, 8, 10, 14, 16]
  let grpc: Grpc
  let credentials: Buffer
  const held: { id: string; fence: bigint }[] = []

  const runRef = (id: string, fence: bigint | number = 1) =>
    Buffer.concat([field(1, id), number(2, 1), number(3, Number(fence))])
  const unknownRun = (index: number) => runRef(`00000000-0000-4000-8000-${String(index).padStart(12, '0')}`)
  const heldRun = (index: number) => {
    const run = held[index % held.length]
    return run === undefined ? none : runRef(run.id, run.fence)
  }
  /** What it does not name is given to others. */
  const hello = (...more: Buffer[]) =>
    field(1, Buffer.concat([credentials, ...held.map((_, index) => field(5, field(1, heldRun(index)))), ...more]))
  const isLastBeat = (answer: Buffer) => answer[0] === 0x22 && answer.subarray(2).indexOf(number(1, LAST_BEAT)) === 0

  /** One session that says Hello and these, and ends when it has been heard, or is refused in words. */
  async function session(first: Buffer, messages: readonly Buffer[] = []): Promise<Outcome> {
    const all = [first, ...messages, field(2, number(1, LAST_BEAT))]
    const outcome = await grpc.stream(`${SERVICE}/Session`, all, isLastBeat)
    expect(REFUSALS).toContain(outcome.code)
    if (outcome.code !== 0) expect(outcome.details).toMatch(/\w+ \w+ /)
    return outcome
  }

  async function json<T>(method: string, path: string, body: unknown): Promise<T> {
    const headers = { authorization: platform().bearer, 'content-type': 'application/json' }
    const { status, text } = await platform().send({ method, path, headers, body: JSON.stringify(body) })
    expect([status < 300, text]).toEqual([true, text])
    return JSON.parse(text) as T
  }

  /** A task that only the hostile worker may run, and as many runs of it. */
  async function startRuns(): Promise<void> {
    const task = { name: 'hostile', domain_id: platform().domainId, labels: { hostile: 'yes' } }
    const { id } = await json<{ id: string }>('POST', '/tasks', task)
    const { section, vector, name, core } = wasm
    const module = core(
      section(
        1,
        vector(1, () => [0x60, 0, 0]),
      ),
      section(
        3,
        vector(1, () => [0]),
      ),
      section(
        7,
        vector(1, () => Buffer.concat([name('run'), Buffer.from([0, 0])])),
      ),
      section(
        10,
        vector(1, () => [2, 0, 0x0b]),
      ),
    )
    const form = new FormData()
    form.append('file', new Blob([new Uint8Array(module)]), 'module.wasm')
    const body = new Response(form)
    const uploaded = await platform().send({
      method: 'PUT',
      path: `/tasks/${id}/upload`,
      headers: { authorization: platform().bearer, 'content-type': body.headers.get('content-type') ?? '' },
      body: Buffer.from(await body.arrayBuffer()),
    })
    expect(uploaded).toMatchObject({ status: 200 })
    await json('POST', `/tasks/${id}/invoke-many`, { inputs: Array.from({ length: RUNS }, () => []), timeout: '50ms' })
  }

  beforeAll(async () => {
    grpc = openGrpc(platform().ports.grpc)
    const label = (name: string, value: string) => field(7, Buffer.concat([field(1, name), field(2, value)]))
    const { code, answer } = await grpc.unary(
      `${SERVICE}/Register`,
      Buffer.concat([
        field(1, platform().workerToken),
        field(4, 'hostile'),
        field(5, 'boot'),
        label('hostile', 'yes'),
        number(11, 1e12),
        number(12, RUNS),
        field(13, 'core'),
      ]),
    )
    expect(code).toBe(0)
    const { workerId, workerSecret, sessionEpoch } = fromBinary(RegisterResponseSchema, answer)
    credentials = Buffer.concat([
      field(1, workerId),
      field(2, workerSecret),
      number(3, Number(sessionEpoch)),
      field(4, 'boot'),
    ])
    await startRuns()
    await grpc.stream(`${SERVICE}/Session`, [hello()], (answer) => {
      const { message } = fromBinary(SessionResponseSchema, answer)
      if (message.case === 'assign')
        for (const { run } of message.value.assignments)
          if (run !== undefined) held.push({ id: run.runId, fence: run.fence })
      return held.length === RUNS
    })
    expect(held.length).toBe(RUNS)
  }, 120_000)
  afterAll(() => grpc[Symbol.dispose]())

  const many = (bytes: number, piece: (index: number) => Buffer) => filled(bytes, piece)
  const HELLOS: readonly [string, (bytes: number) => Buffer][] = [
    ['unknown runs that are said to run', (bytes) => many(bytes, (index) => field(5, field(1, unknownRun(index))))],
    ['unknown results', (bytes) => many(bytes, (index) => field(6, unknownRun(index)))],
    ['runs it holds, again and again', (bytes) => many(bytes, (index) => field(5, field(1, heldRun(index))))],
    ['runs without a name', (bytes) => repeated(bytes, field(5, field(1, none)))],
    ['results without a name', (bytes) => repeated(bytes, field(6, none))],
    ['no runs', (bytes) => repeated(bytes, field(5, none))],
    ['unknown fields', (bytes) => repeated(Math.min(bytes, 3 * 600_000), number(1000, 1))],
    ['more unknown fields than are taken', (bytes) => repeated(bytes, number(1000, 1))],
    ['one run with a long name', (bytes) => field(6, field(1, Buffer.alloc(bytes, 'a')))],
    ['a long boot id', (bytes) => field(4, Buffer.alloc(bytes, 'b'))],
    ['a secret again and again', (bytes) => repeated(bytes, field(2, 'abc'))],
  ]

  test.each(HELLOS)('Hello with %s', TIMEOUT, async (name, of) => {
    const helloOf = made(MESSAGE_BYTES, (bytes) => hello(of(bytes)))
    await requireLinear(`Hello with ${name}`, MESSAGE_BYTES, (bytes) => session(helloOf(bytes)))
  })

  /** Each in one message. */
  const LARGE: readonly [string, (bytes: number) => Buffer][] = [
    [
      'Heartbeat of digests',
      (bytes) =>
        field(
          2,
          many(bytes, (index) => field(7, `sha256:${index}`)),
        ),
    ],
    [
      'Heartbeat of digests that left',
      (bytes) =>
        field(
          2,
          many(bytes, (index) => field(8, `sha256:${index}`)),
        ),
    ],
    ['Heartbeat of long digests', (bytes) => field(2, repeated(bytes, field(7, Buffer.alloc(100_000, 'a'))))],
    [
      'Heartbeat of preparations',
      (bytes) =>
        field(
          2,
          many(bytes, (index) => field(9, field(1, unknownRun(index)))),
        ),
    ],
    ['Heartbeat of empty preparations', (bytes) => field(2, repeated(bytes, field(9, none)))],
    ['Heartbeat of numbers', (bytes) => field(2, repeated(bytes, number(2, 1)))],
    [
      'Accept of unknown runs',
      (bytes) =>
        field(
          3,
          many(bytes, (index) => field(1, unknownRun(index))),
        ),
    ],
    ['Accept of empty runs', (bytes) => field(3, repeated(bytes, field(1, none)))],
    [
      'Accept of runs it holds',
      (bytes) =>
        field(
          3,
          many(bytes, (index) => field(1, heldRun(index))),
        ),
    ],
    [
      'Reject with a long message',
      (bytes) => field(4, Buffer.concat([field(1, unknownRun(1)), field(3, Buffer.alloc(bytes, 'x'))])),
    ],
    [
      'StateUpdate of unknown runs',
      (bytes) =>
        field(
          5,
          many(bytes, (index) => field(1, unknownRun(index))),
        ),
    ],
    ['StateUpdate of empty runs', (bytes) => field(5, repeated(bytes, field(1, none)))],
    [
      'StateUpdate of runs it holds',
      (bytes) =>
        field(
          5,
          many(bytes, (index) => field(1, heldRun(index))),
        ),
    ],
    [
      'Result of unknown runs',
      (bytes) =>
        field(
          6,
          many(bytes, (index) => field(1, Buffer.concat([field(1, unknownRun(index)), number(2, 4)]))),
        ),
    ],
    [
      'Result of empty runs',
      (bytes) => field(6, repeated(bytes, field(1, Buffer.concat([field(1, none), number(2, 4)])))),
    ],
    ['Result of nothing', (bytes) => field(6, repeated(bytes, field(1, none)))],
    [
      'Result of nested JSON',
      (bytes) =>
        field(
          6,
          field(
            1,
            Buffer.concat([
              field(1, unknownRun(1)),
              number(2, 4),
              field(5, '['.repeat(bytes / 2) + ']'.repeat(bytes / 2)),
            ]),
          ),
        ),
    ],
    [
      'Result of JSON of many objects',
      (bytes) =>
        field(
          6,
          field(1, Buffer.concat([field(1, unknownRun(1)), number(2, 4), field(5, `[${'{},'.repeat(bytes / 3)}1]`)])),
        ),
    ],
    [
      'LogChunk of much',
      (bytes) => field(7, Buffer.concat([field(1, heldRun(0)), number(2, 1), field(4, Buffer.alloc(bytes))])),
    ],
    ['CancelAck of numbers', (bytes) => field(8, repeated(bytes, number(2, 1)))],
    [
      'CancelAck of runs',
      (bytes) =>
        field(
          8,
          many(bytes, (index) => field(1, unknownRun(index))),
        ),
    ],
    [
      'ResultChunk of much',
      (bytes) => field(10, Buffer.concat([field(1, unknownRun(0)), field(4, Buffer.alloc(bytes))])),
    ],
    [
      'GuestCall of nothing',
      (bytes) => field(11, Buffer.concat([field(1, unknownRun(0)), repeated(bytes, field(3, none))])),
    ],
    ['unknown numbers', (bytes) => repeated(Math.min(bytes, 3 * 690_000), number(1000, 1))],
    ['unknown texts', (bytes) => repeated(Math.min(bytes, 3 * 690_000), field(1000, none))],
    [
      'unknown texts beside a Heartbeat',
      (bytes) => Buffer.concat([field(2, none), repeated(Math.min(bytes, 3 * 690_000), field(1000, none))]),
    ],
    ['a message of each kind after the other', (bytes) => many(bytes, (index) => field(2 + (index % 10), none))],
    ['open groups', (bytes) => repeated(bytes, leb(1000 * 8 + 3))],
    ['bytes of no kind', (bytes) => Buffer.alloc(bytes, 0xff)],
  ]

  test.each(LARGE)('%s', TIMEOUT, async (name, of) => {
    const messageOf = made(MESSAGE_BYTES, of)
    await requireLinear(name, MESSAGE_BYTES, (bytes) => session(hello(), [messageOf(bytes)]))
  })

  /** So many messages. */
  const FLOODS: readonly [string, (index: number) => Buffer][] = [
    ['empty messages', () => none],
    ['Hello', () => field(1, none)],
    ['Heartbeat', (index) => field(2, number(1, index))],
    ['Accept', (index) => field(3, field(1, heldRun(index)))],
    ['Reject of unknown runs', (index) => field(4, field(1, unknownRun(index)))],
    ['StateUpdate', (index) => field(5, field(1, heldRun(index)))],
    ['StateUpdate of unknown runs', (index) => field(5, field(1, unknownRun(index)))],
    [
      'Result of unknown runs',
      (index) => field(6, field(1, Buffer.concat([field(1, unknownRun(index)), number(2, 4)]))),
    ],
    [
      'LogChunk',
      (index) => field(7, Buffer.concat([field(1, heldRun(index)), number(2, 1), number(3, index), field(4, 'x')])),
    ],
    ['CancelAck', (index) => field(8, field(1, unknownRun(index)))],
    ['DrainState', (index) => field(9, number(1, index % 2))],
    [
      'ResultChunk',
      (index) => field(10, Buffer.concat([field(1, heldRun(index)), field(2, `${index}`), field(4, 'x')])),
    ],
    [
      'GuestCall',
      (index) => field(11, Buffer.concat([field(1, heldRun(index)), number(2, index), field(4, field(1, 'a'))])),
    ],
  ]

  /** Each of these is written by itself. */
  const COUNTS = new Map([['ResultChunk', 2_000]])

  test.each(FLOODS)('a flood of %s', TIMEOUT, async (name, of) => {
    const most = COUNTS.get(name) ?? 20_000
    const messagesOf = made(most, (count) => Array.from({ length: count }, (_, index) => of(index)))
    await requireLinear(`a flood of ${name}`, most, (count) => session(hello(), messagesOf(count)))
  })

  test('a worker that does not read its messages is no longer read from', TIMEOUT, async () => {
    const beat = field(2, number(1, 1))
    const said = (function* () {
      yield hello()
      for (let bytes = 0; bytes < 16 * MIB; bytes += beat.length) yield beat
    })()
    expect(await talkWithoutReading(platform().ports.grpc, `${SERVICE}/Session`, said)).toBeLessThan(2 * MIB)
    expect(await session(hello())).toMatchObject({ code: 0 })
  })
})
