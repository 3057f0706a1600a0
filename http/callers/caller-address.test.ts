import type { IncomingMessage } from 'node:http'
import { expect, test } from 'vitest'
import { callerAddressBehind, peerAddressOf, setPeerAddress } from './caller-address.ts'

const requestFrom = (remoteAddress: string | undefined, forwarded?: string) =>
  ({
    socket: { remoteAddress },
    headers: forwarded === undefined ? {} : { 'x-forwarded-for': forwarded },
  }) as unknown as IncomingMessage

test.each([
  [[], '192.0.2.1', undefined, '192.0.2.1'],
  [[], '192.0.2.1', '198.51.100.7', '192.0.2.1'],
  [['192.0.2.1'], '192.0.2.1', '198.51.100.7', '198.51.100.7'],
  [['192.0.2.0/24'], '192.0.2.1', '203.0.113.5, 198.51.100.7, 192.0.2.9', '198.51.100.7'],
  [['192.0.2.1'], '203.0.113.5', '198.51.100.7', '203.0.113.5'],
  [['192.0.2.1'], '192.0.2.1', 'not an address', '192.0.2.1'],
  [['192.0.2.1'], '192.0.2.1', undefined, '192.0.2.1'],
  [[], undefined, undefined, ''],
])('trusting %j, a request of the peer %s for %s comes from %s', (trusted, peer, forwarded, address) => {
  expect(callerAddressBehind(trusted)(requestFrom(peer, forwarded))).toBe(address)
})

test('an adopted peer counts as the peer', () => {
  const socket = { remoteAddress: '' }
  setPeerAddress(socket, '198.51.100.7')
  expect(peerAddressOf(socket)).toBe('198.51.100.7')
})
