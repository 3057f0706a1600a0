// contract decision 88: whose rights a task uses, and who may change what runs with them
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import type { TestUser } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { startTestTenant } from './platform.ts'
import { exampleModule, until } from './support.ts'

const tenant = useWorld(startTestTenant)

type Shown = {
  granted_by?: string
  activity?: string
  last_error?: { source: string; reason: string; count: number }
  last_run?: { state: number }
  trigger_status?: { dropped: number }
  env: Record<string, string>
}

const DRIVES = ['read', 'task_read', 'task_create', 'task_update', 'task_start']
const USES = [...DRIVES, 'channel_read', 'channel_publish', 'channel_subscribe']

const newMember = (actions: readonly string[]) => tenant.newMember(tenant.owner.call, tenant.domain, actions)
const newChannel = () => tenant.newChannel(tenant.owner.call, tenant.domain)
const shown = async (task: string) => (await tenant.owner.call('GET', `/tasks/${task}`)).json<Shown>()
const upload = (user: TestUser, task: string, module?: string) => tenant.upload(user, task, module)
const leave = async ({ id, role }: { id: string; role: string }) =>
  expect((await tenant.owner.call('POST', `${role}/members/delete`, { members: [id] })).status).toBe(200)
const rejoin = async ({ id, role }: { id: string; role: string }) =>
  expect((await tenant.owner.call('POST', `${role}/members`, { members: [id] })).status).toBe(200)

const publish = (channel: string, value: number) =>
  tenant.publish(tenant.owner.call, tenant.domain, channel, [{ n: 'a', v: value }])

async function valuesOf(channel: string): Promise<number[]> {
  const { messages } = (
    await tenant.owner.call('GET', `/${tenant.domain}/channels/${channel}/messages?limit=100&dir=asc`)
  ).json<{
    messages: { value: number }[]
  }>()
  return messages.map(({ value }) => value).toSorted((one, other) => one - other)
}

const untilPaused = (task: string) =>
  until(
    'the pause',
    () => shown(task),
    ({ activity }) => activity === 'paused',
  )

async function operationsOf(task: string): Promise<string[]> {
  const { journals } = (
    await tenant.owner.call('GET', `/${tenant.domain}/journal/task/${task}?limit=100&dir=asc`)
  ).json<{
    journals: { operation: string }[]
  }>()
  return journals.map(({ operation }) => operation)
}

test('another user changes what runs with the rights of the grantor only with these rights, and grants them then', async () => {
  const [from, to] = [await newChannel(), await newChannel()]
  const grantor = await newMember(USES)
  const [weak, strong] = [await newMember(DRIVES), await newMember(USES)]
  const task = await tenant.newTask(grantor, tenant.domain, {
    inputs: [1],
    trigger: { channel_id: from },
    publish_result: { channel_id: to },
  })
  expect(await shown(task)).toMatchObject({ granted_by: grantor.id })

  const changes = [
    { inputs: [2] },
    { env: { A: 'b' } },
    { cli_args: ['x'] },
    { function: 'add' },
    { image_url: 'registry.example.com/a:1' },
    { file: exampleModule('add').toString('base64') },
    { grants: [{ kind: 'publish', channel_id: to }] },
  ]
  for (const change of changes) {
    const refused = await weak.call('PUT', `/tasks/${task}`, change)
    expect(refused.status, JSON.stringify(change).slice(0, 80)).toBe(403)
    expect(refused.json<{ message: string }>().message).toContain('needs subscribe on channel')
  }
  expect((await upload(weak, task)).status).toBe(403)
  const anonymous = await tenant.api.anonymous('PUT', `/tasks/${task}`, { inputs: [2] })
  expect(anonymous.status).toBe(401)

  // What runs stays the same: everything else, values that are as they were, and less of a channel.
  const before = await shown(task)
  for (const change of [
    { priority: 60, timeout: '1m', metadata: { a: 1 }, labels: {} },
    { ...before, priority: 61 },
  ]) {
    const kept = await weak.call('PUT', `/tasks/${task}`, change)
    expect(kept.status, kept.text).toBe(200)
    expect(kept.json<Shown>().granted_by).toBe(grantor.id)
  }
  expect((await strong.call('PUT', `/tasks/${task}`, { inputs: [2] })).json<Shown>().granted_by).toBe(strong.id)
  expect((await upload(grantor, task)).body).toMatchObject({ granted_by: grantor.id })
  expect((await weak.call('PUT', `/tasks/${task}`, { trigger: null, publish_result: null })).status).toBe(200)
  expect(await shown(task)).not.toHaveProperty('granted_by')
  expect((await weak.call('PUT', `/tasks/${task}`, { inputs: [3, 4] })).status).toBe(200)
})

test('a change that was permitted for other channel fields than those of now is refused', async () => {
  const [from, to] = [await newChannel(), await newChannel()]
  const grantor = await newMember(USES)
  const weak = await newMember(DRIVES)
  const task = await tenant.newTask(grantor, tenant.domain, { inputs: [1] })
  const { pool } = tenant.database
  const client = await pool.connect()
  try {
    // The grantor's change is written, and waits for its commit.
    await client.query('BEGIN')
    const trigger = JSON.stringify({ channel_id: from })
    await client.query('UPDATE tasks SET trigger = $2, publish_result = $3 WHERE id = $1', [
      task,
      trigger,
      JSON.stringify({ channel_id: to }),
    ])
    const change = weak.call('PUT', `/tasks/${task}`, { inputs: [2] })
    await until(
      'the change to wait',
      async () =>
        (
          await pool.query<{ waits: number }>(
            `SELECT count(*)::int AS waits FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%UPDATE tasks t SET%'`,
          )
        ).rows[0]?.waits ?? 0,
      (waits) => waits > 0,
    )
    await client.query('COMMIT')
    expect((await change).status).toBe(409)
  } finally {
    client.release()
  }
  expect((await weak.call('PUT', `/tasks/${task}`, { inputs: [2] })).status).toBe(403)
})

test('secrets need an action of their own, and so does the code of a task that has some', async () => {
  const holder = await newMember([...DRIVES, 'task_secrets'])
  const other = await newMember(DRIVES)
  const task = await tenant.newTask(holder, tenant.domain, { secrets: { KEY: 'value' } }, 'hello')
  const isRefused = async (answer: Promise<{ status: number; text: string }>) => {
    const { status, text } = await answer
    expect(status, text).toBe(403)
    expect(text).toContain('task_secrets')
  }
  await isRefused(other.call('POST', '/tasks', { name: 'a', domain_id: tenant.domain, secrets: { KEY: 'value' } }))
  await isRefused(other.call('PUT', `/tasks/${task}`, { secrets: { KEY: 'other' } }))
  await isRefused(other.call('PUT', `/tasks/${task}`, { secrets: null }))
  await isRefused(other.call('PUT', `/tasks/${task}`, { image_url: 'registry.example.com/a:1' }))
  await isRefused(other.call('PUT', `/tasks/${task}`, { function: 'run' }))
  const uploaded = await upload(other, task, 'hello')
  expect(uploaded).toMatchObject({ status: 403, body: { message: expect.stringContaining('task_secrets') as string } })
  const flow = { name: 'f', domain_id: tenant.domain, tasks: [{ name: 'a', secrets: { KEY: 'value' } }] }
  await isRefused(other.call('POST', '/workflows', flow))

  expect((await other.call('PUT', `/tasks/${task}`, { secrets: { KEY: '[redacted]' }, priority: 60 })).status).toBe(200)
  expect((await other.call('PUT', `/tasks/${task}`, { inputs: [], env: { A: 'b' } })).status).toBe(200)
  expect((await upload(holder, task, 'hello')).status).toBe(200)
  expect((await holder.call('PUT', `/tasks/${task}`, { secrets: null })).status).toBe(200)
  expect((await upload(other, task, 'hello')).status).toBe(200)
})

test('a task whose grantor has lost a right pauses, and continues with its messages when the right returns', async () => {
  const [from, to] = [await newChannel(), await newChannel()]
  const grantor = await newMember(USES)
  const task = await tenant.newTask(grantor, tenant.domain, {
    inputs: [10],
    trigger: { channel_id: from },
    publish_result: { channel_id: to },
  })
  await publish(from, 1)
  await until(
    'a result',
    () => valuesOf(to),
    (values) => values.length === 1,
  )
  await leave(grantor)
  for (const value of [2, 3]) await publish(from, value)
  const paused = await untilPaused(task)
  expect(paused).toMatchObject({ trigger_status: { dropped: 0 }, last_error: { source: 'right' } })
  expect(paused.last_error?.reason).toContain(`needs subscribe on channel ${from}`)
  const started = await tenant.owner.call('POST', `/tasks/${task}/start`)
  expect(started).toMatchObject({ status: 409 })
  expect(started.text).toContain('take it over')

  await rejoin(grantor)
  expect(
    await until(
      'the results of the messages that waited',
      () => valuesOf(to),
      (values) => values.length === 3,
    ),
  ).toEqual([11, 12, 13])
  expect(await shown(task)).toMatchObject({
    activity: 'active',
    granted_by: grantor.id,
    trigger_status: { dropped: 0 },
  })
  expect(await shown(task)).not.toHaveProperty('last_error')
  expect(await operationsOf(task)).toEqual(['task.create', 'task.update', 'task.pause', 'task.resume'])
})

test('a member with the rights takes a paused task over, and its result that waited is published', async () => {
  const to = await newChannel()
  const grantor = await newMember(USES)
  const [weak, strong] = [await newMember(DRIVES), await newMember(USES)]
  const task = await tenant.newTask(grantor, tenant.domain, { inputs: [1, 2], publish_result: { channel_id: to } })
  await leave(grantor)
  expect((await tenant.owner.call('POST', `/tasks/${task}/start`)).status).toBe(200)
  const paused = await untilPaused(task)
  expect(paused).toMatchObject({ last_error: { source: 'right', count: 1 } })
  expect(await valuesOf(to)).toEqual([])

  expect((await tenant.api.anonymous('POST', `/tasks/${task}/take-over`)).status).toBe(401)
  expect((await weak.call('POST', `/tasks/${task}/take-over`)).status).toBe(403)
  const [stranger, reader] = [await tenant.api.newUser(), await newMember(USES.filter((one) => one !== 'task_update'))]
  expect((await stranger.call('POST', `/tasks/${task}/take-over`)).status).toBe(404)
  expect((await reader.call('POST', `/tasks/${task}/take-over`)).status).toBe(403)
  const taken = await strong.call('POST', `/tasks/${task}/take-over`)
  expect(taken.status, taken.text).toBe(200)
  expect(taken.json()).toMatchObject({ granted_by: strong.id })
  expect(taken.json()).not.toHaveProperty('last_error')
  expect(
    await until(
      'the result',
      () => valuesOf(to),
      (values) => values.length > 0,
    ),
  ).toEqual([3])
  expect((await tenant.owner.call('POST', `/tasks/${task}/start`)).status).toBe(200)
  await until(
    'the next result',
    () => valuesOf(to),
    (values) => values.length === 2,
  )
  expect(await operationsOf(task)).toContain('task.take_over')
})

test('a guest whose grantor has lost the right is refused, and its task pauses until it is taken over', async () => {
  const to = await newChannel()
  const grantor = await newMember(USES)
  const fields = {
    name: 'check',
    inputs: [90, 1_700_000_000],
    grants: [{ kind: 'publish', channel_id: to, name: 'alarms' }],
  }
  const task = await tenant.newTask(grantor, tenant.domain, fields, 'threshold-alarm')
  await leave(grantor)
  const refused = await tenant.owner.call('POST', `/tasks/${task}/invoke`, {})
  expect(refused.json()).toMatchObject({ state: 4, reason: 'trap' })
  expect((await untilPaused(task)).last_error).toMatchObject({
    source: 'right',
    reason: expect.stringContaining(`needs publish on channel ${to}`) as string,
  })
  expect((await tenant.owner.call('POST', `/tasks/${task}/invoke`, {})).status).toBe(409)
  expect((await tenant.owner.call('POST', `/tasks/${task}/take-over`)).status).toBe(200)
  expect((await tenant.owner.call('POST', `/tasks/${task}/invoke`, {})).json()).toMatchObject({
    state: 3,
    results: [1],
  })
  await until(
    'the alarm',
    () => valuesOf(to),
    (values) => values.includes(90),
  )
})

test('editors of before have the action on secrets after the migration, roles made by hand do not', async () => {
  const [editor, own] = await Promise.all(
    ['editor', 'staff'].map(async (name) => {
      const role = await tenant.owner.call('POST', `/domains/${tenant.domain}/roles`, {
        role_name: name,
        optional_actions: ['read', 'task_read', 'task_update'],
      })
      expect(role.status, role.text).toBe(201)
      return `/domains/${tenant.domain}/roles/${role.json<{ role_id: string }>().role_id}`
    }),
  )
  const migration = readFileSync(join(import.meta.dirname, '../../migrations/0008_grantors_of_tasks.sql'), 'utf8')
  const update = migration.slice(migration.indexOf('UPDATE roles'))
  for (let times = 0; times < 2; times++) await tenant.database.pool.query(update)
  const { rows } = await sql<{ name: string; actions: string[] }>`SELECT name, actions FROM roles
    WHERE id = ANY(${[editor, own].map((path) => path?.split('/').at(-1))}::text[]) ORDER BY name`.execute(
    tenant.database.db,
  )
  expect(rows).toEqual([
    { name: 'editor', actions: ['read', 'task_read', 'task_update', 'task_secrets'] },
    { name: 'staff', actions: ['read', 'task_read', 'task_update'] },
  ])
})

test('a task pauses when its grantor is deleted', async () => {
  const to = await newChannel()
  const grantor = await newMember(USES)
  const task = await tenant.newTask(grantor, tenant.domain, { inputs: [1, 2], publish_result: { channel_id: to } })
  await sql`DELETE FROM users WHERE id = ${grantor.id}`.execute(tenant.database.db)
  expect((await untilPaused(task)).last_error).toMatchObject({ source: 'right' })
  expect((await tenant.owner.call('POST', `/tasks/${task}/take-over`)).json()).toMatchObject({
    granted_by: tenant.owner.id,
  })
  expect((await tenant.owner.call('POST', `/tasks/${task}/start`)).status).toBe(200)
  await until(
    'the result',
    () => valuesOf(to),
    (values) => values.length === 1,
  )
})

test('ticks of a paused schedule start nothing', async () => {
  const to = await newChannel()
  const grantor = await newMember(USES)
  const task = await tenant.newTask(grantor, tenant.domain, {
    inputs: [1, 2],
    schedule: '* * * * * *',
    publish_result: { channel_id: to },
  })
  await until(
    'a result',
    () => valuesOf(to),
    (values) => values.length > 0,
  )
  await leave(grantor)
  const paused = await untilPaused(task)
  const { next_tick_at: tick } = paused as Shown & { next_tick_at: string }
  await until(
    'two more seconds',
    () => Promise.resolve(Date.now()),
    (now) => now > Date.parse(tick) + 2_000,
  )
  expect(await shown(task)).toMatchObject({ activity: 'paused', next_tick_at: tick })
  await rejoin(grantor)
  await until(
    'the next tick',
    () => shown(task),
    ({ activity }) => activity === 'active',
  )
})
