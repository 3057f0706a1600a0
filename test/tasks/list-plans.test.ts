// The keys of a page of tasks in the default order are read from an index in this order alone, however far the page is. What quotas count is
// read from an index too.
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Queryable } from '#core/database/index.ts'
import type { Statement } from '#core/sql.ts'
import { sql } from '#core/sql.ts'
import { countTaskAmount } from '#queues/index.ts'
import type { TaskAmount } from '#queues/index.ts'
import { listTasks } from '../../manager/store/tasks.ts'
import type { TaskFilter } from '../../manager/store/tasks.ts'
import { startSite } from './support.ts'

/** So many that reading and sorting all of them costs more. */
const TASKS = 5000
/** The keys of the page, in the order of the index alone. The rows of the page are sorted after they are read. */
const keysFrom = (index: string) => new RegExp(`Limit [^\\n]*\\n *->  Index Only Scan (Backward )?using ${index} `)
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
  await sql`VACUUM (ANALYZE) tasks`.execute(db.database.db)
})

async function planOf(run: (explaining: Queryable) => Promise<unknown>, ofText = ''): Promise<string> {
  const plans: string[] = []
  const explaining = {
    async query<Row>({ text, values }: Statement) {
      const { rows } = await db.database.db.query<{ 'QUERY PLAN': string }>({ text: `EXPLAIN ${text}`, values })
      if (text.includes(ofText)) plans.push(rows.map((row) => row['QUERY PLAN']).join('\n'))
      return { rows: [] as Row[] }
    },
  }
  await run(explaining)
  expect(plans).toHaveLength(1)
  return plans.join('')
}

const planOfList = (filter: TaskFilter) => planOf((explaining) => listTasks(explaining, filter), 'row_place')

test('of one domain', async () => {
  const plan = await planOfList({ ...PAGE, domains: [domainKey] })
  expect(plan).toMatch(keysFrom('tasks_of_domain'))
})

test('of no domain', async () => {
  const plan = await planOfList({ ...PAGE, domains: 'no domain' })
  expect(plan).toMatch(keysFrom('tasks_of_no_domain'))
})

test('a distant page', async () => {
  const plan = await planOfList({ ...PAGE, domains: [domainKey], offset: TASKS / 2 - 100 })
  expect(plan).toMatch(keysFrom('tasks_of_domain'))
})

test('after a cursor', async () => {
  const cursor = ['1790000000000000', '1790000000000000', '7d444840-9dc0-11d1-b245-5ffdce74fad2']
  const plan = await planOfList({ ...PAGE, domains: [domainKey], cursor })
  expect(plan).toMatch(keysFrom('tasks_of_domain'))
})

// Counting half of all tasks reads the whole table.
test.each<[TaskAmount, string]>([
  ['workflows', 'workflows_domain'],
  ['schedules', 'tasks_scheduled'],
  ['triggers', 'tasks_triggered_of_domain'],
])('the %s of a quota', async (name, index) => {
  const plan = await planOf((explaining) => countTaskAmount(explaining, name, ['7d444840-9dc0-11d1-b245-5ffdce74fad2']))
  expect(plan).toMatch(new RegExp(`(Index Only Scan using|Bitmap Index Scan on) ${index} `))
})
