/** The overview of a domain counts its dead letters, as far as the caller may see their sources. */
import { randomUUID } from 'node:crypto'
import { beforeEach, expect, test } from 'vitest'
import type { Statement } from '#core/sql.ts'
import { sql } from '#core/sql.ts'
import { findDeadLetters } from '../../api/views/overview/repository.ts'
import type { Caller, TestUser } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { startTestTenant } from './platform.ts'
import { until } from './support.ts'

type Source = { kind: string; id: string; name: string; count: number }
type DeadLetters = { total: number; total_exact?: boolean; sources: Source[] }

const tenant = useWorld(startTestTenant)
const db = () => tenant.database.db
/** A domain of its own for each test. */
let domain: string
let domainKey: number
let from: string

const keyOfDomain = async (id: string) =>
  (await sql<{ key: number }>`SELECT key FROM domains WHERE id = ${id}`.execute(db())).rows[0]?.key ?? 0

beforeEach(async () => {
  domain = await tenant.newDomain(tenant.owner.call)
  domainKey = await keyOfDomain(domain)
  from = await tenant.newChannel(tenant.owner.call, domain)
})

async function letters(call: Caller = tenant.owner.call, of = domain): Promise<DeadLetters> {
  const answer = await call('GET', `/${of}/overview`)
  expect(answer.status, answer.text).toBe(200)
  return answer.json<{ dead_letters: DeadLetters }>().dead_letters
}
const kinds = async (call: Caller) => (await letters(call)).sources.map(({ kind }) => kind).toSorted()

/** Tasks without a module. */
async function newTasks(count: number, of = domainKey): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    INSERT INTO tasks (id, domain_key, domain_id, name, inputs, env, labels, priority, timeout_ms, memory_limit_bytes, backoff_ms, on_lost, metadata)
    SELECT gen_random_uuid(), d.key, d.id, 'task ' || n, '[]', '{}', '{}', 50, 60000, 67108864, 1000, 'requeue', '{}'
      FROM domains d, generate_series(1, ${count}::integer) n WHERE d.key = ${of} RETURNING id`.execute(db())
  return rows.map(({ id }) => id)
}

/** Queues messages of the task, and refuses them as the product does. */
async function refuse(task: string, count: number): Promise<void> {
  const origin = randomUUID()
  await sql`INSERT INTO task_messages (task_key, origin, message, due_at)
    SELECT key, ${origin}::text || n, '{}', 'infinity' FROM tasks, generate_series(1, ${count}::integer) n WHERE id = ${task}`.execute(
    db(),
  )
  await sql`UPDATE task_messages SET refused_at = now(), refused_reason = 'refused', letter_id = gen_random_uuid()
    WHERE origin LIKE ${origin} || '%'`.execute(db())
}

async function newConsumer(name: string, count: number): Promise<string> {
  const made = await tenant.owner.call('POST', `/${domain}/consumers`, { name, channels: [from] })
  expect(made.status, made.text).toBe(201)
  const { id } = made.json<{ id: string }>()
  await sql`INSERT INTO message_consumer_deliveries (consumer_key, xid, seq, message, channel_key, publisher_id, arrived_at, attempts, due_at, dead_at, letter_id)
    SELECT key, '1', 1, n, 1, '', now(), 5, 'infinity', CASE WHEN n <= ${count}::integer THEN now() END,
      CASE WHEN n <= ${count}::integer THEN gen_random_uuid() END
      FROM message_consumers, generate_series(1, ${count}::integer + 1) n WHERE id = ${id}`.execute(db())
  return id
}

/** One of its deliveries waits, the others were given up. */
async function newSubscription(
  of: TestUser,
  count: number,
  channel = from,
  at = domain,
): Promise<{ id: string; contact: string }> {
  const contact = `https://example.com/${randomUUID()}`
  const made = await of.call('POST', '/subscriptions', { topic: `m/${at}/c/${channel}`, contact })
  expect(made.status, made.text).toBe(201)
  const { rows } = await sql<{
    id: string
  }>`WITH meant AS (SELECT key, id FROM notification_subscriptions WHERE contact = ${contact}), given AS (
    INSERT INTO notification_deliveries (subscription_key, payload, next_attempt_at)
    SELECT key, '{}', CASE WHEN n > ${count}::integer THEN now() + interval '1 hour' END FROM meant, generate_series(1, ${count}::integer + 1) n)
    SELECT id FROM meant`.execute(db())
  return { id: rows[0]?.id ?? '', contact }
}

test('a domain without dead letters has none', async () => {
  await newTasks(1)
  expect(await letters()).toEqual({ total: 0, sources: [] })
})

test('letters of a task are counted until they are retried or discarded: messages and publications', async () => {
  const to = await tenant.newChannel(tenant.owner.call, domain)
  const task = await tenant.newTask(tenant.owner, domain, {
    inputs: [0],
    trigger: { channel_id: from },
    publish_result: { channel_id: to },
  })
  const publish = (record: object) => tenant.publish(tenant.owner.call, domain, from, [record])
  const settled = async (count: number) => await until(`${count} dead letters`, letters, ({ total }) => total === count)
  await publish({ n: 'a', vs: 'no number' })
  expect(await settled(1)).toEqual({ total: 1, sources: [{ kind: 'task', id: task, name: 'add', count: 1 }] })
  expect((await tenant.owner.call('POST', `/${domain}/channels/${to}/disable`)).status).toBe(200)
  await publish({ n: 'a', v: 1 })
  expect((await settled(2)).sources).toMatchObject([{ id: task, count: 2 }])
  // The publication is taken, the message is refused again.
  expect((await tenant.owner.call('POST', `/${domain}/channels/${to}/enable`)).status).toBe(200)
  const change = async (what: string) =>
    expect((await tenant.owner.call('POST', `/tasks/${task}/dead-letters/${what}`, { all: true })).status).toBe(200)
  await change('retry')
  await settled(1)
  await change('discard')
  expect(await letters()).toEqual({ total: 0, sources: [] })
})

test('callers see the sources that they may read, and only their own subscriptions', async () => {
  const [task = ''] = await newTasks(1)
  await refuse(task, 2)
  const consumer = await newConsumer('readings', 3)
  const own = await newSubscription(tenant.owner, 1)
  expect(await letters()).toEqual({
    total: 6,
    sources: [
      { kind: 'consumer', id: consumer, name: 'readings', count: 3 },
      { kind: 'task', id: task, name: 'task 1', count: 2 },
      { kind: 'subscription', id: own.id, name: own.contact, count: 1 },
    ],
  })
  const member = (...actions: string[]) => tenant.newMember(tenant.owner.call, domain, ['read', ...actions])
  expect(await letters((await member()).call)).toEqual({ total: 0, sources: [] })
  expect(await kinds((await member('task_read')).call)).toEqual(['task'])
  expect(await kinds((await member('consumer_read')).call)).toEqual(['consumer'])
  const other = await member('channel_read', 'channel_subscribe')
  const theirs = await newSubscription(other, 4)
  expect(await letters(other.call)).toEqual({
    total: 4,
    sources: [{ kind: 'subscription', id: theirs.id, name: theirs.contact, count: 4 }],
  })
  expect((await letters()).total).toBe(6)
  expect((await letters(tenant.api.admin)).total, 'a platform administrator').toBe(5)
  expect((await (await tenant.api.newUser()).call('GET', `/${domain}/overview`)).status).toBe(403)
})

test('a personal access token shows what its scopes include, and no subscriptions', async () => {
  const [task = ''] = await newTasks(1)
  await refuse(task, 1)
  await newConsumer('readings', 1)
  await newSubscription(tenant.owner, 1)
  const robot = async (...types: string[]) => {
    const { id, secret } = (await tenant.owner.call('POST', '/pats', { name: 'robot', duration: '1h' })).json<{
      id: string
      secret: string
    }>()
    const scopes = types.map((entity_type) => ({
      optional_domain_id: domain,
      entity_type,
      entity_id: '*',
      operation: 'read',
    }))
    expect((await tenant.owner.call('PATCH', `/pats/${id}/scope/add`, { scopes })).status).toBe(200)
    return await kinds(tenant.api.as(`Bearer ${secret}`))
  }
  expect(await robot('domains')).toEqual([])
  expect(await robot('domains', 'tasks')).toEqual(['task'])
  expect(await robot('consumers')).toEqual(['consumer'])
})

test('letters of other domains are not counted', async () => {
  const elsewhere = await tenant.newDomain(tenant.owner.call)
  const [task = ''] = await newTasks(1, await keyOfDomain(elsewhere))
  await refuse(task, 2)
  await newSubscription(tenant.owner, 1, await tenant.newChannel(tenant.owner.call, elsewhere), elsewhere)
  expect(await letters()).toEqual({ total: 0, sources: [] })
  expect((await letters(tenant.owner.call, elsewhere)).total).toBe(3)
})

test('the ten sources with the most are named, a source is counted up to 1,000, and the newest 50 of a kind', async () => {
  const tasks = await newTasks(52)
  for (const [index, task] of tasks.entries()) await refuse(task, index === 20 ? 1_100 : 1 + (index % 3))
  const found = await letters()
  expect(found.sources.map(({ count }) => count)).toEqual([1_000, ...Array<number>(9).fill(3)])
  expect(found.sources[0]).toMatchObject({ kind: 'task', id: tasks[20], count_exact: false })
  expect(found.sources.slice(1).every((source) => !('count_exact' in source))).toBe(true)
  expect(found.total_exact).toBe(false)
  // The first two tasks, with one and two letters, are left out.
  const counts = tasks.map((_task, index) => (index === 20 ? 1_000 : 1 + (index % 3))).slice(2)
  expect(found.total).toBe(counts.reduce((sum, count) => sum + count, 0))
  // A task without letters in between costs nothing, a deleted one is not counted.
  await sql`DELETE FROM tasks WHERE id = ${tasks[20]}`.execute(db())
  await newTasks(5)
  const fewer = await letters()
  expect(fewer.total).toBe(found.total - 1_000 + 2)
  expect(fewer.total_exact, 'there may be more sources').toBe(false)
  await sql`DELETE FROM tasks WHERE id = ANY (${tasks.slice(0, 20)}::uuid[])`.execute(db())
  expect(await letters()).not.toHaveProperty('total_exact')
})

test('letters are found by indexes that begin with the domain, the consumer or the subscription', async () => {
  const elsewhere = await keyOfDomain(await tenant.newDomain(tenant.owner.call))
  const [task = ''] = await newTasks(2_000, elsewhere)
  await refuse(task, 20_000)
  const [own = ''] = await newTasks(1)
  await refuse(own, 3)
  await newConsumer('readings', 20_000)
  await newSubscription(tenant.owner, 20_000)
  // The statistics say that one source has them all, of which the planner would read any row first.
  await sql`ANALYZE tasks, task_messages, task_publications, message_consumer_deliveries, notification_deliveries`.execute(
    db(),
  )
  const plans: string[] = []
  const explaining = {
    async query<Row>({ text, values }: Statement) {
      const { rows } = await db().query<{ 'QUERY PLAN': string }>({ text: `EXPLAIN (ANALYZE) ${text}`, values })
      plans.push(rows.map((row) => row['QUERY PLAN']).join('\n'))
      return { rows: [] as Row[] }
    },
  }
  await findDeadLetters(explaining, { domainKey, userKey: 1 }, ['task', 'consumer', 'subscription'])
  expect(plans, 'one statement').toHaveLength(1)
  const plan = plans.join('')
  for (const range of [
    /using task_messages_letters on [^\n]*\n *Index Cond: \(\(letter_domain_key >= [^\n]* AND \(ROW\(/,
    /using task_messages_refused on [^\n]*\n *Index Cond: \(\(task_key >= t.key\) AND \(task_key <= t.key\)\)/,
    /using message_consumer_deliveries_dead on [^\n]*\n *Index Cond: \(\(consumer_key >= [^\n]*<= /,
    /using notification_deliveries_letters on [^\n]*\n *Index Cond: \(\(subscription_key >= [^\n]*<= /,
  ])
    expect(plan).toMatch(range)
  expect(plan).not.toMatch(/Seq Scan on (tasks|task_messages|message_consumer_deliveries|notification_deliveries)/)
})
