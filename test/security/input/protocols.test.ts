/**
 * Bytes over MQTT, CoAP, WebSocket and gRPC, and modules that are uploaded, never keep the main thread busy for more than 100 ms of processor time
 * at a stretch, and twice as many of them cost at most two and a half times as much. The delay of `/health` is printed, not asserted.
 */
import { Encoder } from 'cbor-x'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { JSON_VALUES, SENML } from './forms.ts'
import { createLedger, growthFault } from './ledger.ts'
import { startPlatform } from './platform.ts'
import type { Measured, Platform } from './platform.ts'
import { coap, filled, frame, leb, mqtt, openCoap, openGrpc, overTcp, protobuf, repeated, wasm } from './wires.ts'
import type { CoapPeer, Grpc } from './wires.ts'

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

describe('CoAP', () => {
  const { requireLinear } = ledgerOf('CoAP')
  const none = Buffer.alloc(0)
  const URI_PATH = 11
  let peer: CoapPeer

  beforeAll(async () => {
    peer = await openCoap(platform.ports.coap)
  })
  afterAll(() => peer[Symbol.dispose]())

  /** Uri-Path of the channel, and the secret as Uri-Query behind it. */
  const address = (rest: readonly string[] = [], between = none) => {
    const [first = '', ...others] = ['m', platform.domainId, 'c', platform.channelId, ...rest]
    return Buffer.concat([
      coap.option(URI_PATH, Buffer.from(first)),
      ...others.map((element) => coap.option(0, Buffer.from(element))),
      between,
    ])
  }
  const auth = () => coap.option(15 - URI_PATH, Buffer.from(`auth=${platform.clientSecret}`))
  /** As long as a datagram may be on this way. */
  const DATAGRAM_BYTES = 60_000
  const COUNT = 400
  const flood = (datagram: (index: number) => Buffer) => (count: number) =>
    peer.flood(Array.from({ length: count }, (_, index) => datagram(index)))

  test('the channel is published to', async () => {
    const answer = await peer.ask(coap.request(2, 1, Buffer.concat([address(), auth()]), Buffer.from('a')))
    expect(answer[1]).toBe(0x44)
  })

  test.each<[string, (index: number) => Buffer]>([
    ['options of no bytes', (index) => coap.request(2, index, Buffer.alloc(DATAGRAM_BYTES))],
    ['options that are not known', (index) => coap.request(2, index, repeated(DATAGRAM_BYTES, [0x20]))],
    ['options in their long forms', (index) => coap.request(2, index, repeated(DATAGRAM_BYTES, [0xed, 0, 0, 0]))],
    ['options that are cut off', (index) => coap.request(2, index, repeated(DATAGRAM_BYTES, [0xee]))],
    [
      'path elements of nothing',
      (index) => coap.request(2, index, Buffer.concat([address(), Buffer.alloc(DATAGRAM_BYTES)])),
    ],
    [
      'path elements',
      (index) => coap.request(2, index, Buffer.concat([address(), repeated(DATAGRAM_BYTES, [0x01, 0x61])])),
    ],
    [
      'queries',
      (index) =>
        coap.request(
          2,
          index,
          Buffer.concat([address(), coap.option(4, none), repeated(DATAGRAM_BYTES, [0x01, 0x61])]),
        ),
    ],
    [
      'ETags',
      (index) =>
        coap.request(
          1,
          index,
          Buffer.concat([coap.option(4, Buffer.from('e')), repeated(DATAGRAM_BYTES, [0x01, 0x61])]),
        ),
    ],
    ['a large body of a stranger', (index) => coap.request(2, index, address(), Buffer.alloc(DATAGRAM_BYTES, '['))],
    ['empty messages', (index) => Buffer.from([0x40, 0, index >> 8, index & 0xff])],
    ['answers to nothing', (index) => Buffer.from([0x60, 0x44, index >> 8, index & 0xff])],
    ['no CoAP at all', () => Buffer.alloc(DATAGRAM_BYTES, 0xff)],
  ])('%s', TIMEOUT, async (name, datagram) => {
    await requireLinear(name, COUNT, flood(datagram))
  })

  test.each<[string, (index: number) => Buffer]>([
    [
      'observations',
      (index) => coap.request(1, index, Buffer.concat([coap.option(6, none), coap.option(5, Buffer.from('m'))])),
    ],
    [
      'first blocks of ever new bodies',
      (index) =>
        coap.request(
          2,
          index,
          Buffer.concat([address([`b${index}`]), auth(), coap.option(12, Buffer.from([0x0e]))]),
          Buffer.alloc(1024, '['),
        ),
    ],
    [
      'one block again and again',
      (index) =>
        coap.request(
          2,
          index,
          Buffer.concat([address(), auth(), coap.option(12, Buffer.from([0x0e]))]),
          Buffer.alloc(1024, '['),
        ),
    ],
    [
      'blocks far behind the first',
      (index) =>
        coap.request(
          2,
          index,
          Buffer.concat([address(), auth(), coap.option(12, Buffer.from([0xff, 0xff, 0xfe]))]),
          Buffer.alloc(1024, '['),
        ),
    ],
    [
      'small messages',
      (index) => coap.request(2, index, Buffer.concat([address([`s${index % 7}`]), auth()]), Buffer.from('a')),
    ],
  ])('many %s', TIMEOUT, async (name, datagram) => {
    await requireLinear(name, 4000, flood(datagram))
  })

  const FORMATS: Readonly<Record<string, Buffer>> = {
    'application/senml+json': Buffer.from([110]),
    'application/senml+cbor': Buffer.from([112]),
    'application/json': Buffer.from([50]),
  }

  test.each(PAYLOADS)('$name in one datagram after the other', TIMEOUT, async ({ name, type, of }) => {
    const content = coap.option(1, FORMATS[type] ?? none)
    const body = of(50 * KIB)
    await requireLinear(
      `${name} in datagrams`,
      40,
      flood((index) =>
        coap.request(
          2,
          index,
          Buffer.concat([address([], content), coap.option(3, Buffer.from(`auth=${platform.clientSecret}`))]),
          body,
        ),
      ),
    )
  })
})

describe('WebSocket', () => {
  const { requireLinear } = ledgerOf('WebSocket')
  const none = Buffer.alloc(0)
  const CLOSE = Buffer.from([0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8])
  const upgrade = (path: string, fields: readonly string[] = []) =>
    Buffer.from(
      [
        `GET ${path} HTTP/1.1`,
        'Host: a',
        'Connection: Upgrade',
        'Upgrade: websocket',
        'Sec-WebSocket-Version: 13',
        'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==',
        ...fields,
        '',
        '',
      ].join('\r\n'),
    )
  const path = () => `/m/${platform.domainId}/c/${platform.channelId}`
  const opened = () => upgrade(path(), [`Authorization: Client ${platform.clientSecret}`])
  const socket = (bytes: Buffer, head = opened()) => overTcp(platform.ports.http, Buffer.concat([head, bytes, CLOSE]))

  test('the socket that hostile frames are sent over is opened', async () => {
    expect((await socket(none)).toString('latin1')).toContain('101 Switching Protocols')
  })

  test.each<[string, (bytes: number) => Buffer]>([
    ['empty frames', (bytes) => repeated(bytes / 4, frame(2, none))],
    ['frames of a byte', (bytes) => repeated(bytes / 4, frame(1, Buffer.from('a')))],
    ['pings', (bytes) => repeated(bytes, frame(9, none))],
    ['pongs', (bytes) => repeated(bytes, frame(10, none))],
    [
      'a message in pieces of nothing',
      (bytes) => Buffer.concat([frame(2, none, false), repeated(bytes, frame(0, none, false)), frame(0, none)]),
    ],
    [
      'a message in pieces of a byte',
      (bytes) =>
        Buffer.concat([frame(2, none, false), repeated(bytes, frame(0, Buffer.from('a'), false)), frame(0, none)]),
    ],
    ['a message of bytes', (bytes) => frame(2, Buffer.alloc(bytes, 1))],
    [
      'a frame that says that it is huge',
      (bytes) => Buffer.concat([Buffer.from([0x82, 0xff, 0, 0, 0xff, 0, 0, 0, 0, 0]), Buffer.alloc(bytes)]),
    ],
    ['frames of no kind', (bytes) => repeated(bytes, frame(7, none))],
    ['text that is none', (bytes) => frame(1, Buffer.alloc(bytes, 0xc3))],
    ...PAYLOADS.filter(({ type }) => !type.endsWith('cbor')).map(
      ({ name, of }): [string, (bytes: number) => Buffer] => [name, (bytes) => frame(1, of(bytes - 64))],
    ),
    ...PAYLOADS.filter(({ type }) => type.endsWith('cbor')).map(({ name, of }): [string, (bytes: number) => Buffer] => [
      name,
      (bytes) => frame(2, of(bytes - 64)),
    ]),
  ])('%s', TIMEOUT, async (name, of) => {
    await requireLinear(name, MESSAGE_BYTES, (bytes) => socket(of(bytes)))
  })

  const LONG = 14_000
  test.each<[string, (bytes: number) => Buffer]>([
    ['a path', (bytes) => upgrade(`${path()}/${'a/'.repeat(bytes / 2)}`)],
    ['escapes', (bytes) => upgrade(`${path()}/${'%2f'.repeat(bytes / 3)}`)],
    ['prefixes', (bytes) => upgrade('/ws'.repeat(bytes / 3))],
    ['a query', (bytes) => upgrade(`${path()}?authorization=${'+'.repeat(bytes)}`)],
    ['queries', (bytes) => upgrade(`${path()}?${'a&'.repeat(bytes / 2)}`)],
    ['protocols', (bytes) => upgrade(path(), [`Sec-WebSocket-Protocol: ${'a,'.repeat(bytes / 2)}a`])],
    [
      'extensions',
      (bytes) => upgrade(path(), [`Sec-WebSocket-Extensions: ${'permessage-deflate,'.repeat(bytes / 19)}a`]),
    ],
    ['parameters of extensions', (bytes) => upgrade(path(), [`Sec-WebSocket-Extensions: a${';b'.repeat(bytes / 2)}`])],
    ['credentials', (bytes) => upgrade(path(), [`Authorization: Client ${'a.'.repeat(bytes / 2)}`])],
    [
      'fields',
      (bytes) =>
        upgrade(
          path(),
          Array.from({ length: bytes / 20 }, (_, index) => `X-${index}: a`),
        ),
    ],
  ])('twenty heads with long %s', TIMEOUT, async (name, of) => {
    await requireLinear(`heads with long ${name}`, LONG, async (bytes) => {
      for (let time = 0; time < 20; time++) await overTcp(platform.ports.http, Buffer.concat([of(bytes), CLOSE]))
    })
  })
})

describe('gRPC of the manager', () => {
  const { requireLinear } = ledgerOf('gRPC')
  const REGISTER = '/skein.cluster.v1.WorkerService/Register'
  const SESSION = '/skein.cluster.v1.WorkerService/Session'
  const RENEW = '/skein.cluster.v1.WorkerService/Renew'
  const FETCH = '/skein.cluster.v1.ModuleService/Fetch'
  const none = Buffer.alloc(0)
  const HEARTBEAT = protobuf.bytes(2, protobuf.number(1, 1))
  /** Of gRPC: the caller left. */
  const CANCELLED = 1
  let grpc: Grpc

  beforeAll(() => {
    grpc = openGrpc(platform.ports.grpc)
  })
  afterAll(() => grpc[Symbol.dispose]())

  const facts = () =>
    Buffer.concat([
      protobuf.bytes(1, platform.workerToken),
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
    const { code, answers } = await grpc.stream(SESSION, [protobuf.bytes(1, await worker()), HEARTBEAT])
    expect([code, answers[0]?.[0]]).toEqual([CANCELLED, 10])
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
      await grpc.stream(SESSION, [protobuf.bytes(1, Buffer.concat([known, of(bytes - 256)])), HEARTBEAT])
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
      await grpc.stream(SESSION, [hello, protobuf.bytes(field, of(bytes - 256)), HEARTBEAT])
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
    ['StateUpdate', protobuf.bytes(5, protobuf.bytes(1, run(1)))],
  ])('10,000 times %s', TIMEOUT, async (name, message) => {
    await requireLinear(`many times ${name}`, 10_000, async (count) => {
      const hello = protobuf.bytes(1, await worker())
      await grpc.stream(SESSION, [hello, ...Array.from({ length: count }, () => message), HEARTBEAT])
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
        await grpc.stream(SESSION, [hello, ...Array.from({ length: count }, () => message), HEARTBEAT])
      })
    }
  })

  test('messages that are compressed and become many more', TIMEOUT, async () => {
    using compressing = openGrpc(platform.ports.grpc, 2)
    await requireLinear('a compressed bomb', 64 * MIB, (bytes) => compressing.unary(REGISTER, Buffer.alloc(bytes)))
    await requireLinear('compressed fields', GRPC_BYTES, (bytes) =>
      compressing.unary(REGISTER, repeated(bytes, protobuf.number(15_000, 1))),
    )
  })
})

describe('modules', () => {
  const { requireLinear } = ledgerOf('modules')
  const none = Buffer.alloc(0)
  const { section, vector, name: text, core, component } = wasm
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
  const push = (bytes: Buffer) =>
    platform.send({
      method: 'PUT',
      path: `/modules?reference=${encodeURIComponent('registry.invalid/a:b')}&domain_id=${platform.domainId}`,
      headers: {
        authorization: platform.bearer,
        'content-type': 'application/wasm',
        'registry-authorization': `Basic ${Buffer.from('a:b').toString('base64')}`,
      },
      body: bytes,
    })

  const TYPE = [0x60, 0, 0]
  const BODY = [2, 0, 0x0b]
  const types = section(
    1,
    vector(1, () => TYPE),
  )
  const wide = section(
    1,
    vector(1, () => Buffer.concat([Buffer.from([0x60]), vector(1000, () => [0x7f]), Buffer.from([0])])),
  )
  const functions = section(
    3,
    vector(1, () => [0]),
  )
  const code = section(
    10,
    vector(1, () => BODY),
  )
  const importOf = (index: number) =>
    Buffer.concat([text('wasi_snapshot_preview1'), text(`f${index}`), Buffer.from([0, 0])])
  const exportOf = (index: number) => Buffer.concat([text(`e${index}`), Buffer.from([0, 0])])

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
    [
      'types of a thousand parameters',
      20_000,
      (count) =>
        core(
          section(
            1,
            vector(count, () => Buffer.concat([Buffer.from([0x60]), vector(1000, () => [0x7f]), Buffer.from([0])])),
          ),
        ),
    ],
    ['imports', 10_000, (count) => core(types, section(2, vector(count, importOf)))],
    ['too many imports', 100_000, (count) => core(types, section(2, vector(count, importOf)))],
    ['exports', 10_000, (count) => core(types, functions, section(7, vector(count, exportOf)), code)],
    ['too many exports', 100_000, (count) => core(types, functions, section(7, vector(count, exportOf)), code)],
    [
      'exports of a thousand parameters',
      10_000,
      (count) => core(wide, functions, section(7, vector(count, exportOf)), code),
    ],
    ['custom sections', 9_000, (count) => core(...Array.from({ length: count }, () => section(0, text('a'))))],
    ['a huge custom section', 60 * MIB, (bytes) => core(section(0, Buffer.concat([text('a'), Buffer.alloc(bytes)])))],
    [
      'a name of a section that is huge',
      60 * MIB,
      (bytes) => core(section(0, Buffer.concat([leb(bytes), Buffer.alloc(bytes, 'a')]))),
    ],
    [
      'functions without end',
      60 * MIB,
      (bytes) => core(types, section(3, Buffer.concat([leb(bytes / 2), Buffer.alloc(bytes / 2)]))),
    ],
    [
      'globals',
      10 * MIB,
      (bytes) => core(section(6, Buffer.concat([leb(bytes / 5), repeated(bytes, [0x7f, 0, 0x41, 0, 0x0b])]))),
    ],
    ['sections of nothing', 200_000, (count) => core(repeated(count, [11, 0]))],
    [
      'code again and again',
      9_000,
      (count) =>
        core(
          types,
          section(
            3,
            vector(100_000, () => [0]),
          ),
          repeated(count * 2, [10, 0]),
        ),
    ],
  ]

  test.each(CORE)('a module of %s', TIMEOUT, async (name, size, of) => {
    await requireLinear(`a module of ${name}`, size, (some) => upload(of(some)))
  })

  const nested = (depth: number): Buffer => (depth === 0 ? component() : component(section(4, nested(depth - 1))))
  /** A type of instance within the other. */
  const nestedType = (depth: number): Buffer =>
    depth === 0 ? Buffer.from([0x42, 0]) : Buffer.concat([Buffer.from([0x42, 1, 1]), nestedType(depth - 1)])
  const label = (index: number) => text(`l${index}`)
  const COMPONENTS: readonly [string, number, (count: number) => Buffer][] = [
    ['nested components', 19, nested],
    ['components nested too deep', 2_000, nested],
    ['nested types', 19, (depth) => component(section(7, Buffer.concat([leb(1), nestedType(depth)])))],
    ['types nested too deep', 20_000, (depth) => component(section(7, Buffer.concat([leb(1), nestedType(depth)])))],
    ['components side by side', 50_000, (count) => component(repeated(count * 10, section(4, component())))],
    [
      'instances of a component',
      100_000,
      (count) =>
        component(
          section(4, component()),
          section(
            5,
            vector(count, () => [0, 0, 0]),
          ),
        ),
    ],
    [
      'instances of components of instances',
      40_000,
      (count) => {
        const inner = component(
          section(4, component()),
          section(
            5,
            vector(count / 2, () => [0, 0, 0]),
          ),
        )
        return component(
          section(4, inner),
          section(
            5,
            vector(count / 2, () => [0, 0, 0]),
          ),
        )
      },
    ],
    [
      'instances of nothing',
      100_000,
      (count) =>
        component(
          section(
            5,
            vector(count, () => [1, 0]),
          ),
        ),
    ],
    [
      'types',
      150_000,
      (count) =>
        component(
          section(
            7,
            vector(count, () => [0x73]),
          ),
        ),
    ],
    [
      'types that double',
      40,
      (count) =>
        component(
          section(
            7,
            vector(count, (index) =>
              index === 0 ? [0x73] : Buffer.concat([Buffer.from([0x6f, 2]), leb(index - 1), leb(index - 1)]),
            ),
          ),
        ),
    ],
    [
      'exports of types that double',
      24,
      (count) =>
        component(
          section(
            7,
            vector(count, (index) =>
              index === 0 ? [0x73] : Buffer.concat([Buffer.from([0x6f, 2]), leb(index - 1), leb(index - 1)]),
            ),
          ),
          section(
            7,
            vector(1, () => Buffer.concat([Buffer.from([0x40, 1]), label(0), leb(count - 1), Buffer.from([1, 0])])),
          ),
          section(
            10,
            vector(1, () => Buffer.concat([Buffer.from([0]), label(1), Buffer.from([1]), leb(count)])),
          ),
        ),
    ],
    [
      'records of many fields',
      90_000,
      (count) =>
        component(
          section(
            7,
            vector(1, () =>
              Buffer.concat([
                Buffer.from([0x72]),
                vector(count, (index) => Buffer.concat([label(index), Buffer.from([0x73])])),
              ]),
            ),
          ),
        ),
    ],
    [
      'long names of fields',
      4_000,
      (count) =>
        component(
          section(
            7,
            vector(1, () => Buffer.concat([Buffer.from([0x6e]), vector(count, () => text(`a${'-a'.repeat(500)}`))])),
          ),
        ),
    ],
    [
      'imports',
      90_000,
      (count) =>
        component(
          section(
            7,
            vector(1, () => [0x42, 0]),
          ),
          section(
            10,
            vector(count, (index) => Buffer.concat([Buffer.from([0]), label(index), Buffer.from([5, 0])])),
          ),
        ),
    ],
    ['core modules', 20_000, (count) => component(repeated(count * 10, section(1, core())))],
    [
      'core modules of functions',
      20,
      (count) =>
        component(
          ...Array.from({ length: count }, () =>
            section(
              1,
              core(
                types,
                section(
                  3,
                  vector(100_000, () => [0]),
                ),
                section(
                  10,
                  vector(100_000, () => BODY),
                ),
              ),
            ),
          ),
        ),
    ],
    ['custom sections', 150_000, (count) => component(repeated(count * 4, section(0, text('a'))))],
  ]

  test.each(COMPONENTS)('a component of %s', TIMEOUT, async (name, size, of) => {
    await requireLinear(`a component of ${name}`, size, (some) => upload(of(some)))
  })

  test.each(
    [...CORE, ...COMPONENTS].filter(([name]) =>
      /^(functions|types|exports|code again and again|a huge custom section|types of a thousand|imports|records)/.test(
        name,
      ),
    ),
  )('pushed: %s', TIMEOUT, async (name, size, of) => {
    await requireLinear(`pushed: ${name}`, size, (some) => push(of(some)))
  })

  test.each<[string, number, (bytes: number) => Buffer]>([
    [
      'parts',
      4 * MIB,
      (bytes) =>
        Buffer.concat([
          repeated(bytes, Buffer.from(`--${BOUNDARY}\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n`)),
          Buffer.from(`--${BOUNDARY}--\r\n`),
        ]),
    ],
    ['empty parts', 4 * MIB, (bytes) => repeated(bytes, Buffer.from(`--${BOUNDARY}\r\n\r\n\r\n`))],
    ['beginnings of boundaries', 16 * MIB, (bytes) => part(repeated(bytes, Buffer.from('\r\n--boundar')))],
    ['ends of lines', 16 * MIB, (bytes) => part(repeated(bytes, Buffer.from('\r\n')))],
    ['dashes', 16 * MIB, (bytes) => part(Buffer.alloc(bytes, '-'))],
    [
      'fields of a head',
      4 * MIB,
      (bytes) =>
        Buffer.concat([
          Buffer.from(`--${BOUNDARY}\r\n`),
          filled(bytes, (index) => Buffer.from(`x-${index}: a\r\n`)),
          Buffer.from('\r\n'),
        ]),
    ],
    [
      'one long field of a head',
      4 * MIB,
      (bytes) =>
        Buffer.concat([
          Buffer.from(`--${BOUNDARY}\r\nContent-Disposition: form-data; name="${'a'.repeat(bytes)}"\r\n\r\n`),
        ]),
    ],
    [
      'parameters',
      60 * KIB,
      (bytes) =>
        Buffer.concat([
          Buffer.from(`--${BOUNDARY}\r\nContent-Disposition: form-data${'; a="b"'.repeat(bytes / 7)}\r\n\r\n`),
          part(none),
        ]),
    ],
    [
      'escapes',
      60 * KIB,
      (bytes) =>
        Buffer.concat([
          Buffer.from(`--${BOUNDARY}\r\nContent-Disposition: form-data; name="${'\\"'.repeat(bytes / 2)}"\r\n\r\n`),
          part(none),
        ]),
    ],
    ['text before the first part', 16 * MIB, (bytes) => Buffer.concat([Buffer.alloc(bytes, '\r'), part(none)])],
  ])('a form of %s', TIMEOUT, async (name, size, of) => {
    await requireLinear(`a form of ${name}`, size, (bytes) => uploadBody(of(bytes)))
  })

  test('types of bodies with long parameters', TIMEOUT, async () => {
    for (const [name, boundary] of [
      ['a boundary', (length: number) => 'b'.repeat(length)],
      ['parameters', (length: number) => `b${'; a="b"'.repeat(length / 7)}`],
      ['escapes', (length: number) => `"${'\\"'.repeat(length / 2)}"`],
    ] as const)
      await requireLinear(`20 types with long ${name}`, 14_000, async (length) => {
        for (let time = 0; time < 20; time++) await uploadBody(part(none), boundary(length))
      })
  })
})
