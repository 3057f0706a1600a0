/** What is written and read by hand is what the generated code writes and reads. */
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import type { DescMessage, Message, MessageInitShape } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { RunResultSchema } from './gen/cluster/v1/run_pb.ts'
import type { AssignmentSchema, FailureReason, OnLost, TaskState } from './gen/cluster/v1/run_pb.ts'
import { SessionRequestSchema, SessionResponseSchema } from './gen/cluster/v1/worker_pb.ts'
import type { ResultReceiptSchema } from './gen/cluster/v1/worker_pb.ts'
import { decodeRequest, decodeResponse, encodeRequest, encodeResponse, encodeResult } from './hot-messages.ts'

const ROUNDS = 500
const FIRST_ROOM_BYTES = 16 * 1024
const BEYOND_KEPT_BYTES = 1024 * 1024

/** mulberry32, so that a failure comes again. */
function randomOf(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

const PIECES = [
  '',
  'a',
  '0',
  '"',
  '\n',
  '\0',
  'é',
  '€',
  '\ufffd',
  '😀',
  'plain text ',
  'x'.repeat(127),
  'ä'.repeat(64),
  'y'.repeat(20_000),
]

class Values {
  readonly #random: () => number

  constructor(seed: number) {
    this.#random = randomOf(seed)
  }

  int(below: number): number {
    return Math.floor(this.#random() * below)
  }

  chance(): boolean {
    return this.#random() < 0.5
  }

  /** Empty, short and long, of characters of one to four bytes. */
  text(): string {
    // The longest piece is rare: it makes messages of a megabyte.
    const piece = () => PIECES[this.int(this.int(20) === 0 ? PIECES.length : PIECES.length - 1)] ?? ''
    return Array.from({ length: this.int(4) }, piece).join('')
  }

  bigint(): bigint {
    return (
      [0n, 1n, 127n, 128n, 300_000n, 2n ** 32n, 2n ** 48n, 2n ** 53n, 2n ** 63n, 2n ** 64n - 1n][this.int(10)] ?? 0n
    )
  }

  uint32(): number {
    return [0, 1, 127, 128, 16_384, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1][this.int(8)] ?? 0
  }

  double(): number {
    return [0, -0, 0.1, 1e300, -5, NaN, Infinity, 12.5][this.int(8)] ?? 0
  }

  texts(): Record<string, string> {
    return Object.fromEntries(Array.from({ length: this.int(3) }, () => [`k${this.text()}`, this.text()]))
  }

  many<Item>(item: () => Item): Item[] {
    return Array.from({ length: this.int(3) }, item)
  }

  ref() {
    return { runId: this.text(), attempt: this.uint32(), fence: this.bigint() }
  }

  assignment(): MessageInitShape<typeof AssignmentSchema> {
    return {
      ...(this.chance() ? { run: this.ref() } : {}),
      taskId: this.text(),
      domainId: this.text(),
      taskName: this.text(),
      ...(this.chance()
        ? {
            module: {
              digest: this.text(),
              sizeBytes: this.bigint(),
              sourceAddress: this.text(),
              reference: this.text(),
              ticket: this.text(),
              peers: this.many(() => ({ address: this.text(), workerId: this.text() })),
            },
          }
        : {}),
      function: this.text(),
      inputsJson: this.text(),
      cliArgs: this.many(() => this.text()),
      env: this.texts(),
      ...(this.chance()
        ? {
            limits: {
              timeoutMs: this.bigint(),
              memoryLimitBytes: this.bigint(),
              maxOutputBytes: this.bigint(),
              maxResultBytes: this.bigint(),
            },
          }
        : {}),
      onLost: this.int(4) as OnLost,
      daemon: this.int(8) === 0,
      grants: this.int(4) === 0 ? [{ kind: 1, channelId: this.text(), subtopic: this.text(), name: this.text() }] : [],
      secrets: this.texts(),
      triggerJson: this.text(),
    }
  }

  result(): MessageInitShape<typeof RunResultSchema> {
    return {
      ...(this.chance() ? { run: this.ref() } : {}),
      state: this.int(9) as TaskState,
      reason: this.int(9) as FailureReason,
      error: this.text(),
      resultsJson: this.text(),
      ...(this.chance() ? { staged: { digest: this.text(), sizeBytes: this.bigint() } } : {}),
      durationMs: this.double(),
      outputTruncated: this.chance(),
      prepareMs: this.double(),
    }
  }

  receipt(): MessageInitShape<typeof ResultReceiptSchema> {
    return { ...(this.chance() ? { run: this.ref() } : {}), recorded: this.chance() }
  }
}

test('a message that ends where the room for it ends has the bytes of the generated code', () => {
  const requestOf = (error: string, resultsJson: string) =>
    create(SessionRequestSchema, {
      message: { case: 'result', value: { results: [{ error, resultsJson, prepareMs: 0.25 }] } },
    })
  const huge = requestOf('z'.repeat(BEYOND_KEPT_BYTES), '')
  // Room for a text is made for characters of three bytes, so two short ones end nearer to the end of the room than one.
  for (let length = FIRST_ROOM_BYTES - 100; length <= FIRST_ROOM_BYTES; length++) {
    // After a message so large the room is as it was at first.
    encodeRequest(huge)
    const request = requestOf('\u20ac'.repeat(Math.floor(length / 3)), 'x'.repeat(length % 3))
    expect(encodeRequest(request)?.equals(toBinary(SessionRequestSchema, request)), `${length}`).toBe(true)
  }
})

test('assignments, results and receipts have the bytes of the generated code', () => {
  for (let seed = 0; seed < ROUNDS; seed++) {
    const values = new Values(seed)
    const assign = create(SessionResponseSchema, {
      message: { case: 'assign', value: { assignments: values.many(() => values.assignment()) } },
    })
    expect(encodeResponse(assign)?.equals(toBinary(SessionResponseSchema, assign)), `seed ${seed}`).toBe(true)
    const acknowledgement = create(SessionResponseSchema, {
      message: { case: 'resultAck', value: { receipts: values.many(() => values.receipt()) } },
    })
    const written = encodeResponse(acknowledgement)
    expect(written?.equals(toBinary(SessionResponseSchema, acknowledgement)), `seed ${seed}`).toBe(true)
    const results = create(SessionRequestSchema, {
      message: { case: 'result', value: { results: values.many(() => values.result()) } },
    })
    expect(encodeRequest(results)?.equals(toBinary(SessionRequestSchema, results)), `seed ${seed}`).toBe(true)
    const result = create(RunResultSchema, values.result())
    expect(Buffer.compare(encodeResult(result), toBinary(RunResultSchema, result)), `seed ${seed}`).toBe(0)
  }
})

type Kind = {
  schema: DescMessage
  decode: (bytes: Buffer) => Message | undefined
  messageOf: (values: Values) => object
}

const READ: Record<string, Kind> = {
  assignments: {
    schema: SessionResponseSchema,
    decode: decodeResponse,
    messageOf: (values) => ({ case: 'assign', value: { assignments: values.many(() => values.assignment()) } }),
  },
  receipts: {
    schema: SessionResponseSchema,
    decode: decodeResponse,
    messageOf: (values) => ({ case: 'resultAck', value: { receipts: values.many(() => values.receipt()) } }),
  },
  results: {
    schema: SessionRequestSchema,
    decode: decodeRequest,
    messageOf: (values) => ({ case: 'result', value: { results: values.many(() => values.result()) } }),
  },
}

test.each(Object.entries(READ))('%s are read as the generated code reads them, or left to it', (_name, kind) => {
  const { schema, decode, messageOf } = kind
  let read = 0
  for (let seed = 0; seed < ROUNDS; seed++) {
    const bytes = Buffer.from(toBinary(schema, create(schema, { message: messageOf(new Values(seed)) })))
    const decoded = decode(bytes)
    if (decoded === undefined) continue
    read += 1
    expect(decoded, `seed ${seed}`).toEqual(fromBinary(schema, bytes))
    expect(bytes.equals(toBinary(schema, decoded)), `seed ${seed}`).toBe(true)
  }
  expect(read).toBeGreaterThan(ROUNDS / 10)
})

const run = { runId: 'run', attempt: 1, fence: 7n }
const assignment = {
  run,
  taskName: 'add',
  module: { digest: 'sha256:0', sizeBytes: 41n },
  inputsJson: '[1]',
  env: { A: 'b' },
  limits: { timeoutMs: 1n },
}
const result = { run, state: 4, resultsJson: '[42]', durationMs: 0.5, staged: { digest: 'd', sizeBytes: 1n } }
const receipt = { run, recorded: true }
const ORDINARY: Record<string, object> = {
  assignments: { case: 'assign', value: { assignments: [assignment, assignment] } },
  receipts: { case: 'resultAck', value: { receipts: [receipt, receipt] } },
  results: { case: 'result', value: { results: [result, result] } },
}

test.each(Object.entries(READ))(
  'damaged %s are read as the generated code reads them, or left to it',
  (name, { schema, decode }) => {
    const values = new Values(1)
    const whole = Buffer.from(toBinary(schema, create(schema, { message: ORDINARY[name] })))
    expect(decode(whole)).toEqual(fromBinary(schema, whole))
    for (let round = 0; round < 20_000; round++) {
      const bytes = Buffer.from(whole.subarray(0, values.chance() ? whole.length : values.int(whole.length)))
      if (bytes.length > 0) bytes[values.int(bytes.length)] = values.int(256)
      const decoded = decode(bytes)
      if (decoded !== undefined) expect(decoded, bytes.toString('hex')).toEqual(fromBinary(schema, bytes))
    }
  },
)

test('other messages are left to the generated code', () => {
  const cancel = create(SessionResponseSchema, { message: { case: 'cancel', value: { runs: [] } } })
  expect(encodeResponse(cancel)).toBeUndefined()
  expect(decodeResponse(Buffer.from(toBinary(SessionResponseSchema, cancel)))).toBeUndefined()
  expect(decodeResponse(Buffer.alloc(0))).toBeUndefined()
  expect(encodeRequest(create(SessionRequestSchema, {}))).toBeUndefined()
  const drained = create(SessionRequestSchema, {
    message: { case: 'drainState', value: { draining: true, running: 1 } },
  })
  expect(decodeRequest(Buffer.from(toBinary(SessionRequestSchema, drained)))).toBeUndefined()
  expect(decodeRequest(Buffer.alloc(0))).toBeUndefined()
})
