// Runs of domains share the slots of one worker: the order of their assignments, never times.
import { randomUUID } from 'node:crypto'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { MAX_QUEUED_RUNS } from '../../manager/model/limits.ts'
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
const workers: TestWorker[] = []
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
  for (const worker of workers.splice(0)) await worker.close()
  await manager.close()
  await db.close()
})

async function join(slots = 1): Promise<TestWorker> {
  const worker = await startTestWorker(manager, { slots })
  workers.push(worker)
  return worker
}

type Domain = { key: number; id: string }

async function newDomain(name: string): Promise<Domain> {
  const id = randomUUID()
  const { rows } = await sql<{
    key: number
  }>`INSERT INTO domains (id, name, route) VALUES (${id}, ${name}, ${name}) RETURNING key`.execute(db.database.db)
  return { key: Number(rows[0]?.key), id }
}

let modules = 0

/** With an empty custom section of another name: the duration of its runs is not known from other tasks. */
function moduleOfItsOwn(example: string): Buffer {
  const name = Buffer.from(`task ${++modules}`)
  return Buffer.concat([exampleModule(example), Buffer.from([0, name.length + 1, name.length]), name])
}

/** The manager runs without authorization here, so that tasks get their domain in the database. */
async function newTask(
  domain: Domain | undefined,
  fields: Record<string, unknown> = {},
  example = 'add',
): Promise<string> {
  const inputs = example === 'add' ? { inputs: [1, 2] } : {}
  const id = String((await client.post('/tasks', { name: example, ...inputs, ...fields })).body['id'])
  expect((await client.upload(id, moduleOfItsOwn(example))).status).toBe(200)
  if (domain !== undefined)
    await sql`UPDATE tasks SET domain_key = ${domain.key}, domain_id = ${domain.id} WHERE id = ${id}`.execute(
      db.database.db,
    )
  return id
}

async function start(task: string): Promise<void> {
  expect((await client.post(`/tasks/${task}/start`)).status).toBe(200)
}

/** The domains of all assigned runs, in the order of assignment. */
async function assigned(): Promise<(number | null)[]> {
  const { rows } = await sql<{ domain: number | null }>`
    SELECT domain_key AS domain FROM runs WHERE fence IS NOT NULL ORDER BY fence`.execute(db.database.db)
  return rows.map(({ domain }) => domain)
}

const queuedOrRunning = async () =>
  (
    await sql<{ runs: number }>`SELECT count(*)::int AS runs FROM runs WHERE next_check_at IS NOT NULL`.execute(
      db.database.db,
    )
  ).rows[0]?.runs

const queued = async () =>
  (
    await sql<{ runs: number }>`SELECT count(*)::int AS runs FROM runs WHERE queue_seq IS NOT NULL`.execute(
      db.database.db,
    )
  ).rows[0]?.runs

test('domains and runs of no domain take turns, and a domain without a worker that fits is passed over', async () => {
  const many = await newDomain('many')
  const few = await newDomain('few')
  const unfit = await newDomain('unfit')
  await start(await newTask(unfit, { labels: { zone: 'nowhere' } }))
  for (let run = 0; run < 6; run++) await start(await newTask(many))
  for (let run = 0; run < 2; run++) await start(await newTask(few))
  for (let run = 0; run < 2; run++) await start(await newTask(undefined))
  expect(await queued()).toBe(11)
  await join()
  const order = await until('ten assignments', assigned, ({ length }) => length === 10)
  expect(order).toEqual([many.key, few.key, null, many.key, few.key, null, many.key, many.key, many.key, many.key])
  expect(await queued()).toBe(1)
})

test('a run of unknown duration gets the next free slot, although short runs of another domain could queue at the worker', async () => {
  const many = await newDomain('many')
  const few = await newDomain('few')
  const short = await newTask(many)
  const unknown = await newTask(few)
  const worker = await join()
  for (let run = 0; run < 3; run++) expect((await client.post(`/tasks/${short}/invoke`)).status).toBe(200)
  workers.splice(0)
  await worker.close()
  const learned = (await assigned()).length
  const invoked = Array.from({ length: 30 }, () => client.post(`/tasks/${short}/invoke`))
  await until('thirty queued runs', queued, (runs) => runs === 30)
  await start(unknown)
  await join()
  for (const answer of await Promise.all(invoked)) expect(answer.status).toBe(200)
  // Runs that are assigned in one transaction have the same time.
  const { rows } = await sql<{ earlier: number }>`
    SELECT count(*)::int AS earlier FROM runs r JOIN runs u ON u.domain_key = ${few.key}
    WHERE r.domain_key = ${many.key} AND r.assigned_at < u.assigned_at`.execute(db.database.db)
  expect(rows).toEqual([{ earlier: learned + 1 }])
})

test('a domain of weight three gets three slots for each of another', async () => {
  const heavy = await newDomain('heavy')
  const light = await newDomain('light')
  quotas.set(`${heavy.id} run_weight`, 3)
  for (let run = 0; run < 9; run++) await start(await newTask(heavy))
  for (let run = 0; run < 9; run++) await start(await newTask(light))
  await join()
  const order = await until('all assignments', assigned, ({ length }) => length === 18)
  expect(order.slice(0, 12).filter((domain) => domain === heavy.key)).toHaveLength(9)
  expect(order.slice(0, 4).filter((domain) => domain === light.key)).toHaveLength(1)
})

/** Runs until it is stopped. */
const ENDLESS = { name: 'spin', timeout: '1h' }

test('a domain has no more runs at a time than its quota, and leaves the other slots to others', async () => {
  const limited = await newDomain('limited')
  const other = await newDomain('other')
  quotas.set(`${limited.id} concurrent_runs`, 1)
  const tasks: string[] = []
  for (let task = 0; task < 3; task++) {
    tasks.push(await newTask(limited, ENDLESS, 'endless'))
    await start(tasks[task] ?? '')
  }
  expect(await queued()).toBe(3)
  await join(3)
  const first = await until('an assignment', assigned, ({ length }) => length > 0)
  await start(await newTask(other, ENDLESS, 'endless'))
  expect(await until('a run of another domain', assigned, ({ length }) => length === 2)).toEqual([...first, other.key])
  expect(await queued()).toBe(2)
  const waiting = await client.get(`/tasks/${tasks[1]}/placement`)
  expect(waiting.body['reason']).toBe('the quota of the domain is 1 concurrent runs')
  await client.post(`/tasks/${tasks[0]}/stop`)
  await until('the next run', assigned, ({ length }) => length === 3)
  expect(await queued()).toBe(1)
  quotas.set(`${limited.id} concurrent_runs`, 2)
  await until('a run under the new quota', assigned, ({ length }) => length === 4)
}, 120_000)

test('beyond the quota of queued runs a start is refused with 422, and other domains queue theirs', async () => {
  const limited = await newDomain('limited')
  const other = await newDomain('other')
  quotas.set(`${limited.id} queued_runs`, 2)
  for (let task = 0; task < 2; task++) await start(await newTask(limited))
  const third = await newTask(limited)
  expect(await client.post(`/tasks/${third}/start`)).toMatchObject({
    status: 422,
    body: { error: 'quota_exceeded', message: 'the quota of the domain is 2 queued runs; 2 are queued' },
  })
  expect(await client.get(`/tasks/${third}`)).toMatchObject({ body: { state: 0 } })
  await start(await newTask(other))
  expect(await queued()).toBe(3)
  await join()
  await until('an empty queue', queued, (runs) => runs === 0)
  await start(third)
})

/** As many more queued runs as this one, whose worker does not exist. */
async function multiply(task: string, runs: number): Promise<void> {
  await sql`INSERT INTO runs (id, task_key, drives_task, state, spec, module_digest, needs, priority, queue_seq, next_check_at, domain_key, cause)
    SELECT gen_random_uuid(), r.task_key, false, r.state, r.spec, r.module_digest, r.needs, r.priority, nextval('fence'), now() + interval '1 hour',
      r.domain_key, r.cause FROM runs r JOIN tasks t ON t.key = r.task_key, generate_series(1, ${runs}) WHERE t.id = ${task}`.execute(
    db.database.db,
  )
}

test('a queue that one domain has filled refuses its starts alone: another one waits in its own share', async () => {
  const many = await newDomain('many')
  const few = await newDomain('few')
  const flood = await newTask(many, { labels: { zone: 'nowhere' } })
  await start(flood)
  await multiply(flood, MAX_QUEUED_RUNS)
  const refused = await newTask(many, { labels: { zone: 'nowhere' } })
  const answer = await until(
    'the refusal of a full queue',
    async () => {
      const answer = await client.post(`/tasks/${refused}/start`)
      if (answer.status === 200) await client.post(`/tasks/${refused}/stop`)
      return answer
    },
    ({ status }) => status === 503,
  )
  expect(answer.body).toMatchObject({
    error: 'unavailable',
    message: expect.stringMatching(/^\d+ runs are queued already, \d+ of them of this domain; try again$/) as string,
  })
  for (let run = 0; run < 3; run++) await start(await newTask(few, { labels: { zone: 'nowhere' } }))
  await start(await newTask(undefined, { labels: { zone: 'nowhere' } }))
  expect((await client.post(`/tasks/${refused}/start`)).status).toBe(503)
})

test('endless runs of one domain leave a slot of a worker to others, and all slots to itself where it is alone', async () => {
  const many = await newDomain('many')
  const few = await newDomain('few')
  const endless: string[] = []
  for (let task = 0; task < 4; task++) endless.push(await newTask(many, ENDLESS, 'endless'))
  await join(2)
  for (const task of endless.slice(0, 2)) await start(task)
  await until('both slots', assigned, ({ length }) => length === 2)
  for (const task of endless.slice(0, 2)) await client.post(`/tasks/${task}/stop`)
  await until('no run', queuedOrRunning, (runs) => runs === 0)

  const short = await newTask(few)
  // The start of its runner takes many sweeps, which see that both domains have tasks.
  expect((await client.post(`/tasks/${short}/invoke`, { inputs: [1, 2] })).status).toBe(200)
  for (const task of endless) await start(task)
  await until('a run of the first domain', assigned, ({ length }) => length === 4)
  for (let run = 0; run < 5; run++)
    expect((await client.post(`/tasks/${short}/invoke`, { inputs: [1, 2], timeout: '20s' })).status).toBe(200)
  expect(await queued()).toBe(3)
  // Its next run gets the slot of its share.
  await client.post(`/tasks/${endless[0]}/stop`)
  await until('the next endless run', queued, (runs) => runs === 2)
}, 120_000)
