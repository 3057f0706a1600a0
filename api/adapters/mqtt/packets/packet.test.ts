/** The packets (MQTT 3.1.1 and 5.0 chapter 3), compared with another implementation of them; whatever else comes is refused. */
import fc from 'fast-check'
import { generate, parser as createParser } from 'mqtt-packet'
import type { Packet as OtherPacket } from 'mqtt-packet'
import { expect, test } from 'vitest'
import { UnsupportedVersion } from './connect.ts'
import { Frames } from './frames.ts'
import { parsePacket } from './packet.ts'
import type { Packet } from './packet.ts'
import { formatPublish, stamp } from './publish.ts'
import { ProtocolError } from './wire.ts'

const text = fc
  .string({ unit: 'grapheme', maxLength: 40 })
  .filter((one) => !one.includes('\u0000') && one.isWellFormed())
const topic = text.map((one) => `t${one.replaceAll(/[+#]/g, '')}`)
const qos = fc.constantFrom(0, 1, 2)
const version = fc.constantFrom(4, 5)
const bytes = fc.uint8Array({ maxLength: 300 }).map((one) => Buffer.from(one))
const packetId = fc.integer({ min: 1, max: 65_535 })

const publishProperties = fc.record(
  {
    contentType: text,
    responseTopic: topic,
    correlationData: bytes,
    messageExpiryInterval: fc.nat(),
    payloadFormatIndicator: fc.boolean(),
  },
  { requiredKeys: [] },
)

function read(raw: Buffer, protocolVersion: 3 | 4 | 5 | undefined, cutAt: readonly number[] = []): Packet[] {
  const frames = new Frames(1024 * 1024)
  const found: Packet[] = []
  const ends = [...new Set(cutAt.map((at) => at % (raw.length + 1))), raw.length].toSorted((one, other) => one - other)
  let start = 0
  for (const end of ends) {
    frames.push(raw.subarray(start, end), (first, chunk, from, to) =>
      found.push(parsePacket(first, chunk, from, to, protocolVersion)),
    )
    start = end
  }
  return found
}

test('PUBLISH reads back unchanged, however its bytes are split', () => {
  fc.assert(
    fc.property(
      fc.record({ topic, payload: bytes, qos, retain: fc.boolean(), packetId, properties: publishProperties }),
      version,
      fc.array(fc.nat(), { maxLength: 5 }),
      (drawn, protocolVersion, cuts) => {
        const { properties, ...facts } = drawn
        const packet = { cmd: 'publish', dup: false, ...facts, messageId: drawn.packetId } as OtherPacket
        const raw = generate({ ...packet, ...(protocolVersion === 5 ? { properties } : {}) } as OtherPacket, {
          protocolVersion,
        })
        const [one, another] = read(Buffer.concat([raw, raw]), protocolVersion as 4 | 5, cuts)
        expect(another).toEqual(one)
        const { payloadFormatIndicator, ...rest } = properties
        expect(one).toMatchObject({
          type: 'publish',
          topic: drawn.topic,
          payload: drawn.payload,
          qos: drawn.qos,
          retain: drawn.retain,
          packetId: drawn.qos === 0 ? 0 : drawn.packetId,
          properties:
            protocolVersion === 4
              ? {}
              : {
                  ...rest,
                  ...(payloadFormatIndicator === undefined
                    ? {}
                    : { payloadFormatIndicator: payloadFormatIndicator ? 1 : 0 }),
                },
        })
      },
    ),
  )
})

test('the other implementation reads what we write, long properties included', () => {
  const pair = fc.tuple(text, text)
  fc.assert(
    fc.property(
      topic,
      bytes,
      qos,
      version,
      fc.array(pair, { maxLength: 20 }),
      text,
      (name, payload, ofQos, protocolVersion, userProperties, contentType) => {
        const template = formatPublish(protocolVersion as 4 | 5, {
          topic: name,
          payload,
          qos: ofQos as 0 | 1 | 2,
          retain: true,
          properties: { contentType, ...(userProperties.length === 0 ? {} : { userProperties }) },
        })
        const found: OtherPacket[] = []
        const parser = createParser({ protocolVersion })
        parser.on('packet', (packet) => found.push(packet))
        parser.parse(stamp(template, 7, false))
        expect(found).toMatchObject([{ cmd: 'publish', topic: name, payload, qos: ofQos, retain: true }])
        const [mine] = read(stamp(template, 7, false), protocolVersion as 4 | 5)
        if (protocolVersion === 5)
          expect(mine).toMatchObject({
            properties: { contentType, ...(userProperties.length ? { userProperties } : {}) },
          })
      },
    ),
  )
})

test('CONNECT reads back unchanged', () => {
  const connect = fc.record({
    clientId: topic,
    clean: fc.boolean(),
    keepalive: fc.nat({ max: 65_535 }),
    username: text,
    password: bytes,
  })
  fc.assert(
    fc.property(
      connect,
      fc.option(fc.record({ topic, payload: bytes, qos, retain: fc.boolean() })),
      version,
      (drawn, will, protocolVersion) => {
        const raw = generate({
          cmd: 'connect',
          protocolId: 'MQTT',
          protocolVersion: protocolVersion as 4 | 5,
          ...drawn,
          ...(will === null
            ? {}
            : { will: will as { topic: string; payload: Buffer; qos: 0 | 1 | 2; retain: boolean } }),
        })
        expect(read(raw, undefined)).toMatchObject([
          {
            type: 'connect',
            version: protocolVersion,
            cleanStart: drawn.clean,
            keepAliveSeconds: drawn.keepalive,
            clientIdentifier: drawn.clientId,
            username: drawn.username,
            password: drawn.password,
            will: will === null ? undefined : { ...will },
          },
        ])
      },
    ),
  )
})

const SAMPLES: readonly OtherPacket[] = [
  { cmd: 'publish', topic: 'a/b', payload: Buffer.from('x'), qos: 1, dup: false, retain: false, messageId: 5 },
  { cmd: 'subscribe', messageId: 6, subscriptions: [{ topic: 'a/+', qos: 1 }] },
  { cmd: 'unsubscribe', messageId: 7, unsubscriptions: ['a/+', 'b'] },
  { cmd: 'puback', messageId: 8 },
  { cmd: 'pubrec', messageId: 8 },
  { cmd: 'pubrel', messageId: 8 },
  { cmd: 'pubcomp', messageId: 8 },
  { cmd: 'pingreq' },
  { cmd: 'disconnect' },
]

test('a packet with any changed byte is read or refused, and nothing else happens', () => {
  for (const protocolVersion of [4, 5] as const) {
    const connect = generate({
      cmd: 'connect',
      protocolId: 'MQTT',
      protocolVersion,
      clientId: 'c',
      username: 'u',
      password: Buffer.from('p'),
      will: { topic: 'w', payload: Buffer.from('gone'), qos: 1, retain: true },
    })
    const samples: [Buffer, 4 | 5 | undefined][] = [
      [connect, undefined],
      ...SAMPLES.map((sample): [Buffer, 4 | 5] => [generate(sample, { protocolVersion }), protocolVersion]),
    ]
    for (const [sample, spoken] of samples) {
      expect(read(sample, spoken)).toHaveLength(1)
      for (let at = 0; at < sample.length; at++) {
        for (let value = 0; value < 256; value++) {
          const changed = Buffer.from(sample)
          changed[at] = value
          expectPacketOrRefusal(changed, spoken)
        }
        expectPacketOrRefusal(sample.subarray(0, at), spoken)
      }
    }
  }
})

function expectPacketOrRefusal(raw: Buffer, spoken: 4 | 5 | undefined): void {
  try {
    read(raw, spoken)
  } catch (error) {
    if (!(error instanceof ProtocolError) && !(error instanceof UnsupportedVersion)) throw error
  }
}

test.each([
  ['a topic that is no UTF-8', [0x30, 0x04, 0, 2, 0xc3, 0x28]],
  ['a topic with the null character', [0x30, 0x05, 0, 2, 0x61, 0x00, 0x61]],
  ['an encoded surrogate', [0x30, 0x05, 0, 3, 0xed, 0xa0, 0x80]],
  ['an empty topic', [0x30, 0x02, 0, 0]],
  ['a wildcard in a topic name', [0x30, 0x03, 0, 1, 0x23]],
  ['QoS 3', [0x36, 0x05, 0, 1, 0x61, 0, 1]],
  ['packet identifier 0', [0x32, 0x05, 0, 1, 0x61, 0, 0]],
  ['DUP with QoS 0', [0x38, 0x03, 0, 1, 0x61]],
  ['SUBSCRIBE without a filter', [0x82, 0x02, 0, 1]],
  ['SUBSCRIBE with wrong flags', [0x80, 0x06, 0, 1, 0, 1, 0x61, 0]],
  ['reserved bits of subscription options', [0x82, 0x06, 0, 1, 0, 1, 0x61, 0x80]],
  ['UNSUBSCRIBE without a filter', [0xa2, 0x02, 0, 1]],
  ['PUBREL with wrong flags', [0x60, 0x02, 0, 1]],
  ['a PINGREQ with a body', [0xc0, 0x01, 0]],
  ['a packet of a server', [0x20, 0x02, 0, 0]],
  ['packet type 0', [0x00, 0x00]],
  ['AUTH before 5.0', [0xf0, 0x00]],
  ['a length of five bytes', [0x30, 0xff, 0xff, 0xff, 0xff, 0x01]],
])('%s is refused', (_what, raw) => {
  expect(() => read(Buffer.from(raw), 4)).toThrow(ProtocolError)
})

test.each([
  ['a property twice', [3, 1, 97, 3, 0, 1, 97]],
  ['a property of another packet', [0x21, 0, 10]],
  ['a topic alias of 0', [0x23, 0, 0]],
  ['a subscription identifier from a client', [0x0b, 1]],
  ['a payload format that is none', [0x01, 2]],
  ['an unknown property', [0x7f, 0]],
  ['properties that end too early', [0x02, 0, 0]],
])('%s is refused', (_what, properties) => {
  const body = [0, 1, 0x61, properties.length, ...properties]
  expect(() => read(Buffer.from([0x30, body.length, ...body]), 5)).toThrow(ProtocolError)
})
