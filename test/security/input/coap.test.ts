/**
 * Datagrams of CoAP never keep the main thread busy for more than 100 ms of processor time at a stretch, and twice as many of
 * them cost at most two and a half times as much. The delay of `/health` is printed, not asserted.
 */
import { describe, expect, test } from 'vitest'
import { KIB, PAYLOADS, TIMEOUT, ledgerOf, platformOfTests } from './protocol-support.ts'
import { coap, openCoap, repeated } from './wires.ts'

const platform = platformOfTests()

describe('CoAP', () => {
  const { requireLinear } = ledgerOf('CoAP', platform)
  const none: Buffer = Buffer.alloc(0)
  const URI_PATH = 11
  /** Uri-Path of the channel, and the secret as Uri-Query behind it. */
  const address = (rest: readonly string[] = [], between = none) => {
    const [first, ...others] = ['m', platform().domainId, 'c', platform().channelId, ...rest]
    return Buffer.concat([
      coap.option(URI_PATH, Buffer.from(first)),
      ...others.map((element) => coap.option(0, Buffer.from(element))),
      between,
    ])
  }
  const auth = () => coap.option(15 - URI_PATH, Buffer.from(`auth=${platform().clientSecret}`))
  /** As long as a datagram may be on this way. */
  const DATAGRAM_BYTES = 60_000
  const COUNT = 400
  /** Each is of an endpoint of its own: the server remembers the Message IDs of one, and answers them again without any work. */
  const flood = (datagram: (index: number) => Buffer) => async (count: number) => {
    using peer = await openCoap(platform().ports.coap)
    await peer.flood(Array.from({ length: count }, (_, index) => datagram(index)))
  }

  test('the channel is published to', async () => {
    using peer = await openCoap(platform().ports.coap)
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
          Buffer.concat([address([], content), coap.option(3, Buffer.from(`auth=${platform().clientSecret}`))]),
          body,
        ),
      ),
    )
  })
})
