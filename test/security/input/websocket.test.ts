/**
 * Frames and heads of WebSocket never keep the main thread busy for more than 100 ms of processor time at a stretch, and twice as many of
 * them cost at most two and a half times as much. The delay of `/health` is printed, not asserted.
 */
import { describe, expect, test } from 'vitest'
import { MESSAGE_BYTES, PAYLOADS, TIMEOUT, ledgerOf, platformOfTests } from './protocol-support.ts'
import { frame, overTcp, repeated } from './wires.ts'

const platform = platformOfTests()

describe('WebSocket', () => {
  const { requireLinear } = ledgerOf('WebSocket', platform)
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
  const path = () => `/m/${platform().domainId}/c/${platform().channelId}`
  const opened = () => upgrade(path(), [`Authorization: Client ${platform().clientSecret}`])
  const socket = (bytes: Buffer, head = opened()) => overTcp(platform().ports.http, Buffer.concat([head, bytes, CLOSE]))

  test('the socket that hostile frames are sent over is opened', async () => {
    expect((await socket(none)).toString('latin1')).toContain('101 Switching Protocols')
  })

  test.each<[string, (bytes: number) => Buffer]>([
    ['empty frames', (bytes) => repeated(bytes / 64, frame(2, none))],
    ['frames of a byte', (bytes) => repeated(bytes / 64, frame(1, Buffer.from('a')))],
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
      for (let time = 0; time < 20; time++) await overTcp(platform().ports.http, Buffer.concat([of(bytes), CLOSE]))
    })
  })
})
