// task-manager.md section 1 (Authorisation) and contract.md section 15 (SKEIN_MANAGER_AUTH)
import { randomUUID } from 'node:crypto'
import { rmSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startIdentity } from '#api/identity/index.ts'
import { IDENTITY_SETTINGS } from '#api/index.ts'
import { createLocalBus } from '#core/bus/index.ts'
import { readConfig } from '#core/config/index.ts'
import { createHttpApp, createMetrics } from '#http/index.ts'
import type { HttpApp } from '#http/index.ts'
import { createKeyring } from '#core/keyring/index.ts'
import { Readiness } from '#core/readiness/index.ts'
import { createTaskAccess } from '#manager/index.ts'
import type { AuthMode } from '#manager/index.ts'
import {
  clientOf,
  logger,
  masterKey,
  startDatabase,
  startTestManager,
  startTestWorker,
  temporaryFolder,
} from './support.ts'
import type { TestDatabase, TestManager, TestWorker } from './support.ts'

type Headers = Record<string, string>

let db: TestDatabase
let identity: Awaited<ReturnType<typeof startIdentity>>
let manager: TestManager
let worker: TestWorker
let platform: HttpApp
const folder = temporaryFolder('skein-access-')

async function managerWith(mode: AuthMode): Promise<TestManager> {
  const access = createTaskAccess({
    database: db.database,
    access: identity.access,
    quotas: identity.quotas,
    authenticate: (request) => identity.authenticate(request),
    mode,
    corsOrigins: [],
  })
  return await startTestManager(db.database, { access })
}

beforeAll(async () => {
  db = await startDatabase()
  identity = await startIdentity({
    config: readConfig(IDENTITY_SETTINGS, {}),
    database: db.database,
    bus: createLocalBus(),
    keyring: createKeyring(masterKey),
    logger,
    dataDir: folder,
    tailIntervalMs: 20,
  })
  platform = createHttpApp({
    logger,
    health: {
      build: { version: '0', commit: 'none', buildTime: 'now' },
      metrics: createMetrics(),
      readiness: new Readiness(),
      serviceOf: () => 'api',
    },
    maxBodyBytes: 1024 * 1024,
    corsOrigins: [],
    trustProxy: [],
    keyring: createKeyring(masterKey),
    authenticate: (request) => identity.authenticate(request),
  })
  await identity.routes(platform)
  await platform.ready()
  manager = await managerWith('on')
  worker = await startTestWorker(manager)
}, 60_000)

afterAll(async () => {
  await worker.close()
  await manager.close()
  await platform.close()
  await identity.stop()
  await db.close()
  rmSync(folder, { recursive: true, force: true })
})

/** A new user with this number of domains. */
async function member(domains: number): Promise<{ headers: Headers; domains: string[] }> {
  const name = `user-${randomUUID().slice(0, 8)}`
  const client = clientOf(platform)
  const user = {
    first_name: name,
    last_name: name,
    email: `${name}@example.com`,
    credentials: { username: name, secret: '12345678' },
  }
  expect((await client.post('/users', user)).status).toBe(201)
  const { body: tokens } = await client.post('/users/tokens/issue', { identity: name, secret: '12345678' })
  const headers = { authorization: `Bearer ${String(tokens['access_token'])}` }
  const ids: string[] = []
  for (let index = 0; index < domains; index++) {
    const { status, body } = await client.post(
      '/domains',
      { name: `${name}-${index}`, route: `r${name.replaceAll('-', '')}${index}` },
      headers,
    )
    expect(status).toBe(201)
    ids.push(String(body['id']))
  }
  return { headers, domains: ids }
}

test('without a token every route of tasks and workers is 401', async () => {
  const client = clientOf(manager.app)
  const id = randomUUID()
  for (const path of [
    '/tasks',
    '/workers',
    `/tasks/${id}`,
    `/tasks/${id}/results`,
    `/tasks/${id}/runs`,
    `/tasks/${id}/logs`,
    `/tasks/${id}/placement`,
    `/workers/${id}`,
  ]) {
    expect(await client.get(path)).toMatchObject({ status: 401, body: { error: 'unauthenticated' } })
  }
  for (const path of [
    '/tasks',
    `/tasks/${id}/start`,
    `/tasks/${id}/stop`,
    `/tasks/${id}/invoke`,
    `/tasks/${id}/invoke-many`,
  ])
    expect((await client.post(path, {})).status).toBe(401)
  expect((await client.put(`/tasks/${id}`, {})).status).toBe(401)
  expect((await client.upload(id, Buffer.from('x'))).status).toBe(401)
  expect((await client.delete(`/tasks/${id}`)).status).toBe(401)
  expect((await client.get('/health')).status).toBe(200)
})

test("a task belongs to the caller's only domain, and strangers neither see nor control it", async () => {
  const owner = await member(1)
  const stranger = await member(1)
  const client = clientOf(manager.app)
  const created = await client.post('/tasks', { name: 'add', inputs: [1, 2] }, owner.headers)
  expect(created).toMatchObject({ status: 201, body: { domain_id: owner.domains[0] } })
  const path = `/tasks/${String(created.body['id'])}`
  expect((await client.call('GET', path, undefined, owner.headers)).status).toBe(200)
  expect((await client.call('GET', '/tasks', undefined, owner.headers)).body['total']).toBe(1)
  expect((await client.call('GET', '/tasks', undefined, stranger.headers)).body['total']).toBe(0)
  for (const [method, url] of [
    ['GET', path],
    ['PUT', path],
    ['DELETE', path],
    ['POST', `${path}/start`],
    ['POST', `${path}/stop`],
    ['POST', `${path}/invoke`],
    ['GET', `${path}/results`],
    ['GET', `${path}/runs`],
    ['GET', `${path}/logs`],
  ] as const) {
    expect(await client.call(method, url, method === 'GET' ? undefined : {}, stranger.headers)).toMatchObject({
      status: 404,
    })
  }
  expect((await client.post(`${path}/invoke-many`, { inputs: [[1, 2]] }, stranger.headers)).status).toBe(404)
})

test('a member of several domains must name one, and a foreign one is 403', async () => {
  const owner = await member(2)
  const stranger = await member(1)
  const client = clientOf(manager.app)
  expect(await client.post('/tasks', { name: 'x' }, owner.headers)).toMatchObject({
    status: 400,
    body: { error: 'malformed' },
  })
  expect(await client.post('/tasks', { name: 'x', domain_id: owner.domains[1] }, owner.headers)).toMatchObject({
    status: 201,
    body: { domain_id: owner.domains[1] },
  })
  expect((await client.post('/tasks', { name: 'x', domain_id: stranger.domains[0] }, owner.headers)).status).toBe(403)
  expect((await client.post('/tasks', { name: 'x' }, (await member(0)).headers)).status).toBe(403)
})

test('a worker of the platform shows members of domains its load only', async () => {
  const owner = await member(1)
  const { body } = await clientOf(manager.app).call('GET', '/workers', undefined, owner.headers)
  expect(body['workers']).toEqual([
    {
      id: worker.id,
      name: 'test worker',
      alive: true,
      slots: 2,
      free_slots: 2,
      task_count: 0,
      alive_history: expect.any(Array) as unknown,
    },
  ])
})

test("a domain's administrator drains the domain's own worker, and gets the reason why the platform's is refused", async () => {
  const owner = await member(1)
  const client = clientOf(manager.app)
  const { body: made } = await client.post('/workers/tokens', {}, owner.headers)
  const own = await startTestWorker({ grpcAddress: manager.grpcAddress, workerToken: String(made['token']) })
  try {
    for (const [verb, state] of [
      ['drain', 'draining'],
      ['resume', 'alive'],
    ])
      expect(await client.post(`/workers/${own.id}/${verb}`, {}, owner.headers)).toMatchObject({
        status: 200,
        body: { id: own.id, state },
      })
    expect((await client.post(`/workers/${own.id}/drain`, {}, (await member(1)).headers)).status).toBe(404)
    const { status, body } = await client.post(`/workers/${worker.id}/drain`, {}, owner.headers)
    expect(status).toBe(403)
    expect(body['message']).toMatch(
      /belongs to the platform, and only the platform administrator .*POST \/workers\/tokens/,
    )
  } finally {
    await own.close()
  }
})

test('auto requires no token from this machine, and one from other addresses', async () => {
  const auto = await managerWith('auto')
  try {
    const ask = (headers: Headers, remoteAddress = '127.0.0.1') =>
      auto.app
        .inject({ method: 'GET', url: '/tasks', headers: { host: '127.0.0.1:7070', ...headers }, remoteAddress })
        .then(({ statusCode }) => statusCode)
    expect(await ask({})).toBe(200)
    expect(await ask({ host: 'localhost:7070' })).toBe(200)
    expect(await ask({ host: 'skein.example.com' })).toBe(401)
    expect(await ask({ 'x-forwarded-for': '203.0.113.9' })).toBe(401)
    expect(await ask({ forwarded: 'for=203.0.113.9' })).toBe(401)
    expect(await ask({ origin: 'https://evil.example.com' })).toBe(401)
    expect(await ask({}, '203.0.113.9')).toBe(401)
    // A value in the form of a token is verified, and another one is absent.
    expect(await ask({ authorization: 'Bearer pat_nonsense' })).toBe(401)
    expect(await ask({ authorization: 'Bearer nonsense' })).toBe(200)
    expect(await ask({ authorization: 'Bearer nonsense' }, '203.0.113.9')).toBe(401)
  } finally {
    await auto.close()
  }
})
