// How many statements creating, uploading and reading tasks takes, and that callers beside each other do not disturb each other.
import { randomUUID } from 'node:crypto'
import { afterAll, beforeEach, expect, test } from 'vitest'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import type { Database } from '#core/database/index.ts'
import type { Statement } from '#core/sql.ts'
import { sql } from '#core/sql.ts'
import { NEW_TASK } from '../../manager/model/task-fields.ts'
import { insertTasks, newTask } from '../../manager/store/new-tasks.ts'
import type { NewTaskRow } from '../../manager/store/new-tasks.ts'
import { findTasks, setModules } from '../../manager/store/tasks.ts'
import { TaskReader } from '../../manager/tasks/task-reader.ts'
import { TaskWriter } from '../../manager/tasks/task-writer.ts'
import { clientOf, exampleModule, logger, startDatabase, startTestManager, startTestWorker, until } from './support.ts'

const own = await startDatabase()
/** Names, and texts without one. */
const statements: string[] = []
const database: Database = {
  ...own.database,
  db: {
    query: (statement: Statement) => {
      statements.push(statement.name ?? statement.text)
      return own.database.db.query(statement)
    },
  },
  transaction: (work) => {
    statements.push('transaction')
    return own.database.transaction(work)
  },
}
const manager = await startTestManager(database)
const worker = await startTestWorker(manager)
const client = clientOf(manager.app)
afterAll(async () => {
  await worker.close()
  await manager.close()
  await own.close()
})

/** Those of callers: the scheduler looks for due tasks meanwhile. */
const counted = () =>
  statements.filter((name) => /insert-tasks|set-modules|find-tasks|find-versions|^transaction$|FROM modules/.test(name))
beforeEach(() => void statements.splice(0))

const AT_ONCE = 30
const BODY = { name: 'add', inputs: [20, 22], metadata: { long: 1, b: 1.5 }, labels: { z: '1', a: '2' } }
const rowOf = (fields: Partial<NewTaskRow> = {}): NewTaskRow => ({
  ...NEW_TASK,
  nextTickAt: null,
  triggerRule: null,
  secrets: null,
  secretNames: [],
  name: 'add',
  id: randomUUID(),
  domain: null,
  caller: undefined,
  workflow: null,
  ...fields,
})
const countRows = async (table: 'tasks' | 'task_events' | 'journal') => {
  const { rows } = await sql<{ rows: number }>`SELECT count(*) AS rows FROM ${sql.table(table)}`.execute(
    own.database.db,
  )
  return rows[0]?.rows ?? 0
}

test('a creation is one statement, and a task reads as it was answered', async () => {
  const created = await client.post('/tasks', {
    ...BODY,
    schedule: '0 0 29 2 *',
    timezone: 'Europe/Berlin',
    cli_args: ['a'],
  })
  expect(created.status).toBe(201)
  expect(counted()).toEqual(['insert-tasks'])
  expect((await client.get(`/tasks/${String(created.body['id'])}`)).body).toEqual(created.body)
  expect(counted()).toEqual(['insert-tasks', 'find-tasks: one'])
})

test('creations at the same time share statements, and each has its own task', async () => {
  const writer = new TaskWriter({ database, logger })
  const [tasks, events] = [await countRows('tasks'), await countRows('task_events')]
  const names = Array.from({ length: AT_ONCE }, (_, index) => `task ${index}`)
  const created = await Promise.all(names.map((name) => writer.create(rowOf({ name }), undefined)))
  expect(counted()).toEqual(['insert-tasks'])
  expect(created.map((task) => task?.name)).toEqual(names)
  expect(await countRows('tasks')).toBe(tasks + AT_ONCE)
  expect(await countRows('task_events')).toBe(events + 1)
})

test('a task that the database refuses is refused alone', async () => {
  const writer = new TaskWriter({ database, logger })
  const id = randomUUID()
  const rows = [rowOf(), rowOf({ id }), rowOf({ id }), rowOf()]
  const outcomes = await Promise.allSettled(rows.map((row) => writer.create(row, undefined)))
  expect(outcomes.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'fulfilled', 'fulfilled', 'rejected'])
  expect(outcomes[1]?.status).not.toBe(outcomes[2]?.status)
})

test('a new module is stored with its task in one transaction, and a known one takes one statement', async () => {
  const file = exampleModule('add').toString('base64')
  const first = await client.post('/tasks', { ...BODY, file })
  expect(first.status).toBe(201)
  expect(counted()).toEqual(['transaction'])
  statements.splice(0)
  const second = await client.post('/tasks', { ...BODY, file })
  expect(second.body).toMatchObject({ module: first.body['module'] })
  expect(counted()).toEqual(['insert-tasks'])
  expect((await client.get(`/tasks/${String(second.body['id'])}`)).body).toEqual(second.body)
})

test('an upload of a known module to a new task is one statement', async () => {
  const id = String((await client.post('/tasks', { ...BODY, image_url: 'registry.example/add:1' })).body['id'])
  await client.upload(String((await client.post('/tasks', BODY)).body['id']), exampleModule('add'))
  statements.splice(0)
  const uploaded = await client.upload(id, exampleModule('add'))
  expect(uploaded.status).toBe(200)
  expect(counted()).toEqual(['set-modules'])
  expect(uploaded.body['image_url']).toBeUndefined()
  expect((await client.get(`/tasks/${id}`)).body).toEqual(uploaded.body)
})

test('modules for several tasks share a statement; the second one for a task follows the first', async () => {
  const [other] = [Buffer.from(await parse('(module (func (export "add") (result i32) i32.const 7))'))]
  const [first, second] = [await client.task('add'), String((await client.post('/tasks', BODY)).body['id'])]
  expect((await client.upload(second, other)).status).toBe(200)
  const { rows } = await sql<{
    key: number
    digest: string
  }>`SELECT t.key, m.digest FROM tasks t JOIN modules m ON m.key = t.module_key
    WHERE t.id IN (${first}, ${second}) ORDER BY t.id = ${second}`.execute(own.database.db)
  const [add, constant] = rows
  if (add === undefined || constant === undefined) throw new Error('two tasks have modules')
  const facts = { sizeBytes: 1, kind: 'core', runtime: 'core', exports: [], imports: [] } as const
  const given = (taskKey: number, digest: string, memoryLimitBytes = NEW_TASK.memory_limit_bytes) => ({
    taskKey,
    memoryLimitBytes,
    module: { ...facts, exports: [], imports: [], digest },
    caller: undefined,
  })
  const writer = new TaskWriter({ database, logger })
  statements.splice(0)
  const outcomes = await Promise.all([
    writer.setModule(null, given(add.key, constant.digest)),
    writer.setModule(null, given(constant.key, add.digest)),
    writer.setModule(null, given(add.key, add.digest)),
    writer.setModule(null, given(add.key, 'sha256:absent')),
    writer.setModule(null, given(constant.key, add.digest, 1)),
    writer.setModule(null, given(987_654_321, add.digest)),
  ])
  expect(outcomes.map((one) => (typeof one === 'string' ? one : one.module?.digest))).toEqual([
    constant.digest,
    add.digest,
    add.digest,
    'no module',
    'no task',
    'no task',
  ])
  // Three modules for one task, two for the other.
  expect(counted()).toEqual(['set-modules', 'set-modules', 'set-modules'])
  const now = await findTasks(own.database.db, [add.key, constant.key])
  expect([now.get(add.key)?.task.module?.digest, now.get(constant.key)?.task.module?.digest]).toEqual([
    add.digest,
    add.digest,
  ])
})

test('an upload follows the memory limit that another manager has set', async () => {
  const [lower, higher] = [64 * 1024, 2 * 64 * 1024]
  const module = Buffer.from(await parse('(module (memory 2) (func (export "add") (result i32) i32.const 7))'))
  const id = String((await client.post('/tasks', { ...BODY, memory_limit: lower })).body['id'])
  const setLimit = (bytes: number) =>
    sql`UPDATE tasks SET memory_limit_bytes = ${bytes} WHERE id = ${id}`.execute(own.database.db)
  expect((await client.upload(id, module)).status).toBe(400)
  await setLimit(higher)
  expect((await client.upload(id, module)).status).toBe(200)
  await setLimit(lower)
  expect((await client.upload(id, module)).status).toBe(400)
  expect((await client.upload(id, exampleModule('add'))).status).toBe(200)
})

test('a module is not given to a task that is under way', async () => {
  const id = await client.task('add')
  await sql`UPDATE tasks SET state = 2, run_key = 1 WHERE id = ${id}`.execute(own.database.db)
  const { rows } = await sql<{
    key: number
    digest: string
  }>`SELECT t.key, m.digest FROM tasks t JOIN modules m ON m.key = t.module_key
    WHERE t.id = ${id}`.execute(own.database.db)
  const { key: taskKey, digest } = rows[0] as { key: number; digest: string }
  const module = { digest, sizeBytes: 1, kind: 'core', runtime: 'core', exports: [], imports: [] } as const
  const given = {
    taskKey,
    memoryLimitBytes: NEW_TASK.memory_limit_bytes,
    module: { ...module, exports: [], imports: [] },
  }
  expect(await setModules(own.database.db, [{ ...given, caller: undefined }])).toEqual(['no task'])
  const answer = await client.upload(id, exampleModule('add'))
  expect(answer).toMatchObject({ status: 409, body: { error: 'invalid_state' } })
})

test('reads at the same time are one statement', async () => {
  const tasks = await insertTasks(
    own.database.db,
    Array.from({ length: AT_ONCE }, () => newTask(rowOf(), undefined)),
  )
  const reader = new TaskReader({ database, cluster: { holds: () => true }, logger })
  const keys = tasks.map((task) => task?.key ?? 0)
  const read = await Promise.all([...keys, keys[0] ?? 0, 987_654_321].map((key) => reader.read(key)))
  expect(read.map((task) => task?.id)).toEqual([...tasks.map((task) => task?.id), tasks[0]?.id, undefined])
  expect(counted()).toEqual(['find-tasks'])
  expect(await Promise.all(keys.map((key) => reader.read(key)))).toEqual(read.slice(0, AT_ONCE))
  expect(counted()).toEqual(['find-tasks', 'find-versions'])
})

test('a task is read again only if it has changed', async () => {
  const [task] = await insertTasks(own.database.db, [newTask(rowOf(), undefined)])
  const key = task?.key ?? 0
  const reader = new TaskReader({ database, cluster: { holds: () => false }, logger })
  const first = await reader.read(key)
  expect(await reader.read(key)).toBe(first)
  expect(counted()).toEqual(['find-tasks: one', 'find-versions: one'])
  await sql`UPDATE tasks SET name = 'other' WHERE key = ${key}`.execute(own.database.db)
  expect((await reader.read(key))?.name).toBe('other')
  await sql`DELETE FROM tasks WHERE key = ${key}`.execute(own.database.db)
  expect(await reader.read(key)).toBeUndefined()
  expect(await reader.read(key)).toBeUndefined()
})

test('a task is recalled while its run is at a worker of this manager, for a moment, and until this manager changes it', async () => {
  const id = String((await client.post('/tasks', BODY)).body['id'])
  const { rows } = await sql<{
    key: number
  }>`WITH run AS (INSERT INTO runs (id, task_key, drives_task, state, spec, module_digest, needs,
      priority, next_check_at) SELECT gen_random_uuid(), key, false, 1, '{}', '', '', 0, now() + interval '1 day' FROM tasks WHERE id = ${id}
      RETURNING key, task_key)
    UPDATE tasks t SET state = 1, run_key = run.key FROM run WHERE t.key = run.task_key RETURNING t.key`.execute(
    own.database.db,
  )
  const key = rows[0]?.key ?? 0
  let [nowMs, isHeld] = [0, true]
  const reader = new TaskReader({ database, cluster: { holds: () => isHeld }, logger, nowMs: () => nowMs })
  expect(reader.recall(key)).toBeUndefined()
  const record = await reader.read(key)
  expect(reader.recall(key)).toBe(record)
  isHeld = false
  expect(reader.recall(key)).toBeUndefined()
  isHeld = true
  await reader.read(key)
  nowMs += 249
  expect(reader.recall(key)?.id).toBe(id)
  nowMs += 1
  expect(reader.recall(key)).toBeUndefined()
  const before = reader.read(key)
  reader.forget([key])
  await before
  expect(reader.recall(key)).toBeUndefined()
  await reader.read(key)
  reader.forget([key])
  expect(reader.recall(key)).toBeUndefined()
  await sql`UPDATE tasks SET state = 3 WHERE key = ${key}`.execute(own.database.db)
  await reader.read(key)
  expect(reader.recall(key)).toBeUndefined()
})

test('a poll sees the end of a run at once, and takes statements for changes alone', async () => {
  const id = await client.task('add', { inputs: [20, 22] })
  for (let round = 0; round < 5; round++) {
    await client.post(`/tasks/${id}/start`)
    await until(
      'the end',
      async () => (await client.get(`/tasks/${id}`)).body,
      ({ state }) => Number(state) === 3,
    )
    expect((await client.get(`/tasks/${id}/results`)).body).toMatchObject({ state: 3, results: [42] })
    await client.post(`/tasks/${id}/start`)
    expect((await client.get(`/tasks/${id}?wait=30s`)).body).toMatchObject({ state: 3, results: [42] })
  }
})

test('a step of a workflow reads and writes as much in a long chain as in a short one', async () => {
  const file = exampleModule('add').toString('base64')
  const costs = async (steps: number) => {
    const tasks = Array.from({ length: steps }, (_, index) => ({
      name: `s${index}`,
      function: 'add',
      file,
      inputs: index === 0 ? [1, 1] : [{ from: `s${index - 1}` }, 1],
      ...(index === 0 ? {} : { depends_on: [`s${index - 1}`] }),
    }))
    const created = await client.post('/workflows', { tasks })
    statements.splice(0)
    await client.post(`/workflows/${String(created.body['id'])}/start`)
    await until(
      'the end of the chain',
      () => client.get(`/workflows/${String(created.body['id'])}`),
      ({ body }) => body['state'] === 3,
    )
    const count = (pattern: RegExp) => statements.filter((text) => pattern.test(text)).length
    return {
      all: count(/AS "dependsOn"/),
      begun: count(/UPDATE workflow_steps s SET state = \$1, error = NULL FROM tasks/),
      ended: count(/UPDATE workflow_steps s SET state = e.state/),
    }
  }
  expect(await costs(3)).toEqual({ all: 1, begun: 3, ended: 3 })
  expect(await costs(30)).toEqual({ all: 1, begun: 30, ended: 30 })
})
