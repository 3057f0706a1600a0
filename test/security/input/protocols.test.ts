/**
 * Bytes over MQTT, registrations of workers and modules that are uploaded never keep the main thread busy for more than 100 ms of processor time
 * at a stretch, and twice as many of them cost at most two and a half times as much. The delay of `/health` is printed, not asserted.
 */
import { Encoder } from 'cbor-x'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { JSON_VALUES, SENML } from './forms.ts'
import { createLedger, growthFault } from './ledger.ts'
import { startPlatform } from './platform.ts'
import type { Measured, Platform } from './platform.ts'
import { filled, leb, mqtt, openGrpc, overTcp, protobuf, repeated, wasm } from './wires.ts'
import type { Grpc } from './wires.ts'

const KIB = 1024
const MIB = 1024 * KIB
/** A little below the largest message that devices send. */
const MESSAGE_BYTES = MIB - 4096
/** A little below the largest packet of a stranger. */
const STRANGER_BYTES = 256 * KIB - 1024
/** A little below the largest message of gRPC. */
const GRPC_BYTES = 4 * MIB - 4096
const TIMEOUT = { timeout: 120_000 }

let platform: Platform

beforeAll(async () => {
  platform = await startPlatform()
})

afterAll(async () => {
  await platform[Symbol.asyncDispose]()
})

/** What came of `work` with so many bytes, or items. */
type Work = (size: number) => Promise<unknown>

/** Notes what each input of one protocol costs. */
function ledgerOf(protocol: string) {
  const ledger = createLedger(protocol)
  afterAll(() => ledger.print())

  async function once(name: string, work: () => Promise<unknown>): Promise<Measured> {
    const measured = await platform.measure(work)
    ledger.note(name, measured)
    return measured
  }
  return {
    /** One input. */
    async measure(name: string, work: () => Promise<unknown>): Promise<void> {
      await once(name, work)
      expect(ledger.tooLong()).toEqual([])
    },
    /** The input, and half of it. Collecting garbage belongs to neither, so a growth that is too large is looked at twice. */
    async requireLinear(name: string, size: number, work: Work): Promise<void> {
      let fault: string | undefined
      for (let time = 0; time < 2 && (time === 0 || fault !== undefined); time++) {
        const half = await once(`half of ${name}`, () => work(size / 2))
        fault = growthFault(half, await once(name, () => work(size)))
      }
      expect([name, fault]).toEqual([name, undefined])
      expect(ledger.tooLong()).toEqual([])
    },
  }
}

const packOfCbor = (bytes: number): Buffer =>
  new Encoder({ useRecords: false, mapsAsObjects: false }).encode(
    Array.from(
      { length: bytes / 10 },
      (_, index) =>
        new Map<number, unknown>([
          [0, `n${index}`],
          [2, index],
        ]),
    ),
  )

/** Payloads that are small to send and dear to read, by their type. */
const PAYLOADS: readonly { name: string; type: string; of: (bytes: number) => Buffer }[] = [
  ...SENML.slice(0, 3).map(({ name, of }) => ({
    name: `SenML of ${name}`,
    type: 'application/senml+json',
    of: (bytes: number) => Buffer.from(of(bytes)),
  })),
  ...JSON_VALUES.slice(0, 3).map(({ name, of }) => ({
    name: `JSON of ${name}`,
    type: 'application/json',
    of: (bytes: number) => Buffer.from(of(bytes)),
  })),
  { name: 'SenML in CBOR', type: 'application/senml+cbor', of: packOfCbor },
  { name: 'nested CBOR', type: 'application/senml+cbor', of: (bytes) => Buffer.alloc(bytes, 0x81) },
  {
    name: 'CBOR of empty maps',
    type: 'application/senml+cbor',
    of: (bytes) => Buffer.concat([Buffer.from([0x9f]), Buffer.alloc(bytes, 0xa0), Buffer.from([0xff])]),
  },
]

describe('MQTT', () => {
  const { measure, requireLinear } = ledgerOf('MQTT')
  const none = Buffer.alloc(0)
  const pair = (name: string, value: string) => Buffer.concat([Buffer.from([0x26]), mqtt.text(name), mqtt.text(value)])
  const alias = (number: number) => Buffer.from([0x23, 0, number])
  const topic = () => `m/${platform.domainId}/c/${platform.channelId}`
  const hello = (id?: string) => mqtt.connect(platform.clientId, platform.clientSecret, id === undefined ? {} : { id })
  const filter = (text: string) => Buffer.concat([mqtt.text(text), Buffer.from([0])])
  /** Each filter fits into a packet, whatever its length. */
  const session = (bytes: Buffer, id?: string) =>
    overTcp(platform.ports.mqtt, Buffer.concat([hello(id), bytes, mqtt.disconnect]))

  test('the session that hostile packets are sent in is accepted', async () => {
    const answer = await session(none)
    expect([answer[0], answer[3]]).toEqual([0x20, 0])
  })

  test.each<[string, (bytes: number) => Buffer]>([
    ['user properties of CONNECT', (bytes) => mqtt.connect('a', 'b', { properties: repeated(bytes, pair('', '')) })],
    ['a property again and again', (bytes) => mqtt.connect('a', 'b', { properties: repeated(bytes, [0x21, 0, 1]) })],
    ['a long client identifier', (bytes) => mqtt.connect('a', 'b', { id: 'i'.repeat(Math.min(bytes, 65_535)) })],
    ['packets before CONNECT', (bytes) => repeated(bytes, [0xc0, 0])],
    ['lengths that do not end', (bytes) => repeated(bytes, [0x10, 0xff, 0xff, 0xff, 0xff, 0xff])],
    [
      'packets behind a CONNECT that is refused',
      (bytes) => Buffer.concat([mqtt.connect('a', 'b'), repeated(bytes, [0xc0, 0])]),
    ],
    ['one huge packet', (bytes) => Buffer.concat([Buffer.from([0x30]), leb(bytes * 100), Buffer.alloc(bytes)])],
    ['no MQTT at all', (bytes) => repeated(bytes, Buffer.from('GET / HTTP/1.1\r\n'))],
  ])('of a stranger: %s', TIMEOUT, async (name, of) => {
    await requireLinear(`a stranger's ${name}`, STRANGER_BYTES, (bytes) => overTcp(platform.ports.mqtt, of(bytes)))
  })

  test.each<[string, (bytes: number) => Buffer]>([
    ['PINGREQ', (bytes) => repeated(bytes, [0xc0, 0])],
    ['PUBACK', (bytes) => repeated(bytes, [0x40, 2, 0, 1])],
    ['PUBREC', (bytes) => repeated(bytes, [0x50, 2, 0, 1])],
    ['PUBREL', (bytes) => repeated(bytes, [0x62, 2, 0, 1])],
    ['PUBCOMP', (bytes) => repeated(bytes, [0x70, 2, 0, 1])],
    ['SUBSCRIBE to one refused filter', (bytes) => repeated(bytes, mqtt.subscribe(1, filter('a')))],
    ['SUBSCRIBE to one filter', (bytes) => repeated(bytes / 128, mqtt.subscribe(1, filter(`${topic()}/a`)))],
    ['UNSUBSCRIBE', (bytes) => repeated(bytes, mqtt.unsubscribe(1, mqtt.text('a')))],
    [
      'PUBLISH to refused topics',
      (bytes) => filled(bytes, (index) => mqtt.publish(1, 1 + (index % 900), `t${index}`, none, none)),
    ],
    [
      'PUBLISH under an alias',
      (bytes) =>
        Buffer.concat([
          mqtt.publish(0, 0, topic(), alias(1), none),
          repeated(bytes / 4, mqtt.publish(0, 0, '', alias(1), none)),
        ]),
    ],
    [
      'PUBLISH with QoS 1 under an alias',
      (bytes) =>
        Buffer.concat([
          mqtt.publish(1, 1, topic(), alias(1), none),
          filled(bytes / 8, (index) => mqtt.publish(1, 1 + (index % 900), '', alias(1), none)),
        ]),
    ],
    ['PUBLISH of QoS 2 again and again', (bytes) => repeated(bytes / 8, mqtt.publish(2, 1, topic(), none, none))],
    ['AUTH', (bytes) => repeated(bytes, [0xf0, 2, 0x18, 0])],
    ['user properties of PUBLISH', (bytes) => mqtt.publish(0, 0, topic(), repeated(bytes, pair('', '')), none)],
    [
      'user properties of retained PUBLISH',
      (bytes) => mqtt.publish(1, 1, topic(), repeated(bytes, pair('a', 'b')), none, 1),
    ],
    [
      'one long user property after the other',
      (bytes) => mqtt.publish(0, 0, topic(), repeated(bytes, pair('a'.repeat(60_000), '')), none),
    ],
    [
      'user properties of SUBSCRIBE',
      (bytes) => {
        const properties = repeated(bytes, pair('', ''))
        return mqtt.packet(0x82, mqtt.uint16(1), leb(properties.length), properties, filter(`${topic()}/a`))
      },
    ],
    ['filters that are refused', (bytes) => mqtt.subscribe(1, repeated(bytes, filter('a')))],
    [
      'filters that differ',
      (bytes) =>
        mqtt.subscribe(
          1,
          filled(bytes, (index) => filter(`${topic()}/${index}`)),
        ),
    ],
    ['one filter again and again', (bytes) => mqtt.subscribe(1, repeated(bytes, filter(`${topic()}/#`)))],
    [
      'filters of groups',
      (bytes) =>
        mqtt.subscribe(
          1,
          filled(bytes, (index) => filter(`$share/g${index}/${topic()}/#`)),
        ),
    ],
    ['filters of many levels', (bytes) => mqtt.subscribe(1, repeated(bytes, filter(`${topic()}/${'+/'.repeat(500)}`)))],
    ['filters of very many levels', (bytes) => mqtt.subscribe(1, repeated(bytes, filter('+/'.repeat(32_000))))],
    [
      'topics of very many levels',
      (bytes) => repeated(bytes, mqtt.publish(0, 0, `${topic()}/${'a/'.repeat(30_000)}`, none, none)),
    ],
    [
      'filters to leave',
      (bytes) =>
        mqtt.unsubscribe(
          1,
          filled(bytes, (index) => mqtt.text(`a${index}`)),
        ),
    ],
  ])('%s', TIMEOUT, async (name, of) => {
    await requireLinear(name, MESSAGE_BYTES, (bytes) => session(of(bytes)))
  })

  test.each(PAYLOADS)('$name', TIMEOUT, async ({ name, type, of }) => {
    const properties = Buffer.concat([Buffer.from([0x03]), mqtt.text(type)])
    await requireLinear(name, MESSAGE_BYTES, (bytes) =>
      session(mqtt.publish(1, 1, topic(), properties, of(bytes - 512))),
    )
  })

  test('wildcards over retained messages, and messages that very many filters match', TIMEOUT, async () => {
    const deep = 'a/'.repeat(250)
    const binary = Buffer.concat([Buffer.from([0x03]), mqtt.text('application/octet-stream')])
    await requireLinear('retained messages', 2000, (count) =>
      session(
        Buffer.concat(
          Array.from({ length: count }, (_, index) =>
            mqtt.publish(1, 1 + (index % 900), `${topic()}/${deep}${index}`, binary, none, 1),
          ),
        ),
      ),
    )
    /** Each covers all of them. */
    const covering = (index: number) =>
      filter(
        `${topic()}/${Array.from({ length: 250 }, (_, level) => ((index >> (level % 12)) & 1 ? '+' : 'a')).join('/')}/#`,
      )
    await requireLinear('filters over retained messages', 400, (count) =>
      session(mqtt.subscribe(1, Buffer.concat(Array.from({ length: count }, (_, index) => covering(index))))),
    )
    await requireLinear('messages that many filters match', 400, (count) =>
      session(
        Buffer.concat([
          mqtt.subscribe(1, Buffer.concat(Array.from({ length: 1000 }, (_, index) => covering(index)))),
          ...Array.from({ length: count }, (_, index) =>
            mqtt.publish(0, 0, `${topic()}/${deep}${index}`, binary, none),
          ),
        ]),
      ),
    )
  })

  test('a packet in many small pieces', TIMEOUT, async () => {
    await measure('a packet byte by byte', async () => {
      const packet = mqtt.connect('a', 'b', { properties: repeated(8 * KIB, pair('', '')) })
      await overTcp(platform.ports.mqtt, Buffer.concat([packet.subarray(0, 10), packet.subarray(10)]))
    })
  })
})

describe('gRPC of the manager', () => {
  const { requireLinear } = ledgerOf('gRPC')
  const REGISTER = '/skein.cluster.v1.WorkerService/Register'
  const none = Buffer.alloc(0)
  let grpc: Grpc

  beforeAll(() => {
    grpc = openGrpc(platform.ports.grpc)
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
})

describe('modules', () => {
  const { requireLinear } = ledgerOf('modules')
  const { section, vector, name: text, core } = wasm
  let taskId: string

  beforeAll(async () => {
    const { status, text: answer } = await platform.send({
      method: 'POST',
      path: '/tasks',
      headers: { authorization: platform.bearer, 'content-type': 'application/json' },
      body: JSON.stringify({ name: 'hostile', domain_id: platform.domainId }),
    })
    expect(status).toBe(201)
    taskId = (JSON.parse(answer) as { id: string }).id
  })

  const BOUNDARY = 'boundary'
  const part = (bytes: Buffer) =>
    Buffer.concat([
      Buffer.from(`--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n`),
      bytes,
      Buffer.from(`\r\n--${BOUNDARY}--\r\n`),
    ])
  const uploadBody = (body: Buffer, boundary = BOUNDARY) =>
    platform.send({
      method: 'PUT',
      path: `/tasks/${taskId}/upload`,
      headers: { authorization: platform.bearer, 'content-type': `multipart/form-data; boundary=${boundary}` },
      body,
    })
  const upload = (bytes: Buffer) => uploadBody(part(bytes))
  const TYPE = [0x60, 0, 0]
  const BODY = [2, 0, 0x0b]
  const types = section(
    1,
    vector(1, () => TYPE),
  )
  const functions = section(
    3,
    vector(1, () => [0]),
  )
  const code = section(
    10,
    vector(1, () => BODY),
  )
  test('an honest module is accepted', async () => {
    const module = core(
      types,
      functions,
      section(
        7,
        vector(1, () => Buffer.concat([text('run'), Buffer.from([0, 0])])),
      ),
      code,
    )
    expect(await upload(module)).toMatchObject({ status: 200 })
  })

  const CORE: readonly [string, number, (count: number) => Buffer][] = [
    [
      'functions',
      100_000,
      (count) =>
        core(
          types,
          section(
            3,
            vector(count, () => [0]),
          ),
          section(
            10,
            vector(count, () => BODY),
          ),
        ),
    ],
    [
      'functions, indices in their long form',
      100_000,
      (count) =>
        core(
          types,
          section(
            3,
            vector(count, () => leb(0, 5)),
          ),
          section(
            10,
            vector(count, () => Buffer.concat([leb(2, 5), Buffer.from([0, 0x0b])])),
          ),
        ),
    ],
    [
      'types',
      100_000,
      (count) =>
        core(
          section(
            1,
            vector(count, () => TYPE),
          ),
        ),
    ],
  ]

  test.each(CORE)('a module of %s', TIMEOUT, async (name, size, of) => {
    await requireLinear(`a module of ${name}`, size, (some) => upload(of(some)))
  })
})
