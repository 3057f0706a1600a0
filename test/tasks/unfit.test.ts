// task-manager.md section 1: an invocation that no worker fits is refused at once, or after `wait`
import { afterAll, beforeAll, expect, test } from 'vitest'
import { monotonicMs } from '#core/time.ts'
import { clientOf, startDatabase, startTestManager, startTestWorker } from './support.ts'
import type { TestDatabase, TestManager, TestWorker } from './support.ts'

let db: TestDatabase
let manager: TestManager
let other: TestManager
let client: ReturnType<typeof clientOf>
const workers: TestWorker[] = []

async function aWorker(at: TestManager, name: string, labels: string, slots = 2): Promise<TestWorker> {
  const worker = await startTestWorker(at, { name, labels, slots })
  workers.push(worker)
  return worker
}

beforeAll(async () => {
  db = await startDatabase()
  manager = await startTestManager(db.database)
  other = await startTestManager(db.database)
  client = clientOf(manager.app)
}, 60_000)

afterAll(async () => {
  for (const worker of workers) await worker.close()
  await manager.close()
  await other.close()
  await db.close()
})

/** An invocation and how long its answer took. */
async function invoke(id: string, body: Record<string, unknown> = {}) {
  const begunMs = monotonicMs()
  const answer = await client.post(`/tasks/${id}/invoke`, { inputs: [1, 2], ...body })
  return { ...answer, tookMs: monotonicMs() - begunMs }
}

test('without any worker the response is 409 at once with this reason', async () => {
  const id = await client.task('add')
  const answer = await invoke(id)
  expect(answer).toMatchObject({
    status: 409,
    body: { error: 'invalid_state', message: 'no worker fits: no worker has joined' },
  })
  expect(answer.tookMs).toBeLessThan(10_000)
  expect((await client.get(`/tasks/${id}/runs`)).body['total']).toBe(0)
  const many = await client.post(`/tasks/${id}/invoke-many`, { inputs: [[1, 2]] })
  expect(many).toMatchObject({ status: 409, body: { message: 'no worker fits: no worker has joined' } })
})

test('without a suitable worker the response names the workers and the reasons, like /placement', async () => {
  await aWorker(manager, 'north', 'zone=north')
  const id = await client.task('add', { labels: { zone: 'south' } })
  expect(await invoke(id)).toMatchObject({
    status: 409,
    body: { message: 'no worker fits: north: its label zone is north, not south' },
  })
  const { body } = await client.get(`/tasks/${id}/placement`)
  expect(body['workers']).toMatchObject([{ name: 'north', reason: 'its label zone is north, not south' }])
  await client.put(`/tasks/${id}`, { labels: { zone: 'north' } })
  expect(await invoke(id)).toMatchObject({ status: 200, body: { results: [3] } })
  const [north] = workers
  await client.post(`/workers/${north?.id}/drain`)
  expect(await invoke(id)).toMatchObject({ status: 409, body: { message: 'no worker fits: north: it is draining' } })
  await client.post(`/workers/${north?.id}/resume`)
})

test('wait gives a suitable worker time to join', async () => {
  const id = await client.task('add', { labels: { zone: 'west' } })
  const waiting = invoke(id, { wait: '30s' })
  await aWorker(manager, 'west', 'zone=west')
  expect(await waiting).toMatchObject({ status: 200, body: { results: [3] } })
  const unfit = await client.task('add', { labels: { zone: 'nowhere' } })
  const answer = await invoke(unfit, { wait: '400ms' })
  expect(answer.status).toBe(409)
  expect(answer.tookMs).toBeGreaterThan(390)
})

test('the times are bounded, and each error contains the accepted values', async () => {
  const id = await client.task('add')
  for (const [field, value, message] of [
    ['wait', '61s', 'wait must be between 0s and 60s'],
    ['wait', 'soon', 'wait must be a duration such as 90s, 15m or 1h30m'],
    ['timeout', '2h', 'timeout must be between 1ms and 1h'],
    ['timeout', '0s', 'timeout must be between 1ms and 1h'],
  ] as const)
    expect(await invoke(id, { [field]: value })).toMatchObject({ status: 400, body: { message } })
})

test('a suitable worker that is busy, or connected to another manager, is awaited', async () => {
  await aWorker(other, 'east', 'zone=east', 1)
  const endless = await client.task('endless', { labels: { zone: 'east' }, timeout: '2s' })
  await client.post(`/tasks/${endless}/start`)
  const id = await client.task('add', { labels: { zone: 'east' } })
  expect(await invoke(id)).toMatchObject({ status: 200, body: { results: [3] } })
})

test('a worker with a valid lease is counted, connected or not', async () => {
  const leaving = await aWorker(manager, 'leaving', 'zone=leaving')
  await leaving.close()
  const id = await client.task('add', { labels: { zone: 'leaving' } })
  expect((await invoke(id, { timeout: '100ms' })).status).toBe(504)
  await client.call('DELETE', `/tasks/${id}?force=true`)
})
