// contract section 10: the journal of tasks, workflows and workers, which the manager writes
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { create } from '@bufbuild/protobuf'
import { RegisterRequestSchema } from '#proto/index.ts'
import { startFullApp } from '../../tools/generate/full-app.ts'
import type { FullApp } from '../../tools/generate/full-app.ts'
import { registerWorker } from '../../manager/workers/registration.ts'
import { sql } from '#core/sql.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'

type Answer = { status: number; text: string; json: <T = Record<string, unknown>>() => T }
type Call = (method: string, url: string, body?: object) => Promise<Answer>
type Item = { operation: string; domain?: string; attributes: Record<string, unknown> }

let database: TestDatabase
let full: FullApp
let owner: Call
let member: Call
let ownerId: string
let memberId: string
let domainId: string

const callWith =
  (token?: string): Call =>
  async (method, url, body) => {
    const response = await full.app.inject({
      method: method as 'GET',
      url,
      headers: {
        'x-request-id': 'request-7',
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      },
      ...(body === undefined ? {} : { payload: body }),
    })
    return { status: response.statusCode, text: response.body, json: () => response.json() }
  }

async function newUser(username: string): Promise<{ id: string; call: Call }> {
  const secret = `secret-of-${username}`
  const user = {
    first_name: username,
    last_name: `${username}s`,
    email: `${username}@example.com`,
    credentials: { username, secret },
  }
  const id = await made(callWith()('POST', '/users', user))
  const { access_token: token } = (
    await callWith()('POST', '/users/tokens/issue', { identity: username, secret })
  ).json<{ access_token: string }>()
  return { id, call: callWith(token) }
}

beforeAll(async () => {
  database = await createTestDatabase()
  full = await startFullApp(database.address)
  ;({ id: ownerId, call: owner } = await newUser('owner'))
  ;({ id: memberId, call: member } = await newUser('member'))
  domainId = await made(owner('POST', '/domains', { name: 'plant' }))
})
afterAll(async () => {
  await full[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

async function made(creating: Promise<Answer>): Promise<string> {
  const answer = await creating
  expect([200, 201], answer.text).toContain(answer.status)
  return answer.json<{ id: string }>().id
}

const file = readFileSync('examples/add/add.wasm').toString('base64')
const newTask = (fields: object = {}) =>
  made(owner('POST', '/tasks', { name: 'add', domain_id: domainId, inputs: [1, 2], file, ...fields }))

async function journalOf(type: string, id: string, call = owner): Promise<Item[]> {
  const answer = await call('GET', `/${domainId}/journal/${type}/${id}?with_attributes=true&limit=100`)
  expect(answer.status, answer.text).toBe(200)
  const { total, journals } = answer.json<{ total: number; journals: Item[] }>()
  expect(journals).toHaveLength(total)
  return journals.toReversed()
}
const operationsOf = (items: readonly Item[]) => items.map(({ operation }) => operation)

async function ofRole(actions: readonly string[]): Promise<void> {
  const role = await owner('POST', `/domains/${domainId}/roles`, {
    role_name: `role-${randomUUID()}`,
    optional_actions: actions,
    optional_members: [memberId],
  })
  expect(role.status, role.text).toBe(201)
}

test('a task has a record of each change, with who made it and what it was before', async () => {
  const id = await newTask()
  await owner('PUT', `/tasks/${id}`, {
    name: 'sum',
    priority: 70,
    env: { KEY: 'private value' },
    secrets: { PIN: '1234' },
  })
  const { run_id: runId } = (await owner('POST', `/tasks/${id}/start`)).json<{ run_id: string }>()
  await owner('POST', `/tasks/${id}/stop`)
  const items = await journalOf('task', id)
  expect(operationsOf(items)).toEqual(['task.create', 'task.update', 'task.start', 'task.stop'])
  for (const { domain, attributes } of items) {
    expect(domain).toBe(domainId)
    expect(attributes).toMatchObject({ id, user_id: ownerId, token_type: 'access token', request_id: 'request-7' })
  }
  const [created, updated, started, stopped] = items
  expect(created?.attributes['name']).toBe('add')
  expect(updated?.attributes).toMatchObject({
    name: 'sum',
    before: { name: 'add', priority: 50 },
    after: { name: 'sum', priority: 70 },
    fields: ['env', 'secrets'],
  })
  expect(JSON.stringify(items)).not.toMatch(/private value|1234/)
  expect(started?.attributes).toMatchObject({ name: 'sum', run_id: runId })
  expect(stopped?.attributes['name']).toBe('sum')
})

test('calls that change nothing, invocations and starts of the platform leave no record', async () => {
  const id = await newTask()
  expect((await owner('POST', `/tasks/${id}/stop`)).status).toBe(200)
  expect((await owner('POST', `/tasks/${id}/invoke`, { inputs: [1] })).status).toBe(422)
  expect((await owner('POST', `/tasks/${id}/invoke`, { timeout: '1s' })).status).toBe(409)
  await sql`UPDATE tasks SET schedule = '* * * * *', next_tick_at = now() - interval '1 s' WHERE id = ${id}`.execute(
    database.database.db,
  )
  await expect.poll(async () => (await owner('GET', `/tasks/${id}/runs`)).json()['total']).toBe(1)
  expect(operationsOf(await journalOf('task', id))).toEqual(['task.create'])
})

test('an uploaded module is a change of the task, by its digest', async () => {
  const id = await newTask({ file: undefined, image_url: 'localhost:5000/add:1' })
  await owner('PUT', `/tasks/${id}`, { file })
  const [, updated] = await journalOf('task', id)
  expect(updated).toMatchObject({
    operation: 'task.update',
    attributes: { before: { module: null }, after: { module: expect.stringMatching(/^sha256:/) as string } },
  })
  expect((await owner('GET', `/tasks/${id}`)).json()['image_url']).not.toBe('localhost:5000/add:1')
})

test('the journal of a deleted task is read by administrators of its domain', async () => {
  const id = await newTask()
  await ofRole(['task_read'])
  expect(operationsOf(await journalOf('task', id, member))).toEqual(['task.create'])
  expect((await owner('DELETE', `/tasks/${id}`)).status).toBe(204)
  expect(operationsOf(await journalOf('task', id))).toEqual(['task.create', 'task.remove'])
  expect((await member('GET', `/${domainId}/journal/task/${id}`)).status).toBe(404)
})

test('a workflow has a record of its creation, starts, stops and deletion, and so has each task that goes with it', async () => {
  const names = ['add', 'sum']
  const workflow = {
    name: 'report',
    domain_id: domainId,
    tasks: names.map((name) => ({ name, inputs: [1, 2], file })),
  }
  const id = await made(owner('POST', '/workflows', workflow))
  const { tasks } = (await owner('GET', `/workflows/${id}`)).json<{ tasks: { id: string }[] }>()
  expect((await owner('POST', `/workflows/${id}/start`)).status).toBe(200)
  await owner('POST', `/workflows/${id}/stop`)
  await owner('POST', `/workflows/${id}/stop`)
  expect(operationsOf(await journalOf('task', tasks[0]?.id ?? ''))).toEqual(['task.create'])
  expect((await owner('DELETE', `/workflows/${id}`)).status).toBe(204)
  expect(tasks).toHaveLength(names.length)
  for (const task of tasks) {
    const [created, removed, ...others] = await journalOf('task', task.id)
    expect([created?.operation, removed?.operation, others]).toEqual(['task.create', 'task.remove', []])
    expect(removed?.attributes).toMatchObject({ id: task.id, name: created?.attributes['name'], user_id: ownerId })
  }
  const inDomain = await journalOf('domain', domainId)
  expect(operationsOf(inDomain.filter(({ attributes }) => tasks.some((task) => task.id === attributes['id'])))).toEqual(
    [...names.map(() => 'task.create'), ...names.map(() => 'task.remove')],
  )
  const items = await journalOf('workflow', id)
  expect(operationsOf(items)).toEqual(['workflow.create', 'workflow.start', 'workflow.stop', 'workflow.remove'])
  for (const { attributes } of items) expect(attributes).toMatchObject({ id, name: 'report', user_id: ownerId })
})

test('a worker has a record of its registration and of each change by a user', async () => {
  const { token } = (await owner('POST', '/workers/tokens', { domain_id: domainId })).json<{ token: string }>()
  const request = create(RegisterRequestSchema, { joinToken: token, name: 'rack-1', bootId: 'boot', slots: 1 })
  const deps = { database: database.database, newId: randomUUID, managerId: 'none', leaseMs: () => 1, shown: 'plain' }
  const { id } = await registerWorker(deps, request)
  for (const action of ['drain', 'drain', 'resume', 'revoke'])
    expect((await owner('POST', `/workers/${id}/${action}`)).status).toBeLessThan(300)
  expect((await owner('DELETE', `/workers/${id}`)).status).toBe(204)
  const items = await journalOf('worker', id)
  expect(items.map(({ operation, attributes }) => [operation, attributes['name'], attributes['user_id']])).toEqual([
    ['worker.create', 'rack-1', undefined],
    ['worker.drain', 'rack-1', ownerId],
    ['worker.resume', 'rack-1', ownerId],
    ['worker.revoke', 'rack-1', ownerId],
    ['worker.remove', 'rack-1', ownerId],
  ])
  const inDomain = await journalOf('domain', domainId)
  expect(operationsOf(inDomain)).toContain('worker.token.create')
  expect(JSON.stringify(inDomain)).not.toContain(token)
})

test('platform administrators alone read the journal of a worker of the platform, also after its removal', async () => {
  const signedIn = await callWith()('POST', '/users/tokens/issue', { identity: 'admin', secret: 'the-first-admin' })
  const admin = callWith(signedIn.json<{ access_token: string }>().access_token)
  const { token } = (await admin('POST', '/workers/tokens', {})).json<{ token: string }>()
  const request = create(RegisterRequestSchema, { joinToken: token, name: 'rack-2', bootId: 'boot', slots: 1 })
  const deps = { database: database.database, newId: randomUUID, managerId: 'none', leaseMs: () => 1, shown: 'plain' }
  const { id } = await registerWorker(deps, request)
  const path = `/journal/worker/${id}?with_attributes=true&dir=asc`
  const read = async () => (await admin('GET', path)).json<{ total: number; journals: Item[] }>().journals
  expect((await admin('POST', `/workers/${id}/drain`)).status).toBeLessThan(300)
  expect(operationsOf(await read())).toEqual(['worker.create', 'worker.drain'])
  expect((await admin('DELETE', `/workers/${id}`)).status).toBe(204)
  const items = await read()
  expect(operationsOf(items)).toEqual(['worker.create', 'worker.drain', 'worker.remove'])
  for (const { domain, attributes } of items) {
    expect(domain).toBeUndefined()
    expect(attributes).toMatchObject({ id, name: 'rack-2' })
  }
  expect((await owner('GET', path)).status).toBe(403)
  expect((await callWith()('GET', path)).status).toBe(401)
  expect((await admin('GET', `/${domainId}/journal/worker/${id}`)).status).toBe(404)
  expect((await admin('GET', `/journal/worker/${randomUUID()}`)).status).toBe(404)
  expect((await admin('GET', '/journal/worker/no-id')).status).toBe(404)
})

test('a worker of a domain has no journal outside of it', async () => {
  const { token } = (await owner('POST', '/workers/tokens', { domain_id: domainId })).json<{ token: string }>()
  const request = create(RegisterRequestSchema, { joinToken: token, name: 'rack-3', bootId: 'boot', slots: 1 })
  const deps = { database: database.database, newId: randomUUID, managerId: 'none', leaseMs: () => 1, shown: 'plain' }
  const { id } = await registerWorker(deps, request)
  const signedIn = await callWith()('POST', '/users/tokens/issue', { identity: 'admin', secret: 'the-first-admin' })
  const admin = callWith(signedIn.json<{ access_token: string }>().access_token)
  expect((await admin('GET', `/journal/worker/${id}`)).status).toBe(404)
  expect((await admin('GET', `/${domainId}/journal/worker/${id}`)).status).toBe(200)
})

test('a policy of modules is in the journal of its domain', async () => {
  expect((await owner('PUT', `/modules/policy?domain_id=${domainId}`, { signatures: 'off', keys: [] })).status).toBe(
    200,
  )
  expect(await journalOf('domain', domainId)).toContainEqual(
    expect.objectContaining({ operation: 'module.update_policy' }) as Item,
  )
})

test('who may not read tasks reads no journal of them, and other domains have no such entity', async () => {
  const id = await newTask()
  const stranger = await newUser('stranger')
  const other = await made(stranger.call('POST', '/domains', { name: 'other' }))
  expect((await stranger.call('GET', `/${domainId}/journal/task/${id}`)).status).toBe(403)
  expect((await stranger.call('GET', `/${other}/journal/task/${id}`)).status).toBe(404)
  expect((await owner('GET', `/${domainId}/journal/workflow/${id}`)).status).toBe(404)
  expect((await owner('GET', `/${domainId}/journal/task/x`)).status).toBe(404)
  expect((await owner('GET', `/${domainId}/journal/module/${id}`)).status).toBe(400)
  const reader = await newUser('reader')
  await owner('POST', `/domains/${domainId}/roles`, {
    role_name: 'reader of clients',
    optional_actions: ['read', 'client_read'],
    optional_members: [reader.id],
  })
  expect((await reader.call('GET', `/${domainId}/journal/task/${id}`)).status).toBe(403)
  const seen = await journalOf('domain', domainId, reader.call)
  expect(operationsOf(seen).filter((operation) => /^(task|workflow|worker|module)\./.test(operation))).toEqual([])
})

test('a user finds their changes of tasks in their own journal, and no other', async () => {
  const id = await newTask({ name: 'mine' })
  const mine = (await owner('GET', `/journal/user/${ownerId}?with_attributes=true&limit=100`)).json<{
    journals: Item[]
  }>()
  expect(mine.journals.find(({ attributes }) => attributes['id'] === id)?.operation).toBe('task.create')
  const theirs = (await member('GET', `/journal/user/${memberId}?limit=100`)).json<{ journals: Item[] }>()
  expect(operationsOf(theirs.journals).filter((operation) => operation.startsWith('task.'))).toEqual([])
})
