// task-manager.md section 1: workers over HTTP, and the stream of every state
import type { AddressInfo } from 'node:net'
import { afterAll, expect, test } from 'vitest'
import { openEvents } from '../harness/event-stream.ts'
import type { EventReader } from '../harness/event-stream.ts'
import { clientOf, startSite, startTestManager, startTestWorker, until } from './support.ts'

const { db, manager, worker, client, close } = await startSite()
afterAll(close)

async function follow(path: string, headers: Record<string, string> = {}): Promise<EventReader> {
  const { server } = manager.app
  if (server.address() === null) await manager.app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = server.address() as AddressInfo
  return await openEvents(`http://127.0.0.1:${port}${path}`, headers)
}

test('a drained worker receives no new runs until it is resumed', async () => {
  const drained = await client.post(`/workers/${worker.id}/drain`)
  expect(drained).toMatchObject({ status: 200, body: { id: worker.id, state: 'draining' } })
  const id = await client.task('add', { inputs: [1, 2] })
  await client.post(`/tasks/${id}/start`)
  const placement = await client.get(`/tasks/${id}/placement`)
  expect(placement.body).toMatchObject({
    reason: 'no worker fits',
    workers: [{ chosen: false, reason: 'it is draining' }],
  })
  expect((await client.get('/workers?status=draining')).body).toMatchObject({ total: 1 })
  expect((await client.post(`/workers/${worker.id}/resume`)).body).toMatchObject({ state: 'alive' })
  expect(await client.ended(id)).toMatchObject({ state: 3, results: [3] })
})

test('a worker that another manager was asked to drain is drained', async () => {
  const other = await startTestManager(db.database)
  const session = `/workers/${worker.id}`
  await clientOf(other.app).post(`${session}/drain`)
  const id = await client.task('add', { inputs: [3, 4] })
  await until(
    'the drain to be known',
    () => client.get(`/tasks/${id}/placement`),
    ({ body }) => JSON.stringify(body).includes('it is draining'),
  )
  await clientOf(other.app).post(`${session}/resume`)
  await other.close()
  await client.post(`/tasks/${id}/start`)
  expect(await client.ended(id)).toMatchObject({ state: 3 })
})

test('drain, resume, revoke and delete of an unknown worker are 404', async () => {
  const id = '00000000-0000-4000-8000-000000000000'
  for (const verb of ['drain', 'resume', 'revoke']) {
    expect((await client.post(`/workers/${id}/${verb}`)).status).toBe(404)
    expect((await client.post(`/workers/nonsense/${verb}`)).status).toBe(404)
  }
  expect((await client.delete(`/workers/${id}`)).status).toBe(404)
})

test('an alive worker with a running task is not deleted; a dead one is', async () => {
  const other = await startTestWorker(manager, { labels: 'role=doomed' })
  const id = await client.task('endless', { labels: { role: 'doomed' }, timeout: '30s' })
  await client.post(`/tasks/${id}/start`)
  await until(
    'the task to run',
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === 2,
  )
  const refused = await client.delete(`/workers/${other.id}`)
  expect(refused).toMatchObject({ status: 409, body: { error: 'invalid_state' } })
  await client.post(`/tasks/${id}/stop`)
  await other.close()
  await until(
    'the deletion',
    () => client.delete(`/workers/${other.id}`),
    ({ status }) => status === 204,
  )
  expect((await client.get(`/workers/${other.id}`)).status).toBe(404)
})

test('a revoked worker loses its session and its secret, and its runs go to others', async () => {
  const folder = await startTestWorker(manager, { labels: 'role=both' })
  const id = await client.task('endless', { timeout: '30s', worker_id: folder.id, on_lost: 'fail' })
  await client.post(`/tasks/${id}/start`)
  await until(
    'the task to run',
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === 2,
  )
  expect((await client.post(`/workers/${folder.id}/revoke`)).status).toBe(204)
  expect(await client.results(id)).toMatchObject({ state: 4, reason: 'worker_lost', error: 'the worker was revoked' })
  expect((await client.get(`/workers/${folder.id}`)).body).toMatchObject({ alive: false, state: 'revoked' })
  await folder.close()
})

test('a join token is shown once, and is valid for its number of workers', async () => {
  const made = await client.post('/workers/tokens', { uses: 1, expires_in: '10m' })
  expect(made).toMatchObject({ status: 201, body: { uses: 1 } })
  expect(made.headers['cache-control']).toBe('no-store')
  const token = String(made.body['token'])
  const first = await startTestWorker({ grpcAddress: manager.grpcAddress, workerToken: token })
  expect((await client.get(`/workers/${first.id}`)).body).toMatchObject({ alive: true })
  await first.close()
  const { rows } = await db.database.pool.query('SELECT uses_left FROM worker_tokens WHERE id = $1', [made.body['id']])
  expect(rows).toEqual([{ uses_left: 0 }])
})

test.each([
  [{ uses: 0 }, '/uses'],
  [{ uses: 1_001 }, '/uses'],
  [{ expires_in: '2h' }, '/expires_in'],
  [{ expires_in: 'soon' }, '/expires_in'],
])('a join token with %j is refused', async (body, field) => {
  const { status, body: answer } = await client.post('/workers/tokens', body)
  expect(status).toBe(400)
  expect(JSON.stringify(answer)).toContain(field)
})

test('every state of a task and of its run is sent over /events, and nothing is missed after a reconnect', async () => {
  const stream = await follow('/events')
  expect(stream.status).toBe(200)
  const id = await client.task('add', { inputs: [20, 22] })
  await client.post(`/tasks/${id}/start`)
  const last = await stream.next('task', (data) => data['task_id'] === id && data['state'] === 3)
  const ofTask = stream.events.filter(({ event, data }) => event === 'task' && data['task_id'] === id)
  expect(ofTask.map(({ data }) => data['state'])[0]).toBe(0)
  expect(ofTask[0]?.data['occurred_at']).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/)
  expect(ofTask.map(({ data }) => data['state'])).toContain(1)
  await stream.next('run', (data) => data['task_id'] === id && data['state'] === 3)
  stream.close()

  const [first] = stream.events.filter(({ data }) => data['task_id'] === id)
  const again = await follow('/events', { 'last-event-id': first?.id ?? '' })
  const same = await again.next('task', (data) => data['task_id'] === id && data['state'] === 3)
  expect(same.id).toBe(last.id)
  expect(again.events.some(({ id: eventId }) => eventId === first?.id)).toBe(false)
  again.close()
})

test('joining and leaving of a worker is sent over /events', async () => {
  const stream = await follow('/events')
  const other = await startTestWorker(manager, { name: 'announced' })
  await stream.next('worker', (data) => data['worker_id'] === other.id)
  await client.post(`/workers/${other.id}/revoke`)
  await stream.next('worker', (data) => data['worker_id'] === other.id && data['state'] === 'revoked')
  await other.close()
  stream.close()
})

test('draining of a worker is sent over /events to callers that can see it', async () => {
  const other = await startTestWorker(manager, { name: 'drained' })
  const path = `/workers/${other.id}`
  const stream = await follow('/events')
  const states = () =>
    stream.events
      .filter(({ event, data }) => event === 'worker' && data['worker_id'] === other.id)
      .map(({ data }) => data['state'])
  await client.post(`${path}/resume`)
  await client.post(`${path}/drain`)
  await client.post(`${path}/drain`)
  await client.post(`${path}/resume`)
  await until(
    'the worker to be resumed',
    async () => states(),
    (seen) => seen.length === 2,
  )
  await client.post(`${path}/revoke`)
  await client.post(`${path}/drain`)
  await client.post(`${path}/resume`)
  // Of another one, so that whatever was said of the first is behind it.
  await client.post(`/workers/${worker.id}/drain`)
  await stream.next('worker', (data) => data['worker_id'] === worker.id && data['state'] === 'draining')
  await client.post(`/workers/${worker.id}/resume`)
  expect(states()).toEqual(['draining', 'alive', 'revoked'])
  stream.close()
  await other.close()
})

test.each(['nonsense', '1-2', '1-2-x'])('/events refuses %s as the id of an event', async (id) => {
  const response = await manager.app.inject({ url: '/events', headers: { 'last-event-id': id } })
  expect(response.statusCode).toBe(400)
})

test('output is followed as it arrives, until the run has ended', async () => {
  const id = await client.task('hello', { cli_args: ['there'] })
  await client.post(`/tasks/${id}/start`)
  const stream = await follow(`/tasks/${id}/logs?follow=true`)
  const end = await stream.next('end')
  expect(end.data).toMatchObject({ reason: 'ended', state: 3 })
  const text = stream.events
    .filter(({ event }) => event === 'stdout')
    .map(({ data }) => String(data['text']))
    .join('')
  expect(text).toBe((await client.get(`/tasks/${id}/logs?stream=stdout`)).body['text'])
  expect(text.length).toBeGreaterThan(0)
  stream.close()
})

test('output of a task that was never started is not followed', async () => {
  const { body } = await client.post('/tasks', { name: 'idle' })
  expect((await client.get(`/tasks/${String(body['id'])}/logs?follow=true`)).status).toBe(404)
})
