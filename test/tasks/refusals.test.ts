// contract decisions 95 and 96: what is refused outside of a request is seen at the task until the next success
import { expect, test } from 'vitest'
import { LOG_START } from '#core/changelog/index.ts'
import type { Position } from '#core/changelog/index.ts'
import { sql } from '#core/sql.ts'
import { readEvents } from '../../queues/task-events.ts'
import { startTestTenant } from './platform.ts'
import { clientOf, exampleModule, until } from './support.ts'
import type { TestUser } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'

const tenant = useWorld(startTestTenant)

type LastError = { at: string; reason: string; count: number; source: string }
type Shown = {
  state: number
  error: string | null
  results: unknown
  run_id?: string
  activity?: string
  last_run?: { id: string; state: number; at: string }
  last_error?: LastError
  next_tick_at?: string
}

const get = async <T>(url: string) => (await tenant.owner.call('GET', url)).json<T>()
const shown = (task: string) => get<Shown>(`/tasks/${task}`)
const listed = async (task: string) => {
  const { tasks } = await get<{ tasks: (Shown & { id: string })[] }>(`/tasks?domain_id=${tenant.domain}&limit=100`)
  return tasks.find(({ id }) => id === task)
}
const newTask = (fields: Record<string, unknown>, module?: string) =>
  tenant.newTask(tenant.owner, tenant.domain, fields, module)
const newChannel = () => tenant.newChannel(tenant.owner.call, tenant.domain)

const publish = (channel: string, value: number) =>
  tenant.publish(tenant.owner.call, tenant.domain, channel, [{ n: 'a', v: value }])

const untilError = (task: string, count = 1) =>
  until(
    `${count} refusals`,
    () => shown(task),
    ({ last_error: error }) => (error?.count ?? 0) >= count,
  )
const untilNoError = (task: string) =>
  until(
    'no refusal',
    () => shown(task),
    ({ last_error: error }) => error === undefined,
  )

async function journalOf(task: string) {
  type Item = { operation: string; attributes: Record<string, unknown> }
  const { journals } = await get<{ journals: Item[] }>(
    `/${tenant.domain}/journal/task/${task}?limit=100&dir=asc&with_attributes=true`,
  )
  return journals.filter(({ operation }) => operation === 'task.refuse').map(({ attributes }) => attributes)
}

type Step = {
  name: string
  task_id: string
  state: number
  run_id: string
  error: string | null
  last_error?: LastError
}
const untilEnded = async (workflow: string) => {
  const { run } = await until(
    'the end of the workflow',
    () => get<{ run?: { state: number; steps: Step[] } }>(`/workflows/${workflow}`),
    (seen) => seen.run !== undefined && seen.run.state !== 2,
  )
  return { state: run?.state, step: (run?.steps ?? [])[0] as Step }
}

async function newWorkflow(inputs: readonly unknown[]): Promise<{ workflow: string; task: string }> {
  const made = await tenant.owner.call('POST', '/workflows', {
    name: 'flow',
    domain_id: tenant.domain,
    tasks: [{ name: 'first', function: 'add', inputs }],
  })
  expect(made.status, made.text).toBe(201)
  const { id, tasks } = made.json<{ id: string; tasks: { id: string }[] }>()
  const task = tasks[0]?.id ?? ''
  expect((await clientOf(tenant.api.app).upload(task, exampleModule('add'))).status).toBe(200)
  return { workflow: id, task }
}

test('a step of a workflow that cannot start fails its task with the reason, in a run that exists', async () => {
  const { workflow, task } = await newWorkflow([1, 2])
  expect((await tenant.owner.call('POST', `/workflows/${workflow}/start`)).status).toBe(200)
  expect(await untilEnded(workflow)).toMatchObject({ state: 3 })
  expect(await shown(task)).toMatchObject({ state: 3, results: [3] })

  // What an edit of a task permits, and its function does not.
  await sql`UPDATE tasks SET inputs = '[1]' WHERE id = ${task}`.execute(tenant.database.db)
  expect((await tenant.owner.call('POST', `/workflows/${workflow}/start`)).status).toBe(200)
  const waited = await get<Shown>(`/tasks/${task}?wait=10s`)
  expect(waited).toMatchObject({ state: 4, results: null, error: expect.stringContaining('add') as string })
  const { state, step } = await untilEnded(workflow)
  expect(state).toBe(4)
  expect(step).toMatchObject({ state: 4, last_error: { count: 1, source: 'workflow', reason: step.error } })
  expect(await shown(task)).toMatchObject({ state: 4, run_id: step.run_id, error: step.error, results: null })
  expect(await get(`/tasks/${task}/results`)).toMatchObject({ state: 4, results: null, error: step.error })
  expect(await get(`/tasks/${task}/runs/${step.run_id}`)).toMatchObject({
    id: step.run_id,
    state: 4,
    reason: 'refused',
    error: step.error,
    cause: { type: 'workflow', workflow_id: workflow },
  })
  const { runs } = await get<{ runs: { id: string }[] }>(`/runs?domain_id=${tenant.domain}&reason=refused`)
  expect(runs.map(({ id }) => id)).toEqual([step.run_id])

  // Counted since the last success, in the journal once.
  expect((await tenant.owner.call('POST', `/workflows/${workflow}/start`)).status).toBe(200)
  await untilError(task, 2)
  await untilEnded(workflow)
  expect(await journalOf(task)).toMatchObject([{ source: 'workflow', reason: step.error }])
  expect((await tenant.owner.call('PUT', `/tasks/${task}`, { inputs: [3, 4] })).status).toBe(200)
  expect((await tenant.owner.call('POST', `/workflows/${workflow}/start`)).status).toBe(200)
  expect(await untilEnded(workflow)).toMatchObject({ state: 3 })
  expect(await shown(task)).toMatchObject({ state: 3, results: [7] })
  await untilNoError(task)
})

test('the state of a step without a module shows its refusal, and a caller that waits gets it', async () => {
  const made = await tenant.owner.call('POST', '/workflows', {
    name: 'flow',
    domain_id: tenant.domain,
    tasks: [{ name: 'first', inputs: [] }],
  })
  const { id, tasks } = made.json<{ id: string; tasks: { id: string }[] }>()
  const task = tasks[0]?.id ?? ''
  expect((await tenant.owner.call('POST', `/workflows/${id}/start`)).status).toBe(200)
  expect(await get(`/tasks/${task}?wait=10s`)).toMatchObject({
    state: 4,
    error: expect.stringContaining('no module') as string,
  })
})

test('a schedule whose starts are refused shows the reason, counts, and is failing until a start succeeds', async () => {
  const task = await newTask({ inputs: [1], schedule: '* * * * * *' })
  const refused = await untilError(task, 2)
  expect(refused).toMatchObject({ activity: 'failing', last_error: { source: 'schedule' } })
  expect(refused.last_error?.reason).toContain('add')
  expect(await listed(task)).toMatchObject({ activity: 'failing', last_error: { source: 'schedule' } })
  expect(await journalOf(task)).toHaveLength(1)
  expect((await tenant.owner.call('PUT', `/tasks/${task}`, { inputs: [1, 2] })).status).toBe(200)
  const active = await untilNoError(task)
  expect(active.activity).toBe('active')
})

test('a result that cannot be published leaves its reason at the task until one is published', async () => {
  const [from, to, gone] = await Promise.all([newChannel(), newChannel(), newChannel()])
  const task = await newTask({ inputs: [1], trigger: { channel_id: from }, publish_result: { channel_id: to } })
  const doomed = await newTask({ inputs: [1], trigger: { channel_id: from }, publish_result: { channel_id: gone } })
  expect((await tenant.owner.call('POST', `/${tenant.domain}/channels/${to}/disable`)).status).toBe(200)
  expect((await tenant.owner.call('DELETE', `/${tenant.domain}/channels/${gone}`)).status).toBe(204)
  await publish(from, 1)
  const refused = await untilError(task)
  expect(refused).toMatchObject({
    activity: 'failing',
    last_error: { source: 'publication', reason: `the channel ${to} is disabled`, count: 1 },
  })
  expect((await untilError(doomed)).last_error).toMatchObject({
    source: 'publication',
    reason: `the channel ${gone} was deleted`,
  })
  expect(await journalOf(task)).toMatchObject([{ source: 'publication', reason: `the channel ${to} is disabled` }])
  expect((await tenant.owner.call('POST', `/${tenant.domain}/channels/${to}/enable`)).status).toBe(200)
  await publish(from, 2)
  expect((await untilNoError(task)).activity).toBe('active')
  // The run of the other task ends on its own.
  await until(
    'the second refusal',
    () => shown(doomed),
    ({ last_error: error }) => error?.count === 2,
  )
})

test('a task with a trigger is active with its last run, and failing with one that has failed', async () => {
  const from = await newChannel()
  const task = await newTask({ inputs: [1], trigger: { channel_id: from } })
  expect(await shown(task)).toMatchObject({ state: 0, activity: 'active' })
  expect(await shown(task)).not.toHaveProperty('last_run')
  await publish(from, 1)
  const ran = await until(
    'a run',
    () => shown(task),
    ({ last_run: run }) => run?.state === 3,
  )
  expect(ran).toMatchObject({ state: 0, activity: 'active' })
  const run = await get<{ finished_at: string }>(`/tasks/${task}/runs/${ran.last_run?.id}`)
  expect(ran.last_run?.at).toBe(run.finished_at)
  expect(await listed(task)).toMatchObject({ activity: 'active', last_run: ran.last_run })

  const bad = await newTask({ trigger: { channel_id: from }, timeout: '100ms', function: 'run' }, 'endless')
  await publish(from, 2)
  await until(
    'a failure',
    () => shown(bad),
    ({ last_run: last, activity }) => last?.state === 4 && activity === 'failing',
  )
  const byHand = await newTask({ inputs: [1, 2] })
  expect(await shown(byHand)).not.toHaveProperty('activity')
})

test('a trigger whose channel was deleted says so, until it has another one', async () => {
  const [from, other] = [await newChannel(), await newChannel()]
  const task = await newTask({ inputs: [1], trigger: { channel_id: from } })
  expect((await tenant.owner.call('DELETE', `/${tenant.domain}/channels/${from}`)).status).toBe(204)
  expect(await untilError(task)).toMatchObject({
    activity: 'failing',
    last_error: { source: 'message', reason: `the channel ${from} was deleted`, count: 1 },
  })
  expect((await tenant.owner.call('PUT', `/tasks/${task}`, { trigger: { channel_id: other } })).status).toBe(200)
  const changed = await shown(task)
  expect(changed.activity).toBe('active')
  expect(changed).not.toHaveProperty('last_error')
})

test('a replay that ends early, because its user may no longer read the channel, says so', async () => {
  const from = await newChannel()
  const actions = ['read', 'task_read', 'task_start', 'channel_read', 'channel_subscribe']
  const member = await tenant.newMember(tenant.owner.call, tenant.domain, actions)
  const task = await newTask({ inputs: [1] })
  await publish(from, 1)
  const replay = (by: TestUser) =>
    by.call('POST', `/tasks/${task}/replay`, { channel_id: from, from: 0, to: Date.now() / 1000 + 60 })
  // Not taken before the right is lost.
  await sql`ALTER TABLE task_replays ALTER COLUMN due_at SET DEFAULT now() + interval '1 hour'`.execute(
    tenant.database.db,
  )
  expect((await replay(member)).status).toBe(202)
  expect((await tenant.owner.call('POST', `${member.role}/members/delete`, { members: [member.id] })).status).toBe(200)
  await sql`ALTER TABLE task_replays ALTER COLUMN due_at SET DEFAULT now()`.execute(tenant.database.db)
  await sql`UPDATE task_replays SET due_at = now()`.execute(tenant.database.db)
  const refused = await untilError(task)
  expect(refused.last_error).toMatchObject({ source: 'replay', count: 1 })
  expect(refused.last_error?.reason).toContain('ended early')
  expect(await journalOf(task)).toMatchObject([{ source: 'replay' }])
  expect((await replay(tenant.owner)).status).toBe(202)
  await untilNoError(task)
})

test('a schedule that is taken away takes its refusals with it', async () => {
  const task = await newTask({ inputs: [1], schedule: '* * * * * *' })
  await untilError(task)
  expect((await tenant.owner.call('PUT', `/tasks/${task}`, { schedule: null })).status).toBe(200)
  await untilNoError(task)
})

test('the first refusal of a row is an event', async () => {
  const from = await newChannel()
  const task = await newTask({ inputs: [1, 2, 3], trigger: { channel_id: from } }, 'add')
  await publish(from, 1)
  await publish(from, 2)
  await untilError(task, 2)
  let position: Position = LOG_START
  const found: unknown[] = []
  for (;;) {
    const { events, position: read, isAll } = await readEvents(tenant.database.db, position)
    found.push(...events.filter(({ kind }) => kind === 'refusal').map(({ data }) => data))
    position = read
    if (isAll) break
  }
  const { reason } = (await shown(task)).last_error as LastError
  expect(found.filter((data) => (data as { task_id: string }).task_id === task)).toEqual([
    expect.objectContaining({
      type: 'refusal',
      task_id: task,
      domain_id: tenant.domain,
      name: 'add',
      source: 'message',
      reason,
    }),
  ])
})
