import { expect, test } from 'vitest'
import { isForeignOrigin } from './origin.ts'

const TLS = { encrypted: true }

test.each([
  ['http://skein.test', 'skein.test', undefined, false],
  ['http://skein.test:80', 'skein.test', undefined, false],
  ['http://skein.test', 'skein.test:80', undefined, false],
  ['http://skein.test:8080', 'skein.test:8080', undefined, false],
  ['http://[::1]:8080', '[::1]:8080', undefined, false],
  ['https://skein.test', 'skein.test', TLS, false],
  ['https://skein.test', 'skein.test:443', TLS, false],
  ['https://SKEIN.test', 'skein.TEST', TLS, false],
  // A reverse proxy may have ended TLS.
  ['https://skein.test', 'skein.test', undefined, false],
  ['http://skein.test', 'skein.test', TLS, true],
  ['http://skein.test:8443', 'skein.test:8443', TLS, true],
  ['http://skein.test:8080', 'skein.test', undefined, true],
  ['http://skein.test', 'skein.test:8080', undefined, true],
  ['https://skein.test', 'skein.test:80', undefined, true],
  ['http://skein.test', 'skein.test:443', undefined, true],
  ['http://other.test', 'skein.test', undefined, true],
  ['http://skein.test.other.test', 'skein.test', undefined, true],
  ['ftp://skein.test', 'skein.test', undefined, true],
  ['null', 'skein.test', undefined, true],
  ['', 'skein.test', undefined, true],
  ['http://skein.test', undefined, undefined, true],
  ['http://skein.test', 'a host', undefined, true],
])('a page of %j at the host %j over %j: foreign %j', (origin, host, socket, isForeign) => {
  const headers = { origin, ...(host === undefined ? {} : { host }) }
  expect(isForeignOrigin({ headers, socket }, [])).toBe(isForeign)
})

test('a page of http is foreign to an address that a reverse proxy serves over TLS', () => {
  const headers = { origin: 'http://skein.test', host: 'skein.test', 'x-forwarded-proto': 'https, http' }
  expect(isForeignOrigin({ headers }, [])).toBe(true)
  expect(isForeignOrigin({ headers: { ...headers, origin: 'https://skein.test' } }, [])).toBe(false)
  expect(isForeignOrigin({ headers: { ...headers, 'x-forwarded-proto': 'http' } }, [])).toBe(false)
})

test('listed origins, and requests that no page sent, are not foreign', () => {
  const headers = { host: 'skein.test' }
  expect(isForeignOrigin({ headers, socket: TLS }, [])).toBe(false)
  expect(
    isForeignOrigin({ headers: { ...headers, origin: 'http://other.test' }, socket: TLS }, ['http://other.test']),
  ).toBe(false)
})
