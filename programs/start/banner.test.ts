import { expect, test } from 'vitest'
import { renderBanner } from './banner.ts'
import type { BannerFacts } from './banner.ts'

const facts: BannerFacts = {
  version: '1.2.3',
  seconds: 1.234,
  base: 'http://127.0.0.1:8080',
  manager: 'http://127.0.0.1:7070',
  coap: undefined,
  mqtt: undefined,
  managerAccess: 'requires a token',
  grpcAddress: '127.0.0.1:7071',
  tokenFile: '/data/worker-token',
  proxyAddress: '127.0.0.1:7072',
  publicUrl: 'http://127.0.0.1:8080',
  databaseNote: 'embedded PostgreSQL in /data',
  takenPorts: [],
  admin: { username: 'admin', secretFile: '/data/admin-secret', createdSecret: 'a-secret' },
  notices: [],
}

test('the suggested command contains the addresses if the ports are not the default ones', () => {
  expect(renderBanner(facts, false)).toMatch(/^ +Next +npm run tour$/m)
  const moved = { ...facts, base: 'https://127.0.0.1:8443', manager: 'https://127.0.0.1:7443' }
  expect(renderBanner(moved, false)).toMatch(
    /^ +Next +SKEIN_URL=https:\/\/127\.0\.0\.1:8443 SKEIN_MANAGER_URL=https:\/\/127\.0\.0\.1:7443 npm run tour$/m,
  )
})

test('a wrong base of links is reported with its setting', () => {
  const moved = { ...facts, base: 'http://127.0.0.1:18080' }
  expect(renderBanner(moved, false)).toMatch(/^ +Links +.*point to http:\/\/127\.0\.0\.1:8080: set SKEIN_PUBLIC_URL$/m)
  for (const right of [facts, { ...moved, publicUrl: 'https://skein.example.com' }])
    expect(renderBanner(right, false)).not.toContain('SKEIN_PUBLIC_URL')
})

test('the address for workers is one that can be reached', () => {
  for (const host of ['0.0.0.0', '[::]'])
    expect(renderBanner({ ...facts, grpcAddress: `${host}:7071` }, false)).toContain(
      'connect to HOST:7071 with the token',
    )
  expect(renderBanner(facts, false)).toContain('connect to 127.0.0.1:7071 with the token')
  const published = { ...facts, grpcAddress: '0.0.0.0:7071', publicUrl: 'https://skein.example.com' }
  expect(renderBanner(published, false)).toContain('connect to skein.example.com:7071 with the token')
})

test('the first secret is shown on a terminal only', () => {
  expect(renderBanner(facts, true)).toContain('a-secret')
  expect(renderBanner(facts, false)).not.toContain('a-secret')
})

test('a later start still shows the file of the first secret', () => {
  const later = { ...facts, admin: { ...facts.admin, createdSecret: undefined } }
  expect(renderBanner(later, true)).toMatch(
    /^ +Log in +admin, with the password in .*data\/admin-secret unless it was changed$/m,
  )
  const given = { ...facts, admin: { ...facts.admin, createdSecret: undefined, secretFile: undefined } }
  expect(renderBanner(given, true)).toMatch(/^ +Log in +admin, with the configured password$/m)
})
