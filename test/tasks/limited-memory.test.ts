// Placement of runs on a worker with limited memory (SKEIN_WORKER_MEMORY), with a manager and a worker
import { afterAll, beforeAll, expect, test } from 'vitest'
import { clientOf, startDatabase, startTestManager, startTestWorker, until } from './support.ts'
import type { TestDatabase, TestManager, TestWorker } from './support.ts'

let db: TestDatabase
let manager: TestManager
let worker: TestWorker
let client: ReturnType<typeof clientOf>

beforeAll(async () => {
  db = await startDatabase()
  manager = await startTestManager(db.database)
  client = clientOf(manager.app)
  const environment = { SKEIN_WORKER_MEMORY: '320MiB', SKEIN_WORKER_SLOTS: '4' }
  worker = await startTestWorker(manager, { name: 'small', environment })
}, 60_000)

afterAll(async () => {
  await worker.close()
  await manager.close()
  await db.close()
})

const stateOf = async (id: string) => Number((await client.get(`/tasks/${id}`)).body['state'])
const isIn = (id: string, state: number) =>
  until(
    `state ${state}`,
    () => stateOf(id),
    (found) => found === state,
  )

test('a run that does not fit beside others waits at the manager until one of them has ended', async () => {
  const [large, small, late] = [
    await client.task('endless', { memory_limit: '100MiB' }),
    await client.task('endless', { memory_limit: '64MiB' }),
    await client.task('endless', { memory_limit: '128MiB' }),
  ]
  for (const id of [large, small]) {
    await client.post(`/tasks/${id}/start`)
    await isIn(id, 2)
  }
  await client.post(`/tasks/${late}/start`)
  const { workers } = await until(
    'a reason',
    async () => (await client.get(`/tasks/${late}/placement`)).body,
    ({ reason }) => reason === 'every worker that fits is busy',
  )
  // 320 MiB are 64 of the worker, 32 of a runner and 224 of runs; a limit counts as a power of two.
  expect(workers).toMatchObject([
    { reason: `its runs hold ${192 * 2 ** 20} of the ${224 * 2 ** 20} bytes of memory that it has for them` },
  ])
  expect(await stateOf(late)).toBe(1)
  await client.post(`/tasks/${large}/stop`)
  await isIn(late, 2)
  for (const id of [small, late]) await client.post(`/tasks/${id}/stop`)
})

test('a task that never fits is refused with the memory that the worker has for runs', async () => {
  const id = await client.task('add', { memory_limit: '256MiB' })
  expect(await client.post(`/tasks/${id}/invoke`, { inputs: [1, 2] })).toMatchObject({
    status: 409,
    body: { message: `no worker fits: small: it has ${224 * 2 ** 20} bytes of memory, the task requires ${2 ** 28}` },
  })
})

test('short runs come one after the other, more at a time than there is memory', async () => {
  const id = await client.task('add')
  const inputs = Array.from({ length: 50 }, (_, n) => [n, 1])
  const { status, body } = await client.post(`/tasks/${id}/invoke-many`, { inputs })
  expect(status).toBe(200)
  expect((body['runs'] as { results: unknown }[]).map(({ results }) => results)).toEqual(
    inputs.map(([n = 0]) => [n + 1]),
  )
})
