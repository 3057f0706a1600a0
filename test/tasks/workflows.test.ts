// task-manager.md sections 1 and 2: tasks that depend on each other
import { afterAll, expect, test } from 'vitest'
import { clientOf, exampleModule, startSite, startTestManager, until } from './support.ts'

const { db, client, close } = await startSite()
afterAll(close)

type Step = { name: string; state: number; task_id: string; run_id?: string; error: string | null }
type TaskSpec = Record<string, unknown> & { name: string; module?: string }

/** A workflow whose tasks have modules; `add` unless they say. */
async function workflow(tasks: readonly TaskSpec[]): Promise<string> {
  const specs = tasks.map(({ module: _module, ...task }) => ({ function: 'add', ...task }))
  const { status, body } = await client.post('/workflows', { name: 'flow', tasks: specs })
  expect(status).toBe(201)
  const made = body['tasks'] as { id: string; name: string }[]
  for (const { id, name } of made) {
    const wanted = tasks.find((task) => task.name === name)?.module ?? 'add'
    expect((await client.upload(id, exampleModule(wanted))).status).toBe(200)
  }
  return String(body['id'])
}

async function ended(id: string): Promise<{ state: number; steps: Record<string, Step> }> {
  const { body } = await until(
    'the end of the workflow',
    () => client.get(`/workflows/${id}`),
    ({ body: seen }) => (seen['run'] as { state: number } | undefined)?.state !== 2 && seen['run'] !== undefined,
  )
  const run = body['run'] as { state: number; steps: Step[] }
  return { state: run.state, steps: Object.fromEntries(run.steps.map((step) => [step.name, step])) }
}

test('results of parents become inputs of their children, and a diamond ends once', async () => {
  const id = await workflow([
    { name: 'top', inputs: [1, 2] },
    { name: 'left', inputs: [{ from: 'top', result: 0 }, 10], depends_on: ['top'] },
    { name: 'right', inputs: [{ from: 'top' }, 100], depends_on: ['top'] },
    { name: 'bottom', inputs: [{ from: 'left' }, { from: 'right' }], depends_on: ['left', 'right'] },
  ])
  expect((await client.get(`/workflows/${id}`)).body).toMatchObject({ state: 0 })
  const started = await client.post(`/workflows/${id}/start`)
  expect(started).toMatchObject({ status: 200, body: { started: true } })
  const { state, steps } = await ended(id)
  expect(state).toBe(3)
  expect(await client.results(String(steps['bottom']?.task_id))).toMatchObject({ state: 3, results: [116] })
  expect((await client.get(`/tasks/${String(steps['bottom']?.task_id)}/runs`)).body).toMatchObject({ total: 1 })
})

test('after a failure tasks with failure and always run, and those with success are skipped with their dependents', async () => {
  const id = await workflow([
    { name: 'bad', module: 'endless', function: 'run', timeout: '100ms' },
    { name: 'good', inputs: [1, 1], depends_on: ['bad'] },
    { name: 'after good', inputs: [1, 1], depends_on: ['good'] },
    { name: 'repair', inputs: [1, 1], depends_on: ['bad'], run_if: 'failure' },
    { name: 'report', inputs: [1, 1], depends_on: ['good', 'repair'], run_if: 'always' },
  ])
  await client.post(`/workflows/${id}/start`)
  const { state, steps } = await ended(id)
  expect(state).toBe(4)
  const states = Object.fromEntries(Object.entries(steps).map(([name, step]) => [name, step.state]))
  expect(states).toEqual({ bad: 4, good: 5, 'after good': 5, repair: 3, report: 3 })
  const skipped = await client.get(`/tasks/${String(steps['good']?.task_id)}`)
  expect(skipped.body).toMatchObject({ state: 5 })
  expect((await client.get(`/tasks?state=5`)).body['total']).toBe(2)
})

test.each([
  [
    'a cycle, naming it',
    [
      { name: 'a', depends_on: ['c'] },
      { name: 'b', depends_on: ['a'] },
      { name: 'c', depends_on: ['b'] },
    ],
    'a -> c -> b -> a',
  ],
  ['a task that depends on itself', [{ name: 'a', depends_on: ['a'] }], 'a -> a'],
  ['an unknown parent', [{ name: 'a', depends_on: ['z'] }], 'z is unknown'],
  ['a duplicate name', [{ name: 'a' }, { name: 'a' }], 'a is used twice'],
  ['a result of a stranger', [{ name: 'a' }, { name: 'b', inputs: [{ from: 'a' }] }], 'not in depends_on'],
  ['no tasks', [], 'tasks'],
  ['an unknown run_if', [{ name: 'a', run_if: 'maybe' }], 'run_if'],
  ['an invalid field', [{ name: 'a', priority: 1000 }], 'priority'],
  ['an invalid timeout', [{ name: 'a' }, { name: 'b', timeout: 'soon' }], 'tasks.1.timeout must be'],
])('a workflow with %s is 400', async (_what, tasks, words) => {
  const { status, body } = await client.post('/workflows', { name: 'flow', tasks })
  expect(status).toBe(400)
  expect(String(body['message'])).toContain(words)
})

test('a running workflow is neither started again nor deleted; a stopped one starts nothing more', async () => {
  const id = await workflow([
    { name: 'long', module: 'endless', function: 'run', timeout: '30s' },
    { name: 'next', inputs: [1, 1], depends_on: ['long'], run_if: 'always' },
  ])
  await client.post(`/workflows/${id}/start`)
  const taskId = (await client.get(`/workflows/${id}`)).body['tasks'] as { id: string }[]
  await until(
    'it runs',
    () => client.get(`/tasks/${String(taskId[0]?.id)}`),
    ({ body }) => body['state'] === 2,
  )
  expect((await client.post(`/workflows/${id}/start`)).status).toBe(409)
  expect((await client.delete(`/workflows/${id}`)).status).toBe(409)
  expect(await client.post(`/workflows/${id}/stop`)).toMatchObject({ status: 200, body: { stopped: true } })
  const { state, steps } = await ended(id)
  expect(state).toBe(6)
  expect(steps['next']?.state).toBe(6)
  expect((await client.get(`/tasks/${String(taskId[1]?.id)}/runs`)).body['total']).toBe(0)
  expect((await client.delete(`/tasks/${String(taskId[1]?.id)}`)).status).toBe(409)
  expect((await client.put(`/tasks/${String(taskId[1]?.id)}`, { name: 'other' })).status).toBe(409)
  expect((await client.delete(`/workflows/${id}`)).status).toBe(204)
  expect((await client.get(`/tasks/${String(taskId[1]?.id)}`)).status).toBe(404)
})

test('a workflow with a task without a module fails with the reason', async () => {
  const { body } = await client.post('/workflows', { name: 'flow', tasks: [{ name: 'empty' }] })
  await client.post(`/workflows/${String(body['id'])}/start`)
  const { state, steps } = await ended(String(body['id']))
  expect(state).toBe(4)
  expect(steps['empty']?.error).toContain('no module')
})

test('a workflow can be run again, also by another manager', async () => {
  const other = await startTestManager(db.database)
  const id = await workflow([
    { name: 'one', inputs: [1, 1] },
    { name: 'two', inputs: [{ from: 'one' }, 1], depends_on: ['one'] },
  ])
  for (const round of [1, 2]) {
    await clientOf(other.app).post(`/workflows/${id}/start`)
    const { state, steps } = await ended(id)
    expect(state).toBe(3)
    expect((await client.get(`/tasks/${String(steps['two']?.task_id)}/runs`)).body['total']).toBe(round)
  }
  await other.close()
})

test.each(['env', 'labels', 'secrets'])('an empty name in %s of a task of a workflow is reported', async (field) => {
  const refused = await client.post('/workflows', { name: 'w', tasks: [{ name: 'a', [field]: { '': 'x' } }] })
  expect(refused).toMatchObject({
    status: 400,
    body: { error: 'malformed', message: expect.stringContaining(`tasks.0.${field}`) as string },
  })
})

test('unknown workflows are 404', async () => {
  for (const id of ['00000000-0000-4000-8000-000000000000', 'nonsense']) {
    expect((await client.get(`/workflows/${id}`)).status).toBe(404)
    expect((await client.post(`/workflows/${id}/start`)).status).toBe(404)
    expect((await client.post(`/workflows/${id}/stop`)).status).toBe(404)
    expect((await client.delete(`/workflows/${id}`)).status).toBe(404)
  }
})

test('a dry run of a deletion lists the workflow, its tasks and the number of their runs, and deletes nothing', async () => {
  const id = await workflow([
    { name: 'first', inputs: [1, 2] },
    { name: 'second', inputs: [{ from: 'first' }, 3], depends_on: ['first'] },
  ])
  await client.post(`/workflows/${id}/start`)
  const { steps } = await ended(id)
  const { status, body } = await client.delete(`/workflows/${id}?dry_run=true`)
  expect(status).toBe(200)
  expect(body).toEqual({
    total: 3,
    changes: [
      { operation: 'workflow.remove', id, name: 'flow', attributes: {} },
      { operation: 'task.remove', id: steps['first']?.task_id, name: 'first', attributes: {} },
      { operation: 'task.remove', id: steps['second']?.task_id, name: 'second', attributes: {} },
    ],
    rows: [
      { table: 'workflows', created: 0, updated: 0, deleted: 1 },
      { table: 'tasks', created: 0, updated: 0, deleted: 2 },
      { table: 'workflow_runs', created: 0, updated: 0, deleted: 1 },
      { table: 'runs', created: 0, updated: 0, deleted: 2 },
    ],
  })
  const ofWorkflow = await client.delete(`/tasks/${String(steps['first']?.task_id)}?dry_run=true`)
  expect(ofWorkflow.body['message']).toContain('belongs to a workflow')
  expect((await client.delete(`/workflows/${id}`)).status).toBe(204)
  expect((await client.delete(`/workflows/${id}?dry_run=true`)).status).toBe(404)
})

test('a dry run of an active task or workflow is refused as the deletion is; with force, a task is reported and runs on', async () => {
  const id = await workflow([{ name: 'endless', module: 'endless', function: 'run' }])
  await client.post(`/workflows/${id}/start`)
  expect((await client.delete(`/workflows/${id}?dry_run=true`)).status).toBe(409)
  await client.post(`/workflows/${id}/stop`)
  const task = String((await client.post('/tasks', { name: 'run' })).body['id'])
  expect((await client.upload(task, exampleModule('endless'))).status).toBe(200)
  expect((await client.post(`/tasks/${task}/start`)).status).toBe(200)
  expect((await client.delete(`/tasks/${task}?dry_run=true`)).status).toBe(409)
  const forced = await client.delete(`/tasks/${task}?dry_run=true&force=true`)
  expect(forced.body).toEqual({
    total: 1,
    changes: [{ operation: 'task.remove', id: task, name: 'run', attributes: {} }],
    rows: [
      { table: 'tasks', created: 0, updated: 0, deleted: 1 },
      { table: 'runs', created: 0, updated: 0, deleted: 1 },
    ],
  })
  expect((await client.delete(`/tasks/${task}?dry_run=true`)).status).toBe(409)
  expect((await client.delete(`/tasks/${task}?force=true`)).status).toBe(204)
})

test('a workflow of more steps than an advance starts ends with all of them, and skips what depends on a failed one', async () => {
  const wide = Array.from({ length: 45 }, (_, index) => ({ name: `step ${index}`, inputs: [index, 1] }))
  const id = await workflow([
    ...wide,
    { name: 'bad', module: 'endless', function: 'run', timeout: '100ms' },
    { name: 'after', inputs: [1, 1], depends_on: ['bad'] },
    { name: 'after all', inputs: [1, 1], depends_on: [...wide.map(({ name }) => name), 'after'], run_if: 'always' },
  ])
  await client.post(`/workflows/${id}/start`)
  const { state, steps } = await ended(id)
  expect(state).toBe(4)
  expect(wide.map(({ name }) => steps[name]?.state)).toEqual(wide.map(() => 3))
  expect([steps['bad'], steps['after'], steps['after all']].map((step) => step?.state)).toEqual([4, 5, 3])
})

test.each([501, 10_000])('a workflow of %i steps is refused by its limit', async (steps) => {
  const tasks = Array.from({ length: steps }, (_, index) => ({ name: `s${index}` }))
  const { status, body } = await client.post('/workflows', { tasks })
  expect(status).toBe(400)
  expect(String(body['message'])).toContain('500')
})

test.each([501, 10_000])(
  'a workflow of %i tasks is refused with the limit, and nothing of it is stored',
  async (count) => {
    const rowsOf = async () =>
      (
        await db.database.pool.query(
          'SELECT (SELECT count(*) FROM workflows) AS workflows, (SELECT count(*) FROM tasks) AS tasks',
        )
      ).rows
    const before = await rowsOf()
    const tasks = Array.from({ length: count }, (_, index) => ({
      name: `step ${index}`,
      ...(index === 0 ? {} : { depends_on: [`step ${index - 1}`] }),
    }))
    const { status, body } = await client.post('/workflows', { name: 'long', tasks })
    expect([status, body['message']]).toEqual([400, expect.stringMatching(/tasks .*500/)])
    expect(await rowsOf()).toEqual(before)
  },
)
