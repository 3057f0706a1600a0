/** Overviews: what is going on in a domain, as far as the caller may read it, and on the platform. */
import { beforeAll, expect, test } from 'vitest'
import { findRates } from '../../api/messages/projections/rates.ts'
import { sample } from '../../api/views/overview/sampling.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from './support.ts'

type Point = { time: string; seconds: number; messages: number; records: number; messages_per_second: number }
type Samples = { time: string; count: number | null }[]
type Overview = {
  clients: { total: number; online: number; series?: Samples }
  channels: { total: number }
  messages?: { step_seconds: number; series: Point[] }
  tasks?: { total: number; running: number; failed: number }
  runs?: {
    since: string
    started: number
    failed: number
    completed: number
    step_seconds: number
    series: { time: string; started: number; failed: number }[]
  }
  workers?: { alive: number; series: Samples }
  changes?: { operation: string }[]
}

const plant = useWorld(() => startPlant())
let domainKey: number
beforeAll(async () => {
  const { rows } = await plant.api.database.pool.query<{ key: number }>('SELECT key FROM domains WHERE id = $1', [
    plant.domainId,
  ])
  domainKey = rows[0]?.key ?? 0
}, 60_000)

async function overview(query = '', call = plant.owner.call): Promise<Overview> {
  const answer = await call('GET', `/${plant.domainId}/overview${query}`)
  expect(answer.status, answer.text).toBe(200)
  return answer.json<Overview>()
}

test('the owner sees entities, arrivals, tasks, runs, workers and the last changes', async () => {
  const device = await plant.newConnectedDevice()
  const pack = JSON.stringify([
    { n: 'a', v: 1 },
    { n: 'b', v: 2 },
  ])
  const sent = await plant.api.as(`Client ${device.secret}`)(
    'POST',
    `/m/${plant.domainId}/c/${device.channelId}`,
    pack,
    {
      'content-type': 'application/senml+json',
    },
  )
  expect(sent.status, sent.text).toBe(202)
  const { pool } = plant.api.database
  await pool.query(
    `INSERT INTO tasks (id, domain_key, domain_id, name, state, run_key, inputs, env, labels, priority, timeout_ms, memory_limit_bytes, backoff_ms, on_lost, metadata)
     SELECT gen_random_uuid(), $1, $2, 'task ' || s, s, 1, '[]', '{}', '{}', 50, 1, 1, 1, 'fail', '{}' FROM unnest('{2,4,4}'::int[]) s`,
    [domainKey, plant.domainId],
  )
  await pool.query(
    `INSERT INTO runs (id, task_key, drives_task, state, spec, module_digest, needs, priority, domain_key, created_at)
     SELECT gen_random_uuid(), (SELECT min(key) FROM tasks), false, s, '{}', 'sha256:', '', 50, $1, now() - make_interval(hours => h)
       FROM unnest('{3,4,4,6,4}'::int[], '{0,0,0,0,2}'::int[]) AS r (s, h)`,
    [domainKey],
  )
  await until(
    async () =>
      ((await overview()).messages?.series.at(-1)?.messages ?? 0) +
        ((await overview()).messages?.series.at(-2)?.messages ?? 0) >
      0,
    'the message is counted',
  )
  const found = await overview()
  expect(found).toMatchObject({
    clients: { total: 1, online: 0 },
    channels: { total: 1 },
    tasks: { total: 3, running: 1, failed: 2 },
    runs: { started: 4, completed: 1, failed: 2, stopped: 1 },
    workers: { alive: 0 },
  })
  expect(found.messages?.series).toHaveLength(60)
  expect(found.messages?.series.reduce((sum, { records }) => sum + records, 0)).toBe(2)
  expect(found.changes?.[0]?.operation).toBe('channel.connect')
  // Devices that come and go do not hide what users changed.
  await pool.query(
    `INSERT INTO journal (actor_kind, operation, domain_key, entity_keys, attributes)
     SELECT 'system', 'mqtt.' || (ARRAY['connect', 'disconnect'])[1 + n % 2], $1, '{}', '{}' FROM generate_series(1, 50) n`,
    [domainKey],
  )
  expect((await overview()).changes).toEqual(found.changes)
  expect((await overview('?window=6h')).runs).toMatchObject({ started: 5, failed: 3 })
})

test.each([
  ['1h', 60, 60, 2],
  ['6h', 300, 72, 3],
  ['24h', 900, 96, 3],
] as const)(
  'runs of %s are also counted by the step in which they were started',
  async (window, step, count, failed) => {
    const { runs } = await overview(`?window=${window}`)
    const { series = [], step_seconds: seconds, since = '' } = runs ?? {}
    expect(seconds).toBe(step)
    expect(series.length).toBe(count)
    const starts = series.map(({ time }) => Date.parse(time) / 1000)
    expect(starts.slice(1).map((at, index) => at - (starts[index] ?? 0))).toEqual(starts.slice(1).map(() => step))
    expect(starts[0]).toBeGreaterThanOrEqual(Date.parse(since) / 1000)
    // Only what was started two hours ago can be outside of the first whole step.
    expect(series.reduce((sum, one) => sum + one.failed, 0)).toBe(failed)
    expect(series.slice(-5).reduce((sum, one) => sum + one.started, 0)).toBe(4)
  },
)

test('clients and workers are sampled once in each five minutes, and the last step is the present number', async () => {
  const { pool } = plant.api.database
  await until(
    async () => (await pool.query('SELECT FROM domain_samples')).rowCount === 1,
    'the first sample of the platform',
  )
  // It takes the next one in the middle of a slot.
  const isQuiet = (inSlotMs: number) => inSlotMs < 140_000 || (inSlotMs > 152_000 && inSlotMs < 290_000)
  await until(() => Promise.resolve(isQuiet(Date.now() % 300_000)), 'a time without other samples')
  await pool.query('DELETE FROM domain_samples')
  const device = await plant.newConnectedDevice()
  await pool.query(
    `INSERT INTO client_telemetry (client_key, first_seen, last_seen, inbound_messages, is_online, state_since)
     SELECT key, now(), now(), 0, true, now() FROM clients WHERE id = $1
     ON CONFLICT (client_key) DO UPDATE SET is_online = true`,
    [device.id],
  )
  const { rows: workers } = await pool.query<{ key: number }>(
    `INSERT INTO workers (id, domain_key, domain_id, name, secret_hash, boot_id, version, labels, os, arch, cpu_cores, memory_bytes, slots,
       backlog, runtimes, session_epoch, manager_id, lease_until, last_alive_at, alive_history, platform_only)
     SELECT gen_random_uuid(), d, CASE WHEN d IS NOT NULL THEN $2::uuid END, 'rack', ''::bytea, '', '', '{}', '', '', 1, 1, 2, 1, '{}', 1, 'm',
            now() + interval '1 hour', now(), '{}', p
       FROM (VALUES ($1::bigint, false), (NULL, false), (NULL, true)) AS w (d, p) RETURNING key`,
    [domainKey, plant.domainId],
  )
  try {
    expect(await Promise.all([sample(plant.api.database), sample(plant.api.database)])).toContain(false)
    const { rows } = await pool.query<{ domain_key: number | null; clients: number; workers: number }>(
      'SELECT domain_key, clients, workers FROM domain_samples ORDER BY domain_key',
    )
    expect(rows).toEqual([
      { domain_key: domainKey, clients: 1, workers: 1 },
      { domain_key: null, clients: 0, workers: 1 },
    ])
    // The same numbers an hour ago, more in between, and nothing for half an hour, in which the platform did not run.
    await pool.query(
      `INSERT INTO domain_samples (domain_key, slot, clients, workers)
       SELECT d.domain_key, d.slot - make_interval(mins => n * 5), d.clients * f, d.workers
         FROM domain_samples d, (VALUES (1, 7), (2, 3), (9, 5), (11, 1)) AS s (n, f)`,
    )
    const found = await overview()
    expect(found.clients).toMatchObject({ online: 1 })
    const [clients = [], alive = []] = [found.clients.series, found.workers?.series]
    expect(clients.map(({ count }) => count)).toEqual([1, null, 5, ...Array<null>(6).fill(null), 3, 7, 1])
    expect(alive.map(({ count }) => count)).toEqual([2, null, 2, ...Array<null>(6).fill(null), 2, 2, 2])
    // A step of fifteen minutes has the lowest of its samples.
    const day = (await overview('?window=24h')).clients.series ?? []
    expect(day).toHaveLength(96)
    const { rows: sampled } = await pool.query<{ at: number; clients: number }>(
      `SELECT floor(extract(epoch FROM slot) / 900)::int * 900 AS at, min(clients) AS clients FROM domain_samples
        WHERE domain_key = $1 GROUP BY 1 ORDER BY 1`,
      [domainKey],
    )
    expect(
      day.slice(0, -1).flatMap(({ time, count }) => (count === null ? [] : [[Date.parse(time) / 1000, count]])),
    ).toEqual(sampled.slice(0, -1).map(({ at, clients: lowest }) => [at, lowest]))
    expect(day.at(-1)?.count).toBe(1)
    // What is older than a day is removed with the next sample.
    await pool.query(`UPDATE domain_samples SET slot = slot - interval '2 days'`)
    expect(await sample(plant.api.database)).toBe(true)
    const { rows: left } = await pool.query('SELECT FROM domain_samples')
    expect(left).toHaveLength(2)
  } finally {
    await pool.query('DELETE FROM workers WHERE key = ANY ($1)', [workers.map(({ key }) => key)])
    await pool.query('UPDATE client_telemetry SET is_online = false')
    await pool.query('DELETE FROM domain_samples')
    expect((await plant.owner.call('DELETE', `/${plant.domainId}/clients/${device.id}`)).status).toBeLessThan(300)
  }
})

test('a member without actions sees that the domain exists, and nothing that they cannot read', async () => {
  const member = await plant.api.newUser()
  const role = await plant.owner.call('POST', `/domains/${plant.domainId}/roles`, {
    role_name: 'nothing',
    optional_actions: ['client_create'],
    optional_members: [member.id],
  })
  expect(role.status, role.text).toBe(201)
  const found = await overview('', member.call)
  expect(found).toMatchObject({ clients: { total: 0, online: 0 }, channels: { total: 0 } })
  for (const name of ['messages', 'tasks', 'runs', 'workers', 'changes']) expect(found).not.toHaveProperty(name)
  expect(found.clients).not.toHaveProperty('series')
  const stranger = await plant.api.newUser()
  expect((await stranger.call('GET', `/${plant.domainId}/overview`)).status).toBe(403)
  expect((await plant.owner.call('GET', `/${plant.domainId}/overview?window=2h`)).status).toBe(400)
})

test.each([
  ['1h', 60, 60],
  ['6h', 300, 72],
  ['24h', 900, 96],
] as const)('a series of %s has equal steps, and a rate for each step', async (window, step, count) => {
  const { db, pool } = plant.api.database
  await pool.query('DELETE FROM domain_minutes')
  // Six messages in every minute of more than a day: a tenth a second, in every step that is over.
  await pool.query(
    `INSERT INTO domain_minutes (domain_key, minute, messages, records)
     SELECT $1, date_trunc('minute', now()) - make_interval(mins => n), 6, 12 FROM generate_series(1, 25 * 60) n`,
    [domainKey],
  )
  const series = await findRates(db, domainKey, window)
  expect(series).toHaveLength(count)
  const past = series.slice(0, -1)
  expect(new Set(past.map(({ seconds }) => seconds))).toEqual(new Set([step]))
  expect(new Set(past.map(({ messages }) => messages))).toEqual(new Set([step / 10]))
  expect(new Set(past.map(({ messages_per_second: rate }) => rate))).toEqual(new Set([0.1]))
  expect(new Set(past.map(({ records_per_second: rate }) => rate))).toEqual(new Set([0.2]))
  const starts = series.map(({ time }) => Date.parse(time) / 1000)
  expect(starts.slice(1).map((at, index) => at - (starts[index] ?? 0))).toEqual(past.map(() => step))
  expect(series.at(-1)?.seconds).toBeLessThanOrEqual(step)
  expect(await findRates(db, undefined, window)).toHaveLength(count)
  expect((await findRates(db, -1, window)).every(({ messages }) => messages === 0)).toBe(true)
})

test('the overview of the platform requires a platform administrator', async () => {
  const all = await plant.api.admin('GET', '/overview')
  expect(all.status, all.text).toBe(200)
  expect(all.json()).toMatchObject({
    domains: { total: 1 },
    clients: { total: 1, online: 0 },
    tasks: { total: 3, running: 1, failed: 2 },
    runs: { started: 4, failed: 2 },
  })
  expect((await plant.owner.call('GET', '/overview')).status).toBe(403)
  expect((await plant.api.anonymous('GET', '/overview')).status).toBe(401)
})
