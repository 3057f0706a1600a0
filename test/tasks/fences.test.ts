// task-manager.md section 3, rules 1, 2, 4 and 5, spoken by an independent client: proto-loader and the .proto files
import { randomUUID } from 'node:crypto'
import { status } from '@grpc/grpc-js'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { FakeWorker } from './fake-worker.ts'
import type { Assignment, Message, Ref } from './fake-worker.ts'
import { SHORT_LEASE, clientOf, startDatabase, startTestManager, until } from './support.ts'
import type { TestDatabase, TestManager } from './support.ts'

let db: TestDatabase
let manager: TestManager
let client: ReturnType<typeof clientOf>
const open: FakeWorker[] = []

beforeAll(async () => {
  db = await startDatabase()
  manager = await startTestManager(db.database, { timing: SHORT_LEASE })
  client = clientOf(manager.app)
}, 60_000)

afterEach(() => {
  for (const worker of open.splice(0)) worker.leave()
})

afterAll(async () => {
  await manager.close()
  await db.close()
})

function newWorker(): FakeWorker {
  const worker = new FakeWorker(manager)
  open.push(worker)
  return worker
}

/** A task that only this worker may run. */
async function taskFor(worker: FakeWorker, fields: Message = {}): Promise<string> {
  return await client.task('add', { inputs: [1, 2], labels: { fake: worker.labels }, ...fields })
}

async function started(worker: FakeWorker, fields: Message = {}): Promise<{ id: string; assignment: Assignment }> {
  const id = await taskFor(worker, fields)
  const { status: answer } = await client.post(`/tasks/${id}/start`)
  expect(answer).toBe(200)
  return { id, assignment: await worker.assignment() }
}

test('an assignment is complete, and its result is recorded and acknowledged', async () => {
  const worker = newWorker()
  await worker.join()
  const { id, assignment } = await started(worker)
  expect(assignment).toMatchObject({
    task_name: 'add',
    inputs_json: '[1,2]',
    module: { size_bytes: '41' },
    limits: { timeout_ms: '300000' },
    on_lost: 'ON_LOST_REQUEUE',
  })
  worker.result(assignment.run)
  expect(await worker.receipt()).toBe(true)
  expect(await client.ended(id)).toMatchObject({ state: 3, results: [3] })
})

test('a result that comes twice is recorded once and acknowledged twice', async () => {
  const worker = newWorker()
  await worker.join()
  const { id, assignment } = await started(worker)
  worker.result(assignment.run, [3])
  worker.result(assignment.run, [4])
  expect(await worker.receipt(1)).toBe(true)
  worker.result(assignment.run, [5])
  expect(await worker.receipt(2)).toBe(true)
  expect(await client.results(id)).toMatchObject({ state: 3, results: [3] })
  expect((await client.get(`/tasks/${id}/runs`)).body).toMatchObject({ total: 1, runs: [{ results: [3] }] })
})

test('a result with a stale or invented fence is not recorded, and the worker receives an order to drop it', async () => {
  const worker = newWorker()
  await worker.join()
  const { id, assignment } = await started(worker)
  worker.result({ ...assignment.run, fence: String(BigInt(assignment.run.fence) - 1n) }, [66])
  expect(await worker.receipt(0)).toBe(false)
  worker.result({ ...assignment.run, run_id: randomUUID() }, [66])
  expect(await worker.receipt(1)).toBe(false)
  worker.result(assignment.run)
  expect(await worker.receipt(2)).toBe(true)
  expect(await client.results(id)).toMatchObject({ results: [3] })
})

test('a returned run is assigned again with a higher fence and is not counted as an attempt', async () => {
  const worker = newWorker()
  await worker.join()
  const { id, assignment } = await started(worker)
  worker.say({ reject: { run: assignment.run, reason: 'REJECT_REASON_RUNNER_KILLED' } })
  const again = await worker.assignment(1)
  expect(again.run).toMatchObject({ run_id: assignment.run.run_id, attempt: 1 })
  expect(BigInt(again.run.fence)).toBeGreaterThan(BigInt(assignment.run.fence))
  worker.result(assignment.run, [66])
  expect(await worker.receipt(0)).toBe(false)
  worker.result(again.run)
  await client.ended(id)
  const { body } = await client.get(`/tasks/${id}/runs`)
  expect(body).toMatchObject({
    runs: [{ attempt: 1, state: 3, results: [3], earlier_attempts: [{ attempt: 1, reason: 'rejected' }] }],
  })
})

test('a worker that says that it takes no runs does not get back the run that it rejected, until it says otherwise', async () => {
  const worker = newWorker()
  await worker.join()
  const { id, assignment } = await started(worker)
  worker.say({ drain_state: { draining: true, running: 0 } })
  worker.say({ reject: { run: assignment.run, reason: 'REJECT_REASON_NO_SLOT', message: 'no room for results' } })
  await until(
    'the run to wait',
    () => client.get(`/tasks/${id}/runs`),
    ({ body }) => JSON.stringify(body).includes('no room for results'),
  )
  await new Promise((resolve) => setTimeout(resolve, 500))
  expect(worker.assignments).toHaveLength(1)
  worker.say({ drain_state: { draining: false, running: 0 } })
  const again = await worker.assignment(1)
  worker.result(again.run)
  expect(await client.ended(id)).toMatchObject({ state: 3 })
})

test('a failed fetch has three attempts, each under a fence of its own', async () => {
  const worker = newWorker()
  await worker.join()
  const { id, assignment } = await started(worker, { retry: { backoff: '1ms' } })
  worker.fail(assignment.run, 'FAILURE_REASON_FETCH_FAILED')
  const second = await worker.assignment(1)
  worker.fail(second.run, 'FAILURE_REASON_FETCH_FAILED')
  const third = await worker.assignment(2)
  worker.fail(third.run, 'FAILURE_REASON_FETCH_FAILED')
  expect(await client.ended(id)).toMatchObject({ state: 4, reason: 'fetch_failed', error: 'so it went' })
  expect([assignment, second, third].map(({ run }) => run.attempt)).toEqual([1, 2, 3])
  expect([await worker.receipt(0), await worker.receipt(1), await worker.receipt(2)]).toEqual([true, true, true])
})

test('a guest error has one attempt', async () => {
  const worker = newWorker()
  await worker.join()
  const { id, assignment } = await started(worker)
  worker.fail(assignment.run, 'FAILURE_REASON_TRAP')
  expect(await client.ended(id)).toMatchObject({ state: 4, reason: 'trap' })
})

test('a worker that reconnects with the run keeps it, and its spooled result is requested', async () => {
  const worker = newWorker()
  await worker.join()
  const { id, assignment } = await started(worker)
  worker.say({ state_update: { running: [assignment.run] } })
  await until(
    'running',
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === 2,
  )
  worker.breakStream()
  await worker.register()
  expect(await worker.hello({ running: [{ run: assignment.run, state: 'TASK_STATE_RUNNING' }] })).toMatchObject({
    keep: [assignment.run],
    stop: [],
    resend: [],
  })
  worker.breakStream()
  await worker.register()
  expect(await worker.hello({ spooled: [assignment.run] })).toMatchObject({
    keep: [],
    resend: [assignment.run],
    acknowledged: [],
  })
  worker.result(assignment.run)
  await client.ended(id)
  worker.breakStream()
  await worker.register()
  expect(await worker.hello({ spooled: [assignment.run] })).toMatchObject({
    resend: [],
    acknowledged: [assignment.run],
  })
})

test('a run that the manager does not know is stopped', async () => {
  const worker = newWorker()
  await worker.register()
  const stranger = { run_id: randomUUID(), attempt: 1, fence: '7' }
  expect(await worker.hello({ running: [{ run: stranger, state: 'TASK_STATE_RUNNING' }] })).toMatchObject({
    keep: [],
    stop: [stranger],
  })
})

test('an assignment that never arrived is repeated when the worker is back, and is not counted as an attempt', async () => {
  const worker = newWorker()
  await worker.join()
  const { id, assignment } = await started(worker)
  worker.breakStream()
  await worker.register()
  await worker.hello()
  const again = await worker.assignment(1)
  expect(again.run).toMatchObject({ run_id: assignment.run.run_id, attempt: 1 })
  worker.result(again.run)
  expect(await client.ended(id)).toMatchObject({ state: 3 })
})

test('a spooled result of an earlier fence does not hold the run: it is dropped, and the run is assigned again at once', async () => {
  const worker = newWorker()
  await worker.join()
  const { id, assignment } = await started(worker)
  worker.breakStream()
  await worker.register()
  await worker.hello()
  const second = await worker.assignment(1)
  expect(BigInt(second.run.fence)).toBeGreaterThan(BigInt(assignment.run.fence))
  worker.breakStream()
  await worker.register()
  expect(await worker.hello({ spooled: [assignment.run] })).toMatchObject({
    resend: [],
    acknowledged: [assignment.run],
  })
  const third = await worker.assignment(2)
  expect(BigInt(third.run.fence)).toBeGreaterThan(BigInt(second.run.fence))
  worker.result(third.run)
  expect(await client.ended(id)).toMatchObject({ state: 3, results: [3] })
})

test('the runs of a restarted worker are lost at once, without waiting for the lease', async () => {
  const worker = newWorker()
  await worker.join()
  const { id, assignment } = await started(worker, { retry: { backoff: '1ms' } })
  worker.say({ state_update: { running: [assignment.run] } })
  await until(
    'running',
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === 2,
  )
  worker.breakStream()
  await worker.register({ boot_id: 'boot-2' })
  await worker.hello({ bootId: 'boot-2' })
  const again = await worker.assignment(1)
  expect(again.run).toMatchObject({ attempt: 2 })
  const { body } = await client.get(`/tasks/${id}/runs`)
  expect(body).toMatchObject({
    runs: [{ earlier_attempts: [{ reason: 'worker_lost', error: 'the worker was restarted' }] }],
  })
  worker.result(again.run)
  await client.ended(id)
})

test.each([
  ['fail', 4],
  ['wait', 7],
] as const)('when the lease ends, on_lost %s makes the task %i', async (onLost, state) => {
  const worker = newWorker()
  await worker.join()
  const { id, assignment } = await started(worker, { on_lost: onLost })
  worker.say({ state_update: { running: [assignment.run] } })
  await until(
    'running',
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === 2,
  )
  worker.breakStream()
  await until(
    `state ${state}`,
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === state,
  )
  if (onLost === 'fail') expect(await client.results(id)).toMatchObject({ reason: 'worker_lost' })
  else {
    await worker.register()
    expect(await worker.hello({ spooled: [assignment.run] })).toMatchObject({ resend: [assignment.run] })
    worker.result(assignment.run)
    expect(await client.ended(id)).toMatchObject({ state: 3, results: [3] })
  }
})

test('who asks again to stop a run does not postpone its end', async () => {
  const worker = newWorker()
  await worker.join()
  const { id, assignment } = await started(worker)
  const deadline = async () => {
    const { rows } = await sql<{
      at: string | null
      asked: boolean
    }>`SELECT next_check_at::text AS at, cancel_requested_at IS NOT NULL AS asked
      FROM runs WHERE id = ${assignment.run.run_id}`.execute(db.database.db)
    return rows[0]
  }
  const first = client.post(`/tasks/${id}/stop`)
  const asked = await until('a stop', deadline, (row) => row?.asked === true)
  const second = client.post(`/tasks/${id}/stop`)
  await until(
    'both stops',
    () => Promise.resolve(worker.received.filter(({ cancel }) => cancel !== undefined && cancel !== null).length),
    (cancels) => cancels === 2,
  )
  expect(await deadline()).toEqual(asked)
  await Promise.all([first, second])
  expect(await client.ended(id)).toMatchObject({ state: 6 })
})

test('a run with on_lost wait that was asked to stop ends, though its worker is lost', async () => {
  const worker = newWorker()
  await worker.join()
  const { id, assignment } = await started(worker, { on_lost: 'wait' })
  worker.say({ state_update: { running: [assignment.run] } })
  await until(
    'running',
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === 2,
  )
  worker.breakStream()
  await until(
    'state 7',
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === 7,
  )
  // As a manager leaves it that dies after it has asked.
  await sql`UPDATE runs SET cancel_requested_at = now(), next_check_at = now() WHERE id = ${assignment.run.run_id}`.execute(
    db.database.db,
  )
  expect(await client.ended(id)).toMatchObject({ state: 6 })
})

test('at the end of the lease the run goes to another worker and the old one is rejected', async () => {
  const [lost, heir] = [newWorker(), newWorker()]
  await lost.register({ labels: { fake: lost.labels } })
  await lost.hello()
  const { id, assignment } = await started(lost, { retry: { backoff: '1ms' } })
  lost.say({ state_update: { running: [assignment.run] } })
  await until(
    'running',
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === 2,
  )
  await heir.register({ labels: { fake: lost.labels } })
  await heir.hello()
  lost.breakStream()
  const again = await heir.assignment()
  expect(again.run).toMatchObject({ run_id: assignment.run.run_id, attempt: 2 })
  await lost.register()
  expect(await lost.hello({ spooled: [assignment.run] })).toMatchObject({
    resend: [],
    acknowledged: [assignment.run],
  })
  lost.result(assignment.run, [66])
  expect(await lost.receipt()).toBe(false)
  heir.result(again.run)
  expect(await client.ended(id)).toMatchObject({ state: 3, results: [3] })
  expect((await client.get(`/workers/${heir.id}`)).body).toMatchObject({ alive: true })
})

test('a registration ends the earlier session', async () => {
  const worker = newWorker()
  await worker.join()
  const earlier = worker.epoch
  await worker.register()
  await expect(worker.hello({ epoch: earlier })).rejects.toMatchObject({ code: status.ABORTED })
})

test('workers that return together each keep their own runs, whatever they claim, and one with an earlier epoch is refused', async () => {
  const workers = Array.from({ length: 8 }, newWorker)
  const held = await Promise.all(
    workers.map(async (worker) => {
      await worker.join()
      return await started(worker)
    }),
  )
  for (const worker of workers) worker.breakStream()
  for (const worker of workers) await worker.register()
  const [late] = workers
  const voidEpoch = late?.epoch ?? ''
  await late?.register()
  // Each claims its own run and that of the next one.
  const welcomes = await Promise.allSettled(
    workers.map((worker, index) => {
      const claimed = [held[index], held[(index + 1) % held.length]].flatMap((one) => one?.assignment.run ?? [])
      const running = claimed.map((run) => ({ run, state: 'TASK_STATE_RUNNING' }))
      return worker.hello({ running, ...(worker === late ? { epoch: voidEpoch } : {}) })
    }),
  )
  const [refused, ...others] = welcomes
  expect(refused).toMatchObject({ status: 'rejected', reason: { code: status.ABORTED } })
  for (const [at, welcome] of others.entries()) {
    const [own, next] = [held[at + 1], held[(at + 2) % held.length]]
    expect(welcome).toMatchObject({ value: { keep: [own?.assignment.run], stop: [next?.assignment.run], resend: [] } })
  }
  for (const [index, worker] of workers.slice(1).entries())
    worker.result(held[index + 1]?.assignment.run as Ref, [index])
  for (const [index, { id }] of held.slice(1).entries())
    expect(await client.ended(id)).toMatchObject({ state: 3, results: [index] })
})

test('an unknown token, a wrong secret and a session without Hello are refused', async () => {
  const stranger = newWorker()
  await expect(stranger.register({ join_token: 'wrong' })).rejects.toMatchObject({ code: status.UNAUTHENTICATED })
  const worker = newWorker()
  await worker.register()
  worker.secret = 'wrong'
  await expect(worker.hello()).rejects.toMatchObject({ code: status.UNAUTHENTICATED })
  await expect(newWorker().register({ slots: 0 })).rejects.toMatchObject({ code: status.INVALID_ARGUMENT })
})

test('a stop that the worker does not confirm is forced at its deadline, and a later result is ignored', async () => {
  const worker = newWorker()
  await worker.join()
  const { id, assignment } = await started(worker)
  expect((await client.post(`/tasks/${id}/stop`)).status).toBe(200)
  expect(await client.results(id)).toMatchObject({ state: 6 })
  await until(
    'the cancellation',
    () => Promise.resolve(worker.received),
    (messages) => messages.some((message) => message['cancel'] !== undefined),
  )
  worker.result(assignment.run, [66])
  // Whatever it says: the result has been judged.
  await worker.receipt()
  expect(await client.results(id)).toMatchObject({ state: 6, results: null })
})

test('a result above 256 KiB arrives in parts and is returned whole', async () => {
  const worker = newWorker()
  await worker.join()
  const { id, assignment } = await started(worker)
  const bytes = Buffer.from(JSON.stringify(Array.from({ length: 60_000 }, (_, index) => index)))
  const digest = `sha256:${(await import('node:crypto')).createHash('sha256').update(bytes).digest('hex')}`
  for (let offset = 0; offset < bytes.length; offset += 200_000) {
    worker.say({
      result_chunk: {
        run: assignment.run,
        digest,
        offset: String(offset),
        data: bytes.subarray(offset, offset + 200_000),
      },
    })
  }
  worker.say({
    result: {
      results: [
        {
          run: assignment.run,
          state: 'TASK_STATE_COMPLETED',
          staged: { digest, size_bytes: String(bytes.length) },
          duration_ms: 1,
        },
      ],
    },
  })
  const ended = await client.ended(id)
  expect((ended['results'] as number[]).length).toBe(60_000)
  expect((await client.get(`/tasks/${id}/runs`)).body).toMatchObject({
    runs: [{ results: null, result_bytes: bytes.length }],
  })
})

test('stopping a run that waits for its retry hides no queued run from the claims', async () => {
  // Sweeps would count the queues.
  await using stack = new AsyncDisposableStack()
  const rare = await startTestManager(db.database, { timing: { sweepIntervalMs: 3_600_000 } })
  stack.defer(() => rare.close())
  const own = clientOf(rare.app)
  const worker = new FakeWorker(rare)
  stack.defer(() => worker.leave())
  await worker.join()
  const fields = { inputs: [1, 2], labels: { fake: worker.labels } }
  const failing = await own.task('add', { ...fields, retry: { backoff: '100s' } })
  await own.post(`/tasks/${failing}/start`)
  worker.fail((await worker.assignment()).run, 'FAILURE_REASON_FETCH_FAILED')
  expect(await worker.receipt()).toBe(true)
  worker.say({ drain_state: { draining: true, running: 0 } })
  const queued = await own.task('add', fields)
  await until(
    'the worker to drain',
    () => own.get(`/tasks/${queued}/placement`),
    ({ body }) => JSON.stringify(body).includes('it is draining'),
  )
  await own.post(`/tasks/${queued}/start`)
  expect((await own.post(`/tasks/${failing}/stop`)).status).toBe(200)
  expect(await own.ended(failing)).toMatchObject({ state: 6 })
  worker.say({ drain_state: { draining: false, running: 0 } })
  const { run } = await worker.assignment(1)
  worker.result(run)
  expect(await own.ended(queued)).toMatchObject({ state: 3 })
})
