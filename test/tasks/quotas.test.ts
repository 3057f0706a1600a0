// Contract decision 76: quotas of modules and of the processor time of runs.
import { randomUUID } from 'node:crypto'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { deleteOldQuotaDays, forgetKept } from '#api/identity/index.ts'
import { sql } from '#core/sql.ts'
import {
  OPEN_ACCESS,
  clientOf,
  exampleModule,
  startDatabase,
  startTestManager,
  startTestWorker,
  until,
} from './support.ts'
import type { TestDatabase, TestManager, TestWorker } from './support.ts'

let db: TestDatabase
let manager: TestManager
let client: ReturnType<typeof clientOf>
let worker: TestWorker | undefined
/** By domain id and name. */
const quotas = new Map<string, number>()

beforeEach(async () => {
  db = await startDatabase()
  quotas.clear()
  const ofDomainId = (domainId: string, name: string) => quotas.get(`${domainId} ${name}`)
  manager = await startTestManager(db.database, { access: { ...OPEN_ACCESS, quotas: { ofDomainId } } })
  client = clientOf(manager.app)
})

afterEach(async () => {
  await worker?.close()
  worker = undefined
  await manager.close()
  await db.close()
})

type Domain = { key: number; id: string }

async function newDomain(): Promise<Domain> {
  const id = randomUUID()
  const { rows } = await sql<{
    key: number
  }>`INSERT INTO domains (id, name, route) VALUES (${id}, ${id}, ${id}) RETURNING key`.execute(db.database.db)
  return { key: Number(rows[0]?.key), id }
}

/**
 * The manager runs without authorization here, so that tasks get their domain in the database; and another id, because the domain of an id
 * never changes.
 */
async function newTask(domain: Domain, fields: Record<string, unknown> = {}): Promise<string> {
  const created = String((await client.post('/tasks', { name: 'add', inputs: [1, 2], ...fields })).body['id'])
  const id = randomUUID()
  await sql`UPDATE tasks SET id = ${id}, domain_key = ${domain.key}, domain_id = ${domain.id} WHERE id = ${created}`.execute(
    db.database.db,
  )
  return id
}

/** The same module with a custom section: other bytes, which run the same. */
function moduleNumber(number: number, bytes = 0): Buffer {
  const content = Buffer.from(`${String(number).padStart(3, '0')}${'x'.repeat(bytes)}`)
  return Buffer.concat([exampleModule('add'), Buffer.from([0, content.length + 1, content.length]), content])
}

test('uploads beyond the bytes of modules are refused with 422; a module counts once, and replacing one frees it', async () => {
  const domain = await newDomain()
  const size = moduleNumber(1).length
  quotas.set(`${domain.id} module_bytes`, 2 * size)
  const [first, second, third] = [await newTask(domain), await newTask(domain), await newTask(domain)]
  expect((await client.upload(first, moduleNumber(1))).status).toBe(200)
  expect((await client.upload(second, moduleNumber(2))).status).toBe(200)
  expect(await client.upload(third, moduleNumber(3))).toMatchObject({
    status: 422,
    body: {
      error: 'quota_exceeded',
      message: `the quota of the domain is ${2 * size} bytes of modules; ${2 * size} are used, ${size} more were requested`,
    },
  })
  // The module of another task takes no more room.
  expect((await client.upload(third, moduleNumber(2))).status).toBe(200)
  // The task's own module is replaced.
  expect((await client.upload(first, moduleNumber(3))).status).toBe(200)
  expect((await client.upload(first, moduleNumber(3, 1))).status).toBe(422)
  quotas.delete(`${domain.id} module_bytes`)
  expect((await client.upload(third, moduleNumber(4))).status).toBe(200)
})

const used = async (domain: Domain) =>
  (
    await sql<{ used: number }>`
      SELECT coalesce(sum(used), 0) AS used FROM domain_quota_days
       WHERE domain_key = ${domain.key} AND quota = 'cpu_seconds_per_day'`.execute(db.database.db)
  ).rows[0]?.used ?? 0

const queued = async () =>
  (
    await sql<{ runs: number }>`SELECT count(*)::int AS runs FROM runs WHERE queue_seq IS NOT NULL`.execute(
      db.database.db,
    )
  ).rows[0]?.runs

test('runs that computed for as long as a day allows make the next start 429 with Retry-After; others run', async () => {
  const [busy, other] = [await newDomain(), await newDomain()]
  const endless = await newTask(busy, { name: 'spin', timeout: '1s', inputs: [] })
  expect((await client.upload(endless, exampleModule('endless'))).status).toBe(200)
  const task = await newTask(busy)
  expect((await client.upload(task, exampleModule('add'))).status).toBe(200)
  const foreign = await newTask(other)
  expect((await client.upload(foreign, exampleModule('add'))).status).toBe(200)
  worker = await startTestWorker(manager, { slots: 1 })
  expect((await client.post(`/tasks/${endless}/invoke`)).status).toBe(200)
  await until(
    'the processor time',
    () => used(busy),
    (seconds) => seconds >= 1,
  )
  quotas.set(`${busy.id} cpu_seconds_per_day`, 1)
  const refused = await until(
    'a refusal',
    () => client.post(`/tasks/${task}/start`),
    ({ status }) => status === 429,
  )
  expect(refused.body).toMatchObject({
    error: 'rate_limited',
    message: 'the quota of the domain is 1 processor seconds of runs per day, and used up until midnight in UTC',
  })
  expect((await client.post(`/tasks/${foreign}/invoke`)).status).toBe(200)
  quotas.set(`${busy.id} cpu_seconds_per_day`, 1000)
  await until(
    'a start under the new quota',
    () => client.post(`/tasks/${task}/start`),
    ({ status }) => status === 200,
  )
})

test('queued runs of a domain without processor time wait for the next day, and nothing is lost', async () => {
  const domain = await newDomain()
  const task = await newTask(domain)
  expect((await client.upload(task, exampleModule('add'))).status).toBe(200)
  expect((await client.post(`/tasks/${task}/start`)).status).toBe(200)
  expect(await queued()).toBe(1)
  await sql`INSERT INTO domain_quota_days (domain_key, day, quota, source, used)
    VALUES (${domain.key}, (now() AT TIME ZONE 'UTC')::date, 'cpu_seconds_per_day', 'another manager', 10)`.execute(
    db.database.db,
  )
  quotas.set(`${domain.id} cpu_seconds_per_day`, 10)
  // What another manager counted is known after a read; until then starts are queued.
  const startAnother = async () => {
    const other = await newTask(domain)
    expect((await client.upload(other, exampleModule('add'))).status).toBe(200)
    return await client.post(`/tasks/${other}/start`)
  }
  await until('a refusal', startAnother, ({ status }) => status === 429)
  const waiting = await queued()
  worker = await startTestWorker(manager, { slots: 1 })
  const placement = await client.get(`/tasks/${task}/placement`)
  expect(placement.body['reason']).toBe(
    'the quota of the domain is 10 processor seconds of runs per day, and used up until midnight in UTC',
  )
  expect(await queued()).toBe(waiting)
  // The next day, for this domain.
  await sql`UPDATE domain_quota_days SET day = day - 1 WHERE domain_key = ${domain.key}`.execute(db.database.db)
  await until('an empty queue', queued, (runs) => runs === 0)
})

const storedOf = async (domain: Domain) =>
  (
    await sql<{ used: number }>`SELECT coalesce(sum(used), 0) AS used FROM domain_quota_days
       WHERE domain_key = ${domain.key} AND quota = 'run_bytes'`.execute(db.database.db)
  ).rows[0]?.used ?? 0

const startRefused = (task: string) =>
  until(
    'a refusal',
    () => client.post(`/tasks/${task}/start`),
    ({ status }) => status === 422,
  )
const started = (task: string) =>
  until(
    'a start',
    () => client.post(`/tasks/${task}/start`),
    ({ status }) => status === 200,
  )

test('results and output beyond what a domain may store make the next start 422; deleting their task makes room', async () => {
  const [full, other] = [await newDomain(), await newDomain()]
  const task = await newTask(full, { name: 'hello', inputs: [] })
  expect((await client.upload(task, exampleModule('hello'))).status).toBe(200)
  const second = await newTask(full)
  expect((await client.upload(second, exampleModule('add'))).status).toBe(200)
  const foreign = await newTask(other)
  expect((await client.upload(foreign, exampleModule('add'))).status).toBe(200)
  worker = await startTestWorker(manager, { slots: 1 })
  for (let run = 0; run < 3; run++) expect((await client.post(`/tasks/${task}/invoke`)).status).toBe(200)
  const { rows } = await sql<{ bytes: number }>`
    SELECT sum(octet_length(r.results::text) + (SELECT coalesce(sum(length(l.data)), 0) FROM run_logs l WHERE l.run_key = r.key))::float8 AS bytes
      FROM runs r WHERE r.domain_key = ${full.key}`.execute(db.database.db)
  const bytes = rows[0]?.bytes ?? 0
  expect(bytes).toBeGreaterThan(0)
  await until(
    'what is stored',
    () => storedOf(full),
    (stored) => stored === bytes,
  )
  // Lowered below what is used: nothing is deleted.
  quotas.set(`${full.id} run_bytes`, bytes - 1)
  const refused = await startRefused(second)
  expect(refused.body).toMatchObject({
    error: 'quota_exceeded',
    message: `the quota of the domain is ${bytes - 1} bytes of results and output of runs, and used up: delete tasks, or wait until old runs are removed`,
  })
  expect((await client.get(`/tasks/${task}/runs`)).body['total']).toBe(3)
  expect((await client.post(`/tasks/${foreign}/invoke`)).status).toBe(200)
  expect((await client.delete(`/tasks/${task}`)).status).toBe(204)
  expect(await storedOf(full)).toBe(0)
  await started(second)
})

test('runs that wait when a domain is full start when there is room, and old days are forgotten', async () => {
  const domain = await newDomain()
  const task = await newTask(domain)
  expect((await client.upload(task, exampleModule('add'))).status).toBe(200)
  expect((await client.post(`/tasks/${task}/start`)).status).toBe(200)
  expect(await queued()).toBe(1)
  await sql`INSERT INTO domain_quota_days (domain_key, day, quota, source, used)
    VALUES (${domain.key}, (now() AT TIME ZONE 'UTC')::date - 20, 'run_bytes', 'another manager', 1000)`.execute(
    db.database.db,
  )
  quotas.set(`${domain.id} run_bytes`, 1000)
  // What another manager counted is known after a read; until then starts are queued.
  const startAnother = async () => {
    const another = await newTask(domain)
    expect((await client.upload(another, exampleModule('add'))).status).toBe(200)
    return await client.post(`/tasks/${another}/start`)
  }
  await until('a refusal', startAnother, ({ status }) => status === 422)
  const waiting = await queued()
  worker = await startTestWorker(manager, { slots: 1 })
  await until(
    'the reason',
    () => client.get(`/tasks/${task}/placement`),
    ({ body }) => String(body['reason']).includes('bytes of results'),
  )
  expect(await queued()).toBe(waiting)
  // A week later it still counts; when runs of that day are removed, it does not.
  await deleteOldQuotaDays(db.database)
  expect(await storedOf(domain)).toBe(1000)
  await forgetKept(db.database.db, 10 * 86_400_000)
  expect(await storedOf(domain)).toBe(0)
  await until(
    'the run',
    () => client.get(`/tasks/${task}`),
    ({ body }) => body['state'] === 3,
  )
})
