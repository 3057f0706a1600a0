// A page of tasks in the default order is read from an index in this order, and not sorted.
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Statement } from '#core/sql.ts'
import { sql } from '#core/sql.ts'
import { listTasks } from '../../manager/store/tasks.ts'
import type { TaskFilter } from '../../manager/store/tasks.ts'
import { startSite } from './support.ts'

/** So many that reading and sorting all of them costs more. */
const TASKS = 5000
/** The rows of the page have a sort of their own, by their place in it. */
const SORTED = /Sort Key: .*created_at/
const PAGE = { order: 'updated_at', dir: 'desc', offset: 0, limit: 100 } as const

const { db, close } = await startSite()
afterAll(close)

let domainKey: number

beforeAll(async () => {
  const { rows } = await sql<{ key: number }>`INSERT INTO domains (id, name, route, status, created_at)
    VALUES (gen_random_uuid(), 'plans', 'plans', 'enabled', now()) RETURNING key`.execute(db.database.db)
  domainKey = rows[0]?.key as number
  await sql`INSERT INTO tasks (id, domain_key, name, inputs, env, labels, priority, timeout_ms, memory_limit_bytes, backoff_ms, on_lost, metadata,
      created_at)
    SELECT gen_random_uuid(), CASE WHEN n % 2 = 0 THEN ${domainKey}::bigint END, 'add', '[]', '{}', '{}', 50, 60000, 67108864, 1000, 'requeue', '{}',
      now() - n * interval '1 s' FROM generate_series(1, ${TASKS}) n`.execute(db.database.db)
  await sql`ANALYZE tasks`.execute(db.database.db)
})

async function planOf(filter: TaskFilter): Promise<string> {
  const plans: string[] = []
  const explaining = {
    async query<Row>({ text, values }: Statement) {
      const { rows } = await db.database.db.query<{ 'QUERY PLAN': string }>({ text: `EXPLAIN ${text}`, values })
      if (text.includes('row_place')) plans.push(rows.map((row) => row['QUERY PLAN']).join('\n'))
      return { rows: [] as Row[] }
    },
  }
  await listTasks(explaining, filter)
  expect(plans).toHaveLength(1)
  return plans.join('')
}

test('of one domain', async () => {
  const plan = await planOf({ ...PAGE, domains: [domainKey] })
  expect(plan).toContain('tasks_of_domain')
  expect(plan).not.toMatch(SORTED)
})

test('of no domain', async () => {
  const plan = await planOf({ ...PAGE, domains: 'no domain' })
  expect(plan).toContain('tasks_of_no_domain')
  expect(plan).not.toMatch(SORTED)
})

test('after a cursor', async () => {
  const cursor = ['1790000000000000', '1790000000000000', '7d444840-9dc0-11d1-b245-5ffdce74fad2']
  const plan = await planOf({ ...PAGE, domains: [domainKey], cursor })
  expect(plan).toContain('tasks_of_domain')
  expect(plan).not.toMatch(SORTED)
})
