// Runs that are sent to their worker before they are in the database (decision 0106): what a caller receives is recorded, once.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { FakeWorker } from './fake-worker.ts'
import type { Assignment, Message } from './fake-worker.ts'
import { clientOf, startDatabase, startTestManager, startTestWorker, until } from './support.ts'
import type { TestDatabase, TestManager } from './support.ts'

type Answer = Awaited<ReturnType<ReturnType<typeof clientOf>['call']>>

let db: TestDatabase
let manager: TestManager
/** Records runs as started at once. */
let hasty: TestManager
let client: ReturnType<typeof clientOf>
let sql: TestDatabase['database']['pool']
const open: FakeWorker[] = []

beforeAll(async () => {
  db = await startDatabase()
  // On a busy machine the steps of a test take longer than a run may stay unrecorded.
  manager = await startTestManager(db.database, { timing: { recordAfterMs: 60_000 } })
  hasty = await startTestManager(db.database, { timing: { recordAfterMs: 1 } })
  client = clientOf(manager.app)
  sql = db.database.pool
}, 60_000)

afterEach(() => {
  for (const worker of open.splice(0)) worker.leave()
})

afterAll(async () => {
  await hasty.close()
  await manager.close()
  await db.close()
})

const rowsOf = async (runId: string) =>
  (await sql.query<Record<string, unknown>>('SELECT * FROM runs WHERE id = $1', [runId])).rows

/** The receipts that the worker gets for its results of an assignment, in order. */
async function receiptsOf(worker: FakeWorker, { run }: Assignment, count = 1): Promise<boolean[]> {
  const told = () => worker.receipts.filter((receipt) => receipt.run.fence === run.fence)
  await until(
    'the receipts',
    () => Promise.resolve(told().length),
    (length) => length >= count,
  )
  return told().map(({ recorded }) => recorded ?? false)
}

type Sent = { answer: Promise<Answer>; assignment: Assignment; runId: string }

/** A task of one fake worker, invoked until its runs are sent before they are recorded. */
async function taskOf(fields: Message = {}, host = manager) {
  const client = clientOf(host.app)
  const worker = new FakeWorker(host)
  open.push(worker)
  await worker.join()
  const id = await client.task('add', { inputs: [1, 2], labels: { fake: worker.labels }, ...fields })
  let sentRuns = 0
  const send = async (body: unknown = {}, headers: Record<string, string> = {}): Promise<Sent> => {
    const answer = client.post(`/tasks/${id}/invoke`, body, headers)
    const assignment = await worker.assignment(sentRuns++)
    return { answer, assignment, runId: assignment.run.run_id }
  }
  const next = async () => await worker.assignment(sentRuns++)
  if (host === hasty) return { worker, id, send, next }
  await until(
    'an unrecorded run',
    async () => {
      const { answer, assignment, runId } = await send()
      const isRecorded = (await rowsOf(runId)).length > 0
      worker.result(assignment.run)
      expect((await answer).status).toBe(200)
      return isRecorded
    },
    (isRecorded) => !isRecorded,
  )
  return { worker, id, send, next }
}

test('a short run is written once, with its end', async () => {
  const { worker, id, send } = await taskOf()
  const { answer, assignment, runId } = await send({ inputs: [4, 5] })
  worker.result(assignment.run, [9])
  const { status, body } = await answer
  expect({ status, body }).toMatchObject({ status: 200, body: { results: [9], run_id: runId, worker_id: worker.id } })
  const rows = await rowsOf(runId)
  expect(rows).toHaveLength(1)
  expect(rows[0]).toMatchObject({
    state: 3,
    results: [9],
    spec: { inputs: [4, 5] },
    attempt: 1,
    queue_seq: null,
    next_check_at: null,
    fence: Number(assignment.run.fence),
  })
  const times = ['created_at', 'assigned_at', 'running_at', 'finished_at'].map((name) => Number(rows[0]?.[name]))
  expect(times).toEqual(times.toSorted((left, right) => left - right))
  const run = (await client.get(`/tasks/${id}/runs/${runId}`)).body
  expect(run).toMatchObject({ state: 3, results: [9] })
  const changes = await sql.query(
    `SELECT count(*)::int FROM task_events, json_array_elements(events) AS e WHERE e->>1 = $1`,
    [runId],
  )
  expect(changes.rows).toEqual([{ count: 1 }])
})

test('a run that lasts is recorded as started, and then ends as every run', async () => {
  const { worker, id, send } = await taskOf({}, hasty)
  for (let turn = 0; turn < 5; turn++) {
    const { answer, assignment } = await send()
    worker.result(assignment.run)
    expect((await answer).status).toBe(200)
  }
  const { answer, assignment, runId } = await send()
  worker.say({ state_update: { running: [assignment.run] } })
  await until(
    'the run as running',
    () => client.get(`/tasks/${id}/runs/${runId}`),
    ({ body }) => body['state'] === 2,
  )
  worker.result(assignment.run)
  expect((await answer).body).toMatchObject({ results: [3], run_id: runId })
  expect(await receiptsOf(worker, assignment)).toEqual([true])
  expect(await rowsOf(runId)).toMatchObject([{ state: 3, fence: Number(assignment.run.fence) }])
})

test('a result that comes twice is recorded once and acknowledged twice', async () => {
  const { worker, send } = await taskOf()
  const { answer, assignment, runId } = await send()
  worker.result(assignment.run, [3])
  worker.result(assignment.run, [4])
  expect((await answer).body).toMatchObject({ results: [3] })
  expect(await receiptsOf(worker, assignment, 2)).toEqual([true, true])
  expect(await rowsOf(runId)).toMatchObject([{ results: [3] }])
})

test('a result that comes twice in one message is recorded once and acknowledged twice', async () => {
  const { worker, send } = await taskOf()
  const { answer, assignment, runId } = await send()
  const { run } = assignment
  const results = ['[3]', '[4]'].map((json) => ({
    run,
    state: 'TASK_STATE_COMPLETED',
    results_json: json,
    duration_ms: 1,
  }))
  worker.say({ result: { results } })
  expect((await answer).body).toMatchObject({ results: [3] })
  expect(await receiptsOf(worker, assignment, 2)).toEqual([true, true])
  expect(await rowsOf(runId)).toMatchObject([{ results: [3] }])
})

test('a worker that joins again gets the run again under another fence, and the caller its result', async () => {
  const { worker, send, next } = await taskOf()
  const { answer, assignment, runId } = await send()
  worker.breakStream()
  await worker.register({ boot_id: 'boot-2' })
  await worker.hello({ bootId: 'boot-2' })
  const again = await next()
  expect(again.run.run_id).toBe(runId)
  expect(again.run.fence).not.toBe(assignment.run.fence)
  worker.result(assignment.run, [66])
  worker.result(again.run, [3])
  expect((await answer).body).toMatchObject({ results: [3] })
  expect(await rowsOf(runId)).toMatchObject([{ state: 3, results: [3], fence: Number(again.run.fence) }])
})

test('a run that its worker gives back is placed again', async () => {
  const { worker, id, send, next } = await taskOf()
  const { answer, assignment, runId } = await send()
  worker.say({ reject: { run: assignment.run, reason: 'REJECT_REASON_RUNNER_KILLED' } })
  const again = await next()
  expect(BigInt(again.run.fence)).toBeGreaterThan(BigInt(assignment.run.fence))
  worker.result(again.run)
  expect((await answer).body).toMatchObject({ results: [3], run_id: runId })
  expect((await client.get(`/tasks/${id}/runs/${runId}`)).body).toMatchObject({
    earlier_attempts: [{ reason: 'rejected' }],
  })
})

test('a failure is recorded with the run; one that another attempt can repair is followed by it', async () => {
  const { worker, id, send, next } = await taskOf({ retry: { backoff: '1ms' } })
  const failed = await send()
  worker.fail(failed.assignment.run, 'FAILURE_REASON_TRAP')
  expect((await failed.answer).body).toMatchObject({ state: 4, reason: 'trap', error: 'so it went' })
  expect(await rowsOf(failed.runId)).toMatchObject([{ state: 4, reason: 'trap', error: 'so it went' }])
  const { answer, assignment, runId } = await send()
  worker.fail(assignment.run, 'FAILURE_REASON_FETCH_FAILED')
  worker.result((await next()).run)
  expect((await answer).body).toMatchObject({ results: [3] })
  expect((await client.get(`/tasks/${id}/runs/${runId}`)).body).toMatchObject({
    attempt: 2,
    earlier_attempts: [{ reason: 'fetch_failed' }],
  })
})

test('a stop ends a run that is not recorded yet', async () => {
  const { worker, id, send } = await taskOf()
  const { answer, assignment, runId } = await send()
  const stopping = client.post(`/tasks/${id}/stop`)
  await until(
    'the order to stop',
    () =>
      Promise.resolve(
        worker.received.filter((message) => message['cancel'] !== undefined && message['cancel'] !== null),
      ),
    (cancels) => cancels.length > 0,
  )
  worker.say({ result: { results: [{ run: assignment.run, state: 'TASK_STATE_STOPPED', duration_ms: 1 }] } })
  expect((await stopping).status).toBe(200)
  expect((await answer).body).toMatchObject({ state: 6 })
  expect(await rowsOf(runId)).toMatchObject([{ state: 6 }])
})

test('what a task was before its change is not recorded: the run starts again with the task of now', async () => {
  const { worker, id, send, next } = await taskOf()
  const { answer, assignment, runId } = await send()
  // As another manager changes it.
  await sql.query(`UPDATE tasks SET inputs = '[20, 22]' WHERE id = $1`, [id])
  worker.result(assignment.run, [3])
  expect(await receiptsOf(worker, assignment)).toEqual([false])
  const again = await next()
  expect(again).toMatchObject({ inputs_json: '[20,22]', run: { run_id: runId } })
  worker.result(again.run, [42])
  expect((await answer).body).toMatchObject({ results: [42], run_id: runId })
  expect(await rowsOf(runId)).toMatchObject([{ results: [42] }])
})

test('a run whose worker leaves, and whose task has changed, starts again with the task of now', async () => {
  const { worker, id, send, next } = await taskOf()
  const { answer, assignment, runId } = await send()
  await sql.query(`UPDATE tasks SET inputs = '[20, 22]' WHERE id = $1`, [id])
  worker.say({ reject: { run: assignment.run, reason: 'REJECT_REASON_RUNNER_KILLED' } })
  const again = await next()
  expect(again).toMatchObject({ inputs_json: '[20,22]', run: { run_id: runId } })
  worker.result(assignment.run, [66])
  worker.result(again.run, [42])
  expect((await answer).body).toMatchObject({ results: [42] })
})

test('the run of a deleted task is 404 and leaves no trace', async () => {
  const { worker, id, send } = await taskOf()
  const { answer, assignment, runId } = await send()
  await sql.query('DELETE FROM tasks WHERE id = $1', [id])
  worker.result(assignment.run)
  expect((await answer).status).toBe(404)
  expect(await rowsOf(runId)).toEqual([])
})

test('output of a run is stored when the run is', async () => {
  const { worker, id, send } = await taskOf()
  const { answer, assignment, runId } = await send()
  worker.say({ log_chunk: { run: assignment.run, stream: 1, offset: '0', data: Buffer.from('printed') } })
  worker.result(assignment.run)
  expect((await answer).status).toBe(200)
  await until(
    'the output',
    () => client.get(`/tasks/${id}/logs?run_id=${runId}`),
    ({ body }) => body['text'] === 'printed',
  )
})

test.each<{ what: string; fields?: Message; body?: Message; headers?: Record<string, string> }>([
  { what: 'an Idempotency-Key', headers: { 'idempotency-key': 'once' } },
  { what: 'on_lost: wait', fields: { on_lost: 'wait' } },
  { what: 'a deadline that the caller learns of', body: { timeout: '100ms' } },
])('a run with $what is recorded before it is sent', async ({ fields = {}, body = {}, headers = {} }) => {
  const worker = new FakeWorker(manager)
  open.push(worker)
  await worker.join()
  const id = await client.task('add', { inputs: [1, 2], labels: { fake: worker.labels }, ...fields })
  for (let turn = 0; turn < 4; turn++) {
    const key = headers['idempotency-key']
    const answer = client.post(`/tasks/${id}/invoke`, body, key === undefined ? {} : { 'idempotency-key': key + turn })
    const { run } = await worker.assignment(turn)
    expect(await rowsOf(run.run_id)).toHaveLength(1)
    worker.result(run)
    await answer
  }
})

test('a manager that ends records what it has sent', async () => {
  const other = await startTestManager(db.database, { timing: { recordAfterMs: 60_000 } })
  const worker = new FakeWorker(other)
  open.push(worker)
  await worker.join()
  const there = clientOf(other.app)
  const id = await there.task('add', { inputs: [1, 2], labels: { fake: worker.labels } })
  let runId = ''
  for (let turn = 0; turn < 5; turn++) {
    void there.post(`/tasks/${id}/invoke`).catch(() => undefined)
    const { run } = await worker.assignment(turn)
    runId = run.run_id
    if (turn < 4) worker.result(run)
  }
  await other.close()
  expect(await rowsOf(runId)).toMatchObject([{ state: 1 }])
})

test('no run is lost or doubled while the connections of the run writer are cut again and again', async () => {
  const worker = await startTestWorker(manager, { labels: 'cut=yes', slots: 4 })
  const id = await client.task('add', { inputs: [0, 0], labels: { cut: 'yes' } })
  expect((await client.post(`/tasks/${id}/invoke`)).status).toBe(200)
  let isOver = false
  const cutting = (async () => {
    while (!isOver) {
      await sql.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%INSERT INTO runs%' AND pid <> pg_backend_pid()`,
      )
      await new Promise((resolve) => setTimeout(resolve, 40))
    }
  })()
  const told = new Map<string, unknown>()
  const callers = Array.from({ length: 8 }, async (_, caller) => {
    for (let turn = 0; turn < 25; turn++) {
      const { status, body } = await client.post(`/tasks/${id}/invoke`, { inputs: [caller * 100, turn] })
      if (status === 200) told.set(String(body['run_id']), body['results'])
    }
  })
  await Promise.all(callers)
  isOver = true
  await cutting
  expect(told.size).toBeGreaterThan(50)
  const { rows } = await sql.query<{ id: string; results: unknown; state: number; inputs: number[] }>(
    `SELECT id, results, state, spec->'inputs' AS inputs FROM runs WHERE id = ANY($1)`,
    [[...told.keys()]],
  )
  expect(new Map(rows.map((row) => [row.id, row.results]))).toEqual(told)
  for (const { results, inputs } of rows) expect(results).toEqual([Number(inputs[0]) + Number(inputs[1])])
  await worker.close()
}, 120_000)
