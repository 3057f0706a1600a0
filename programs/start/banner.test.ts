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
  managerAccess: 'needs a token',
  grpcAddress: '127.0.0.1:7071',
  tokenFile: '/data/worker-token',
  proxyAddress: '127.0.0.1:7072',
  publicUrl: 'http://127.0.0.1:8080',
  databaseNote: 'embedded PostgreSQL in /data',
  takenPorts: [],
  admin: { username: 'admin', secretFile: '/data/admin-secret', madeSecret: 'a-secret' },
  notices: [],
}

test('the next command is one that finds the platform, whatever its ports', () => {
  expect(renderBanner(facts, false)).toMatch(/^ +Next +npm run tour$/m)
  const moved = { ...facts, base: 'https://127.0.0.1:8443', manager: 'https://127.0.0.1:7443' }
  expect(renderBanner(moved, false)).toMatch(
    /^ +Next +SKEIN_URL=https:\/\/127\.0\.0\.1:8443 SKEIN_MANAGER_URL=https:\/\/127\.0\.0\.1:7443 npm run tour$/m,
  )
})

test('links that lead elsewhere are told, with the setting', () => {
  const moved = { ...facts, base: 'http://127.0.0.1:18080' }
  expect(renderBanner(moved, false)).toMatch(/^ +Links +.*lead to http:\/\/127\.0\.0\.1:8080: set SKEIN_PUBLIC_URL$/m)
  for (const right of [facts, { ...moved, publicUrl: 'https://skein.example.com' }])
    expect(renderBanner(right, false)).not.toContain('SKEIN_PUBLIC_URL')
})

test('workers are told no address that nobody can dial', () => {
  for (const host of ['0.0.0.0', '[::]'])
    expect(renderBanner({ ...facts, grpcAddress: `${host}:7071` }, false)).toContain('dial HOST:7071 with the token')
  expect(renderBanner(facts, false)).toContain('dial 127.0.0.1:7071 with the token')
})

test('the first secret is shown on a terminal only', () => {
  expect(renderBanner(facts, true)).toContain('a-secret')
  expect(renderBanner(facts, false)).not.toContain('a-secret')
})

test('a later start still says where the first secret lies', () => {
  const later = { ...facts, admin: { ...facts.admin, madeSecret: undefined } }
  expect(renderBanner(later, true)).toMatch(
    /^ +Log in +admin, with the password in .*data\/admin-secret, or another one since$/m,
  )
  const given = { ...facts, admin: { ...facts.admin, madeSecret: undefined, secretFile: undefined } }
  expect(renderBanner(given, true)).toMatch(/^ +Log in +admin, with the password it was given$/m)
})
