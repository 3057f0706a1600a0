// decision 0161: tasks whose worker starts their ticks, with a manager or without one
import { randomUUID } from 'node:crypto'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { idOfTick } from '#proto/index.ts'
import { FakeWorker } from './fake-worker.ts'
import type { Message } from './fake-worker.ts'
import { clientOf, startDatabase, startTestManager, startTestWorker, temporaryFolder, until } from './support.ts'
import type { TestDatabase, TestManager } from './support.ts'

let db: TestDatabase
let manager: TestManager
let client: ReturnType<typeof clientOf>
const open: FakeWorker[] = []

beforeAll(async () => {
  db = await startDatabase()
  manager = await startTestManager(db.database)
  client = clientOf(manager.app)
}, 60_000)

afterEach(() => {
  for (const worker of open.splice(0)) worker.leave()
})

afterAll(async () => {
  await manager.close()
  await db.close()
})

const EACH_SECOND = '* * * * * *'
/** A schedule whose ticks are months away on every day of the year. */
const SELDOM = `0 0 1 ${((new Date().getUTCMonth() + 6) % 12) + 1} *`

type Run = {
  id: string
  state: number
  fence: number
  ran_offline?: boolean
  cause: { type: string; tick: string }
  finished_at: string
  results: unknown
  reason: string | null
}

async function runsOf(task: string): Promise<Run[]> {
  const { body } = await client.get(`/tasks/${task}/runs?limit=100`)
  return body['runs'] as Run[]
}

const fieldsOf = async (task: string) => (await client.get(`/tasks/${task}`)).body

async function joinFake(): Promise<FakeWorker> {
  const worker = new FakeWorker(manager)
  open.push(worker)
  await worker.register()
  await worker.hello({ more: { takes_offline_tasks: true } })
  return worker
}

type Offered = {
  version: string
  schedule: string
  first_tick_ms: string
  assignment: { task_id: string; run: { fence?: string } }
}

/** The loader omits zeros. */
const isGranted = ({ assignment }: Pick<Offered, 'assignment'>) => assignment.run.fence !== undefined

/** The newest list of offline tasks that the worker got. */
const offeredTo = (worker: FakeWorker): Offered[] | undefined =>
  worker.received
    .flatMap((message) =>
      message['offline_tasks'] === undefined ? [] : [(message['offline_tasks'] as { tasks: Offered[] }).tasks],
    )
    .at(-1)

const offered = async (worker: FakeWorker, isWanted: (task: Offered) => boolean): Promise<Offered> => {
  const tasks = await until(
    'an offline task at the worker',
    () => Promise.resolve(offeredTo(worker)),
    (list) => list?.some(isWanted) ?? false,
  )
  return tasks?.find(isWanted) as Offered
}

/** Says that the worker has the task, in each version that it gets, until its ticks are the worker's. */
async function takeOver(worker: FakeWorker, task: string): Promise<{ fence: string; firstMs: number }> {
  const told = new Set<string>()
  const find = () => offeredTo(worker)?.find(({ assignment }) => assignment.task_id === task)
  const granted = await until(
    'the ticks of the task',
    () => {
      const found = find()
      if (found !== undefined && !told.has(found.version)) {
        told.add(found.version)
        worker.say({ offline_ready: { tasks: [{ task_id: task, version: found.version }] } })
      }
      return Promise.resolve(found)
    },
    (found) => found !== undefined && isGranted(found),
  )
  return { fence: String(granted?.assignment.run.fence), firstMs: Number(granted?.first_tick_ms) }
}

function report(
  worker: FakeWorker,
  task: string,
  fence: string,
  tickMs: number,
  more: { offline?: Message; result?: Message } = {},
) {
  const run = { run_id: idOfTick(task, BigInt(fence), tickMs), attempt: 1, fence }
  const offline = {
    task_id: task,
    tick_ms: String(tickMs),
    started_ms: String(tickMs),
    finished_ms: String(tickMs + 1),
    without_session: true,
    missed: 0,
    ...more.offline,
  }
  const result = { run, state: 'TASK_STATE_COMPLETED', results_json: '[3]', duration_ms: 1, offline, ...more.result }
  worker.say({ result: { results: [result] } })
  return run.run_id
}

test('the manager starts the ticks until the worker has the module, and none of them after that', async () => {
  const worker = await joinFake()
  const id = await client.task('add', {
    inputs: [1, 2],
    schedule: SELDOM,
    worker_id: worker.id,
    offline: true,
    catch_up: 'once',
  })
  await offered(worker, ({ assignment }) => assignment.task_id === id && !isGranted({ assignment }))
  expect(await fieldsOf(id)).toHaveProperty('next_tick_at')
  const { firstMs } = await takeOver(worker, id)
  expect(firstMs).toBeGreaterThan(Date.now())
  expect(await fieldsOf(id)).not.toHaveProperty('next_tick_at')
  expect(await fieldsOf(id)).toHaveProperty('offline_since')
})

test('a run is recorded once however often it is reported, with what the worker knows of it', async () => {
  const worker = await joinFake()
  const id = await client.task('add', { inputs: [1, 2], schedule: SELDOM, worker_id: worker.id, offline: true })
  const { fence, firstMs } = await takeOver(worker, id)
  const runId = report(worker, id, fence, firstMs, { offline: { missed: 4 } })
  expect(await worker.receipt()).toBe(true)
  report(worker, id, fence, firstMs, { offline: { missed: 4 } })
  const other = report(worker, id, fence, firstMs + 60_000, {
    offline: { without_session: false },
    result: {
      state: 'TASK_STATE_FAILED',
      reason: 'FAILURE_REASON_WORKER_LOST',
      error: 'it was killed',
      results_json: '',
    },
  })
  await until(
    'three receipts',
    () => Promise.resolve(worker.receipts),
    (receipts) => receipts.length >= 3,
  )
  expect(worker.receipts.every(({ recorded }) => recorded === true)).toBe(true)
  const runs = await runsOf(id)
  expect(runs).toHaveLength(2)
  expect(runs.find(({ id: one }) => one === runId)).toMatchObject({
    state: 3,
    ran_offline: true,
    results: [3],
    fence: Number(fence),
  })
  expect(runs.find(({ id: one }) => one === other)).toMatchObject({ state: 4, reason: 'worker_lost' })
  expect(runs.find(({ id: one }) => one === other)).not.toHaveProperty('ran_offline')
  // The clock of the worker was months ahead.
  for (const { finished_at: at } of runs) expect(Date.parse(at)).toBeLessThanOrEqual(Date.now() + 1_000)
  expect(await fieldsOf(id)).toMatchObject({ missed_ticks: 4 })
})

test('the results of a long absence are recorded one message after the other, all of them', async () => {
  const worker = await joinFake()
  const id = await client.task('add', { inputs: [1, 2], schedule: SELDOM, worker_id: worker.id, offline: true })
  const { fence, firstMs } = await takeOver(worker, id)
  const reported = Array.from({ length: 20 }, (_, at) => report(worker, id, fence, firstMs + at * 60_000))
  const receipts = await until(
    'twenty receipts',
    () => Promise.resolve(worker.receipts),
    (found) => found.length >= 20,
  )
  expect(receipts.every(({ recorded }) => recorded === true)).toBe(true)
  expect((await runsOf(id)).map((run) => run.id).toSorted()).toEqual(reported.toSorted())
})

test('an edit voids the fence: what is reported later is not recorded, and the worker gets the changed task', async () => {
  const worker = await joinFake()
  const id = await client.task('add', { inputs: [1, 2], schedule: SELDOM, worker_id: worker.id, offline: true })
  const { fence, firstMs } = await takeOver(worker, id)
  expect((await client.put(`/tasks/${id}`, { inputs: [3, 4] })).status).toBe(200)
  report(worker, id, fence, firstMs)
  expect(await worker.receipt()).toBe(false)
  expect(await runsOf(id)).toEqual([])
  const fresh = await offered(worker, ({ assignment }) => assignment.task_id === id && !isGranted({ assignment }))
  expect(fresh.version).not.toBe('')
  const again = await takeOver(worker, id)
  expect(Number(again.fence)).toBeGreaterThan(Number(fence))
  report(worker, id, again.fence, again.firstMs)
  expect(await worker.receipt(1)).toBe(true)
})

test('a task that is taken from a worker that never comes back has its ticks from the manager again', async () => {
  const worker = await joinFake()
  const id = await client.task('add', { inputs: [1, 2], schedule: SELDOM, worker_id: worker.id, offline: true })
  const { fence, firstMs } = await takeOver(worker, id)
  worker.breakStream()
  const moved = await client.put(`/tasks/${id}`, { offline: false, worker_id: randomUUID() })
  expect(moved.status).toBe(200)
  await until(
    'the next tick',
    () => fieldsOf(id),
    (task) => task['next_tick_at'] !== undefined,
  )
  expect(await fieldsOf(id)).not.toHaveProperty('offline_since')
  await worker.register()
  await worker.hello({ more: { takes_offline_tasks: true, offline_tasks: 1 } })
  await until(
    'the worker to lose the task',
    () => Promise.resolve(offeredTo(worker)),
    (tasks) => tasks?.length === 0,
  )
  report(worker, id, fence, firstMs)
  expect(await worker.receipt()).toBe(false)
})

test('a worker cannot record runs of tasks that it does not have, nor under ids of its choice', async () => {
  const [worker, stranger] = [await joinFake(), await joinFake()]
  const id = await client.task('add', { inputs: [1, 2], schedule: SELDOM, worker_id: worker.id, offline: true })
  const { fence, firstMs } = await takeOver(worker, id)
  report(stranger, id, fence, firstMs)
  expect(await stranger.receipt()).toBe(false)
  report(worker, id, fence, firstMs - 60_000)
  expect(await worker.receipt()).toBe(false)
  report(worker, id, fence, firstMs, { result: { run: { run_id: randomUUID(), attempt: 1, fence } } })
  await until(
    'the end of the session',
    () => Promise.resolve(worker.failure?.details),
    (details) => details !== undefined,
  )
  expect(worker.failure?.details).toContain('must be that of its tick')
  expect(await runsOf(id)).toEqual([])
})

test('a worker of an earlier version gets the ticks as runs', async () => {
  const worker = new FakeWorker(manager)
  open.push(worker)
  await worker.join()
  const id = await client.task('add', {
    inputs: [1, 2],
    schedule: SELDOM,
    worker_id: worker.id,
    offline: true,
    catch_up: 'once',
  })
  await db.database.pool.query(`UPDATE tasks SET next_tick_at = now() - interval '1 minute' WHERE id = $1`, [id])
  const { run } = await worker.assignment()
  worker.result(run)
  expect(await client.ended(id)).toMatchObject({ state: 3 })
  expect(offeredTo(worker)).toBeUndefined()
})

test('a task that would need a manager cannot be offline', async () => {
  const worker = randomUUID()
  const offline = { name: 'add', offline: true, schedule: SELDOM, worker_id: worker }
  const refused = async (fields: Record<string, unknown>) => {
    const { status, body } = await client.post('/tasks', { ...offline, ...fields })
    return { status, message: String(body['message']) }
  }
  expect(await refused({ schedule: null })).toMatchObject({
    status: 400,
    message: expect.stringContaining('schedule must be set'),
  })
  expect(await refused({ worker_id: null })).toMatchObject({
    status: 400,
    message: expect.stringContaining('worker_id must be set'),
  })
  expect(await refused({ broadcast: true })).toMatchObject({
    status: 400,
    message: expect.stringContaining('broadcast must not be'),
  })
  expect(await refused({ daemon: true })).toMatchObject({
    status: 400,
    message: expect.stringContaining('daemon must not be set'),
  })
  const created = await client.post('/tasks', offline)
  expect(created.status).toBe(201)
  const changed = await client.put(`/tasks/${String(created.body['id'])}`, { daemon: true })
  expect(changed).toMatchObject({ status: 400 })
  expect((await client.put(`/tasks/${String(created.body['id'])}`, { schedule: null, offline: false })).status).toBe(
    200,
  )
  const workflow = await client.post('/workflows', { name: 'chain', tasks: [offline] })
  expect(workflow.status).toBe(400)
})

test('a worker goes on with the ticks of its task while no manager runs, and reports each once afterwards', async () => {
  const port = Number(manager.grpcAddress.split(':').at(-1))
  const folder = temporaryFolder('skein-offline-')
  const worker = await startTestWorker(manager, { name: 'edge', folder })
  const id = await client.task('add', { inputs: [1, 2], schedule: EACH_SECOND, worker_id: worker.id, offline: true })
  await until(
    'the worker to start its ticks',
    () => fieldsOf(id),
    (task) => task['offline_since'] !== undefined,
  )
  const path = join(folder, 'worker', 'offline', 'progress')
  const lastTick = () => {
    if (!existsSync(path)) return 0
    const { tasks } = JSON.parse(readFileSync(path, 'utf8')) as { tasks: Record<string, { lastTickMs: number }> }
    return tasks[id]?.lastTickMs ?? 0
  }
  await until(
    'the first tick of the worker',
    () => Promise.resolve(lastTick()),
    (tick) => tick > 0,
  )
  await manager.close()
  const stopped = lastTick()
  await until(
    'some ticks to pass',
    () => Promise.resolve(lastTick()),
    (tick) => tick >= stopped + 3_000,
  )
  manager = await startTestManager(db.database, { grpcPort: port })
  client = clientOf(manager.app)
  const runs = await until(
    'the runs without a manager',
    () => runsOf(id),
    (list) => list.filter(({ ran_offline: ranOffline }) => ranOffline).length >= 2,
  )
  expect(
    runs.every(
      ({ state, cause, results }) => state === 3 && cause.type === 'schedule' && JSON.stringify(results) === '[3]',
    ),
  ).toBe(true)
  expect(new Set(runs.map(({ cause }) => cause.tick)).size).toBe(runs.length)
  const offline = runs.filter(({ ran_offline: ranOffline }) => ranOffline)
  expect(new Set(offline.map(({ fence }) => fence)).size).toBe(1)
  expect(await fieldsOf(id)).toMatchObject({ offline: true, state: 3 })
  expect(await fieldsOf(id)).not.toHaveProperty('next_tick_at')
  await worker.close()
  rmSync(folder, { recursive: true })
}, 120_000)
