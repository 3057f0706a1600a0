// device-state.md section Commands: a task is the target of a name, and its run is the answer
import { randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { useWorld } from '../harness/world.ts'
import { moduleFromText } from '../worker/pool.ts'
import type { TestUser } from '../harness/api.ts'
import { startTestTenant } from './platform.ts'
import { until } from './support.ts'

const tenant = useWorld(startTestTenant)

type Command = {
  id: string
  status: string
  result?: unknown
  reason?: string
  task_id?: string
  delivered_at?: string
  ended_at?: string
  late_answer?: { status: string }
}
type Client = { id: string; credentials: { secret: string } }

const newName = () => `n-${randomUUID().slice(0, 8)}`
const newClient = async (fields: object = {}): Promise<Client> => {
  const made = await tenant.owner.call('POST', `/${tenant.domain}/clients`, fields)
  expect(made.status, made.text).toBe(201)
  return made.json<Client>()
}
const pathOf = ({ id }: Client) => `/${tenant.domain}/clients/${id}/commands`
async function give(client: Client, body: object, query = ''): Promise<Command> {
  const given = await tenant.owner.call('POST', `${pathOf(client)}${query}`, body)
  expect(given.status, given.text).toBe(201)
  return given.json<Command>()
}
const view = async (client: Client, id: string) =>
  (await tenant.owner.call('GET', `${pathOf(client)}/${id}`)).json<Command>()
const untilEnded = (client: Client, id: string) =>
  until(
    'the end of the command',
    () => view(client, id),
    ({ ended_at: at }) => at !== undefined,
  )
const newTask = (answers: object | undefined, fields: object = {}, module = 'add', user: TestUser = tenant.owner) =>
  tenant.newTask(user, tenant.domain, { ...fields, ...(answers === undefined ? {} : { answers }) }, module)
const taken = async ({ credentials: { secret } }: Client) => {
  const got = await tenant.api.as(`Client ${secret}`)('GET', `/c/${tenant.domain}/commands`)
  return got.json<{ commands: { id: string }[] }>().commands.map(({ id }) => id)
}
const countRuns = async (task: string) =>
  (await tenant.owner.call('GET', `/tasks/${task}/runs`)).json<{ total: number }>().total
const countRows = async (id: string) => {
  const { rows } = await sql<{ rows: number }>`SELECT count(*)::int AS rows FROM command_runs q
    JOIN device_commands m ON m.key = q.command_key WHERE m.id = ${id}::uuid`.execute(tenant.database.db)
  return rows[0]?.rows
}

test('the result of the run is the result of the command', async () => {
  const client = await newClient()
  const command = newName()
  const task = await newTask({ command })
  const ended = await give(client, { name: command, payload: [20, 22] }, '?wait=30s')
  expect(ended).toMatchObject({ status: 'succeeded', result: 42, task_id: task })
  expect(ended.delivered_at).toBeDefined()
  // The run has the id of the command, and does not show what the command contains.
  const run = (await tenant.owner.call('GET', `/tasks/${task}/runs/${ended.id}`)).json<Record<string, unknown>>()
  expect(run).toMatchObject({ cause: { type: 'command', client_id: client.id, command }, results: [42] })
  expect(run).not.toHaveProperty('inputs')
  const path = `/${tenant.domain}/journal/client/${client.id}?limit=100&dir=asc`
  const { journals } = (await tenant.owner.call('GET', path)).json<{ journals: { operation: string }[] }>()
  expect(journals.map(({ operation }) => operation).filter((one) => one.startsWith('command.'))).toEqual([
    'command.create',
    'command.deliver',
    'command.answer',
  ])
  expect(await countRows(ended.id)).toBe(0)
  expect((await tenant.owner.call('GET', `/runs?cause=command&task_id=${task}`)).json()).toMatchObject({ total: 1 })
  expect((await tenant.owner.call('GET', `/tasks/${task}`)).json()).toMatchObject({
    answers: { command },
    activity: 'active',
    last_run: { id: ended.id },
  })
})

test('the device neither gets the command nor can answer it', async () => {
  const client = await newClient()
  const command = newName()
  // No worker has the label.
  await newTask({ command }, { labels: { site: 'nowhere' } })
  const [own, handed] = [
    await give(client, { name: newName() }),
    await give(client, { name: command, payload: [1, 2] }),
  ]
  expect(await taken(client)).toEqual([own.id])
  const device = tenant.api.as(`Client ${client.credentials.secret}`)
  const path = `/c/${tenant.domain}/commands/${handed.id}/result`
  expect((await device('POST', path, { status: 'succeeded' })).status).toBe(404)
  expect(await view(client, handed.id)).not.toHaveProperty('ended_at')
})

test('the most specific task answers, and only for the clients that it names', async () => {
  const group = (await tenant.owner.call('POST', `/${tenant.domain}/groups`, { name: 'north' })).json<{ id: string }>()
    .id
  const [plain, tagged, both, grouped] = [
    await newClient(),
    await newClient({ tags: ['pump'] }),
    await newClient({ tags: ['pump'] }),
    await newClient({ tags: ['pump'] }),
  ]
  for (const { id } of [both, grouped]) {
    const set = await tenant.owner.call('POST', `/${tenant.domain}/clients/${id}/parent`, { parent_group_id: group })
    expect(set.status, set.text).toBe(200)
  }
  const command = newName()
  const ofTag = await newTask({ command, tag: 'pump' }, { inputs: [1] })
  const ofGroup = await newTask({ command, group }, { inputs: [2] })
  const ofClient = await newTask({ command, client_id: both.id }, { inputs: [3] })
  const answers = async (client: Client) => {
    const { task_id: task, result } = await give(client, { name: command, payload: 10 }, '?wait=30s')
    return [task, result]
  }
  expect(await answers(tagged)).toEqual([ofTag, 11])
  expect(await answers(grouped)).toEqual([ofGroup, 12])
  expect(await answers(both)).toEqual([ofClient, 13])
  const own = await give(plain, { name: command })
  expect(own.task_id).toBeUndefined()
  expect(await taken(plain)).toEqual([own.id])
})

test('the task of a client answers, however many others answer the name', async () => {
  const [client, other] = [await newClient(), await newClient()]
  const command = newName()
  const insert = async (count: number, answers: object) =>
    await sql`INSERT INTO tasks (id, name, domain_id, domain_key, inputs, env, labels, priority, timeout_ms, memory_limit_bytes, backoff_ms, on_lost, metadata, answers)
      SELECT gen_random_uuid(), 'a', id, key, '[]', '{}', '{}', 0, 1, 1, 1, 'fail', '{}', ${JSON.stringify({ command, ...answers })}::json
      FROM domains, generate_series(1, ${count}) WHERE id = ${tenant.domain}`.execute(tenant.database.db)
  await insert(120, { tag: 'none has it' })
  await insert(120, { client_id: other.id, tag: 'none has it' })
  const task = await newTask({ command, client_id: client.id })
  expect(await give(client, { name: command, payload: [1, 2] }, '?wait=30s')).toMatchObject({
    task_id: task,
    result: 3,
  })
  expect(await give(other, { name: command })).not.toHaveProperty('task_id')
})

/** A program that writes what it reads. */
const ECHO = `(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 16)) (i32.store (i32.const 4) (i32.const 4000))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
    (i32.store (i32.const 4) (i32.load (i32.const 8)))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 12)))))`

/** A program that writes this many bytes of a text, from its first one on. */
const prints = (text: string, bytes: number) => `(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 16) "${text}")
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 16)) (i32.store (i32.const 4) (i32.const ${bytes}))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))`

async function newProgram(command: string, text: string): Promise<string> {
  const file = Buffer.from(await moduleFromText(text)).toString('base64')
  const made = await tenant.owner.call('POST', '/tasks', {
    name: 'program',
    domain_id: tenant.domain,
    answers: { command },
    file,
  })
  expect(made.status, made.text).toBe(201)
  return made.json<{ id: string }>().id
}

test('a program reads the command, and its output is the result, as JSON if it is JSON', async () => {
  const client = await newClient()
  const [echo, text, nothing] = [newName(), newName(), newName()]
  await newProgram(echo, ECHO)
  await newProgram(text, prints('hello', 5))
  await newProgram(nothing, prints('', 0))
  const payload = { serial: 12_345_678, deep: ['größe', null, true] }
  const ended = await give(client, { name: echo, payload }, '?wait=30s')
  expect(ended).toMatchObject({
    status: 'succeeded',
    result: { id: ended.id, name: echo, client_id: client.id, payload },
  })
  expect(await give(client, { name: echo }, '?wait=30s')).not.toHaveProperty('result.payload')
  expect(await give(client, { name: text }, '?wait=30s')).toMatchObject({ status: 'succeeded', result: 'hello' })
  const silent = await give(client, { name: nothing }, '?wait=30s')
  expect(silent).toMatchObject({ status: 'succeeded' })
  expect(silent).not.toHaveProperty('result')
})

test('a result that is too large, or that cannot be stored, fails its command and no other one', async () => {
  const client = await newClient()
  const [large, staged, unstorable, good] = [newName(), newName(), newName(), newName()]
  await newProgram(large, prints('', 65_530))
  await newProgram(staged, prints('', 100_000))
  await newProgram(unstorable, prints(String.raw`\"\\u0000\"`, 8))
  await newProgram(good, prints('7', 1))
  const ended = await Promise.all([large, staged, unstorable, good].map((name) => give(client, { name }, '?wait=30s')))
  expect(ended.map(({ status, reason }) => [status, reason])).toEqual([
    ['failed', expect.stringMatching(/^the result has \d+ bytes: at most 65536 are accepted$/)],
    ['failed', expect.stringMatching(/^the result has \d+ bytes: at most 65536 are accepted$/)],
    ['failed', 'the result of the task cannot be stored'],
    ['succeeded', undefined],
  ])
  expect(ended[3]?.result).toBe(7)
})

test('a command to many is answered by a task for those that it names', async () => {
  const tag = newName()
  const command = newName()
  const clients = [await newClient({ tags: [tag] }), await newClient({ tags: [tag, 'special'] })] as const
  const task = await newTask({ command, tag: 'special' })
  const path = `/${tenant.domain}/clients/commands`
  const bulk = await tenant.owner.call('POST', path, { name: command, payload: [1, 2], tag, timeout: '1m' })
  expect(bulk.status, bulk.text).toBe(201)
  const { id } = bulk.json<{ id: string }>()
  await until(
    'the device to have its command',
    () => taken(clients[0]),
    (ids) => ids.length === 1,
  )
  const [own] = await taken(clients[0])
  await tenant.api.as(`Client ${clients[0].credentials.secret}`)('POST', `/c/${tenant.domain}/commands/${own}/result`, {
    status: 'succeeded',
  })
  const progress = await until(
    'the end of all',
    async () => (await tenant.owner.call('GET', `${path}/${id}`)).json<{ status: string; progress: object }>(),
    ({ status }) => status === 'finished',
  )
  expect(progress.progress).toMatchObject({ total: 2, succeeded: 2 })
  expect(await countRuns(task)).toBe(1)
  expect(await taken(clients[1])).toEqual([])
})

test('what the task refuses, and what fails in it, ends the command with the reason', async () => {
  const client = await newClient()
  const [unfit, trapping] = [newName(), newName()]
  await newTask({ command: unfit })
  const refused = await give(client, { name: unfit, payload: { a: 1 } }, '?wait=30s')
  expect(refused).toMatchObject({ status: 'rejected', reason: expect.stringContaining('add') as string })
  expect(refused.delivered_at).toBeUndefined()

  const task = await newTask({ command: trapping }, { timeout: '50ms', retry: { max_attempts: 1 } }, 'endless')
  const failed = await give(client, { name: trapping }, '?wait=30s')
  expect(failed).toMatchObject({ status: 'failed', reason: expect.stringContaining('timeout') as string })
  expect(await countRuns(task)).toBe(1)
})

test('a cancelled command stops its run, and a timeout does', async () => {
  const client = await newClient()
  const command = newName()
  const task = await newTask({ command }, { timeout: '1h' }, 'endless')
  const runs = async () =>
    (await tenant.owner.call('GET', `/tasks/${task}/runs`)).json<{ runs: { id: string; state: number }[] }>().runs
  const untilStopped = (id: string) =>
    until('the stop of the run', runs, (all) => all.some((run) => run.id === id && run.state === 6))
  const first = await give(client, { name: command })
  await until('the run', runs, (all) => all.some(({ id, state }) => id === first.id && state === 2))
  expect((await tenant.owner.call('POST', `${pathOf(client)}/${first.id}/cancel`)).status).toBe(200)
  await untilStopped(first.id)
  await until(
    'the end of the row',
    () => countRows(first.id),
    (rows) => rows === 0,
  )
  const cancelled = await view(client, first.id)
  expect(cancelled).toMatchObject({ status: 'cancelled' })
  expect(cancelled).not.toHaveProperty('late_answer')

  const second = await give(client, { name: command, timeout: '1s' })
  expect(await untilEnded(client, second.id)).toMatchObject({ status: 'timed_out' })
  await untilStopped(second.id)
})

test('the run of a command is stopped when its client is deleted', async () => {
  const client = await newClient()
  const command = newName()
  const task = await newTask({ command }, { timeout: '1h' }, 'endless')
  const { id } = await give(client, { name: command })
  const stateOf = async () =>
    (await tenant.owner.call('GET', `/tasks/${task}/runs/${id}`)).json<{ state?: number }>().state
  await until('the run', stateOf, (state) => state === 2)
  expect((await tenant.owner.call('DELETE', `/${tenant.domain}/clients/${client.id}`)).status).toBe(200)
  expect((await tenant.owner.call('GET', `${pathOf(client)}/${id}`)).status).toBe(404)
  const { rows } =
    await sql`UPDATE command_runs SET due_at = now() WHERE command_id = ${id} RETURNING command_key`.execute(
      tenant.database.db,
    )
  expect(rows).toHaveLength(1)
  await until('the stop of the run', stateOf, (state) => state === 6)
  await until(
    'the end of the row',
    async () => await sql`SELECT FROM command_runs WHERE command_id = ${id}`.execute(tenant.database.db),
    ({ rows: left }) => left.length === 0,
  )
})

test('a stopped task and a deleted one fail their commands', async () => {
  const client = await newClient()
  const command = newName()
  const task = await newTask({ command }, { timeout: '1h' }, 'endless')
  const [stopped, deleted] = [await give(client, { name: command }), await give(client, { name: command })]
  await until(
    'two runs',
    () => countRuns(task),
    (total) => total === 2,
  )
  expect((await tenant.owner.call('POST', `/tasks/${task}/stop`)).status).toBeLessThan(300)
  expect(await untilEnded(client, stopped.id)).toMatchObject({
    status: 'failed',
    reason: 'the run of the task was stopped',
  })
  expect(await untilEnded(client, deleted.id)).toMatchObject({ status: 'failed' })

  const third = await give(client, { name: command })
  await until(
    'the third run',
    () => countRuns(task),
    (total) => total === 3,
  )
  expect((await tenant.owner.call('DELETE', `/tasks/${task}?force=true`)).status).toBe(204)
  expect(await untilEnded(client, third.id)).toMatchObject({ status: 'failed' })
  // From now on the device answers.
  expect((await give(client, { name: command })).task_id).toBeUndefined()
})

const DRIVES = ['read', 'task_read', 'task_create', 'task_update']
const ANSWERS = ['client_read', 'client_command', 'task_start']

test('who sets it needs the rights to read and command clients and to start tasks', async () => {
  const member = (actions: string[]) => tenant.newMember(tenant.owner.call, tenant.domain, actions)
  const command = newName()
  const body = { name: 'add', domain_id: tenant.domain, answers: { command } }
  for (const [actions, lacking] of [
    [[...DRIVES, 'client_command', 'task_start'], 'client_read'],
    [[...DRIVES, 'client_read', 'task_start'], 'client_command'],
    [[...DRIVES, 'client_read', 'client_command'], 'task_start'],
  ] as const) {
    const refused = await (await member([...actions])).call('POST', '/tasks', body)
    expect(refused.status).toBe(403)
    expect(refused.json<{ message: string }>().message).toContain(`needs ${lacking}`)
  }
  const anonymous = await tenant.api.anonymous('POST', '/tasks', { name: 'add', answers: { command } })
  expect(anonymous.status).toBe(401)
  const grantor = await member([...DRIVES, ...ANSWERS])
  const task = await newTask({ command }, {}, 'add', grantor)
  expect((await tenant.owner.call('GET', `/tasks/${task}`)).json()).toMatchObject({ granted_by: grantor.id })
  const weak = await member([...DRIVES, 'client_command', 'task_start'])
  expect((await weak.call('PUT', `/tasks/${task}`, { inputs: [1] })).status).toBe(403)
  expect((await weak.call('PUT', `/tasks/${task}`, { answers: null })).status).toBe(200)
})

test('a task whose grantor has lost the right is paused, and its commands wait for it', async () => {
  const client = await newClient()
  const command = newName()
  const grantor = await tenant.newMember(tenant.owner.call, tenant.domain, [...DRIVES, ...ANSWERS])
  const task = await newTask({ command }, {}, 'add', grantor)
  const leave = await tenant.owner.call('POST', `${grantor.role}/members/delete`, { members: [grantor.id] })
  expect(leave.status).toBe(200)
  const given = await give(client, { name: command, payload: [1, 2] })
  const paused = await until(
    'the pause',
    async () => (await tenant.owner.call('GET', `/tasks/${task}`)).json<{ activity: string; last_error?: object }>(),
    ({ activity }) => activity === 'paused',
  )
  expect(paused.last_error).toMatchObject({ source: 'right' })
  expect(await view(client, given.id)).toMatchObject({ status: 'queued' })
  const taken = await tenant.owner.call('POST', `/tasks/${task}/take-over`)
  expect(taken.status, taken.text).toBe(200)
  expect(await untilEnded(client, given.id)).toMatchObject({ status: 'succeeded', result: 3 })
})

test('what becomes due while a manager looks at it is looked at again at once', async () => {
  const { db } = tenant.database
  const client = await newClient()
  const command = newName()
  const grantor = await tenant.newMember(tenant.owner.call, tenant.domain, [...DRIVES, ...ANSWERS])
  const task = await newTask({ command }, {}, 'add', grantor)
  expect((await tenant.owner.call('POST', `${grantor.role}/members/delete`, { members: [grantor.id] })).status).toBe(
    200,
  )
  const { id } = await give(client, { name: command, payload: [1, 2] })
  await until(
    'the pause',
    async () => (await tenant.owner.call('GET', `/tasks/${task}`)).json<{ activity: string }>(),
    ({ activity }) => activity === 'paused',
  )
  // A manager has looked, wants to look again after 30 s, and cannot write this yet.
  await tenant.database.transaction(async (tx) => {
    await sql`SELECT FROM device_commands WHERE id = ${id} FOR UPDATE`.execute(tx)
    await sql`UPDATE command_runs SET due_at = now() WHERE command_key = (SELECT key FROM device_commands WHERE id = ${id})`.execute(
      db,
    )
    await until(
      'a manager that waits',
      async () =>
        await sql<{ pid: number }>`SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'
          AND query LIKE 'SELECT key FROM device_commands%FOR NO KEY UPDATE'`.execute(db),
      ({ rows }) => rows.length > 0,
    )
    expect((await tenant.owner.call('POST', `/tasks/${task}/take-over`)).status).toBe(200)
  })
  const beganMs = performance.now()
  expect(await untilEnded(client, id)).toMatchObject({ status: 'succeeded', result: 3 })
  expect(performance.now() - beganMs).toBeLessThan(20_000)
})

test('what is given is checked, and another domain is not asked', async () => {
  const bad = [{}, { command: 'a/b' }, { command: '' }, { command: 'a', client_id: 'x' }, { command: 'a', group: '1' }]
  for (const answers of bad) {
    const refused = await tenant.owner.call('POST', '/tasks', { name: 'add', domain_id: tenant.domain, answers })
    expect(refused.status, JSON.stringify(answers)).toBe(400)
  }
  const command = newName()
  await newTask({ command })
  const other = await tenant.newDomain(tenant.owner.call)
  const client = (await tenant.owner.call('POST', `/${other}/clients`, {})).json<Client>()
  const given = await tenant.owner.call('POST', `/${other}/clients/${client.id}/commands`, { name: command })
  expect(given.json()).not.toHaveProperty('task_id')
})

test('while a node is alive that would offer the commands to devices as well, no task can be set to answer', async () => {
  const { db } = tenant.database
  const plain = await newTask(undefined)
  await sql`INSERT INTO nodes (id, kind, version, migration, seen_at) SELECT 'older', 'api', '0.0.0', number - 1, now() + interval '1 hour'
    FROM migrations WHERE name = 'commands_of_tasks'`.execute(db)
  const answers = { command: newName() }
  const set = () => tenant.owner.call('PUT', `/tasks/${plain}`, { answers })
  try {
    const refused = await set()
    expect(refused.status, refused.text).toBe(503)
    expect(refused.text).toContain('earlier version')
    expect((await tenant.owner.call('PUT', `/tasks/${plain}`, { answers: null })).status).toBe(200)
  } finally {
    await sql`DELETE FROM nodes WHERE id = 'older'`.execute(db)
  }
  expect((await set()).status).toBe(200)
})
