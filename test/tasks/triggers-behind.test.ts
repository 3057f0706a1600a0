/** A trigger that is slower than its messages falls behind, and drops none of them. */
import { randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import { recordInJournal } from '#api/automation/refusals.ts'
import { sql } from '#core/sql.ts'
import { listSoonExpired } from '#queues/index.ts'
import { beginOlderTransaction } from '../harness/older-transaction.ts'
import { useWorld } from '../harness/world.ts'
import { startTestTenant } from './platform.ts'
import { until } from './support.ts'

/** Above what waits in the queue of a task. */
const MANY = 2_600

const tenant = useWorld(startTestTenant)

const newChannel = () => tenant.newChannel(tenant.owner.call, tenant.domain)
const newTask = (fields: Record<string, unknown>) =>
  tenant.newTask(tenant.owner, tenant.domain, { inputs: [0], ...fields })
const publish = (channel: string, v: number) =>
  tenant.publish(tenant.owner.call, tenant.domain, channel, [{ n: 'a', v }])

/** In tens: each message arrives, and their order is that of the tens. */
async function publishMany(channel: string, from: number, count: number): Promise<void> {
  for (let at = from; at < from + count; at += 10)
    await Promise.all(
      Array.from({ length: Math.min(10, from + count - at) }, (_, index) => publish(channel, at + index)),
    )
}

type Status = { matched: number; dropped: number; expired: number; behind_since?: string }
const statusOf = async (task: string) =>
  (await tenant.owner.call('GET', `/tasks/${task}`)).json<{ trigger_status: Status }>().trigger_status

async function resultsOf(task: string): Promise<number[]> {
  const { rows } = await sql<{ value: number }>`
    SELECT (r.results ->> 0)::float8 AS value FROM runs r JOIN tasks t ON t.key = r.task_key WHERE t.id = ${task} AND r.state = 3`.execute(
    tenant.database.db,
  )
  return rows.map(({ value }) => value).toSorted((one, other) => one - other)
}

const count = (from: number, length: number) => Array.from({ length }, (_, index) => from + index)
const waitingOf = async (task: string) =>
  (
    await sql<{
      waiting: number
    }>`SELECT count(*)::int AS waiting FROM task_messages m JOIN tasks t ON t.key = m.task_key WHERE t.id = ${task}`.execute(
      tenant.database.db,
    )
  ).rows[0]?.waiting ?? 0

/** While it is held, no manager takes a message of any task. */
async function hold(): Promise<AsyncDisposable> {
  const { db } = tenant.database
  await sql
    .raw(
      `CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.due_at := now() + interval '1 hour'; RETURN NEW; END$$`,
    )
    .execute(db)
  await sql.raw('CREATE TRIGGER hold BEFORE INSERT ON task_messages FOR EACH ROW EXECUTE FUNCTION hold()').execute(db)
  return {
    async [Symbol.asyncDispose]() {
      await sql.raw('DROP TRIGGER hold ON task_messages').execute(db)
      await sql.raw('DROP FUNCTION hold()').execute(db)
      await sql`UPDATE task_messages SET due_at = now()`.execute(db)
    },
  }
}

test('more messages than its queue holds are each run once, and those that come meanwhile, too', async () => {
  const channel = await newChannel()
  const task = await newTask({ trigger: { channel_id: channel } })
  {
    await using _held = await hold()
    await publishMany(channel, 0, MANY)
    await until(
      'it is behind',
      () => statusOf(task),
      ({ behind_since: since }) => since !== undefined,
    )
    expect(await waitingOf(task)).toBe(1_000)
  }
  // They come while it catches up.
  await publishMany(channel, MANY, 200)
  const all = MANY + 200
  await until(
    'all have run',
    () => resultsOf(task),
    (found) => found.length >= all,
    100_000,
  )
  await until(
    'it is with the others again',
    () => statusOf(task),
    ({ behind_since: since }) => since === undefined,
  )
  await publish(channel, all)
  await until(
    'the last has run',
    () => resultsOf(task),
    (found) => found.length > all,
  )
  expect(await resultsOf(task)).toEqual(count(0, all + 1))
  expect(await statusOf(task)).toMatchObject({ matched: all + 1, dropped: 0, expired: 0 })
})

test('large messages fill the queue by their size', async () => {
  const channel = await newChannel()
  const task = await tenant.newTask(tenant.owner, tenant.domain, { trigger: { channel_id: channel } }, 'hello')
  const pad = Array.from({ length: 600_000 }, () => String.fromCodePoint(33 + Math.floor(Math.random() * 90))).join('')
  {
    await using _held = await hold()
    for (let at = 0; at < 40; at++)
      await tenant.publish(tenant.owner.call, tenant.domain, channel, [{ n: 'a', vs: pad.replaceAll(/["\\]/g, '-') }])
    await until(
      'it is behind',
      () => statusOf(task),
      ({ behind_since: since }) => since !== undefined,
    )
    expect(await waitingOf(task)).toBeLessThan(35)
    expect(await waitingOf(task)).toBeGreaterThan(10)
  }
  await until(
    'all have run',
    () => tenant.owner.call('GET', `/tasks/${task}/runs`).then((answer) => answer.json<{ total: number }>().total),
    (total) => total === 40,
  )
  expect(await statusOf(task)).toMatchObject({ matched: 40, dropped: 0 })
})

test('messages beyond a rate wait for the next window, in order', async () => {
  const channel = await newChannel()
  const task = await newTask({ trigger: { channel_id: channel, rate_limit: '3/2s', excess: 'wait' } })
  await publishMany(channel, 0, 8)
  await until(
    'a window is used up',
    () => resultsOf(task),
    (found) => found.length >= 3,
  )
  expect((await resultsOf(task)).length).toBeLessThan(8)
  await until(
    'all have run',
    () => resultsOf(task),
    (found) => found.length === 8,
  )
  expect(await statusOf(task)).toMatchObject({ matched: 8, dropped: 0 })
})

test('a changed trigger keeps the messages of its channel that wait, and those of another channel do not', async () => {
  const channel = await newChannel()
  const task = await newTask({ trigger: { channel_id: channel, rate_limit: '1/1h', excess: 'wait' } })
  const change = async (trigger: object) => {
    const changed = await tenant.owner.call('PUT', `/tasks/${task}`, { trigger })
    expect(changed.status, changed.text).toBe(200)
  }
  const isBehind = async () =>
    await until(
      'it is behind',
      () => statusOf(task),
      ({ behind_since: since }) => since !== undefined,
    )
  await publishMany(channel, 0, 5)
  const before = await isBehind()
  // Written back as it is, it is not changed.
  await change({ channel_id: channel, rate_limit: '1/1h', excess: 'wait' })
  expect(await statusOf(task)).toEqual(before)
  // The rest no longer waits for the rate, and is compared with the new rule.
  await change({ channel_id: channel, when: { comparator: 'ge', value: 3 } })
  await until(
    'those that match have run',
    () => resultsOf(task),
    (found) => found.includes(3) && found.includes(4),
  )
  expect((await resultsOf(task)).length).toBeLessThanOrEqual(3)
  await change({ channel_id: channel, rate_limit: '1/1h', excess: 'wait' })
  for (const v of [100, 101, 102]) await publish(channel, v)
  await isBehind()
  const other = await newChannel()
  await change({ channel_id: other })
  expect((await statusOf(task)).behind_since).toBeUndefined()
  await publish(other, 200)
  await until(
    'the message of the other channel has run',
    () => resultsOf(task),
    (found) => found.includes(200),
  )
  expect(await resultsOf(task)).not.toContain(102)
})

test('a task whose messages expire within a day is found once a day', async () => {
  const channel = await newChannel()
  const task = await newTask({ trigger: { channel_id: channel, rate_limit: '1/1h', excess: 'wait' } })
  await publish(channel, 1)
  // Its success ends what was refused before.
  await until(
    'the first has run',
    () => resultsOf(task),
    (found) => found.length === 1,
  )
  await publish(channel, 2)
  await until(
    'it is behind',
    () => statusOf(task),
    ({ behind_since: since }) => since !== undefined,
  )
  const { database } = tenant
  const { rows } = await sql<{ key: number }>`SELECT key FROM tasks WHERE id = ${task}`.execute(database.db)
  const key = rows[0]?.key ?? 0
  const isFound = async () => (await listSoonExpired(database.db, 7)).some(({ taskKey }) => taskKey === key)
  expect(await isFound()).toBe(false)
  await sql`UPDATE task_triggers SET behind_since = now() - interval '150 hours' WHERE task_key = ${key}`.execute(
    database.db,
  )
  expect(await isFound()).toBe(true)
  await database.transaction(
    async (tx) => await recordInJournal(tx, [{ taskKey: key, source: 'message', reason: 'soon', count: 1 }]),
  )
  expect(await isFound()).toBe(false)
})

test('messages that waited for longer than a week expire, and are counted', async () => {
  const channel = await newChannel()
  const task = await newTask({ trigger: { channel_id: channel, rate_limit: '1/1h', excess: 'wait' } })
  await publish(channel, 0)
  await until(
    'the first has run',
    () => resultsOf(task),
    (found) => found.length === 1,
  )
  for (const v of [1, 2, 3, 4]) await publish(channel, v)
  await until(
    'it is behind',
    () => statusOf(task),
    ({ behind_since: since }) => since !== undefined,
  )
  // As if three of them had arrived then.
  const { db } = tenant.database
  const { rows: batches } = await sql<{ seq: number }>`
    SELECT DISTINCT r.batch_seq AS seq FROM records r JOIN channels c ON c.key = r.channel_key WHERE c.id = ${channel} ORDER BY 1`.execute(
    db,
  )
  const ended = batches.slice(1, -1).map(({ seq }) => seq)
  const { rows: kept } = await sql<{ count: number }>`
    SELECT count(*)::int AS count FROM records WHERE batch_seq = ${batches.at(-1)?.seq ?? 0}`.execute(db)
  await sql`SELECT create_message_partitions(now() - interval '190 hours', now())`.execute(db)
  // All that is in a batch has its time.
  const then = new Date(Date.now() - 190 * 3_600_000).toISOString()
  await sql`UPDATE ingest_batches SET arrived_at = ${then} WHERE seq = ANY (${ended}::bigint[])`.execute(db)
  await sql`UPDATE records SET arrived_at = ${then} WHERE batch_seq = ANY (${ended}::bigint[])`.execute(db)
  await sql`UPDATE task_triggers g SET behind_since = now() - interval '190 hours' FROM tasks t WHERE t.key = g.task_key AND t.id = ${task}`.execute(
    db,
  )
  const found = await until(
    'they are expired',
    () => statusOf(task),
    ({ expired }) => expired > 0,
  )
  expect(found).toMatchObject({ matched: 5 - (kept[0]?.count ?? 0), expired: 4 - (kept[0]?.count ?? 0) })
  expect(Date.parse(found.behind_since ?? '')).toBeGreaterThan(Date.now() - 3_600_000)
  const shown = await tenant.owner.call('GET', `/tasks/${task}`)
  expect(shown.json()).toMatchObject({
    activity: 'failing',
    last_error: { source: 'message', reason: expect.stringContaining('longer than 7 days') as string },
  })
})

test('a message that was acknowledged before the trigger was made or moved to its channel starts no run, however late it is read', async () => {
  const [first, second] = [await newChannel(), await newChannel()]
  const trigger = { channel_id: first, name: 'a' }
  let task: string
  {
    await using _older = await beginOlderTransaction(tenant.database)
    await publish(first, 1)
    task = await newTask({ trigger })
    await publish(first, 2)
    await publish(second, 3)
    expect(
      (await tenant.owner.call('PUT', `/tasks/${task}`, { trigger: { ...trigger, channel_id: second } })).status,
    ).toBe(200)
    await publish(second, 4)
    // The channel is the same.
    expect((await tenant.owner.call('PUT', `/tasks/${task}`, { trigger: { channel_id: second } })).status).toBe(200)
    await publish(second, 5)
  }
  await until(
    'it runs',
    () => resultsOf(task),
    ({ length }) => length >= 2,
  )
  expect(await statusOf(task)).toMatchObject({ matched: 2 })
  expect(await resultsOf(task)).toEqual([4, 5])
})

test.each([
  [{ excess: 'wait' }, '/trigger/excess'],
  [{ excess: 'wait', rate_limit: '1/1s', debounce: '1s' }, '/trigger/excess'],
  [{ excess: 'keep', rate_limit: '1/1s' }, 'excess'],
])('%j is 400 with the name of the field', async (fields, path) => {
  const refused = await tenant.owner.call('POST', '/tasks', {
    name: 'x',
    domain_id: tenant.domain,
    trigger: { channel_id: randomUUID(), ...fields },
  })
  expect(refused.status, refused.text).toBe(400)
  expect(refused.text).toContain(path)
})
