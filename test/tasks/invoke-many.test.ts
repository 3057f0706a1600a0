// task-manager.md section 1 (invoke: any number at once, each a run of its own)
import { afterAll, expect, test } from 'vitest'
import { leaveWorker, startSite, until } from './support.ts'

type Invocation = { run_id: string | null; state: number | null; results: unknown; error: string | null }

const { manager, worker, client, close } = await startSite()
afterAll(close)

async function invokeMany(id: string, body: Record<string, unknown>): Promise<Invocation[]> {
  const answer = await client.post(`/tasks/${id}/invoke-many`, body)
  expect(answer.status).toBe(200)
  return answer.body['runs'] as Invocation[]
}

test('a thousand inputs in one call are a thousand runs, answered in the order of the inputs', async () => {
  const id = await client.task('add')
  const runs = await invokeMany(id, { inputs: Array.from({ length: 1000 }, (_, index) => [index, 1]) })
  expect(runs.map(({ results }) => results)).toEqual(Array.from({ length: 1000 }, (_, index) => [index + 1]))
  expect(new Set(runs.map((run) => run.run_id)).size).toBe(1000)
  expect(runs[0]).toMatchObject({ state: 3, worker_id: worker.id, reason: null, error: null })
  const { body } = await client.get(`/tasks/${id}/runs?limit=1`)
  expect(body).toMatchObject({ total: 1000, runs: [{ kind: 'invoke', state: 3 }] })
  expect((await client.get(`/tasks/${id}`)).body['state']).toBe(0)
})

test('a batch of runs is bounded: what exceeds the limit is refused with the reason', async () => {
  const id = await client.task('add', { labels: { zone: 'nowhere' } })
  await leaveWorker(manager, 'zone=nowhere')
  const runs = await invokeMany(id, {
    cli_args: Array.from({ length: 31 }, () => 'x'.repeat(32_000)),
    inputs: Array.from({ length: 80 }, () => [1, 2]),
    timeout: '1ms',
  })
  const refused = runs.filter((run) => run.run_id === null)
  expect(refused.length).toBeGreaterThan(5)
  expect(refused.length).toBeLessThan(30)
  for (const { error } of refused) expect(error).toContain('too many large runs are being started')
  expect(await client.delete(`/tasks/${id}?force=true`)).toMatchObject({ status: 204 })
})

test('a refused run reports why and does not affect the others', async () => {
  const id = await client.task('add')
  const runs = await invokeMany(id, { inputs: [[1, 2], [1], [3, 4]] })
  expect(runs).toMatchObject([
    { state: 3, results: [3] },
    { run_id: null, state: null, results: null, error: expect.stringContaining('add') as string },
    { state: 3, results: [7] },
  ])
  expect((await client.get(`/tasks/${id}/runs`)).body['total']).toBe(2)
})

test('the response is the refusal if none can be started', async () => {
  const id = await client.task('add')
  expect((await client.post(`/tasks/${id}/invoke-many`, { inputs: [[1], ['two']] })).status).toBe(422)
  const { body: bare } = await client.post('/tasks', { name: 'add' })
  const refused = await client.post(`/tasks/${String(bare['id'])}/invoke-many`, { inputs: [[1, 2]] })
  expect(refused).toMatchObject({ status: 422, body: { message: expect.stringContaining('no module') as string } })
})

test('no inputs, more than a thousand and invalid lists are malformed; an unknown task is not found', async () => {
  const id = await client.task('add')
  const tooMany = Array.from({ length: 1001 }, () => [1, 2])
  for (const inputs of [undefined, [], tooMany, [1, 2], 'all']) {
    expect((await client.post(`/tasks/${id}/invoke-many`, { inputs })).status).toBe(400)
  }
  expect((await client.post(`/tasks/${id}/invoke-many`, { inputs: [[1, 2]], timeout: '2h' })).status).toBe(400)
  const unknown = '00000000-0000-4000-8000-000000000000'
  expect((await client.post(`/tasks/${unknown}/invoke-many`, { inputs: [[1, 2]] })).status).toBe(404)
})

test('a run that has not ended in time is named, continues and is found by its id', async () => {
  const id = await client.task('endless', { timeout: '2s' })
  const runs = await invokeMany(id, { inputs: [[], []], timeout: '50ms' })
  expect(runs).toMatchObject([
    { state: 1, results: null, error: null },
    { state: 1, results: null, error: null },
  ])
  for (const { run_id: runId } of runs) {
    const { body } = await until(
      'the end of the run',
      () => client.get(`/tasks/${id}/runs/${runId}`),
      ({ body: run }) => run['state'] === 4,
    )
    expect(body['reason']).toBe('timeout')
  }
})

test('arguments and environment of the call apply to each of its runs', async () => {
  const id = await client.task('hello')
  const runs = await invokeMany(id, { inputs: [[], []], cli_args: ['both'] })
  for (const { results } of runs) {
    expect(results).toMatchObject({ exit_code: 0, stdout: expect.stringContaining('both') as string })
  }
})
