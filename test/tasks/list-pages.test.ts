// A page of tasks has the rows at its offset in the order of the list, whatever the filter, and the exact total.
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { listTasks } from '../../manager/store/tasks.ts'
import type { KnownTask, TaskFilter } from '../../manager/store/tasks.ts'
import { startDatabase } from './support.ts'

const TASKS = 60
const LIMIT = 7

type Row = { id: string; name: string; state: number; created_at: string; updated_at: string; is_odd: boolean }

const { database, close } = await startDatabase()
afterAll(close)

let domain: number
let all: Row[]

beforeAll(async () => {
  const made = await sql<{ key: number }>`INSERT INTO domains (id, name, route, status, created_at)
    VALUES (gen_random_uuid(), 'pages', 'pages', 'enabled', now()) RETURNING key`.execute(database.db)
  domain = made.rows[0]?.key as number
  // Several tasks have the same times and names, so that the later columns of the order decide.
  await sql`INSERT INTO tasks (id, domain_key, name, inputs, env, labels, priority, timeout_ms, memory_limit_bytes, backoff_ms, on_lost,
      metadata, state, created_at, updated_at)
    SELECT gen_random_uuid(), ${domain}::bigint, 'n' || n % 5, '[]', '{}', '{}', 50, 60000, 67108864, 1000, 'requeue',
      CASE WHEN n % 2 = 1 THEN '{"odd": true}' ELSE '{}' END::jsonb, CASE WHEN n % 3 = 0 THEN 3 ELSE 0 END,
      '2026-01-01Z'::timestamptz + n / 4 * interval '1 ms', CASE WHEN n % 4 = 0 THEN '2026-01-02Z'::timestamptz + n % 8 * interval '1 us' END
    FROM generate_series(1, ${TASKS}) n`.execute(database.db)
  const { rows } = await sql<Row>`SELECT id, name, state, created_at, coalesce(updated_at, created_at) AS updated_at,
    metadata ? 'odd' AS is_odd FROM tasks WHERE domain_key = ${domain}`.execute(database.db)
  all = rows
})

const FILTERS: [string, Partial<TaskFilter>, (row: Row) => boolean][] = [
  ['no filter', {}, () => true],
  ['a state', { state: 3 }, (row) => row.state === 3],
  ['a name', { name: 'N2' }, (row) => row.name === 'n2'],
  ['metadata', { metadata: { odd: true } }, (row) => row.is_odd],
  ['no trigger', { hasTrigger: false }, () => true],
  ['a filter that nothing matches', { state: 6 }, () => false],
]
const KEYS = {
  name: ['name', 'created_at', 'id'],
  created_at: ['created_at', 'id'],
  updated_at: ['updated_at', 'created_at', 'id'],
} as const

test.each(FILTERS)('with %s', async (_, filter, matches) => {
  for (const [order, keys] of Object.entries(KEYS))
    for (const dir of ['asc', 'desc'] as const) {
      const place = (row: Row) => keys.map((key) => row[key]).join(' ')
      const sorted = all.filter(matches).toSorted((left, right) => (place(left) < place(right) ? -1 : 1))
      const expected = (dir === 'asc' ? sorted : sorted.toReversed()).map((row) => row.id)
      for (let offset = 0; offset <= expected.length; offset += LIMIT) {
        const page = await listTasks(database.db, { ...filter, domains: [domain], order, dir, offset, limit: LIMIT })
        expect(page.total).toBe(expected.length)
        expect(page.tasks.map((task) => task.id)).toEqual(expected.slice(offset, offset + LIMIT))
        const hasMore = offset + LIMIT < expected.length
        expect(page.next).toMatchObject({ hasMore })
      }
    }
})

test('the rows of a page are read again where they have changed, and not otherwise', async () => {
  const statements: string[] = []
  const db: Queryable = {
    query: (statement) => {
      statements.push(statement.name ?? 'count')
      return database.db.query(statement)
    },
  }
  const known = new Map<number, KnownTask>()
  const filter = { domains: [domain], order: 'updated_at', dir: 'desc', offset: 0, limit: TASKS } as const
  const countReads = async () => {
    statements.splice(0)
    const page = await listTasks(db, filter, known)
    expect(page).toEqual(await listTasks(database.db, filter))
    return statements.filter((name) => name === 'read-listed-tasks').length
  }
  expect(await countReads()).toBe(1)
  expect(await countReads()).toBe(0)
  const [first, second] = all as [Row, Row]
  const key = sql`(SELECT key FROM tasks WHERE id = ${first.id})`
  const run = sql`(SELECT key FROM runs WHERE task_key = ${key})`
  const changes: Sql[] = [
    sql`UPDATE tasks SET name = name || '!' WHERE id = ${first.id}`,
    sql`WITH run AS (INSERT INTO runs (id, task_key, drives_task, state, spec, module_digest, needs, priority)
          VALUES (gen_random_uuid(), ${key}, true, 4, '{}', '', '', 0) RETURNING key)
        UPDATE tasks SET run_key = (SELECT key FROM run) WHERE id = ${first.id}`,
    sql`UPDATE runs SET error = 'out of memory' WHERE key = ${run}`,
    sql`DELETE FROM runs WHERE key = ${run}`,
    sql`ALTER TABLE task_triggers DISABLE TRIGGER ALL`,
    sql`INSERT INTO task_triggers (task_key, channel_key, subtopic) VALUES (${key}, 1, '')`,
    sql`UPDATE task_triggers SET matched = matched + 1`,
  ]
  for (const change of changes) {
    await change.execute(database.db)
    const isSeen = !change.statement().text.startsWith('ALTER')
    expect(await countReads(), change.statement().text).toBe(isSeen ? 1 : 0)
    expect(await countReads()).toBe(0)
  }
  await sql`DELETE FROM tasks WHERE id = ${second.id}`.execute(database.db)
  expect(await countReads()).toBe(0)
})

test('a task that is deleted while a page is read is left out, and the page goes on after its last row', async () => {
  const filter = { domains: [domain], order: 'created_at', dir: 'asc', offset: 0, limit: 5 } as const
  const { tasks: before } = await listTasks(database.db, filter)
  const db: Queryable = {
    query: async (statement) => {
      if (statement.name === 'read-listed-tasks')
        await sql`DELETE FROM tasks WHERE id = ${before[4]?.id}`.execute(database.db)
      return await database.db.query(statement)
    },
  }
  const { tasks, next } = await listTasks(db, filter)
  expect(tasks.map((task) => task.id)).toEqual(before.slice(0, 4).map((task) => task.id))
  expect(next).toMatchObject({ hasMore: true })
  expect(next.places).toHaveLength(4)
  const cursor = JSON.parse(next.places.at(-1) as string) as string[]
  const after = await listTasks(database.db, { ...filter, cursor })
  expect(new Set([...before, ...after.tasks].map((task) => task.id)).size).toBe(before.length + after.tasks.length)
})
