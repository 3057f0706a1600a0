// task-manager.md section 1: schedules, daemons and broadcasts
import { randomUUID } from 'node:crypto'
import { afterAll, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { findDueTicks } from '../../manager/store/due-ticks.ts'
import { startSite, startTestManager, startTestWorker, until } from './support.ts'

const { db, manager, worker, client, close } = await startSite()
afterAll(close)

const runsOf = async (id: string) => Number((await client.get(`/tasks/${id}/runs`)).body['total'])

/** A schedule whose ticks are months away on every day of the year. */
const SELDOM = `0 0 1 ${((new Date().getUTCMonth() + 6) % 12) + 1} *`

/** As if the manager had been away since then. */
async function moveTick(id: string, sql: string): Promise<void> {
  await db.database.pool.query(`UPDATE tasks SET next_tick_at = ${sql} WHERE id = $1`, [id])
}

test('a schedule starts the task at its ticks, and shows the next one', async () => {
  const askedMs = Date.now()
  const id = await client.task('add', { inputs: [1, 2], schedule: '* * * * * *' })
  const { body } = await client.get(`/tasks/${id}`)
  expect(body).toMatchObject({ schedule: '* * * * * *', timezone: 'UTC', catch_up: 'none' })
  // Not of created_at: a busy machine may write the row in the second after the one it was asked in.
  expect(Date.parse(String(body['next_tick_at']))).toBeGreaterThan(askedMs)
  await until(
    'two ticks',
    () => runsOf(id),
    (runs) => runs >= 2,
  )
  await until(
    'the schedule to be taken away',
    () => client.put(`/tasks/${id}`, { schedule: null }),
    ({ status }) => status === 200,
  )
  expect((await client.get(`/tasks/${id}`)).body).not.toHaveProperty('schedule')
})

test('ticks without a running manager start nothing, or one run if the task says so', async () => {
  const none = await client.task('add', { inputs: [1, 2], schedule: SELDOM })
  const once = await client.task('add', { inputs: [1, 2], schedule: SELDOM, catch_up: 'once' })
  const before = (await client.get(`/tasks/${once}`)).body['next_tick_at']
  const threeYearsAgo = `now() - interval '3 years'`
  await moveTick(none, threeYearsAgo)
  await moveTick(once, threeYearsAgo)
  expect(await client.ended(once)).toMatchObject({ state: 3, results: [3] })
  await until(
    'the next tick of both',
    () => Promise.all([none, once].map(async (id) => (await client.get(`/tasks/${id}`)).body['next_tick_at'])),
    (ticks) => ticks.every((tick) => tick === before),
  )
  expect(await runsOf(once)).toBe(1)
  expect(await runsOf(none)).toBe(0)
})

test('several managers start a tick once', async () => {
  const others = await Promise.all([startTestManager(db.database), startTestManager(db.database)])
  const ids = await Promise.all(
    Array.from({ length: 10 }, () => client.task('add', { inputs: [1, 2], schedule: SELDOM, catch_up: 'once' })),
  )
  await Promise.all(ids.map((id) => moveTick(id, `now() - interval '1 hour'`)))
  for (const id of ids) expect(await client.ended(id)).toMatchObject({ state: 3 })
  await until(
    'every tick to be passed',
    () => db.database.pool.query('SELECT 1 FROM tasks WHERE next_tick_at < now()').then(({ rowCount }) => rowCount),
    (due) => due === 0,
  )
  expect(await Promise.all(ids.map(runsOf))).toEqual(ids.map(() => 1))
  await Promise.all(others.map((other) => other.close()))
})

test('a tick during a run of the task starts nothing, and the next one is awaited', async () => {
  const id = await client.task('endless', { timeout: '30s', schedule: SELDOM, catch_up: 'once' })
  await client.post(`/tasks/${id}/start`)
  await moveTick(id, `now() - interval '1 hour'`)
  await until(
    'the tick to be passed',
    () => client.get(`/tasks/${id}`),
    ({ body }) => String(body['next_tick_at']) > new Date().toISOString(),
  )
  expect(await runsOf(id)).toBe(1)
  await client.post(`/tasks/${id}/stop`)
})

test('ticks without a worker do not delay others, and many due ticks are started at once', async () => {
  const crowd = async (count: number, fields: Record<string, unknown>) =>
    await Promise.all(
      Array.from({ length: count }, () =>
        client.task('add', { inputs: [1, 2], schedule: SELDOM, catch_up: 'once', ...fields }),
      ),
    )
  const stuck = await crowd(120, { broadcast: true, labels: { zone: 'nowhere' } })
  for (const id of stuck) await moveTick(id, `now() - interval '2 minutes'`)
  const others = await crowd(120, {})
  await Promise.all(others.map((id) => moveTick(id, `now() - interval '1 minute'`)))
  for (const id of others) expect(await client.ended(id)).toMatchObject({ state: 3 })
  expect(await runsOf(stuck[0] as string)).toBe(0)
  for (const id of stuck) await client.put(`/tasks/${id}`, { schedule: null })
})

test('a daemon is started again when it ends, until it is stopped', async () => {
  const id = await client.task('add', { inputs: [1, 2], daemon: true, retry: { backoff: '1ms' } })
  await client.post(`/tasks/${id}/start`)
  const { body } = await until(
    'three rounds',
    () => client.get(`/tasks/${id}/runs`),
    ({ body: page }) => Number((page['runs'] as { attempt: number }[])[0]?.attempt) >= 3,
  )
  expect(body).toMatchObject({ total: 1 })
  expect(await client.post(`/tasks/${id}/invoke`)).toMatchObject({ status: 422 })
  expect((await client.post(`/tasks/${id}/stop`)).status).toBe(200)
  expect(await client.ended(id)).toMatchObject({ state: 6 })
})

test('a daemon outlives the timeout of its task', async () => {
  const id = await client.task('endless', { daemon: true, timeout: '200ms' })
  await client.post(`/tasks/${id}/start`)
  await until(
    'it runs',
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === 2,
  )
  await until(
    'its timeout to be long over',
    () => client.get(`/tasks/${id}`),
    ({ body }) => Date.now() - Date.parse(String(body['start_time'])) > 1_000,
  )
  expect((await client.get(`/tasks/${id}/runs`)).body).toMatchObject({ runs: [{ state: 2, attempt: 1 }] })
  await client.post(`/tasks/${id}/stop`)
})

test('a broadcast runs once on every suitable worker, with a result for each', async () => {
  const others = await Promise.all([startTestWorker(manager), startTestWorker(manager)])
  const stranger = await startTestWorker(manager, { labels: 'site=elsewhere' })
  await client.post(`/workers/${stranger.id}/drain`)
  const id = await client.task('add', { inputs: [20, 3], broadcast: true })
  const started = await client.post(`/tasks/${id}/start`)
  expect(started).toMatchObject({ status: 200, body: { started: true } })
  const ended = await client.ended(id)
  expect(ended).toMatchObject({ state: 3, run_id: started.body['run_id'] })
  const results = ended['results'] as { worker_id: string; state: number; results: unknown }[]
  const ids = [worker, ...others].map((one) => one.id)
  expect(results.map(({ worker_id: workerId }) => workerId).toSorted()).toEqual(ids.toSorted())
  expect(results.every(({ state, results: values }) => state === 3 && JSON.stringify(values) === '[23]')).toBe(true)
  const { body: page } = await client.get(`/tasks/${id}/runs`)
  expect(page['total']).toBe(4)
  expect(await client.post(`/tasks/${id}/invoke`)).toMatchObject({ status: 422 })
  await Promise.all([...others, stranger].map((one) => one.close()))
})

test('a broadcast with a failed worker is failed, and names the worker', async () => {
  const id = await client.task('endless', { broadcast: true, timeout: '100ms' })
  await client.post(`/tasks/${id}/start`)
  const ended = await client.ended(id)
  expect(ended).toMatchObject({ state: 4, reason: 'timeout', error: '1 of its runs failed' })
  expect(ended['results']).toMatchObject([{ worker_id: worker.id, state: 4, reason: 'timeout' }])
})

test('a broadcast ends although one of its workers leaves before it received its part', async () => {
  const leaving = await startTestWorker(manager, { slots: 1, labels: 'role=leaving' })
  const busy = await client.task('endless', { labels: { role: 'leaving' }, timeout: '60s', on_lost: 'fail' })
  await client.post(`/tasks/${busy}/start`)
  await until(
    'the worker to be busy',
    () => client.get(`/tasks/${busy}`),
    ({ body }) => body['state'] === 2,
  )
  const id = await client.task('add', { inputs: [1, 2], broadcast: true, labels: { role: 'leaving' } })
  await client.post(`/tasks/${id}/start`)
  await client.post(`/workers/${leaving.id}/revoke`)
  const ended = await client.ended(id)
  expect(ended).toMatchObject({ state: 4, reason: 'worker_lost', results: [{ worker_id: leaving.id, state: 4 }] })
  await leaving.close()
})

test('a broadcast can be stopped as a whole', async () => {
  const id = await client.task('endless', { broadcast: true, timeout: '30s' })
  await client.post(`/tasks/${id}/start`)
  await until(
    'it runs',
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === 2,
  )
  await client.post(`/tasks/${id}/stop`)
  expect(await client.ended(id)).toMatchObject({ state: 6 })
})

test('a broadcast without a suitable worker is 503 with a retry time', async () => {
  const id = await client.task('add', { inputs: [1, 2], broadcast: true, labels: { site: 'nowhere' } })
  const refused = await client.post(`/tasks/${id}/start`)
  expect(refused).toMatchObject({ status: 503, body: { error: 'unavailable' } })
  expect(refused.headers['retry-after']).toBe('5')
  expect((await client.get(`/tasks/${id}`)).body['state']).toBe(0)
})

/** As tasks of domains, which are shares of the scheduler. */
async function ofDomain(ids: readonly string[], name: string): Promise<void> {
  const domain = randomUUID()
  const { rows } = await db.database.pool.query<{ key: number }>(
    'INSERT INTO domains (id, name, route) VALUES ($1, $2, $2) RETURNING key',
    [domain, name],
  )
  await db.database.pool.query('UPDATE tasks SET domain_key = $1 WHERE id = ANY ($2::uuid[])', [rows[0]?.key, ids])
}

test('domains take turns: the tick of one is among the first, whatever is due of others for longer', async () => {
  const body = { name: 'add', schedule: SELDOM }
  const ids = await Promise.all(
    Array.from({ length: 12 }, async () => String((await client.post('/tasks', body)).body['id'])),
  )
  const [few, many] = [ids.slice(0, 2), ids.slice(2)]
  await ofDomain(few, 'few')
  await ofDomain(many, 'many')
  // Not due for this manager: it is asked what would be due.
  const due = await db.database.transaction(async (tx) => {
    await sql`UPDATE tasks SET next_tick_at = now() - interval '1 hour' WHERE id = ANY (${many}::uuid[])`.execute(tx)
    await sql`UPDATE tasks SET next_tick_at = now() - interval '1 second' WHERE id = ANY (${few}::uuid[])`.execute(tx)
    const found = await findDueTicks({ db: tx as never }, { without: [], limit: 5 })
    await sql`UPDATE tasks SET next_tick_at = now() + interval '1 day' WHERE id = ANY (${ids}::uuid[])`.execute(tx)
    return found.map(({ id }) => (few.includes(id) ? 'few' : 'many'))
  })
  expect(due).toEqual(['many', 'few', 'many', 'few', 'many'])
})

test('a time that started no run is counted on its task, with the reason', async () => {
  const late = await client.task('add', { inputs: [1, 2], schedule: SELDOM })
  expect((await client.get(`/tasks/${late}`)).body).toMatchObject({ missed_ticks: 0 })
  await moveTick(late, `now() - interval '2 minutes'`)
  const counted = await until(
    'the missed time',
    () => client.get(`/tasks/${late}`),
    ({ body }) => body['missed_ticks'] === 1,
  )
  expect(counted.body).toMatchObject({
    last_error: {
      source: 'schedule',
      count: 1,
      reason: expect.stringMatching(/^no run could be started within 60 s of /) as string,
    },
    activity: 'active',
  })
  expect(await runsOf(late)).toBe(0)

  const busy = await client.task('endless', { timeout: '30s', schedule: SELDOM, catch_up: 'once' })
  await client.post(`/tasks/${busy}/start`)
  await moveTick(busy, `now() - interval '1 hour'`)
  await until(
    'the time that came during a run',
    () => client.get(`/tasks/${busy}`),
    ({ body }) => body['missed_ticks'] === 1,
  )
  expect((await client.get(`/tasks/${busy}`)).body['last_error']).toMatchObject({
    source: 'schedule',
    reason: expect.stringMatching(/^the task is (scheduled|running): /) as string,
  })
  await client.post(`/tasks/${busy}/stop`)
})

test('the writes of a round are two statements, however many ticks are due', async () => {
  const ids = await Promise.all(
    Array.from({ length: 40 }, () => client.task('endless', { timeout: '30s', schedule: SELDOM, catch_up: 'once' })),
  )
  // Every one is under way, and its tick is refused.
  await db.database.pool.query(
    `UPDATE tasks SET state = 1, run_key = 0, next_tick_at = now() - interval '1 hour' WHERE id = ANY ($1::uuid[])`,
    [ids],
  )
  await until(
    'all refusals',
    () =>
      db.database.pool
        .query(`SELECT 1 FROM tasks WHERE id = ANY ($1::uuid[]) AND missed_ticks = 1`, [ids])
        .then((found) => found.rowCount),
    (rows) => rows === ids.length,
  )
  const { rows } = await db.database.pool.query<{ writers: number }>(
    `SELECT count(DISTINCT e.xmin::text)::int AS writers FROM task_errors e JOIN tasks t ON t.key = e.task_key WHERE t.id = ANY ($1::uuid[])`,
    [ids],
  )
  expect(rows).toEqual([{ writers: 1 }])
  await db.database.pool.query(
    `UPDATE tasks SET state = 0, run_key = NULL, schedule = NULL, next_tick_at = NULL WHERE id = ANY ($1::uuid[])`,
    [ids],
  )
})

test('beside 20,000 schedules of every second of one domain, a tick of another is in the next round, and what starts no run is counted', async () => {
  const { pool } = db.database
  const every = String((await client.post('/tasks', { name: 'flood', schedule: '* * * * * *' })).body['id'])
  const other = await client.task('add', { inputs: [1, 2], schedule: SELDOM })
  await ofDomain([every], 'many schedules')
  await ofDomain([other], 'one schedule')
  const { rows: columns } = await pool.query<{ names: string }>(
    `SELECT string_agg(quote_ident(column_name), ', ') AS names FROM information_schema.columns
      WHERE table_schema = current_schema() AND table_name = 'tasks' AND is_identity = 'NO' AND column_name NOT IN ('id', 'next_tick_at')`,
  )
  const names = columns[0]?.names ?? ''
  await pool.query(
    `INSERT INTO tasks (id, next_tick_at, ${names}) SELECT gen_random_uuid(), now() - interval '1 second', ${names}
       FROM tasks, generate_series(1, 19999) WHERE id = $1`,
    [every],
  )
  try {
    const due = await db.database.transaction(async (tx) => {
      await sql`UPDATE tasks SET next_tick_at = now() WHERE id = ${other}`.execute(tx)
      return await findDueTicks({ db: tx as never }, { without: [], limit: 100 })
    })
    // One round is no larger for them, and has the tick of the other domain.
    expect(due).toHaveLength(100)
    expect(due.slice(0, 2).map(({ id }) => id)).toContain(other)
    await until(
      'the run of the other domain',
      () => runsOf(other),
      (runs) => runs === 1,
    )
    const missed = () =>
      pool
        .query<{ tasks: number }>(`SELECT count(*)::int AS tasks FROM tasks WHERE name = 'flood' AND missed_ticks > 0`)
        .then(({ rows }) => rows[0]?.tasks ?? 0)
    await until('some of them were looked at', missed, (tasks) => tasks >= 300, 60_000)
  } finally {
    await pool.query(`DELETE FROM tasks WHERE name = 'flood'`)
  }
}, 120_000)
