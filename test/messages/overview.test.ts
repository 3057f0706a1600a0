/** Overviews: what is going on in a domain, as far as the caller may read it, and on the platform. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { findRates } from '../../api/messages/projections/rates.ts'
import { until } from '../harness/until.ts'
import { startPlant } from './support.ts'
import type { Plant } from './support.ts'

type Point = { time: string; seconds: number; messages: number; records: number; messages_per_second: number }
type Overview = {
  clients: { total: number; online: number }
  channels: { total: number }
  messages?: { step_seconds: number; series: Point[] }
  tasks?: { total: number; running: number; failed: number }
  runs?: { started: number; failed: number; completed: number }
  workers?: { alive: number }
  changes?: { operation: string }[]
}

let plant: Plant
let domainKey: number
beforeAll(async () => {
  plant = await startPlant()
  const { rows } = await plant.api.database.pool.query<{ key: number }>('SELECT key FROM domains WHERE id = $1', [
    plant.domainId,
  ])
  domainKey = rows[0]?.key ?? 0
}, 60_000)
afterAll(() => plant[Symbol.asyncDispose]())

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
  expect((await overview('?window=6h')).runs).toMatchObject({ started: 5, failed: 3 })
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
    channels: { total: 1 },
    tasks: { total: 3, running: 1, failed: 2 },
    runs: { started: 4, failed: 2 },
  })
  expect((await plant.owner.call('GET', '/overview')).status).toBe(403)
  expect((await plant.api.anonymous('GET', '/overview')).status).toBe(401)
})
