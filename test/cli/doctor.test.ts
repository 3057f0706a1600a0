// `skein doctor` before an installation that is ill: what, where, and what to do.
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { Server } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { createHome } from './skein.ts'

const since = '2026-01-01T00:00:00.000000Z'
const READY = {
  status: 'unavailable',
  checks: {
    program: { status: 'ready', since },
    database: { status: 'unavailable', reason: 'the database does not answer', since },
    redis: { status: 'degraded', reason: 'Redis is unavailable', since },
  },
}
const DATABASE = {
  version: '17.2',
  is_embedded: false,
  is_replica: true,
  size_bytes: 2 ** 30,
  settings: {
    fsync: 'off',
    full_page_writes: 'on',
    synchronous_commit: 'local',
    synchronous_standby_names: 'second',
    data_checksums: 'on',
  },
  standbys: [{ name: 'second', state: 'catchup', sync_state: 'sync', lag_bytes: 2 ** 28 }],
  oldest_write: { seconds: 4000, application: 'a report' },
  migrations: { known: 3, applied: 2, newest: '2 step' },
  nodes: [
    { id: 'api-1', kind: 'api', version: '0.1.0', migration: 2 },
    { id: 'api-2', kind: 'api', version: '0.2.0', migration: 3 },
  ],
}
const ANSWERS: Readonly<Record<string, object>> = {
  '/health': { status: 'pass', version: '0.1.0' },
  '/ready': READY,
  '/health/database': DATABASE,
  '/users/profile': { credentials: { username: 'admin' } },
  '/workers': { total: 0, workers: [] },
}

type Doctor = { findings: { verdict: string; what: string; hint?: string }[] }

/** An installation that gives these answers. */
async function serve(server: Server, answers: Readonly<Record<string, object>>) {
  server.on('request', (request, response) => {
    const path = request.url?.split('?', 1)[0] ?? ''
    response.statusCode = path === '/ready' ? 503 : path in answers ? 200 : 404
    response.setHeader('content-type', 'application/json').end(JSON.stringify(answers[path] ?? {}))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())),
  }
}

it('names every fault with its place and a remedy', async () => {
  using home = createHome()
  const [key, cert] = ['key.pem', 'cert.pem'].map((name) => join(home.folder, name)) as [string, string]
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', key, '-out', cert]
  execFileSync('openssl', ['req', '-x509', ...newKey, '-days', '3', '-subj', '/CN=localhost'], { stdio: 'ignore' })
  await using server = await serve(createHttpsServer({ key: readFileSync(key), cert: readFileSync(cert) }), ANSWERS)
  const url = `https://127.0.0.1:${server.port}`
  const ended = await home.run(['doctor', '--insecure', '--url', url, '--manager-url', url], {
    environment: { SKEIN_TOKEN: 'a.b.c' },
  })
  expect(ended.code).toBe(1)
  const { findings } = JSON.parse(ended.stdout) as Doctor
  for (const [verdict, what, hint] of [
    ['error', `${url}: database: the database does not answer (since ${since})`, 'SKEIN_DATABASE_URL'],
    ['warning', `${url}: redis: Redis is unavailable (since ${since})`, 'SKEIN_REDIS_URL'],
    ['warning', `the certificate of ${url} is valid until `, 'renew it'],
    ['ok', 'PostgreSQL 17.2, 1.0 GiB', ''],
    ['error', 'database: the server is a replica', 'primary'],
    ['error', 'database: fsync off: a crash loses acknowledged messages', 'SKEIN_DATABASE_UNSAFE'],
    ['warning', 'database: synchronous_standby_names is set', 'synchronous_commit=on'],
    ['warning', 'database: standby "second" is catchup, 256 MiB behind', 'failover'],
    ['error', 'database: migration 2 step is the newest, and the program knows 3', 'the log says why'],
    ['warning', 'database: a transaction of "a report" has been writing for 4000 s', 'pg_stat_activity'],
    ['warning', 'programs of several versions are running: api-1 0.1.0, api-2 0.2.0', 'docs/guides/upgrade.md'],
  ] as const) {
    const found = findings.find((finding) => finding.what.startsWith(what))
    expect(found, what).toMatchObject({ verdict })
    expect(found?.hint ?? '').toContain(hint)
  }
})

const daysAgo = (days: number) => new Date(Date.now() - days * 86_400_000).toISOString()

it.each([
  [{}, 'warning', 'there is no backup', 'npm run backup'],
  [{ installed_at: daysAgo(30) }, 'warning', 'there is no backup', 'npm run backup'],
  [{ installed_at: daysAgo(1) }, 'ok', 'there is no backup', ''],
  [{ last_at: daysAgo(30), installed_at: daysAgo(1) }, 'warning', 'the last backup is 30 days old', 'npm run backup'],
  [{ last_at: daysAgo(30) }, 'warning', 'the last backup is 30 days old', 'npm run backup'],
  [{ last_at: daysAgo(1) }, 'ok', 'the last backup is of ', ''],
  [{ archive: { last_at: daysAgo(0) } }, 'ok', 'database: the write-ahead log was last archived at ', ''],
  [
    { archive: { last_at: daysAgo(0.1), last_failure_at: daysAgo(0) }, last_at: daysAgo(1) },
    'error',
    'database: failed to archive the write-ahead log at ',
    'archive_command',
  ],
  // An archive without a segment is not a backup.
  [{ archive: {} }, 'warning', 'there is no backup', 'npm run backup'],
])('judges backups: %j', async (backups, verdict, what, hint) => {
  using home = createHome()
  await using server = await serve(createServer(), { ...ANSWERS, '/health/database': { ...DATABASE, backups } })
  const url = `http://127.0.0.1:${server.port}`
  const ended = await home.run(['doctor', '--url', url, '--manager-url', url], {
    environment: { SKEIN_TOKEN: 'a.b.c' },
  })
  const found = (JSON.parse(ended.stdout) as Doctor).findings.filter((finding) => finding.what.startsWith(what))
  expect(found, ended.stdout).toMatchObject([{ verdict }])
  expect(found[0]?.hint ?? '').toContain(hint)
})

it.each([
  [{ failure: 'the store failed: it is full (ENOSPC, write)' }, 'error', 'history: the store failed: it is full'],
  [{ succeeded_at: daysAgo(0.1) }, 'error', 'history: the copy has made no progress since '],
  [{ behind_seconds: 90_000 }, 'warning', 'history: the copy is 25 hours behind'],
  [{ overdue_files: 2 }, 'warning', 'history: 2 files could not be deleted'],
  [{}, 'ok', 'history: records were last copied at '],
])('judges the copy of records: %j', async (given, verdict, what) => {
  using home = createHome()
  const history = { succeeded_at: daysAgo(0), waiting_ranges: 0, behind_seconds: 0, overdue_files: 0, ...given }
  await using server = await serve(createServer(), { ...ANSWERS, '/health/database': { ...DATABASE, history } })
  const url = `http://127.0.0.1:${server.port}`
  const ended = await home.run(['doctor', '--url', url, '--manager-url', url], {
    environment: { SKEIN_TOKEN: 'a.b.c' },
  })
  const found = (JSON.parse(ended.stdout) as Doctor).findings.filter((finding) => finding.what.startsWith('history: '))
  expect(found, ended.stdout).toMatchObject([{ verdict }])
  expect(found[0]?.what).toContain(what)
})

const DOMAIN = '7f4e3f5e-0c55-4d4a-8a44-0d3f6f0b6d10'
const NONE = { stored_records: null, module_bytes: null, run_bytes: 1, messages_per_second: null }

it.each([
  [
    'domains without limits',
    2,
    {},
    NONE,
    'warning',
    'domains have no limit of stored_records, module_bytes, messages_per_second:',
  ],
  [
    'a limit of the domain itself',
    2,
    { module_bytes: 5 },
    { ...NONE, module_bytes: 5 },
    'warning',
    'domains have no limit of stored_records, messages',
  ],
  [
    'all limits',
    2,
    {},
    { stored_records: 1, module_bytes: 1, run_bytes: 1, messages_per_second: 1 },
    'ok',
    'quotas of domains are set',
  ],
  ['one domain', 1, {}, NONE, undefined, undefined],
  ['a caller who sees no quotas', 2, {}, undefined, undefined, undefined],
] as const)('names quotas that are not set: %s', async (_what, total, own, quotas, verdict, what) => {
  using home = createHome()
  await using server = await serve(createServer(), {
    ...ANSWERS,
    '/domains': { total, domains: [{ id: DOMAIN }] },
    ...(quotas === undefined ? {} : { [`/domains/${DOMAIN}/quotas`]: { domain_id: DOMAIN, own, quotas } }),
  })
  const url = `http://127.0.0.1:${server.port}`
  const { stdout } = await home.run(['doctor', '--url', url, '--manager-url', url], {
    environment: { SKEIN_TOKEN: 'a.b.c' },
  })
  const found = (JSON.parse(stdout) as Doctor).findings.filter((finding) =>
    /quotas of domains|domains have no limit/.test(finding.what),
  )
  if (verdict === undefined) return expect(found).toEqual([])
  expect(found).toMatchObject([{ verdict, what: expect.stringContaining(what) as string }])
  if (verdict === 'warning') expect(found[0]?.hint).toContain('SKEIN_QUOTA_STORED_RECORDS')
})

const USES = { tasks: { limit: 2, used: 3 }, workflows: { limit: 5, used: 5 }, run_bytes: { limit: 10, used: 12 } }

it.each([
  [
    'above two limits',
    USES,
    [`domain plant (${DOMAIN}) has more than its quota of tasks (3 of 2), run_bytes (12 of 10)`],
  ],
  ['at its limit', { tasks: { limit: 3, used: 3 }, stored_records: { limit: null, used: 9 } }, []],
  ['without figures', { messages_per_second: { limit: 1, used: null }, concurrent_runs: { limit: 1, used: 2 } }, []],
] as const)('names the domains that have more than they may: one %s', async (_what, quotas, expected) => {
  using home = createHome()
  await using server = await serve(createServer(), {
    ...ANSWERS,
    '/domains': { total: 1, domains: [{ id: DOMAIN, name: 'plant' }] },
    [`/domains/${DOMAIN}/quotas`]: { domain_id: DOMAIN, own: {}, quotas: NONE },
    [`/domains/${DOMAIN}/usage`]: { domain_id: DOMAIN, quotas },
  })
  const url = `http://127.0.0.1:${server.port}`
  const { stdout } = await home.run(['doctor', '--url', url, '--manager-url', url], {
    environment: { SKEIN_TOKEN: 'a.b.c' },
  })
  const found = (JSON.parse(stdout) as Doctor).findings.filter(({ what }) => what.includes('quota'))
  expect(found.map(({ what }) => what)).toEqual(expected)
  for (const { verdict, hint } of found) {
    expect(verdict).toBe('warning')
    expect(hint).toContain('nothing is deleted, and nothing can be added')
  }
})

it('names a domain with an alias that belongs to the topics of devices', async () => {
  using home = createHome()
  const other = '7d1f9a1e-51c6-4a2b-9b57-0d8d1f0f2a10'
  await using server = await serve(createServer(), {
    ...ANSWERS,
    '/domains': {
      total: 2,
      domains: [
        { id: DOMAIN, name: 'plant', route: 'c' },
        { id: other, name: 'coffee', route: 'coffee' },
      ],
    },
    [`/domains/${DOMAIN}/quotas`]: { domain_id: DOMAIN, own: {}, quotas: NONE },
    ...Object.fromEntries([DOMAIN, other].map((id) => [`/domains/${id}/usage`, { domain_id: id, quotas: {} }])),
  })
  const url = `http://127.0.0.1:${server.port}`
  const { stdout } = await home.run(['doctor', '--url', url, '--manager-url', url], {
    environment: { SKEIN_TOKEN: 'a.b.c' },
  })
  const found = (JSON.parse(stdout) as Doctor).findings.filter(({ what }) => what.includes('has the alias'))
  expect(found).toEqual([
    expect.objectContaining({
      verdict: 'warning',
      what: `domain plant (${DOMAIN}) has the alias c, which belongs to the topics and paths of devices`,
      hint: expect.stringContaining(`skein domains update ${DOMAIN}`) as string,
    }),
  ])
})

it('names the first of many domains above a limit, and says how many it did not read', async () => {
  using home = createHome()
  const domains = Array.from({ length: 30 }, (_, index) => ({ id: `domain-${index}`, name: `d${index}` }))
  await using server = await serve(createServer(), {
    ...ANSWERS,
    '/domains': { total: 90, domains },
    '/domains/domain-0/quotas': { domain_id: 'domain-0', own: {}, quotas: NONE },
    ...Object.fromEntries(domains.map(({ id }) => [`/domains/${id}/usage`, { domain_id: id, quotas: USES }])),
  })
  const url = `http://127.0.0.1:${server.port}`
  const { stdout } = await home.run(['doctor', '--url', url, '--manager-url', url], {
    environment: { SKEIN_TOKEN: 'a.b.c' },
  })
  const found = (JSON.parse(stdout) as Doctor).findings.map(({ what }) => what).filter((what) => what.includes('quota'))
  expect(found.filter((what) => what.startsWith('domain d'))).toHaveLength(20)
  expect(found).toContain('10 more domains have more than a quota of theirs')
  expect(found).toContain('the quotas of 30 of 90 domains were compared with what they use')
})
