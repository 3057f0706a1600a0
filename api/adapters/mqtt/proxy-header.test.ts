import { describe, expect, it } from 'vitest'
import { MAX_HEADER_BYTES, SIGNATURE, parseProxyHeader } from './proxy-header.ts'

const ADDRESSES_4 = Buffer.from([198, 51, 100, 7, 192, 0, 2, 1, 0xc0, 0x00, 0x22, 0xb3])
const ADDRESSES_6 = Buffer.concat([
  Buffer.from('20010db8000000000000000000000007', 'hex'),
  Buffer.from('20010db8000000000000000000000001', 'hex'),
  Buffer.from([0xc0, 0x00, 0x22, 0xb3]),
])
const header = (versionAndCommand: number, family: number, rest: Buffer) => {
  const fixed = Buffer.from([versionAndCommand, family, rest.length >> 8, rest.length & 0xff])
  return Buffer.concat([SIGNATURE, fixed, rest])
}

describe('PROXY protocol, version 2', () => {
  it('names the client, over IPv4 and IPv6', () => {
    expect(parseProxyHeader(header(0x21, 0x11, ADDRESSES_4))).toEqual({
      state: 'complete',
      length: 28,
      address: '198.51.100.7',
    })
    expect(parseProxyHeader(header(0x21, 0x21, ADDRESSES_6))).toEqual({
      state: 'complete',
      length: 52,
      address: '2001:db8::7',
    })
  })

  it('shows an IPv4-mapped address as IPv4', () => {
    const mapped = Buffer.concat([Buffer.from('00000000000000000000ffffc6336407', 'hex'), ADDRESSES_6.subarray(16)])
    expect(parseProxyHeader(header(0x21, 0x21, mapped))).toMatchObject({ address: '198.51.100.7' })
  })

  it('ends where its length says: extensions and what follows are not read', () => {
    const extended = header(0x21, 0x11, Buffer.concat([ADDRESSES_4, Buffer.from([0x04, 0x00, 0x02, 0xff, 0xff])]))
    const sent = Buffer.concat([extended, Buffer.from([0x10, 0x00])])
    expect(parseProxyHeader(sent)).toEqual({ state: 'complete', length: 33, address: '198.51.100.7' })
  })

  it('every beginning of a header is incomplete', () => {
    const whole = header(0x21, 0x11, ADDRESSES_4)
    for (let bytes = 0; bytes < whole.length; bytes++)
      expect(parseProxyHeader(whole.subarray(0, bytes)), `${bytes} bytes`).toEqual({ state: 'incomplete' })
  })

  it.each([
    ['of the command LOCAL', header(0x20, 0x11, ADDRESSES_4)],
    ['of the command LOCAL without addresses', header(0x20, 0x00, Buffer.alloc(0))],
    ['of no family', header(0x21, 0x00, Buffer.alloc(0))],
    ['of datagrams', header(0x21, 0x12, ADDRESSES_4)],
    ['of a Unix socket', header(0x21, 0x31, Buffer.alloc(216))],
  ])('a header %s names nobody', (_what, bytes) => {
    expect(parseProxyHeader(bytes)).toEqual({ state: 'complete', length: bytes.length, address: undefined })
  })

  it.each([
    ['version 1 is not supported', header(0x11, 0x11, ADDRESSES_4)],
    ['command 2 is unknown', header(0x22, 0x11, ADDRESSES_4)],
    ['11 bytes are too few for its addresses', header(0x21, 0x11, ADDRESSES_4.subarray(1))],
    ['12 bytes are too few for its addresses', header(0x21, 0x21, ADDRESSES_4)],
    [`65551 bytes exceed the limit of ${MAX_HEADER_BYTES} bytes`, header(0x21, 0x11, Buffer.alloc(65_535))],
  ])('%s, which its first 16 bytes say', (reason, bytes) => {
    expect(parseProxyHeader(bytes.subarray(0, 16))).toEqual({ state: 'invalid', reason })
  })

  it.each([
    ['an MQTT packet', Buffer.from([0x10, 0x0c])],
    ['a TLS record', Buffer.from([0x16, 0x03, 0x01])],
    ['version 1', Buffer.from('PROXY TCP4 198.51.100.7 192.0.2.1 49152 8883\r\n')],
    ['another signature', Buffer.from('0d0a0d0a000d0a515549540b', 'hex')],
  ])('%s is none', (_what, bytes) => {
    expect(parseProxyHeader(bytes)).toEqual({ state: 'absent' })
  })
})
