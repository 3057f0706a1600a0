// A run that fits no worker ends after the `queue_timeout` of its task.
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  SHORT_LEASE,
  clientOf,
  exampleModule,
  startDatabase,
  startTestManager,
  startTestWorker,
  until,
} from './support.ts'
import type { TestDatabase, TestManager, TestWorker } from './support.ts'

let db: TestDatabase
let manager: TestManager
let worker: TestWorker
let client: ReturnType<typeof clientOf>

beforeAll(async () => {
  db = await startDatabase()
  manager = await startTestManager(db.database, { timing: { ...SHORT_LEASE, placementCheckMs: 100 } })
  worker = await startTestWorker(manager, { slots: 1 })
  client = clientOf(manager.app)
})

afterAll(async () => {
  await worker.close()
  await manager.close()
  await db.close()
})

async function started(example: string, fields: Record<string, unknown>): Promise<string> {
  const id = String((await client.post('/tasks', { name: example, ...fields })).body['id'])
  await client.upload(id, exampleModule(example))
  expect((await client.post(`/tasks/${id}/start`)).status).toBe(200)
  return id
}

test.each([
  [undefined, 200, '24h'],
  [null, 200, '24h'],
  ['1ms', 200, '1ms'],
  ['720h', 200, '720h'],
  ['0s', 400, undefined],
  ['-1s', 400, undefined],
  ['720h0m1s', 400, undefined],
  ['8760h', 400, undefined],
  ['a day', 400, undefined],
])('a queue_timeout of %s is answered with %i', async (given, status, shown) => {
  const created = await client.post('/tasks', { name: 'add', queue_timeout: given })
  expect(created.status).toBe(status === 200 ? 201 : status)
  expect(created.body['queue_timeout']).toBe(shown)
  const updated = await client.put(`/tasks/${await anyTask()}`, { queue_timeout: given })
  expect(updated.status).toBe(status)
  if (status === 400) expect(updated.body['message']).toContain('queue_timeout')
})

async function anyTask(): Promise<string> {
  return String((await client.post('/tasks', { name: 'add' })).body['id'])
}

test('a run that fits no worker fails with the reason, and one that fits a busy worker waits for its slot', async () => {
  const spin = await started('endless', { name: 'spin', timeout: '1h' })
  await until(
    'the endless run',
    () => client.get(`/tasks/${spin}`),
    ({ body }) => body['state'] === 2,
  )
  const waiting = await started('add', { inputs: [1, 2], queue_timeout: '10ms' })
  const unfit = await started('add', { inputs: [1, 2], queue_timeout: '10ms', labels: { zone: 'nowhere' } })
  const { body } = await until(
    'the end of the unfit run',
    () => client.get(`/tasks/${unfit}`),
    ({ body: task }) => task['state'] === 4,
  )
  expect(body).toMatchObject({
    reason: 'queue_timeout',
    error: expect.stringMatching(
      /^no worker that fits came within its queue_timeout of 10ms: of worker \S+, its label zone is not set, not nowhere$/,
    ) as string,
  })
  expect(await client.get(`/runs?reason=queue_timeout`)).toMatchObject({ body: { total: 1 } })
  expect((await client.get(`/tasks/${waiting}`)).body['state']).toBe(1)
  await client.post(`/tasks/${spin}/stop`)
  await until(
    'the run that waited',
    () => client.get(`/tasks/${waiting}`),
    ({ body: task }) => task['state'] === 3,
  )
  // The task can be started again.
  expect((await client.post(`/tasks/${unfit}/start`)).status).toBe(200)
})
