/**
 * Clauses of MQTT 5.0 (OASIS, March 2019), byte by byte over the bare profile, which shares every line with the product but its
 * topics and who may use them. docs/mqtt-clauses.md says which clause is held by which test.
 */
import { connect } from 'node:net'
import { createStreamBudget } from '#core/streams/index.ts'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ConformanceBackend, MqttServer } from '#api/adapters/mqtt/index.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'

let server: MqttServer
beforeAll(async () => {
  server = await MqttServer.start({
    host: '127.0.0.1',
    port: 0,
    maxPacketBytes: 64 * 1024,
    backend: (host) => new ConformanceBackend(host),
    budget: createStreamBudget(256 * 1024 * 1024),
    logger,
  })
  await server.listen()
})
afterAll(() => server.stop())

type Bytes = readonly number[]
const NOT_UTF8: Bytes = [0xc3, 0x28]

const uint16 = (value: number): Bytes => [value >> 8, value & 0xff]
const field = (content: string | Bytes): Bytes => {
  const bytes = typeof content === 'string' ? [...Buffer.from(content)] : content
  return [...uint16(bytes.length), ...bytes]
}
/** Of less than 16,384 bytes. */
const length = (value: number): Bytes => (value < 128 ? [value] : [(value & 0x7f) | 0x80, value >> 7])
const counted = (...parts: Bytes[]): Bytes => {
  const bytes = parts.flat()
  return [...length(bytes.length), ...bytes]
}
const packet = (first: number, ...parts: Bytes[]): Bytes => [first, ...counted(...parts)]

const CLEAN = 0x02
/** CONNECT of 5.0; `payload` is what follows the client identifier. */
const connect5 = (
  id: string | Bytes,
  { flags = CLEAN, properties = [], payload = [] }: { flags?: number; properties?: Bytes; payload?: Bytes } = {},
) => packet(0x10, field('MQTT'), [5, flags, 0, 0], counted(properties), field(id), payload)
const publish5 = (topic: string | Bytes, payload: string, { first = 0x30, id = 0, properties = [] as Bytes } = {}) =>
  packet(first, field(topic), id === 0 ? [] : uint16(id), counted(properties), [...Buffer.from(payload)])
const subscribe5 = (filter: string | Bytes, options = 1, properties: Bytes = []) =>
  packet(0x82, uint16(1), counted(properties), field(filter), [options])
const unsubscribe5 = (filter: string | Bytes) => packet(0xa2, uint16(2), [0], field(filter))
const puback = (id: number, reason?: number) => packet(0x40, uint16(id), reason === undefined ? [] : [reason])
const SESSION_EXPIRY: Bytes = [0x11, 0, 0, 0, 60]
const SUBACK_QOS_1: Bytes = [0x90, 4, 0, 1, 0, 1]

type Raw = Disposable & {
  send(...packets: Bytes[]): void
  /** The next packet, whole. */
  next(): Promise<Bytes>
  /** Everything that still comes until the server closes the connection. */
  untilClosed(): Promise<Bytes>
  end(): Promise<void>
}

async function open(): Promise<Raw> {
  const socket = connect({ port: server.port as number, host: '127.0.0.1', noDelay: true })
  await new Promise<void>((resolve, reject) => socket.once('connect', resolve).once('error', reject))
  let received: number[] = []
  let isClosed = false
  socket.on('data', (chunk: Buffer) => received.push(...chunk))
  socket.on('error', () => undefined)
  socket.on('close', () => (isClosed = true))
  const takeFirst = () => {
    const [, low = 0x80, high = 0x80] = received
    if (received.length < 2 || (low >= 0x80 && high >= 0x80)) return undefined
    const size = low < 0x80 ? 2 + low : 3 + (low & 0x7f) + (high << 7)
    return received.length < size ? undefined : received.splice(0, size)
  }
  return {
    send: (...packets) => void socket.write(Buffer.from(packets.flat())),
    next: () =>
      until(() => {
        const first = takeFirst()
        if (first === undefined && isClosed) throw new Error('the connection was closed')
        return first
      }, 'a packet'),
    async untilClosed() {
      await until(() => isClosed, 'the connection is closed')
      const rest = received
      received = []
      return rest
    },
    async end() {
      socket.destroy()
      await until(() => isClosed, 'the connection is closed')
    },
    [Symbol.dispose]: () => socket.destroy(),
  }
}

let lastId = 0
const newId = () => `c${++lastId}`
const newTopic = () => `t/${++lastId}`

/** Of 5.0, let in; what it was answered is the second. */
async function enter(id = newId(), more: Parameters<typeof connect5>[1] = {}): Promise<Raw & { connack: Bytes }> {
  const peer = await open()
  peer.send(connect5(id, more))
  const connack = await peer.next()
  expect(connack[3]).toBe(0)
  return Object.assign(peer, { connack })
}

async function subscribed(topic: string, options = 1, properties: Bytes = []): Promise<Raw> {
  const peer = await enter()
  peer.send(subscribe5(topic, options, properties))
  expect((await peer.next())[0]).toBe(0x90)
  return peer
}

const DISCONNECT = 0xe0

test.each<[string, Bytes, number]>([
  ['[MQTT-2.1.3-1] reserved flags of PINGREQ', [0xc1, 0], 0x81],
  ['a PINGREQ with a body', [0xc0, 1, 0], 0x81],
  ['packet type 0', [0x00, 0], 0x81],
  ['a CONNACK from a client', [0x20, 3, 0, 0, 0], 0x82],
  ['a SUBACK from a client', SUBACK_QOS_1, 0x82],
  ['an UNSUBACK from a client', packet(0xb0, uint16(1), [0, 0]), 0x82],
  ['a PINGRESP from a client', [0xd0, 0], 0x82],
  ['[MQTT-3.10.1-1] flags of UNSUBSCRIBE', packet(0xa0, uint16(2), [0], field('a')), 0x81],
  ['[MQTT-3.14.1-1] flags of DISCONNECT', [0xe1, 0], 0x81],
  ['[MQTT-3.15.1-1] flags of AUTH', [0xf1, 0], 0x81],
  ['[MQTT-4.12.0-7] AUTH without a method', [0xf0, 0], 0x82],
  [
    '[MQTT-1.5.7-1] a pair of strings that is no UTF-8',
    publish5('a', '', { properties: [0x26, ...field('a'), ...field(NOT_UTF8)] }),
    0x81,
  ],
  ['[MQTT-3.3.2-1] a topic that is no UTF-8', publish5(NOT_UTF8, ''), 0x81],
  ['[MQTT-4.7.0-1] a wildcard in a topic name', publish5('a/+', ''), 0x90],
  [
    '[MQTT-3.3.2-13] a response topic that is no UTF-8',
    publish5('a', '', { properties: [0x08, ...field(NOT_UTF8)] }),
    0x81,
  ],
  ['[MQTT-3.3.2-14] a wildcard in a response topic', publish5('a', '', { properties: [0x08, ...field('a/#')] }), 0x82],
  [
    '[MQTT-3.3.2-19] a content type that is no UTF-8',
    publish5('a', '', { properties: [0x03, ...field(NOT_UTF8)] }),
    0x81,
  ],
  ['[MQTT-3.3.4-6] a subscription identifier from a client', publish5('a', '', { properties: [0x0b, 1] }), 0x82],
  ['[MQTT-3.8.3-1] a filter that is no UTF-8', subscribe5(NOT_UTF8), 0x81],
  ['[MQTT-4.7.3-2] the null character in a filter', subscribe5([0x61, 0]), 0x81],
  ['[MQTT-3.10.3-1] a filter to end that is no UTF-8', unsubscribe5(NOT_UTF8), 0x81],
])(
  '%s: DISCONNECT contains the reason and is the last packet [MQTT-3.14.4-1, MQTT-3.14.4-2]',
  async (_what, bytes, reason) => {
    using peer = await enter()
    // What comes behind it is not looked at.
    peer.send(bytes, [0xc0, 0])
    const answer = await peer.untilClosed()
    expect(answer.slice(0, 3)).toEqual([DISCONNECT, answer.length - 2, reason])
    // A reason string and nothing else: an expiry is no property that a server sends [MQTT-3.14.2-2].
    expect(answer[4]).toBe(0x1f)
  },
)

const badConnect = (name: string, level: number, flags: number, ...payload: Bytes[]) =>
  packet(0x10, field(name), [level, flags, 0, 0, 0], ...payload)

test.each<[string, Bytes]>([
  ['[MQTT-3.1.2-1] another protocol name', badConnect('MQTX', 5, CLEAN, field('a'))],
  ['[MQTT-3.1.2-3] the reserved connect flag', badConnect('MQTT', 5, CLEAN | 0x01, field('a'))],
  ['[MQTT-3.1.2-9] a will flag without a will', badConnect('MQTT', 5, CLEAN | 0x04, field('a'))],
  ['[MQTT-3.1.2-11] the QoS of a will without a will', badConnect('MQTT', 5, CLEAN | 0x08, field('a'))],
  ['[MQTT-3.1.2-12] a will with QoS 3', badConnect('MQTT', 5, CLEAN | 0x1c, field('a'), [0], field('w'), field(''))],
  ['[MQTT-3.1.2-13] the retain flag of a will without a will', badConnect('MQTT', 5, CLEAN | 0x20, field('a'))],
  ['[MQTT-3.1.2-16] a user name without its flag', badConnect('MQTT', 5, CLEAN, field('a'), field('u'))],
  ['[MQTT-3.1.2-17] the flag of a user name without one', badConnect('MQTT', 5, CLEAN | 0x80, field('a'))],
  [
    '[MQTT-3.1.2-18] a password without its flag',
    badConnect('MQTT', 5, CLEAN | 0x80, field('a'), field('u'), field('p')),
  ],
  ['[MQTT-3.1.2-19] the flag of a password without one', badConnect('MQTT', 5, CLEAN | 0x40, field('a'))],
  ['[MQTT-3.1.3-3] no client identifier', badConnect('MQTT', 5, CLEAN)],
  ['[MQTT-3.1.3-4] a client identifier that is no UTF-8', badConnect('MQTT', 5, CLEAN, field(NOT_UTF8))],
  [
    '[MQTT-3.1.3-11] the topic of a will that is no UTF-8',
    badConnect('MQTT', 5, CLEAN | 0x04, field('a'), [0], field(NOT_UTF8), field('')),
  ],
  ['[MQTT-3.1.3-12] a user name that is no UTF-8', badConnect('MQTT', 5, CLEAN | 0x80, field('a'), field(NOT_UTF8))],
  ['[MQTT-3.1.4-1] flags of CONNECT', [0x11, ...connect5('a').slice(1)]],
])('%s: the connection is closed, and DISCONNECT is not sent before CONNACK [MQTT-3.14.0-1]', async (_what, bytes) => {
  using peer = await open()
  peer.send(bytes)
  expect((await peer.untilClosed())[0]).not.toBe(DISCONNECT)
})

test('packets after a refused CONNECT are ignored, and session present is 0', async () => {
  using peer = await open()
  // 3.1.1, no identifier for a session that is to be kept.
  peer.send(packet(0x10, field('MQTT'), [4, 0, 0, 0], field('')), packet(0x82, uint16(1), field('a'), [0]))
  expect(await peer.untilClosed()).toEqual([0x20, 2, 0, 2])
})

test('CONNACK is the first packet and is sent once, whatever follows CONNECT', async () => {
  using peer = await open()
  peer.send(connect5(newId()), subscribe5(newTopic()), [0xc0, 0])
  const connack = await peer.next()
  // Session present is its only flag.
  expect([connack[0], connack[2], connack[3]]).toEqual([0x20, 0, 0])
  expect(await peer.next()).toEqual(SUBACK_QOS_1)
  expect(await peer.next()).toEqual([0xd0, 0])
})

test('a missing session is created, and an existing one is announced as present', async () => {
  const id = newId()
  const keep = { flags: 0, properties: SESSION_EXPIRY }
  const first = await enter(id, keep)
  expect(first.connack[2]).toBe(0)
  await first.end()
  using again = await enter(id, keep)
  expect(again.connack[2]).toBe(1)
})

test('CONNACK has neither response information nor an authentication method that was not requested', async () => {
  using peer = await enter('abcdefghijklmnopqrstuvw', { properties: [0x19, 0] })
  const properties = peer.connack.slice(5)
  // Receive maximum, maximum packet size and topic alias maximum: 3, 5 and 3 bytes.
  expect([properties.length, properties[0], properties[3], properties[8]]).toEqual([11, 0x21, 0x27, 0x22])
})

test('each connection without an identifier gets a different one', async () => {
  using one = await enter('')
  using other = await enter('')
  const assigned = ({ connack }: { connack: Bytes }) => Buffer.from(connack.slice(connack.indexOf(0x12))).toString()
  expect(assigned(one).length).toBeGreaterThan(10)
  expect(assigned(one)).not.toBe(assigned(other))
})

/** PUBLISH with QoS 1 or 2 to a topic that nobody subscribed to, with these identifiers. */
const burst = (first: number, from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, at) => publish5('t', '', { first, id: from + at }))

test('more messages with QoS 2 than the receive maximum end the connection (section 4.9)', async () => {
  using peer = await enter()
  peer.send(...burst(0x34, 1, 1_100))
  const answers = await peer.untilClosed()
  const disconnect = answers.slice(answers.lastIndexOf(DISCONNECT))
  expect(disconnect.slice(0, 3)).toEqual([DISCONNECT, disconnect.length - 2, 0x93])
})

test('as many messages as the receive maximum may be unacknowledged, those with QoS 2 until PUBCOMP', async () => {
  using peer = await enter()
  peer.send(...burst(0x34, 1, 1_000))
  for (let id = 1; id <= 1_000; id++) expect(await peer.next()).toEqual(packet(0x50, uint16(id)))
  peer.send(packet(0x62, uint16(1)))
  expect(await peer.next()).toEqual(packet(0x70, uint16(1)))
  peer.send(publish5('t', '', { first: 0x32, id: 1_001 }))
  expect(await peer.next()).toEqual(puback(1_001))
  peer.send(publish5('t', '', { first: 0x34, id: 1_002 }))
  expect(await peer.next()).toEqual(packet(0x50, uint16(1_002)))
  peer.send(publish5('t', '', { first: 0x32, id: 1_003 }))
  expect((await peer.untilClosed())[2]).toBe(0x93)
})

test('QoS 0 has no receive maximum, and neither has a client of 3.1.1', async () => {
  using peer = await enter()
  peer.send(...Array.from({ length: 1_500 }, () => publish5('t', '')), [0xc0, 0])
  expect(await peer.next()).toEqual([0xd0, 0])
  using older = await open()
  older.send(packet(0x10, field('MQTT'), [4, CLEAN, 0, 0], field(newId())))
  expect(await older.next()).toEqual([0x20, 2, 0, 0])
  older.send(...Array.from({ length: 1_100 }, (_, at) => packet(0x32, field('t'), uint16(at + 1))))
  for (let id = 1; id <= 1_100; id++) expect(await older.next()).toEqual(puback(id))
})

test.each<[string, number, Bytes]>([
  ['PUBACK for QoS 2', 2, puback(1)],
  ['PUBCOMP for QoS 1', 1, packet(0x70, uint16(1))],
  ['PUBREC for QoS 1', 1, packet(0x50, uint16(1))],
  ['PUBCOMP before PUBREL', 2, packet(0x70, uint16(1))],
])('%s is a protocol error, and an acknowledgement of no message is ignored', async (_, qos, answer) => {
  const topic = newTopic()
  using peer = await subscribed(topic, qos)
  using publisher = await enter()
  publisher.send(publish5(topic, 'x', { first: 0x30 | (qos << 1), id: 1 }))
  expect(await peer.next()).toEqual(publish5(topic, 'x', { first: 0x30 | (qos << 1), id: 1 }))
  peer.send(puback(77), packet(0x70, uint16(77)), [0xc0, 0])
  expect(await peer.next()).toEqual([0xd0, 0])
  peer.send(answer)
  expect((await peer.untilClosed())[2]).toBe(0x82)
})

test('a client that allows topic aliases receives each long topic once, and no more aliases than it allows', async () => {
  const [topic, second] = [`long/topic/${newTopic()}`, `long/other/${newTopic()}`]
  using peer = await enter(newId(), { properties: [0x22, 0, 1] })
  peer.send(subscribe5('long/#', 2))
  await peer.next()
  using publisher = await enter()
  for (const first of [0x30, 0x32, 0x34])
    publisher.send(publish5(topic, 'x', { first, id: first === 0x30 ? 0 : first }))
  publisher.send(publish5(second, 'y', { properties: [0x01, 1] }))
  expect(await peer.next()).toEqual(publish5(topic, 'x', { properties: [0x23, 0, 1] }))
  expect(await peer.next()).toEqual(publish5('', 'x', { first: 0x32, id: 1, properties: [0x23, 0, 1] }))
  expect(await peer.next()).toEqual(publish5('', 'x', { first: 0x34, id: 2, properties: [0x23, 0, 1] }))
  expect(await peer.next()).toEqual(publish5(second, 'y', { properties: [0x01, 1] }))
})

test('a message that fits the maximum packet size only without an alias is sent without one', async () => {
  const topic = 'long/topic/of-a-client-with-small-packets'
  const size = publish5(topic, '').length
  using peer = await enter(newId(), { properties: [0x22, 0, 10, 0x27, 0, 0, 0, size] })
  peer.send(subscribe5(topic, 0))
  await peer.next()
  using publisher = await enter()
  publisher.send(publish5(topic, ''), publish5(topic, ''))
  expect([await peer.next(), await peer.next()]).toEqual([publish5(topic, ''), publish5(topic, '')])
})

test('CONNECT of MQTT 3.1 with the reserved connect flag is accepted', async () => {
  using peer = await open()
  peer.send([0x10, 0x0f, 0, 6, 0x4d, 0x51, 0x49, 0x73, 0x64, 0x70, 3, 1, 0, 0x0a, 0, 1, 0x70])
  expect(await peer.next()).toEqual([0x20, 2, 0, 0])
})

test('the filter test/nosubscribe is refused in the conformance profile', async () => {
  using peer = await enter()
  peer.send(subscribe5('test/nosubscribe'))
  expect(await peer.next()).toEqual([0x90, 4, 0, 1, 0, 0x80])
  peer.send(subscribe5('test/subscribe'))
  expect(await peer.next()).toEqual(SUBACK_QOS_1)
})

test('a reason that exceeds the maximum packet size is left out, and a CONNACK that exceeds it is a refusal', async () => {
  const small: Bytes = [0x27, 0, 0, 0, 20]
  using peer = await enter(newId(), { properties: small })
  peer.send([0xc1, 0])
  expect(await peer.untilClosed()).toEqual([DISCONNECT, 2, 0x81, 0])
  using refused = await open()
  refused.send(connect5(newId(), { properties: [...small, 0x15, ...field('x')] }))
  expect(await refused.untilClosed()).toEqual([0x20, 3, 0, 0x8c, 0])
  using tiny = await open()
  tiny.send(connect5(newId(), { properties: [0x27, 0, 0, 0, 10] }))
  expect(await tiny.untilClosed()).toEqual([0x20, 3, 0, 0x95, 0])
  using none = await open()
  none.send(connect5(newId(), { properties: [0x27, 0, 0, 0, 4] }))
  expect(await none.untilClosed()).toEqual([])
})

test('a message above the maximum packet size of the client is treated as delivered', async () => {
  const topic = newTopic()
  // One message at a time, and 30 bytes each.
  using peer = await enter(newId(), { properties: [0x27, 0, 0, 0, 30, 0x21, 0, 1] })
  peer.send(
    subscribe5(topic),
    publish5(topic, 'x'.repeat(40), { first: 0x32, id: 1 }),
    publish5(topic, 'small', { first: 0x32, id: 2 }),
  )
  expect(await peer.next()).toEqual(SUBACK_QOS_1)
  const next = [await peer.next(), await peer.next(), await peer.next()]
  expect(next).toContainEqual(publish5(topic, 'small', { first: 0x32, id: 1 }))
})

test('SUBACK answers all filters in order, with the identifier of SUBSCRIBE and no properties', async () => {
  using peer = await enter()
  peer.send(
    packet(0x82, uint16(0x1234), [0], field('a/1'), [1], field('a/#/b'), [1], field('a/2'), [2], field('a+'), [0]),
  )
  expect(await peer.next()).toEqual([0x90, 7, 0x12, 0x34, 0, 1, 0x8f, 2, 0x8f])
})

test('UNSUBACK answers all filters in order, also those without a subscription', async () => {
  using peer = await enter()
  peer.send(subscribe5('u/+'), packet(0xa2, uint16(0x1235), [0], field('u/1'), field('u/+'), field('u/#')))
  expect(await peer.next()).toEqual(SUBACK_QOS_1)
  // Compared character by character: what a wildcard would match is another filter.
  expect(await peer.next()).toEqual([0xb0, 6, 0x12, 0x35, 0, 0x11, 0, 0x11])
})

test('PUBLISH is acknowledged by its QoS with its identifier, and a released identifier names a new message', async () => {
  const topic = newTopic()
  using peer = await subscribed(topic, 0)
  for (const dup of [0, 0x08]) {
    peer.send(publish5(topic, 'one', { first: 0x32 | dup, id: 77 }))
    const both = [await peer.next(), await peer.next()]
    expect(both).toContainEqual(puback(77))
    // The DUP flag and the QoS of what was received are not handed on, nor is an alias sent to who did not ask for any.
    expect(both).toContainEqual(publish5(topic, 'one'))
  }
  for (const dup of [0, 0x08]) {
    peer.send(publish5(topic, 'two', { first: 0x34 | dup, id: 78 }))
    const both = [await peer.next(), await peer.next()]
    expect(both).toContainEqual(packet(0x50, uint16(78)))
    expect(both).toContainEqual(publish5(topic, 'two'))
    peer.send(packet(0x62, uint16(78)))
    expect(await peer.next()).toEqual(packet(0x70, uint16(78)))
  }
  peer.send(publish5(topic, 'three'), [0xc0, 0])
  const last = [await peer.next(), await peer.next()]
  expect(last).toContainEqual(publish5(topic, 'three'))
  expect(last).toContainEqual([0xd0, 0])
})

test('lengths are encoded in as few bytes as possible', async () => {
  const topic = newTopic()
  using peer = await subscribed(topic, 0)
  for (const size of [1, 100, 150, 2000]) {
    peer.send(publish5(topic, 'x'.repeat(size)))
    expect(await peer.next()).toEqual(publish5(topic, 'x'.repeat(size)))
  }
})

test('topics are used unchanged: U+FEFF is kept, and nothing is normalised', async () => {
  const composed = '\uFEFFt/\u00E9'
  using peer = await subscribed(composed, 0)
  peer.send(publish5('t/\u00E9', ''), publish5('\uFEFFt/e\u0301', ''), publish5(composed, 'this one'))
  expect(await peer.next()).toEqual(publish5(composed, 'this one'))
})

test('topic aliases up to the maximum are accepted, and none is carried over to another connection', async () => {
  const topic = newTopic()
  const id = newId()
  using peer = await enter(id)
  peer.send(subscribe5(topic, 0))
  await peer.next()
  for (const alias of [1, 100]) {
    peer.send(
      publish5(topic, '1', { properties: [0x23, 0, alias] }),
      publish5('', '2', { properties: [0x23, 0, alias] }),
    )
    expect([await peer.next(), await peer.next()]).toEqual([publish5(topic, '1'), publish5(topic, '2')])
  }
  await peer.end()
  using again = await enter(id)
  again.send(publish5('', '3', { properties: [0x23, 0, 1] }))
  expect((await again.untilClosed())[2]).toBe(0x82)
})

test('overlapping subscriptions deliver one copy with the identifiers of all', async () => {
  using peer = await enter()
  const topic = newTopic()
  peer.send(subscribe5(topic, 0, [0x0b, 7]), subscribe5(`${topic}/#`, 0, [0x0b, 9]))
  await peer.next()
  await peer.next()
  peer.send(publish5(topic, 'x'), [0xc0, 0])
  const message = await peer.next()
  const identifiers = message.slice(5 + topic.length, 9 + topic.length)
  expect(identifiers.filter((byte) => byte !== 0x0b).toSorted((one, other) => one - other)).toEqual([7, 9])
  expect(await peer.next()).toEqual([0xd0, 0])
})

test('a client at its receive maximum still receives all other packets', async () => {
  const topic = newTopic()
  using peer = await enter(newId(), { properties: [0x21, 0, 1] })
  peer.send(subscribe5(topic))
  await peer.next()
  using publisher = await enter()
  publisher.send(publish5(topic, '1', { first: 0x32, id: 1 }), publish5(topic, '2', { first: 0x32, id: 2 }))
  await publisher.next()
  await publisher.next()
  expect(await peer.next()).toEqual(publish5(topic, '1', { first: 0x32, id: 1 }))
  peer.send([0xc0, 0], publish5(newTopic(), '', { first: 0x32, id: 5 }))
  expect(await peer.next()).toEqual([0xd0, 0])
  expect(await peer.next()).toEqual(puback(5))
  peer.send(puback(1))
  expect(await peer.next()).toEqual(publish5(topic, '2', { first: 0x32, id: 2 }))
})

test('PUBREC is answered with PUBREL of its identifier; one with an error ends the message', async () => {
  const [topic, id] = [newTopic(), newId()]
  const keep = { flags: 0, properties: SESSION_EXPIRY }
  const peer = await enter(id, keep)
  peer.send(subscribe5(topic, 2))
  await peer.next()
  using publisher = await enter()
  for (const [payload, packetId] of [
    ['no', 1],
    ['yes', 2],
  ] as const) {
    publisher.send(publish5(topic, payload, { first: 0x34, id: packetId }))
    await publisher.next()
  }
  expect(await peer.next()).toEqual(publish5(topic, 'no', { first: 0x34, id: 1 }))
  expect(await peer.next()).toEqual(publish5(topic, 'yes', { first: 0x34, id: 2 }))
  peer.send(packet(0x50, uint16(1), [0x80]), packet(0x50, uint16(2)))
  expect(await peer.next()).toEqual(packet(0x62, uint16(2)))
  await peer.end()
  using again = await enter(id, keep)
  // Neither the message that was refused nor the one whose PUBREL was sent comes again.
  expect(await again.next()).toEqual(packet(0x62, uint16(2)))
  again.send(packet(0x70, uint16(2)), [0xc0, 0])
  expect(await again.next()).toEqual([0xd0, 0])
})

test('a subscription that ends does not withdraw messages in flight', async () => {
  const [topic, id] = [newTopic(), newId()]
  const keep = { flags: 0, properties: SESSION_EXPIRY }
  const peer = await enter(id, keep)
  peer.send(subscribe5(topic), publish5(topic, 'x', { first: 0x32, id: 9 }))
  const seen = [await peer.next(), await peer.next(), await peer.next()]
  expect(seen).toContainEqual(publish5(topic, 'x', { first: 0x32, id: 1 }))
  peer.send(unsubscribe5(topic))
  await peer.next()
  await peer.end()
  using again = await enter(id, keep)
  expect(await again.next()).toEqual(publish5(topic, 'x', { first: 0x3a, id: 1 }))
})

test('a repeated subscription replaces the previous one and receives retained messages', async () => {
  const topic = newTopic()
  using peer = await enter()
  peer.send(publish5(topic, 'kept', { first: 0x33, id: 1 }))
  await peer.next()
  // Neither replaces nor removes it, since it is not retained itself.
  peer.send(publish5(topic, 'passing', { first: 0x32, id: 2 }))
  await peer.next()
  for (const [options, first, id] of [
    [1, 0x33, 1],
    [0, 0x31, 0],
  ] as const) {
    peer.send(subscribe5(topic, options))
    expect(await peer.next()).toEqual([0x90, 4, 0, 1, 0, options])
    expect(await peer.next()).toEqual(publish5(topic, 'kept', { first, id }))
  }
  peer.send(puback(1), publish5(topic, 'new', { first: 0x32, id: 3 }))
  const both = [await peer.next(), await peer.next()]
  expect(both).toContainEqual(publish5(topic, 'new'))
})

test('an empty retained message is not stored', async () => {
  const topic = newTopic()
  using peer = await enter()
  peer.send(
    publish5(topic, 'kept', { first: 0x31 }),
    publish5(topic, '', { first: 0x31 }),
    subscribe5(topic, 0),
    [0xc0, 0],
  )
  expect(await peer.next()).toEqual([0x90, 4, 0, 1, 0, 0])
  expect(await peer.next()).toEqual([0xd0, 0])
})

test('a will is sent unchanged, with its user properties in order, and is not retained without the flag', async () => {
  const topic = newTopic()
  using peer = await subscribed(topic, 0x08)
  const properties = ['b', 'a', 'b'].flatMap((name, index) => [0x26, ...field(name), ...field(`${index}`)])
  const gone = await enter(newId(), {
    flags: CLEAN | 0x04,
    payload: [...counted(properties), ...field(topic), ...field('gone')],
  })
  await gone.end()
  expect(await peer.next()).toEqual(publish5(topic, 'gone', { properties }))
  using late = await enter()
  late.send(subscribe5(topic, 0), [0xc0, 0])
  await late.next()
  expect(await late.next()).toEqual([0xd0, 0])
})

test('a message whose expiry passed is not sent to a session that was offline', async () => {
  const [topic, id] = [newTopic(), newId()]
  const keep = { flags: 0, properties: SESSION_EXPIRY }
  const peer = await enter(id, keep)
  peer.send(subscribe5(topic))
  await peer.next()
  await peer.end()
  using publisher = await enter()
  publisher.send(
    publish5(topic, 'old', { first: 0x32, id: 1, properties: [0x02, 0, 0, 0, 1] }),
    publish5(topic, 'new', { first: 0x32, id: 2 }),
  )
  await publisher.next()
  await publisher.next()
  const published = Date.now()
  await until(() => Date.now() - published > 1000, 'a second is over')
  using again = await enter(id, keep)
  expect((await again.next()).slice(-3)).toEqual([...Buffer.from('new')])
})

test('a shared subscription keeps the granted QoS, and a message that a member refuses goes to no other', async () => {
  const topic = newTopic()
  const members = [await subscribed(`$share/g/${topic}`), await subscribed(`$share/g/${topic}`)]
  const publisher = await enter()
  const send = async (payload: string) => {
    publisher.send(publish5(topic, payload, { first: 0x34, id: 1 }))
    await publisher.next()
    publisher.send(packet(0x62, uint16(1)))
    await publisher.next()
  }
  const [one, other] = members as [Raw, Raw]
  // In turns: the first and the second message go to different members.
  await send('1')
  await send('2')
  const messages = [await one.next(), await other.next()]
  expect(messages.map((bytes) => bytes[0])).toEqual([0x32, 0x32])
  one.send(puback(1, 0x80), [0xc0, 0])
  expect(await one.next()).toEqual([0xd0, 0])
  await one.end()
  await send('3')
  other.send(puback(1))
  expect(await other.next()).toEqual(publish5(topic, '3', { first: 0x32, id: 2 }))
  await publisher.end()
  await other.end()
})
