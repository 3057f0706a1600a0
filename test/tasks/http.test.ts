/** The field `http` of tasks: who may grant, what is stored, where such tasks are placed, and a request through platform, manager and worker. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { useWorld } from '../harness/world.ts'
import { moduleFromText } from '../worker/pool.ts'
import { startTestTenant } from './platform.ts'
import { clientOf, startTestWorker, until } from './support.ts'

const ORIGIN = 'https://api.example.com'
const GRANT = { allow: [{ origin: ORIGIN }] }

type Shown = { id: string; http?: { allow: { origin: string; methods: string[] }[] }; granted_by?: string }
type Answer = { status: number; text: string; json<T>(): T }

const urls: string[] = []
const server = createServer((request, response) => {
  urls.push(`${request.method} ${request.url}`)
  response.writeHead(204).end()
})
let origin = ''
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(() => {
  server.closeAllConnections()
  server.close()
})

const tenant = useWorld(startTestTenant)

const create = (fields: Record<string, unknown>): Promise<Answer> =>
  tenant.owner.call('POST', '/tasks', { name: 'request', domain_id: tenant.domain, ...fields })

test('the field is shown with its limits and canonical origins, and ends with null', async () => {
  const allow = [
    { origin: 'HTTPS://API.Example.com:443/', methods: ['GET', 'POST', 'GET'] },
    { origin: 'http://127.1:81' },
  ]
  const made = await create({ http: { allow } })
  expect(made.status, made.text).toBe(201)
  const { id, http } = made.json<Shown>()
  expect(http).toEqual({
    allow: [
      { origin: ORIGIN, methods: ['GET', 'POST'] },
      { origin: 'http://127.0.0.1:81', methods: ['GET', 'HEAD'] },
    ],
    max_requests: 32,
    max_bytes: 4_194_304,
    timeout: '30s',
  })
  const limits = { max_requests: 1, max_bytes: 2_000, timeout: '1500ms' }
  const changed = await tenant.owner.call('PUT', `/tasks/${id}`, { http: { ...GRANT, ...limits } })
  expect(changed.json<Shown>().http).toEqual({
    allow: [{ origin: ORIGIN, methods: ['GET', 'HEAD'] }],
    ...limits,
    timeout: '1s500ms',
  })
  // What is shown can be given back.
  const again = await tenant.owner.call('PUT', `/tasks/${id}`, { http: changed.json<Shown>().http })
  expect(again.json<Shown>().http).toEqual(changed.json<Shown>().http)
  const ended = await tenant.owner.call('PUT', `/tasks/${id}`, { http: null })
  expect(ended.status, ended.text).toBe(200)
  expect(ended.json<Shown>()).not.toHaveProperty('http')
})

test.each([
  ['a path', { allow: [{ origin: `${ORIGIN}/v1` }] }],
  ['a query', { allow: [{ origin: `${ORIGIN}?a` }] }],
  ['a user', { allow: [{ origin: 'https://me@api.example.com' }] }],
  ['another scheme', { allow: [{ origin: 'ftp://api.example.com' }] }],
  ['no scheme', { allow: [{ origin: 'api.example.com' }] }],
  ['a wildcard of methods', { allow: [{ origin: ORIGIN, methods: ['*'] }] }],
  ['a method that is never sent', { allow: [{ origin: ORIGIN, methods: ['CONNECT'] }] }],
  ['no method', { allow: [{ origin: ORIGIN, methods: [] }] }],
  ['no origin', { allow: [] }],
  ['too many origins', { allow: Array.from({ length: 33 }, () => ({ origin: ORIGIN })) }],
  ['too many requests', { ...GRANT, max_requests: 1_001 }],
  ['no request', { ...GRANT, max_requests: 0 }],
  ['too many bytes', { ...GRANT, max_bytes: 64 * 1024 * 1024 + 1 }],
  ['too much time', { ...GRANT, timeout: '11m' }],
])('%s is refused', async (_, http) => {
  const answer = await create({ http })
  expect([400, 422], answer.text).toContain(answer.status)
})

test('a request without a user grants nothing', async () => {
  const platform = await tenant.api.anonymous('POST', '/tasks', { name: 'request', http: GRANT })
  expect([400, 401, 403]).toContain(platform.status)
})

test('who may update the task grants it, which the journal tells in full; who may read or start it does not', async () => {
  const drives = ['read', 'task_read', 'task_start']
  const [reader, editor] = [
    await tenant.newMember(tenant.owner.call, tenant.domain, drives),
    await tenant.newMember(tenant.owner.call, tenant.domain, [...drives, 'task_update']),
  ]
  const stranger = await tenant.api.newUser()
  const { id } = (await create({})).json<Shown>()
  expect((await reader.call('PUT', `/tasks/${id}`, { http: GRANT })).status).toBe(403)
  expect([403, 404]).toContain((await stranger.call('PUT', `/tasks/${id}`, { http: GRANT })).status)
  expect((await reader.call('POST', `/tasks/${id}/invoke`, { http: GRANT })).status).not.toBe(200)
  expect((await editor.call('PUT', `/tasks/${id}`, { http: GRANT })).status).toBe(200)
  const journal = await tenant.owner.call('GET', `/${tenant.domain}/journal/task/${id}?limit=100&with_attributes=true`)
  expect(journal.text).toContain(`GET,HEAD ${ORIGIN}; 32 requests, 4194304 bytes, 30s`)
})

test('on a task with secrets or with rights of another user, it needs what new code needs', async () => {
  const member = await tenant.newMember(tenant.owner.call, tenant.domain, ['read', 'task_read', 'task_update'])
  const secret = (await create({ secrets: { KEY: 'x' } })).json<Shown>()
  const refused = await member.call('PUT', `/tasks/${secret.id}`, { http: GRANT })
  expect(refused.status).toBe(403)
  expect(refused.text).toContain('task_secrets')
  const channel = await tenant.newChannel(tenant.owner.call, tenant.domain)
  const reads = (await create({ grants: [{ kind: 'read', channel_id: channel }] })).json<Shown>()
  expect((await member.call('PUT', `/tasks/${reads.id}`, { http: GRANT })).status).toBe(403)
  expect((await tenant.owner.call('PUT', `/tasks/${secret.id}`, { http: GRANT })).status).toBe(200)
  expect((await tenant.owner.call('PUT', `/tasks/${reads.id}`, { http: GRANT })).status).toBe(200)
})

/** Returns the status of the response, or the code. */
function requester() {
  const text = JSON.stringify({ url: `${origin}/path?query=1` })
  return moduleFromText(`(module
    (import "skein" "http_request" (func $send (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 100) "${text.replaceAll('"', '\\22')}")
    (func (export "request") (result i32)
      (call $send (i32.const 100) (i32.const ${text.length}) (i32.const 0) (i32.const 0))))`)
}

async function taskWith(fields: Record<string, unknown>): Promise<string> {
  const made = await create(fields)
  expect(made.status, made.text).toBe(201)
  const { id } = made.json<Shown>()
  const headers = { authorization: `Bearer ${tenant.owner.accessToken}` }
  const uploaded = await clientOf(tenant.api.app).upload(id, Buffer.from(await requester()), 'file', headers)
  expect(uploaded.status, JSON.stringify(uploaded.body)).toBe(200)
  return id
}

const invoke = (id: string) => tenant.owner.call('POST', `/tasks/${id}/invoke`, {})

test('a worker that is switched off gets no such task and says why; one that sends requests gets it, and the log has them', async () => {
  const off = await startTestWorker(tenant.grpc, {
    name: 'off',
    labels: 'http=off',
    environment: { SKEIN_WORKER_HTTP: 'false' },
  })
  const on = await startTestWorker(tenant.grpc, {
    name: 'on',
    labels: 'http=on',
    environment: { SKEIN_WORKER_HTTP_HOSTS: new URL(origin).host },
  })
  try {
    const elsewhere = await taskWith({ http: { allow: [{ origin }] }, labels: { http: 'off' } })
    const refused = await invoke(elsewhere)
    expect(refused.status, refused.text).toBe(409)
    expect(refused.text).toContain('it sends no HTTP requests of guests')
    const placement = await tenant.owner.call('GET', `/tasks/${elsewhere}/placement`)
    expect(placement.text).toContain('SKEIN_WORKER_HTTP is false there')
    // Without a grant it runs there, and its calls are refused.
    await tenant.owner.call('PUT', `/tasks/${elsewhere}`, { http: null })
    expect((await invoke(elsewhere)).json<{ results: unknown }>().results).toEqual([-2])

    const task = await taskWith({ http: { allow: [{ origin }] }, labels: { http: 'on' } })
    const done = await invoke(task)
    expect(done.status, done.text).toBe(200)
    const { results, run_id: run } = done.json<{ results: number[]; run_id: string }>()
    expect(results).toEqual([204])
    expect(urls).toEqual(['GET /path?query=1'])
    const log = await until(
      'the log',
      async () => (await tenant.owner.call('GET', `/tasks/${task}/logs?run_id=${run}&stream=http`)).text,
      (text) => text !== '',
    )
    expect(log).toMatch(/^GET http:\/\/127\.0\.0\.1:\d+ 204, \d+ bytes sent, 0 received\n$/)
    expect((await tenant.owner.call('GET', `/tasks/${task}/logs?run_id=${run}`)).text).toBe('')
    const followed = await tenant.owner.call('GET', `/tasks/${task}/logs?run_id=${run}&follow=true`)
    expect(followed.text).toContain('event: http')
  } finally {
    await on.close()
    await off.close()
  }
})
