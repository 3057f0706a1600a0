import { expect, test } from 'vitest'
import { newerUrl } from './legacy-routes.ts'

const DOMAIN = '5384fb1c-d0ae-4cbe-be52-c54223150fe0'

test.each([
  ['/things', '/clients'],
  [`/${DOMAIN}/things?limit=10`, `/${DOMAIN}/clients?limit=10`],
  [`/${DOMAIN}/things/bulk`, `/${DOMAIN}/clients/bulk`],
  [`/${DOMAIN}/things/t1/tags`, `/${DOMAIN}/clients/t1/tags`],
  [`/${DOMAIN}/things/configs/t1`, `/${DOMAIN}/clients/configs/t1`],
  [`/${DOMAIN}/channels/c1/things`, `/${DOMAIN}/channels/c1/clients`],
  [`/${DOMAIN}/channels/c1/things/t1/connect`, `/${DOMAIN}/channels/c1/connect`],
  [`/${DOMAIN}/channels/c1/things/t1/disconnect`, `/${DOMAIN}/channels/c1/disconnect`],
  [`/${DOMAIN}/groups/g1/things?limit=10`, `/${DOMAIN}/groups/g1/clients?limit=10`],
  ['/users/u1/things', '/users/u1/clients'],
  ['//users/u1/things?limit=10', '/users/u1/clients?limit=10'],
  ['//users/u1/channels?limit=10', '/users/u1/channels?limit=10'],
  [`/${DOMAIN}/journal/thing/t1`, `/${DOMAIN}/journal/client/t1`],
  [`/${DOMAIN}/connect`, `/${DOMAIN}/channels/connect`],
  [`/${DOMAIN}/disconnect`, `/${DOMAIN}/channels/disconnect`],
])('%s is treated as %s', (older, newer) => {
  expect(newerUrl(older)).toBe(newer)
})

const BOUND = `Bearer x.${Buffer.from(JSON.stringify({ domain: DOMAIN })).toString('base64url')}.y`

test.each([
  ['/things/configs', `/${DOMAIN}/clients/configs`],
  ['/things/configs/t1?limit=10', `/${DOMAIN}/clients/configs/t1?limit=10`],
  ['/things/state/t1', `/${DOMAIN}/clients/state/t1`],
  ['/certs', `/${DOMAIN}/certs`],
  ['/certs/s1', `/${DOMAIN}/certs/s1`],
  ['/serials/t1?limit=10', `/${DOMAIN}/serials/t1?limit=10`],
  ['/journal/thing/t1', `/${DOMAIN}/journal/client/t1`],
  ['/things/t1', '/clients/t1'],
  ['/certs/crl', '/certs/crl'],
  ['/certs/ocsp', '/certs/ocsp'],
])('with a token that is bound to a domain %s is treated as %s', (older, newer) => {
  expect(newerUrl(older, BOUND)).toBe(newer)
})

test.each([
  undefined,
  'Bearer x.y.z',
  'Client secret',
  `Bearer x.${Buffer.from('{"domain":"../users"}').toString('base64url')}.y`,
])('with %s the path of a certificate is unchanged', (authorization) => {
  expect(newerUrl('/certs/s1', authorization)).toBe('/certs/s1')
})

test.each([
  '/things/bootstrap/ext-1',
  '/channels/things/clients',
  '/groups/things/children',
  '/channels/connect',
  '/connect',
  `/m/${DOMAIN}/c/c1/things`,
  '/channels/c1/messages/things/connect',
  '/clients?name=/things/a',
  '//clients',
])('the path of %s is unchanged', (url) => {
  expect(newerUrl(url)).toBe(url)
})
