/** Requests without a token on loopback (contract decision 61, task-manager.md section 1): tasks of no domain, and nothing else. */
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { effectiveAuthMode } from '#manager/index.ts'
import { FULL_APP_ADMIN, startFullApp } from '../../tools/generate/full-app.ts'
import type { FullApp } from '../../tools/generate/full-app.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'

let database: TestDatabase
let full: FullApp
let owner: string
/** Ids of what belongs to a domain of `owner`. */
const foreign = { domain: '', task: '', workflow: '', worker: randomUUID() }
const platformWorker = randomUUID()

type Answer = { status: number; body: Record<string, unknown>; text: string }

/** As `curl` on the machine itself sends it, and as a proxy that adds no header does. */
async function ask(method: string, url: string, body?: unknown, token?: string): Promise<Answer> {
  const response = await full.app.inject({
    method: method as 'GET',
    url,
    headers: { host: '127.0.0.1:7070', ...(token === undefined ? {} : { authorization: `Bearer ${token}` }) },
    remoteAddress: '127.0.0.1',
    ...(body === undefined ? {} : { payload: body as object }),
  })
  const isJson = String(response.headers['content-type']).startsWith('application/json')
  return {
    status: response.statusCode,
    body: isJson ? response.json<Record<string, unknown>>() : {},
    text: response.body,
  }
}

async function made(method: string, url: string, body: unknown, token?: string): Promise<Record<string, unknown>> {
  const answer = await ask(method, url, body, token)
  expect(answer.status, answer.text).toBeLessThan(300)
  return answer.body
}

beforeAll(async () => {
  database = await createTestDatabase()
  full = await startFullApp(database.address, { SKEIN_MANAGER_AUTH: 'auto' })
  const { SKEIN_ADMIN_USERNAME: identity, SKEIN_ADMIN_SECRET: secret } = FULL_APP_ADMIN
  owner = String((await made('POST', '/users/tokens/issue', { identity, secret }))['access_token'])
  foreign.domain = String((await made('POST', '/domains', { name: 'tenant', route: 'tenant' }, owner))['id'])
  const task = { name: 'foreign-task', domain_id: foreign.domain }
  foreign.task = String((await made('POST', '/tasks', task, owner))['id'])
  const workflow = { name: 'foreign-workflow', domain_id: foreign.domain, tasks: [{ name: 'step' }] }
  foreign.workflow = String((await made('POST', '/workflows', workflow, owner))['id'])
  await sql`
    INSERT INTO workers (id, name, domain_id, domain_key, boot_id, version, labels, os, arch, cpu_cores, memory_bytes, slots, backlog,
      runtimes, secret_hash, session_epoch, lease_until, last_alive_at, alive_history)
    SELECT w.id::uuid, w.name, d.id, d.key, 'boot', '1', '{}', 'linux', 'x64', 1, 1, 1, 0,
      '{}', decode(md5(w.name), 'hex'), 1, now(), now(), '{}'
    FROM (VALUES (${foreign.worker}, 'foreign-worker', ${foreign.domain}), (${platformWorker}, 'platform-worker', NULL))
      AS w(id, name, domain)
    LEFT JOIN domains d ON d.id = w.domain::uuid`.execute(database.database.db)
})

afterAll(async () => {
  await full[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

const isOfManager = (url: string) => /^\/(tasks|runs|workers|proplets|workflows|jobs|modules|events)(\/|$)/.test(url)
/** What answers without a token with what belongs to no domain. */
const LISTS = new Set([
  'GET /tasks',
  'GET /runs',
  'GET /workers',
  'GET /proplets',
  'GET /workflows',
  'GET /jobs',
  'GET /modules',
  'GET /events',
])
/** What makes tasks of no domain, or says what a task of no domain would refuse. */
const MAKES = new Set(['POST /tasks', 'POST /workflows', 'POST /jobs', 'POST /modules/inspect'])

test('every route of the manager refuses what belongs to a domain, as if it did not exist', async () => {
  const names: string[] = []
  for (const { method, url } of full.routes) {
    if (!isOfManager(url)) continue
    for (const one of [method].flat()) {
      const name = `${one} ${url}`
      names.push(name)
      if (LISTS.has(name) || MAKES.has(name)) continue
      const path = url
        .replace(':task_id', foreign.task)
        .replace(':workflow_id', foreign.workflow)
        .replace(':job_id', foreign.workflow)
        .replace(':proplet_id', foreign.worker)
        .replace(':worker_id', foreign.worker)
        .replace(':run_id', randomUUID())
        .replace(':digest', `sha256:${'0'.repeat(64)}`)
      const query = name === 'PUT /modules' ? '?reference=example.com/a:1' : ''
      const bodies: Record<string, unknown> = {
        'POST /tasks/:task_id/invoke-many': { inputs: [[1]] },
        'POST /tasks/:task_id/replay': {
          channel_id: randomUUID(),
          from: 1,
          to: 2,
        },
        'POST /modules': { reference: 'example.com/a:1' },
        'POST /modules/tickets': { digest: `sha256:${'0'.repeat(64)}` },
        'PUT /tasks/:task_id/state/:key': { value: 'text' },
        'PUT /modules/policy': { signatures: 'off', keys: [] },
      }
      const body = one === 'GET' || one === 'DELETE' || name === 'PUT /modules' ? undefined : (bodies[name] ?? {})
      const answer = await ask(one, `${path}${query}`, body)
      expect([401, 404], `${name}: ${answer.status} ${answer.text}`).toContain(answer.status)
      expect(answer.text, name).not.toMatch(/foreign-/)
    }
  }
  expect(names.length).toBeGreaterThan(30)
  expect([...LISTS, ...MAKES].filter((name) => !names.includes(name))).toEqual([])
})

test('lists and placements show only entities without a domain', async () => {
  const own = await made('POST', '/tasks', { name: 'own-task' })
  const tasks = await ask('GET', '/tasks')
  expect(tasks).toMatchObject({ status: 200, body: { total: 1, tasks: [{ id: own['id'] }] } })
  const flow = await made('POST', '/workflows', { name: 'own-workflow', tasks: [{ name: 'step' }] })
  expect(await ask('GET', '/workflows')).toMatchObject({ body: { total: 1, workflows: [{ id: flow['id'] }] } })
  expect(await ask('GET', `/tasks/${String(own['id'])}/placement`)).toMatchObject({
    status: 200,
    body: { workers: [{ worker_id: platformWorker }] },
  })
  expect(await ask('GET', '/modules')).toMatchObject({ status: 200, body: { total: 0 } })
  expect((await ask('GET', '/tasks', undefined, owner)).text).toContain('foreign-task')
})

test('workers of the platform show their load only, and cannot be controlled', async () => {
  const { status, body } = await ask('GET', '/workers')
  expect(status).toBe(200)
  expect(body['workers']).toEqual([
    {
      id: platformWorker,
      name: 'platform-worker',
      alive: false,
      slots: 1,
      free_slots: 0,
      task_count: 0,
      alive_history: [],
    },
  ])
  for (const path of [`/workers/${platformWorker}/drain`, `/workers/${platformWorker}/revoke`, '/workers/tokens'])
    expect(await ask('POST', path, {})).toMatchObject({ status: 401, body: { error: 'unauthenticated' } })
  expect((await ask('DELETE', `/workers/${platformWorker}`)).status).toBe(401)
})

test('a task without a domain has no rights', async () => {
  const target = { channel_id: randomUUID() }
  for (const field of [
    { trigger: target },
    { publish_result: target },
    { grants: [{ kind: 'read', ...target }] },
    { secrets: { key: 'x' } },
    { domain_id: foreign.domain },
  ])
    expect(await ask('POST', '/tasks', { name: 'x', ...field })).toMatchObject({ status: 401 })
})

test('auto requires a token from all callers behind a proxy or a public address', () => {
  const here = { trustProxy: [], publicUrl: 'http://127.0.0.1:8080' }
  expect(effectiveAuthMode('auto', here)).toBe('auto')
  expect(effectiveAuthMode('auto', { ...here, publicUrl: 'http://[::1]:8080' })).toBe('auto')
  expect(effectiveAuthMode('auto', { ...here, publicUrl: 'http://localhost' })).toBe('auto')
  expect(effectiveAuthMode('auto', { ...here, trustProxy: ['127.0.0.1'] })).toBe('on')
  for (const publicUrl of ['https://skein.example.com', 'http://10.0.0.5:8080', 'http://localhost.example.com'])
    expect(effectiveAuthMode('auto', { ...here, publicUrl })).toBe('on')
  expect(effectiveAuthMode('off', { ...here, trustProxy: ['127.0.0.1'] })).toBe('off')
})
