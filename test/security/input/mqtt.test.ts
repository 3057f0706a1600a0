/**
 * Packets of MQTT never keep the main thread busy for more than 100 ms of processor time at a stretch, and twice as many of
 * them cost at most two and a half times as much. The delay of `/health` is printed, not asserted.
 */
import { describe, expect, test } from 'vitest'
import { KIB, MESSAGE_BYTES, PAYLOADS, TIMEOUT, ledgerOf, platformOfTests } from './protocol-support.ts'
import { filled, leb, mqtt, overTcp, repeated } from './wires.ts'

const platform = platformOfTests()
/** A little below the largest packet of a stranger. */
const STRANGER_BYTES = 256 * KIB - 1024

describe('MQTT', () => {
  const { measure, requireLinear } = ledgerOf('MQTT', platform)
  const none = Buffer.alloc(0)
  const pair = (name: string, value: string) => Buffer.concat([Buffer.from([0x26]), mqtt.text(name), mqtt.text(value)])
  const alias = (number: number) => Buffer.from([0x23, 0, number])
  const topic = () => `m/${platform().domainId}/c/${platform().channelId}`
  const hello = (id?: string) =>
    mqtt.connect(platform().clientId, platform().clientSecret, id === undefined ? {} : { id })
  const filter = (text: string) => Buffer.concat([mqtt.text(text), Buffer.from([0])])
  /** Each filter fits into a packet, whatever its length. */
  const session = (bytes: Buffer, id?: string) =>
    overTcp(platform().ports.mqtt, Buffer.concat([hello(id), bytes, mqtt.disconnect]))

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
    await requireLinear(`a stranger's ${name}`, STRANGER_BYTES, (bytes) => overTcp(platform().ports.mqtt, of(bytes)))
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
      await overTcp(platform().ports.mqtt, Buffer.concat([packet.subarray(0, 10), packet.subarray(10)]))
    })
  })
})
