/** A large message is stored once, whatever the number of its triggers and runs, and is kept until the last of them has ended. */
import { randomBytes, randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { removeUnusedContents } from '#queues/index.ts'
import type { Caller } from '../harness/api.ts'
import { relayModule } from '../harness/relay-guest.ts'
import { useWorld } from '../harness/world.ts'
import { startTestTenant } from './platform.ts'
import { clientOf, until } from './support.ts'

const TRIGGERS = 30
const PAD_BYTES = 300_000
/** What a run published goes out with its end, and not with the look after what was left, which is every 30 s. */
const RELEASED_WITHIN_MS = 20_000

const tenant = useWorld(startTestTenant)
const relay = await relayModule()
const call = (...request: Parameters<Caller>) => tenant.owner.call(...request)

const newChannel = () => tenant.newChannel(tenant.owner.call, tenant.domain)

/** Text that cannot be compressed much. */
const pad = (bytes = PAD_BYTES) => randomBytes(bytes / 2).toString('hex')
const publish = (channel: string, ...records: object[]) =>
  tenant.publish(tenant.owner.call, tenant.domain, channel, records)

async function newRelay(
  from: string,
  trigger: object = {},
  fields: object = {},
): Promise<{ task: string; to: string }> {
  const to = await newChannel()
  const answer = await call('POST', '/tasks', {
    name: 'relay',
    domain_id: tenant.domain,
    trigger: { channel_id: from, ...trigger },
    grants: [{ kind: 'publish', channel_id: to }],
    ...fields,
  })
  expect(answer.status, answer.text).toBe(201)
  const { id: task } = answer.json<{ id: string }>()
  const authorization = `Bearer ${tenant.owner.accessToken}`
  expect((await clientOf(tenant.api.app).upload(task, relay, 'file', { authorization })).status).toBe(200)
  return { task, to }
}

async function valuesOf(channel: string): Promise<number[]> {
  const answer = await call('GET', `/${tenant.domain}/channels/${channel}/messages?limit=1000`)
  const { messages } = answer.json<{ messages: { value: number }[] }>()
  return messages.map(({ value }) => value).toSorted((one, other) => one - other)
}
const published = (channel: string, values: number[]) =>
  until(
    `the values ${values.join(', ')}`,
    () => valuesOf(channel),
    (found) => found.length === values.length,
    RELEASED_WITHIN_MS,
  ).then((found) => expect(found).toEqual(values))

type Sizes = { contents: number; messages: number; runs: number }
async function sizes(): Promise<Sizes> {
  const { rows } = await sql<Sizes>`SELECT (SELECT count(*)::int FROM message_contents) AS contents,
    pg_total_relation_size('task_messages')::float8 AS messages, pg_total_relation_size('runs')::float8 AS runs`.execute(
    tenant.database.db,
  )
  return rows[0] as Sizes
}

/** A minute later. */
async function removeUnused(): Promise<void> {
  const { db } = tenant.database
  await sql`UPDATE message_contents SET used_at = now() - interval '61 s'`.execute(db)
  await removeUnusedContents(db)
}
const contentsLeft = async () => {
  await removeUnused()
  return (await sizes()).contents
}

const specsOf = async (task: string) =>
  (
    await sql<{
      bytes: number
    }>`SELECT length(r.spec::text) AS bytes FROM runs r JOIN tasks t ON t.key = r.task_key WHERE t.id = ${task}`.execute(
      tenant.database.db,
    )
  ).rows.map(({ bytes }) => bytes)

test('a message that many triggers match is written once, and each run gets it', async () => {
  const from = await newChannel()
  const relays = await Promise.all(Array.from({ length: TRIGGERS }, () => newRelay(from)))
  const before = await sizes()
  await publish(from, { n: 'a', v: 1 }, { n: 'text', vs: pad() }, { n: 'b', v: 2 })
  for (const { to } of relays) await published(to, [1, 2])
  const after = await sizes()
  expect(after.contents - before.contents).toBe(1)
  // A copy for each queue and each run was 60 times the message: 18 MB.
  for (const table of ['messages', 'runs'] as const) expect(after[table] - before[table]).toBeLessThan(PAD_BYTES)
  for (const { task } of relays) expect(Math.max(...(await specsOf(task)))).toBeLessThan(4_000)
  expect(await contentsLeft()).toBe(0)
})

test('triggers that ask for different records of it share what is the same', async () => {
  const from = await newChannel()
  const [all, named, alike] = [
    await newRelay(from),
    await newRelay(from, { name: 'wide' }),
    await newRelay(from, { name: 'wide' }),
  ]
  await removeUnused()
  await publish(from, { n: 'a', v: 1 }, ...Array.from({ length: 200 }, () => ({ n: 'wide', vs: pad(200) })), {
    n: 'wide',
    v: 2,
  })
  await published(all.to, [1, 2])
  await published(named.to, [2])
  await published(alike.to, [2])
  expect((await sizes()).contents).toBe(2)
  expect(await contentsLeft()).toBe(0)
})

test('a batch of large and small messages is one run', async () => {
  const from = await newChannel()
  const { task, to } = await newRelay(from, { batch: 10 })
  for (const v of [1, 2, 3]) await publish(from, { n: 'a', v }, ...(v === 2 ? [] : [{ n: 'text', vs: pad(100_000) }]))
  await published(to, [1, 2, 3])
  expect(Math.max(...(await specsOf(task)))).toBeLessThan(4_000)
  expect(await contentsLeft()).toBe(0)
})

test('records of a large message run one after another, each once', async () => {
  const channel = await newChannel()
  const trigger = { channel_id: channel, order: 'channel' }
  const task = await tenant.newTask(tenant.owner, tenant.domain, { inputs: [0], trigger })
  const name = 'x'.repeat(250)
  const values = Array.from({ length: 40 }, (_, index) => index)
  await publish(channel, ...values.map((v) => ({ n: name, v })))
  const inputsOf = async () =>
    (
      await sql<{
        value: number
      }>`SELECT (r.spec -> 'inputs' ->> 0)::int AS value FROM runs r JOIN tasks t ON t.key = r.task_key
        WHERE t.id = ${task} AND r.state = 3 ORDER BY r.key`.execute(tenant.database.db)
    ).rows.map(({ value }) => value)
  await until('all have run', inputsOf, (found) => found.length === values.length)
  expect(await inputsOf()).toEqual(values)
  expect(await contentsLeft()).toBe(0)
})

test('a large message that was refused is a dead letter, which is shown, retried and discarded whole', async () => {
  const channel = await newChannel()
  const task = await tenant.newTask(tenant.owner, tenant.domain, { inputs: [0], trigger: { channel_id: channel } })
  const text = pad()
  await publish(channel, { n: 'a', vs: text })
  type Letter = { at: string; records: { vs: string }[] }
  const letters = async () =>
    (await call('GET', `/tasks/${task}/dead-letters`)).json<{ dead_letters: Letter[] }>().dead_letters
  const [letter] = await until('a dead letter', letters, (found) => found.length === 1)
  expect(letter?.records[0]?.vs).toBe(text)
  expect(await contentsLeft()).toBe(1)
  expect((await call('POST', `/tasks/${task}/dead-letters/retry`, { all: true })).json()).toMatchObject({ count: 1 })
  await until('it was refused again', letters, ([again]) => again !== undefined && again.at !== letter?.at)
  expect((await call('POST', `/tasks/${task}/dead-letters/discard`, { all: true })).json()).toMatchObject({ count: 1 })
  expect(await contentsLeft()).toBe(0)
})

test('a run that waits keeps its message, when its channel loses it and the task its trigger', async () => {
  const from = await newChannel()
  const { task } = await newRelay(from, {}, { labels: { zone: 'nowhere' } })
  await publish(from, { n: 'a', v: 7 }, { n: 'text', vs: pad() })
  const runs = async () =>
    (await call('GET', `/tasks/${task}/runs`)).json<{ runs: { id: string; state: number }[] }>().runs
  await until('its run waits', runs, (found) => found.length === 1)
  const range = `from=${Date.now() / 1000 - 600}&to=${Date.now() / 1000 + 600}`
  expect((await call('DELETE', `/${tenant.domain}/channels/${from}/messages?${range}`)).status).toBe(204)
  expect((await call('PUT', `/tasks/${task}`, { trigger: null })).status).toBeLessThan(300)
  expect(await contentsLeft()).toBe(1)
  await call('POST', `/tasks/${task}/stop`)
  await until('its run has ended', runs, ([run]) => run?.state !== 1)
  expect(await contentsLeft()).toBe(0)
})

test('while a process of an earlier build is alive, messages are stored with their rows', async () => {
  const { db } = tenant.database
  const from = await newChannel()
  const { task, to } = await newRelay(from)
  const node = `earlier ${randomUUID()}`
  await sql`INSERT INTO nodes (id, kind, version, migration)
    SELECT ${node}, 'manager', '0.0.0', number - 1 FROM migrations WHERE name = 'message_contents'`.execute(db)
  await publish(from, { n: 'a', v: 1 }, { n: 'text', vs: pad() })
  await published(to, [1])
  expect(await specsOf(task)).toEqual([expect.toSatisfy((bytes: number) => bytes > PAD_BYTES)])
  expect((await sizes()).contents).toBe(0)
  await sql`UPDATE nodes SET seen_at = now() - interval '31 s' WHERE id = ${node}`.execute(db)
  await publish(from, { n: 'a', v: 2 }, { n: 'text', vs: pad() })
  await published(to, [1, 2])
  expect((await sizes()).contents).toBe(1)
})
