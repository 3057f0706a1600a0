import { describe, expect, it } from 'vitest'
import { trustedProxies } from './trusted-proxies.ts'

describe('trusted proxies', () => {
  it.each([
    [['10.0.0.0/8'], '10.255.0.1', true],
    [['10.0.0.0/8'], '11.0.0.1', false],
    [['10.0.0.0/255.0.0.0'], '10.255.0.1', true],
    [['10.0.0.0/255.0.0.0'], '11.0.0.1', false],
    [['192.0.2.7'], '192.0.2.7', true],
    [['192.0.2.7'], '192.0.2.8', false],
    [['192.0.2.7'], '::ffff:192.0.2.7', true],
    [['::ffff:192.0.2.0/120'], '192.0.2.7', true],
    [['0.0.0.0/1'], '2001:db8::1', false],
    [['2001:db8::/32'], '2001:db8:1::1', true],
    [['2001:db8::/32'], '2001:db9::1', false],
    [['loopback'], '127.0.0.9', true],
    [['loopback'], '::1', true],
    [['loopback'], '10.0.0.1', false],
    [['linklocal', 'uniquelocal'], 'fe80::1', true],
    [['linklocal', 'uniquelocal'], '172.31.0.1', true],
    [[], '127.0.0.1', false],
    [['127.0.0.1'], '', false],
    [['127.0.0.1'], '/run/skein.sock', false],
  ])('%j and %s: %s', (trusted, address, expected) => {
    expect(trustedProxies(trusted)(address)).toBe(expected)
  })

  it.each([
    'proxy.example.com',
    '10.0.0.0/33',
    '10.0.0.0/',
    '10.0.0.0/255.0.255.0',
    '0.0.0.0/0',
    '::/129',
    '10.0.0/8',
    '010.0.0.1',
    '/8',
  ])('%s is refused by name', (subnet) => {
    expect(() => trustedProxies([subnet])).toThrow(`SKEIN_TRUST_PROXY: ${subnet} is not an address or subnet`)
  })
})
