/** What a task gave up is kept, shown, tried again, and discarded. */
import { expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { queueGauges } from '#queues/index.ts'
import type { Caller } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { startTestTenant } from './platform.ts'
import { until } from './support.ts'

const tenant = useWorld(startTestTenant)

const newChannel = () => tenant.newChannel(tenant.owner.call, tenant.domain)
const newTask = (fields: Record<string, unknown>) =>
  tenant.newTask(tenant.owner, tenant.domain, { inputs: [0], ...fields })
const publish = (channel: string, record: object) => tenant.publish(tenant.owner.call, tenant.domain, channel, [record])
const setStatus = async (channel: string, to: 'enable' | 'disable') =>
  expect((await tenant.owner.call('POST', `/${tenant.domain}/channels/${channel}/${to}`)).status).toBe(200)

type Letter = {
  id: string
  source: string
  reason: string
  at: string
  channel_id: string
  run_id?: string
  records?: { v?: number; vs?: string }[]
}
async function letters(
  task: string,
  query = '',
  call: Caller = tenant.owner.call,
): Promise<{ total: number; found: Letter[] }> {
  const answer = await call('GET', `/tasks/${task}/dead-letters${query}`)
  expect(answer.status, answer.text).toBe(200)
  const { total, dead_letters: found } = answer.json<{ total: number; dead_letters: Letter[] }>()
  return { total, found }
}
const someLetters = async (task: string, count: number) =>
  (
    await until(
      `${count} dead letters`,
      () => letters(task),
      ({ total }) => total === count,
    )
  ).found
const change = async (task: string, what: 'retry' | 'discard', selection: object) => {
  const answer = await tenant.owner.call('POST', `/tasks/${task}/dead-letters/${what}`, selection)
  expect(answer.status, answer.text).toBe(200)
  return answer.json<{ count: number }>().count
}
const values = async (channel: string) =>
  (await tenant.owner.call('GET', `/${tenant.domain}/channels/${channel}/messages?limit=100`))
    .json<{ messages: { value: number }[] }>()
    .messages.map(({ value }) => value)
    .toSorted((one, other) => one - other)

test('results that their channel did not take are published, once each, when it takes them again', async () => {
  const [from, to] = [await newChannel(), await newChannel()]
  const task = await newTask({ trigger: { channel_id: from }, publish_result: { channel_id: to } })
  await setStatus(to, 'disable')
  for (const v of [1, 2, 3]) await publish(from, { n: 'a', v })
  const found = await someLetters(task, 3)
  expect(found).toMatchObject(
    found.map(() => ({ source: 'publication', channel_id: to, reason: expect.stringContaining('disabled') as string })),
  )
  expect(found.map(({ records }) => records?.[0]?.v ?? 0).toSorted((one, other) => one - other)).toEqual([1, 2, 3])
  expect(found.every(({ run_id: run }) => run !== undefined)).toBe(true)
  await setStatus(to, 'enable')
  // Nothing happens by itself.
  const [first, ...others] = found as [Letter, ...Letter[]]
  expect(await change(task, 'retry', { ids: [first.id] })).toBe(1)
  await until(
    'the first is published',
    () => values(to),
    (all) => all.length === 1,
  )
  expect((await letters(task)).total).toBe(2)
  expect(await change(task, 'retry', { all: true })).toBe(2)
  await until(
    'all are published',
    () => values(to),
    (all) => all.length === 3,
  )
  expect(await values(to)).toEqual([1, 2, 3])
  // They are gone: a repeated request finds none.
  expect(await change(task, 'retry', { ids: [first, ...others].map(({ id }) => id) })).toBe(0)
})

test('messages that no run could be started for start their runs when the task was mended', async () => {
  const from = await newChannel()
  const task = await newTask({ trigger: { channel_id: from } })
  await publish(from, { n: 'a', vs: 'no number' })
  await publish(from, { n: 'a', v: 7 })
  const [letter] = await someLetters(task, 1)
  expect(letter).toMatchObject({ source: 'message', channel_id: from, records: [{ n: 'a', vs: 'no number' }] })
  expect(letter?.reason).toContain('number')
  expect((await letters(task, '?source=publication')).found).toEqual([])
  // Refused again, it is a dead letter again.
  expect(await change(task, 'retry', { all: true })).toBe(1)
  await until(
    'it was refused again',
    () => letters(task),
    ({ found }) => found.length === 1 && found[0]?.at !== letter?.at,
  )
  expect(await change(task, 'discard', { until: new Date(Date.now() + 60_000).toISOString() })).toBe(1)
  expect(await letters(task)).toEqual({ total: 0, found: [] })
})

test('dead letters do not fill the queue of their task, and the newest are on the first page', async () => {
  const from = await newChannel()
  const task = await newTask({ trigger: { channel_id: from } })
  await sql`INSERT INTO task_messages (task_key, origin, message, due_at, refused_at, refused_reason, letter_id)
    SELECT t.key, 'message 0/' || n, json_build_object('channel_id', ${from}::text, 'records', '[]'::json), 'infinity', now() - n * interval '1 minute',
      'refused', gen_random_uuid() FROM tasks t, generate_series(1, 1500) n WHERE t.id = ${task}`.execute(
    tenant.database.db,
  )
  await publish(from, { n: 'a', v: 1 })
  await until(
    'the message ran',
    () => tenant.owner.call('GET', `/tasks/${task}/runs`).then((answer) => answer.json<{ total: number }>().total),
    (total) => total === 1,
  )
  const { total, found } = await letters(task, '?limit=3')
  expect([total, found.length]).toEqual([1500, 3])
  expect(found.map(({ at }) => Date.parse(at))).toEqual(
    found.map(({ at }) => Date.parse(at)).toSorted((one, other) => other - one),
  )
})

test('others see no payload without the right to subscribe, retry nothing without the right to start, and strangers find nothing', async () => {
  const from = await newChannel()
  const task = await newTask({ trigger: { channel_id: from } })
  await publish(from, { n: 'a', vs: 'secret' })
  await someLetters(task, 1)
  const reader = await tenant.newMember(tenant.owner.call, tenant.domain, ['read', 'task_read'])
  const { found } = await letters(task, '', reader.call)
  expect(found[0]).not.toHaveProperty('records')
  expect(JSON.stringify(found)).not.toContain('secret')
  for (const what of ['retry', 'discard'])
    expect((await reader.call('POST', `/tasks/${task}/dead-letters/${what}`, { all: true })).status).toBe(403)
  const stranger = await tenant.api.newUser()
  expect((await stranger.call('GET', `/tasks/${task}/dead-letters`)).status).toBe(404)
  expect((await stranger.call('POST', `/tasks/${task}/dead-letters/retry`, { all: true })).status).toBe(404)
  expect((await letters(task)).total).toBe(1)
})

test.each([
  {},
  { all: false },
  { all: false },
  { all: true, ids: ['7f4e3f5e-0c55-4d4a-8a44-0d3f6f0b6d10'] },
  { ids: [] },
  { ids: ['x'] },
  { until: 'yesterday' },
])('%j selects nothing: 400', async (selection) => {
  const task = await newTask({})
  for (const what of ['retry', 'discard'])
    expect((await tenant.owner.call('POST', `/tasks/${task}/dead-letters/${what}`, selection)).status).toBe(400)
})

test('the figures of a queue with nothing but dead letters are there: nothing is overdue', async () => {
  const { db } = tenant.database
  await sql`DELETE FROM task_messages WHERE due_at < 'infinity'`.execute(db)
  const task = await newTask({ trigger: { channel_id: await newChannel() } })
  await sql`INSERT INTO task_messages (task_key, origin, message, due_at, refused_at, refused_reason, letter_id)
    SELECT key, 'message 1/0', '{}', 'infinity', now(), 'refused', gen_random_uuid() FROM tasks WHERE id = ${task}`.execute(
    db,
  )
  const values = await queueGauges(tenant.database).read()
  expect(values.filter(([, , value]) => !Number.isFinite(value))).toEqual([])
  expect(values.length).toBeGreaterThan(0)
})

test('the publications of a deleted task are not kept', async () => {
  const [from, to] = [await newChannel(), await newChannel()]
  const task = await newTask({ trigger: { channel_id: from }, publish_result: { channel_id: to } })
  await setStatus(to, 'disable')
  await publish(from, { n: 'a', v: 1 })
  await someLetters(task, 1)
  const count = async () =>
    (
      await sql<{
        count: number
      }>`SELECT count(*)::int AS count FROM task_publications WHERE channel_id = ${to}`.execute(tenant.database.db)
    ).rows[0]?.count
  expect(await count()).toBe(1)
  await until(
    'its run has ended',
    () => tenant.owner.call('DELETE', `/tasks/${task}`),
    ({ status }) => status === 204,
  )
  expect(await count()).toBe(0)
})
