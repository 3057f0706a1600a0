import { describe, expect, it } from 'vitest'
import { isPublicAddress } from '#core/public-address.ts'
import { isListed, isLoopbackHost, mayBePlainHttp, mayBePrivate } from './address.ts'

describe('isPublicAddress', () => {
  it.each(['1.1.1.1', '140.82.121.34', '100.63.255.255', '172.32.0.1', '2606:4700::1111', '2a00:1450:4001::1'])(
    'allows %s',
    (address) => expect(isPublicAddress(address)).toBe(true),
  )

  it.each([
    '0.0.0.0',
    '10.1.2.3',
    '100.64.0.1',
    '127.0.0.1',
    '127.255.255.254',
    '169.254.169.254',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.1.1',
    '198.18.0.1',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    'fe80::1',
    'fc00::1',
    'fd00:ec2::254',
    'ff02::1',
    '::ffff:127.0.0.1',
    '::ffff:10.0.0.1',
    '::ffff:8.8.8.8',
    '64:ff9b::a00:1',
    '2002:a00:1::1',
    '2001:0:a00:1::1',
    '2001:db8::1',
    'not an address',
  ])('refuses %s', (address) => expect(isPublicAddress(address)).toBe(false))
})

describe('the lists', () => {
  const policy = {
    listedHosts: ['registry.lan', '10.0.0.5:5000', '[fd00::1]:5000'],
    configuredAuthorities: ['configured.lan:443'],
  }

  it('matches a listed host on any port and a listed host with a port on that one', () => {
    expect(isListed(new URL('http://registry.lan:5000/v2/'), policy)).toBe(true)
    expect(isListed(new URL('http://REGISTRY.lan/v2/'), policy)).toBe(true)
    expect(isListed(new URL('http://10.0.0.5:5000/v2/'), policy)).toBe(true)
    expect(isListed(new URL('http://10.0.0.5:5001/v2/'), policy)).toBe(false)
    expect(isListed(new URL('https://[fd00::1]:5000/'), policy)).toBe(true)
    expect(isListed(new URL('http://other.registry.lan/'), policy)).toBe(false)
  })

  it('allows a private address for the configured registry, but not plain HTTP', () => {
    expect(mayBePrivate(new URL('https://configured.lan/'), policy)).toBe(true)
    expect(mayBePrivate(new URL('https://configured.lan:8443/'), policy)).toBe(false)
    expect(mayBePlainHttp(new URL('http://configured.lan/'), policy)).toBe(false)
  })

  it('allows plain HTTP to loopback and to listed hosts only', () => {
    expect(mayBePlainHttp(new URL('http://127.0.0.1:5000/'), policy)).toBe(true)
    expect(mayBePlainHttp(new URL('http://2130706433/'), policy)).toBe(true)
    expect(mayBePlainHttp(new URL('http://[::1]/'), policy)).toBe(true)
    expect(mayBePlainHttp(new URL('http://registry.lan/'), policy)).toBe(true)
    expect(mayBePlainHttp(new URL('http://ghcr.io/'), policy)).toBe(false)
    expect(isLoopbackHost('localhost.evil.example')).toBe(false)
  })
})
