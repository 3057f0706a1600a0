// task-manager.md section 3, rule 7: several managers share the database
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  clientOf,
  exampleModule,
  leaveWorker,
  startDatabase,
  startTestManager,
  startTestWorker,
  until,
} from './support.ts'
import type { TestDatabase, TestManager } from './support.ts'

let db: TestDatabase
let left: TestManager
let right: TestManager
const closers: (() => Promise<void>)[] = []

beforeAll(async () => {
  db = await startDatabase()
  // A stop is the worker's to confirm, however long it takes.
  const timing = { stopDeadlineMs: 60_000 }
  left = await startTestManager(db.database, { timing })
  right = await startTestManager(db.database, { timing })
}, 60_000)

afterAll(async () => {
  for (const close of closers.toReversed()) await close()
  await left.close()
  await right.close()
  await db.close()
})

test('both managers give out the same join token', () => {
  expect(left.workerToken).toBe(right.workerToken)
})

test('a run started at one manager is claimed by the other, whose worker it is, and its result comes back', async () => {
  const worker = await startTestWorker(right, { name: 'of the right one', labels: 'side=right' })
  closers.push(() => worker.close())
  const client = clientOf(left.app)
  const id = await client.task('add', { labels: { side: 'right' } })
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, index) => client.post(`/tasks/${id}/invoke`, { inputs: [index, 1] })),
  )
  expect(answers.map(({ body }) => body['results'])).toEqual(Array.from({ length: 20 }, (_, index) => [index + 1]))
  expect(answers.every(({ body }) => body['worker_id'] === worker.id)).toBe(true)
})

test('an edit at one manager counts for an invocation at the other, which has run the task before', async () => {
  const [here, there] = [clientOf(left.app), clientOf(right.app)]
  const id = await here.task('add', { inputs: [0, 1], labels: { side: 'right' } })
  for (const value of [1, 2, 3]) {
    await there.post(`/tasks/${id}/invoke`)
    await here.put(`/tasks/${id}`, { inputs: [value, 1] })
    expect((await there.post(`/tasks/${id}/invoke`)).body['results']).toEqual([value + 1])
  }
  expect((await here.delete(`/tasks/${id}`)).status).toBe(204)
  expect((await there.post(`/tasks/${id}/invoke`)).status).toBe(404)
})

test('an upload or another function at one manager counts for the inputs of an invocation at the other', async () => {
  const [here, there] = [clientOf(left.app), clientOf(right.app)]
  const id = await here.task('add', { labels: { side: 'right' } })
  const invoke = (inputs: number[]) => there.post(`/tasks/${id}/invoke`, { inputs })
  const invokeMany = (inputs: number[]) => there.post(`/tasks/${id}/invoke-many`, { inputs: [inputs] })
  expect((await invoke([1, 2])).body['results']).toEqual([3])
  await here.upload(id, exampleModule('fibonacci'))
  await here.put(`/tasks/${id}`, { function: 'fibonacci' })
  expect(await invoke([10])).toMatchObject({ status: 200, body: { results: [55] } })
  await here.upload(id, exampleModule('add'))
  await here.put(`/tasks/${id}`, { function: 'add' })
  expect(await invokeMany([1, 2])).toMatchObject({ status: 200, body: { runs: [{ results: [3] }] } })
  await here.put(`/tasks/${id}`, { function: 'gone' })
  expect((await invoke([1, 2])).status).toBe(422)
})

test('a stop at one manager ends a run on a worker of the other', async () => {
  const client = clientOf(left.app)
  const id = await client.task('endless', { timeout: '1m', labels: { side: 'right' } })
  await client.post(`/tasks/${id}/start`)
  await until(
    'running',
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === 2,
  )
  expect((await client.post(`/tasks/${id}/stop`)).status).toBe(200)
  expect((await clientOf(right.app).get(`/tasks/${id}`)).body['state']).toBe(6)
  // Confirmed by the worker, not forced: it says how long it ran.
  const { body } = await client.get(`/tasks/${id}/runs`)
  expect((body['runs'] as { duration_ms: number | null }[])[0]?.duration_ms).toBeGreaterThan(0)
})

test('runs that wait are claimed by both managers, each once', async () => {
  const client = clientOf(left.app)
  await leaveWorker(left, 'shared=yes')
  const id = await client.task('add', { labels: { shared: 'yes' } })
  const waiting = Array.from({ length: 50 }, (_, index) => client.post(`/tasks/${id}/invoke`, { inputs: [index, 1] }))
  await until(
    'the queue',
    () => client.get(`/tasks/${id}/runs?limit=1`),
    ({ body }) => body['total'] === 50,
  )
  const workers = await Promise.all([
    startTestWorker(left, { name: 'a', labels: 'shared=yes' }),
    startTestWorker(right, { name: 'b', labels: 'shared=yes' }),
  ])
  closers.push(...workers.map((worker) => () => worker.close()))
  const answers = await Promise.all(waiting)
  expect(answers.map(({ body }) => body['results'])).toEqual(Array.from({ length: 50 }, (_, index) => [index + 1]))
  expect((await client.get(`/tasks/${id}/runs?limit=1`)).body['total']).toBe(50)
})

test('a repeated invocation with the same Idempotency-Key waits at another manager for the run of the first', async () => {
  const worker = await startTestWorker(left, { name: 'keyed', labels: 'side=keyed' })
  closers.push(() => worker.close())
  const [here, there] = [clientOf(left.app), clientOf(right.app)]
  const id = await here.task('add', { labels: { side: 'keyed' } })
  const headers = { 'idempotency-key': 'one' }
  const invoke = (client: typeof here) => client.post(`/tasks/${id}/invoke`, { inputs: [1, 2] }, headers)
  const answers = await Promise.all([invoke(here), invoke(there), invoke(there)])
  answers.push(await invoke(there))
  expect(answers.map(({ status, body }) => [status, body['results']])).toEqual(answers.map(() => [200, [3]]))
  expect(new Set(answers.map(({ body }) => body['run_id'])).size).toBe(1)
  expect((await here.get(`/tasks/${id}/runs`)).body['total']).toBe(1)
  expect((await there.post(`/tasks/${id}/invoke`, { inputs: [2, 2] }, headers)).status).toBe(422)
  expect((await there.post(`/tasks/${id}/invoke`, { inputs: [2, 2] })).body['results']).toEqual([4])
})

test('a worker with a list joins a manager that answers, and moves to another one with its runs', async () => {
  const leaving = await startTestManager(db.database)
  const client = clientOf(right.app)
  const gone = '127.0.0.1:1'
  // Whichever is the first, it ends at the one that is left.
  const addresses = [gone, leaving.grpcAddress]
  const worker = await startTestWorker(
    { grpcAddress: addresses.join(','), workerToken: right.workerToken },
    { name: 'moving', labels: 'side=moving' },
  )
  closers.push(() => worker.close())
  expect(leaving.workerCount).toBe(1)
  await leaving.close()
  const again = await startTestManager(db.database, { grpcPort: Number(leaving.grpcAddress.split(':')[1]) })
  closers.push(() => again.close())
  await until(
    'the worker is back',
    () => Promise.resolve(again.workerCount),
    (workers) => workers === 1,
  )
  const id = await client.task('add', { labels: { side: 'moving' } })
  expect((await client.post(`/tasks/${id}/invoke`, { inputs: [1, 2] })).body['results']).toEqual([3])
})

test('when its manager ends, a worker takes its run along to the next one of its list, within the lease', async () => {
  const leaving = await startTestManager(db.database)
  const client = clientOf(right.app)
  const worker = await startTestWorker(
    { grpcAddress: [leaving.grpcAddress, right.grpcAddress].join(','), workerToken: right.workerToken },
    { name: 'carrying', labels: 'side=carrying' },
  )
  closers.push(() => worker.close())
  const id = await client.task('endless', { timeout: '1h', labels: { side: 'carrying' } })
  await client.post(`/tasks/${id}/start`)
  const runs = async () => ((await client.get(`/tasks/${id}/runs`)).body['runs'] as Record<string, unknown>[])[0] ?? {}
  const before = await until('a running run', runs, ({ state }) => state === 2)
  const hadIt = leaving.workerCount
  await leaving.close()
  await until(
    'the worker at the other manager',
    () => Promise.resolve(right.workerCount),
    (workers) => workers >= 2,
  )
  expect(await runs()).toMatchObject({ id: before['id'], state: 2, attempt: 1 })
  expect((await client.post(`/tasks/${id}/stop`)).status).toBe(200)
  expect(hadIt).toBeLessThanOrEqual(1)
})
