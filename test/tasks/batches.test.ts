/** Triggers with `batch` and `order`: several messages in one run, one after another, each with one effect. */
import { randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { handMatches, lockClaims, readTriggerRules, refuseBatch, returnMessages, unpackLeft } from '#queues/index.ts'
import type { BatchTask } from '#queues/index.ts'
import type { Caller } from '../harness/api.ts'
import { relayModule } from '../harness/relay-guest.ts'
import { useWorld } from '../harness/world.ts'
import { startTestTenant } from './platform.ts'
import { clientOf, until } from './support.ts'

const tenant = useWorld(startTestTenant)
const relay = await relayModule()

const newChannel = () => tenant.newChannel(tenant.owner.call, tenant.domain)
const publish = (channel: string, ...values: number[]) => publishAs(tenant.owner.call, channel, ...values)
const publishAs = (call: Caller, channel: string, ...values: number[]) =>
  tenant.publish(
    call,
    tenant.domain,
    channel,
    values.map((v, index) => ({ n: `r${index}`, v })),
  )

/** A client that is connected to the channel. */
async function newDevice(channel: string): Promise<Caller> {
  const { call } = tenant.owner
  const client = (await call('POST', `/${tenant.domain}/clients`, { name: 'device' })).json<{
    id: string
    credentials: { secret: string }
  }>()
  const pair = { client_ids: [client.id], channel_ids: [channel], types: ['publish'] }
  expect((await call('POST', `/${tenant.domain}/channels/connect`, pair)).status).toBeLessThan(300)
  return tenant.api.as(`Client ${client.credentials.secret}`)
}

async function upload(task: string, module: Buffer): Promise<void> {
  const authorization = `Bearer ${tenant.owner.accessToken}`
  const given = await clientOf(tenant.api.app).upload(task, module, 'file', { authorization })
  expect(given.status, JSON.stringify(given.body)).toBe(200)
}

/** A task that publishes each value from a channel to another one. */
async function newRelay(trigger: object, fields: object = {}): Promise<{ task: string; from: string; to: string }> {
  const [from, to] = [await newChannel(), await newChannel()]
  const answer = await tenant.owner.call('POST', '/tasks', {
    name: 'relay',
    domain_id: tenant.domain,
    trigger: { channel_id: from, ...trigger },
    grants: [{ kind: 'publish', channel_id: to }],
    ...fields,
  })
  expect(answer.status, answer.text).toBe(201)
  const { id: task } = answer.json<{ id: string }>()
  await upload(task, relay)
  return { task, from, to }
}

async function valuesOf(channel: string): Promise<number[]> {
  const answer = await tenant.owner.call('GET', `/${tenant.domain}/channels/${channel}/messages?limit=1000`)
  const { messages } = answer.json<{ messages: { value: number }[] }>()
  return messages.map(({ value }) => value).toSorted((one, other) => one - other)
}

type RunRow = { id: string; state: number; messages: number; began: number; ended: number; inputs: number[] }
async function runsOf(task: string): Promise<RunRow[]> {
  const { rows } = await sql<RunRow>`
    SELECT r.id, r.state, coalesce((r.cause ->> 'messages')::int, 1) AS messages, extract(epoch FROM r.running_at)::float8 AS began,
      extract(epoch FROM r.finished_at)::float8 AS ended, r.spec -> 'inputs' AS inputs
    FROM runs r JOIN tasks t ON t.key = r.task_key WHERE t.id = ${task} ORDER BY r.key`.execute(tenant.database.db)
  return rows
}

const keyOf = (task: string) => sql`(SELECT key FROM tasks WHERE id = ${task})`
async function countRows(table: 'task_messages' | 'held_publications', task: string): Promise<number> {
  const { rows } = await sql<{ rows: number }>`SELECT count(*)::int AS rows FROM ${sql.table(table)}
    WHERE task_key = ${keyOf(task)}`.execute(tenant.database.db)
  return rows[0]?.rows ?? 0
}

async function numberOf(task: string): Promise<number> {
  const { rows } = await sql<{ key: number }>`SELECT ${keyOf(task)} AS key`.execute(tenant.database.db)
  return rows[0]?.key ?? 0
}

/** While it is held, no manager gives messages of the task to runs. */
async function hold(task: string): Promise<AsyncDisposable> {
  const [held, over] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const holding = tenant.database.transaction(async (tx) => {
    await sql`SELECT pg_advisory_xact_lock(hashtextextended('messages of task ' || ${keyOf(task)}, 0))`.execute(tx)
    held.resolve()
    await over.promise
  })
  await held.promise
  return {
    async [Symbol.asyncDispose]() {
      over.resolve()
      await holding
    },
  }
}

async function publishHeld(task: string, count: number, send: () => Promise<void>): Promise<void> {
  await using _held = await hold(task)
  await send()
  await until(
    'all wait',
    () => countRows('task_messages', task),
    (waiting) => waiting === count,
  )
}

const allPublished = (channel: string, count: number) =>
  until(
    `${count} values`,
    () => valuesOf(channel),
    (found) => found.length >= count,
  )
const nothingWaits = (task: string) =>
  until(
    'no message waits',
    () => countRows('task_messages', task),
    (waiting) => waiting === 0,
  )
const nothingWaitsBut = (task: string, rows: number) =>
  until(
    `${rows} dead letters alone`,
    () => countRows('task_messages', task),
    (waiting) => waiting === rows,
  )
const letters = async (task: string) =>
  (await tenant.owner.call('GET', `/tasks/${task}/dead-letters`)).json<{
    total: number
    dead_letters: { id: string; reason: string; records: { v: number }[] }[]
  }>()
const count = (from: number, length: number) => Array.from({ length }, (_, index) => from + index)

test('waiting messages are one run with a list, and one message is a list of one', async () => {
  const { task, from, to } = await newRelay({ batch: 40 })
  await publishHeld(task, 60, async () => {
    for (const v of count(0, 60)) await publish(from, v)
  })
  expect(await allPublished(to, 60)).toEqual(count(0, 60))
  expect((await runsOf(task)).map(({ messages }) => messages).toSorted((one, other) => one - other)).toEqual([20, 40])
  await publish(from, 60)
  expect(await allPublished(to, 61)).toEqual(count(0, 61))
  await nothingWaits(task)
  expect(await countRows('held_publications', task)).toBe(0)
  const shown = await tenant.owner.call('GET', `/tasks/${task}`)
  expect(shown.json()).toMatchObject({ trigger: { batch: 40 }, trigger_status: { matched: 61, dropped: 0 } })
})

/** A relay, and what hands these messages out to it together. */
async function newHanded(values: readonly number[], batch: number) {
  const relayed = await newRelay({ batch })
  const { task, from } = relayed
  const taskKey = await numberOf(task)
  const matches = values.map((v, index) => ({
    origin: `message ${index}/${taskKey}`,
    message: {
      channel_id: from,
      subtopic: '',
      publisher: tenant.owner.id,
      protocol: 'http',
      records: [{ n: 'r0', t: 1_800_000_000, v }],
    },
  }))
  const release = () =>
    tenant.database.transaction(async (tx) => {
      const [rule] = await readTriggerRules(tx, [taskKey])
      if (rule === undefined) throw new Error('the task has no trigger')
      expect(await handMatches(tx, [{ rule, matches }])).toEqual([values.length])
    })
  return { ...relayed, release }
}

/** While it is held, the trigger of the database changes packs that are stored. */
async function changePacks(assignment: string): Promise<AsyncDisposable> {
  const { db } = tenant.database
  await sql
    .raw(`CREATE FUNCTION change_packs() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN ${assignment}; RETURN NEW; END$$`)
    .execute(db)
  await sql
    .raw(
      'CREATE TRIGGER change_packs BEFORE INSERT ON task_messages FOR EACH ROW WHEN (NEW.packed IS NOT NULL) EXECUTE FUNCTION change_packs()',
    )
    .execute(db)
  return {
    async [Symbol.asyncDispose]() {
      await sql.raw('DROP TRIGGER IF EXISTS change_packs ON task_messages').execute(db)
      await sql.raw('DROP FUNCTION IF EXISTS change_packs()').execute(db)
    },
  }
}

type PackRow = { runId: string; messages: number }
const packsOf = async (task: string) =>
  (
    await sql<PackRow>`SELECT run_id AS "runId", packed_count AS messages FROM task_messages
      WHERE task_key = ${keyOf(task)} AND packed IS NOT NULL ORDER BY key`.execute(tenant.database.db)
  ).rows

test('full batches are one row each, which a manager starts, and the others wait for one', async () => {
  const { task, to, release } = await newHanded(count(1, 120), 50)
  await using held = await hold(task)
  await release()
  // The manager puts no batch together meanwhile.
  expect(await allPublished(to, 100)).toEqual(count(1, 100))
  expect(await countRows('task_messages', task)).toBe(20)
  await held[Symbol.asyncDispose]()
  expect(await allPublished(to, 120)).toEqual(count(1, 120))
  expect((await runsOf(task)).map(({ messages }) => messages)).toEqual([50, 50, 20])
  await nothingWaits(task)
  const shown = await tenant.owner.call('GET', `/tasks/${task}`)
  expect(shown.json()).toMatchObject({ trigger_status: { matched: 120, dropped: 0 } })
})

test('of a full batch with a poison message only that one becomes a dead letter, and the others have one effect', async () => {
  const { task, to, release } = await newHanded([...count(1, 49), -37], 50)
  await release()
  expect(await allPublished(to, 49)).toEqual(count(1, 49))
  await until(
    'a dead letter',
    () => letters(task),
    ({ total }) => total === 1,
  )
  expect(await letters(task)).toMatchObject({ dead_letters: [{ records: [{ v: -37 }] }] })
  await nothingWaitsBut(task, 1)
  expect(await valuesOf(to)).toEqual(count(1, 49))
})

test('messages of a full batch whose run was not started, or was stopped, are treated each for itself', async () => {
  const { task, to, release } = await newHanded(count(1, 100), 50)
  await using unstarted = await changePacks("NEW.check_at = 'infinity'")
  await release()
  const packs = await until(
    'both batches wait for a manager',
    () => packsOf(task),
    (found) => found.length === 2,
  )
  expect(packs.map(({ messages }) => messages)).toEqual([50, 50])
  const [returned, refused] = packs.map(({ runId }) => runId)
  const { database } = tenant
  await database.transaction((tx) => returnMessages(tx, returned ?? ''))
  expect(await allPublished(to, 50)).toEqual(count(1, 50))
  const batch = { task: { taskKey: await numberOf(task) } as BatchTask, runId: refused ?? '', messages: [] }
  const reason = { reason: 'no such channel', isShared: true }
  expect(await database.transaction((tx) => refuseBatch(tx, batch, reason))).toMatchObject([{ count: 50 }])
  await unstarted[Symbol.asyncDispose]()
  expect(await letters(task)).toMatchObject({ total: 50 })
  expect((await tenant.owner.call('POST', `/tasks/${task}/dead-letters/retry`, { all: true })).status).toBe(200)
  expect(await allPublished(to, 100)).toEqual(count(1, 100))
  await nothingWaits(task)
})

test('a full batch that an earlier build has made a dead letter runs when this build is back', async () => {
  const { task, to, release } = await newHanded(count(1, 50), 50)
  const { db } = tenant.database
  await using unstarted = await changePacks("NEW.check_at = 'infinity'")
  await release()
  await unstarted[Symbol.asyncDispose]()
  expect(await packsOf(task)).toHaveLength(1)
  expect(await unpackLeft(db)).toBe(0)
  await sql`UPDATE task_messages SET run_id = NULL, check_at = NULL, refused_at = now(), refused_reason = 'no such channel',
    letter_id = gen_random_uuid() WHERE task_key = ${keyOf(task)}`.execute(db)
  expect(await unpackLeft(db)).toBe(1)
  expect(await letters(task)).toMatchObject({ total: 0 })
  expect(await allPublished(to, 50)).toEqual(count(1, 50))
  await nothingWaits(task)
})

test('while an older process is alive, messages of full batches have rows of their own', async () => {
  const { task, to, release } = await newHanded(count(1, 50), 50)
  const { db } = tenant.database
  await sql`INSERT INTO nodes (id, kind, version, migration) VALUES ('older', 'api', '0', 1)`.execute(db)
  await using _held = await hold(task)
  await using _unstarted = await changePacks("RAISE EXCEPTION 'a pack'")
  await release()
  await until(
    'all wait',
    () => countRows('task_messages', task),
    (waiting) => waiting === 50,
  )
  await sql`DELETE FROM nodes WHERE id = 'older'`.execute(db)
  await _held[Symbol.asyncDispose]()
  expect(await allPublished(to, 50)).toEqual(count(1, 50))
})

test('of a batch with a poison message only that one becomes a dead letter, and the others have one effect', async () => {
  const { task, from, to } = await newRelay({ batch: 64 })
  await publishHeld(task, 64, async () => {
    for (const v of count(0, 64)) await publish(from, v === 37 ? -37 : v)
  })
  const others = count(0, 64).filter((v) => v !== 37)
  expect(await allPublished(to, 63)).toEqual(others)
  await until(
    'a dead letter',
    () => letters(task),
    ({ total }) => total === 1,
  )
  const [letter] = (await letters(task)).dead_letters
  expect(letter).toMatchObject({ records: [{ v: -37 }], reason: expect.stringContaining('trap') as string })
  // 64, 32, 16, 8, 4, 2, 1: each halving has one half that fails and one that does not.
  const runs = await runsOf(task)
  const failed = runs.filter(({ state }) => state === 4).map(({ messages }) => messages)
  expect(failed).toEqual([64, 32, 16, 8, 4, 2, 1])
  expect(runs).toHaveLength(13)
  expect(await valuesOf(to)).toEqual(others)
  // It is tried again alone, beside what waits.
  const retried = await tenant.owner.call('POST', `/tasks/${task}/dead-letters/retry`, { all: true })
  expect(retried.json()).toMatchObject({ count: 1 })
  await until(
    'it has failed again',
    () => letters(task),
    ({ dead_letters: found }) => found[0] !== undefined && found[0].id !== letter?.id,
  )
  expect(await countRows('held_publications', task)).toBe(0)
})

test('messages of the channel run one after another, record by record where the function takes numbers', async () => {
  const channel = await newChannel()
  const trigger = { channel_id: channel, order: 'channel' }
  const task = await tenant.newTask(tenant.owner, tenant.domain, { inputs: [0], trigger })
  await publishHeld(task, 4, async () => {
    await publish(channel, 1, 2, 3)
    await publish(channel, 4)
    await publish(channel, 5, 6)
    await publish(channel, 7)
  })
  const runs = await until(
    'all have run',
    () => runsOf(task),
    (found) => found.filter(({ state }) => state === 3).length === 7,
  )
  expect(runs.map(({ inputs }) => inputs[0])).toEqual([1, 2, 3, 4, 5, 6, 7])
  for (const [index, { ended }] of runs.entries())
    expect(runs[index + 1]?.began ?? Infinity).toBeGreaterThanOrEqual(ended)
  await nothingWaits(task)
})

test('messages of one client run one after another, and those of another one beside them', async () => {
  const channel = await newChannel()
  const task = await tenant.newTask(tenant.owner, tenant.domain, {
    inputs: [0],
    trigger: { channel_id: channel, order: 'client' },
  })
  const [one, other] = [await newDevice(channel), await newDevice(channel)]
  await publishHeld(task, 6, async () => {
    for (const v of [1, 2, 3]) await publishAs(one, channel, v)
    for (const v of [11, 12, 13]) await publishAs(other, channel, v)
  })
  const runs = await until(
    'all have run',
    () => runsOf(task),
    (found) => found.filter(({ state }) => state === 3).length === 6,
  )
  const values = runs.map(({ inputs: [value = 0] }) => value)
  expect(values.slice(0, 2).toSorted((one, two) => one - two)).toEqual([1, 11])
  for (const ofClient of [
    runs.filter((_, at) => (values[at] ?? 0) < 10),
    runs.filter((_, at) => (values[at] ?? 0) > 10),
  ]) {
    expect(ofClient.map(({ inputs }) => (inputs[0] ?? 0) % 10)).toEqual([1, 2, 3])
    for (const [index, { ended }] of ofClient.entries())
      expect(ofClient[index + 1]?.began ?? Infinity).toBeGreaterThanOrEqual(ended)
  }
})

test('what a guest publishes goes out with the result of its run, or not at all', async () => {
  const { task, from, to } = await newRelay({}, { retry: { max_attempts: 3, backoff: '10ms' } })
  // It publishes 1 in each of its attempts, and traps.
  await publish(from, 1, -1)
  await until(
    'it has failed',
    () => runsOf(task),
    ([run]) => run?.state === 4,
  )
  await publish(from, 2, 3)
  expect(await allPublished(to, 2)).toEqual([2, 3])
  expect(await countRows('held_publications', task)).toBe(0)
})

/** Gives the waiting messages of the task to this run, as a manager that ended long ago. */
async function give(task: string, runId: string): Promise<void> {
  await sql`UPDATE task_messages m SET run_id = ${runId},
    check_at = CASE WHEN m.key = (SELECT min(key) FROM task_messages WHERE task_key = m.task_key) THEN now() END
    WHERE task_key = ${keyOf(task)}`.execute(tenant.database.db)
}

test('a run whose manager ended before it was started is started by another, under its id', async () => {
  const { task, from, to } = await newRelay({ batch: 10 })
  const runId = randomUUID()
  {
    await using _held = await hold(task)
    for (const v of [1, 2, 3]) await publish(from, v)
    await until(
      'all wait',
      () => countRows('task_messages', task),
      (waiting) => waiting === 3,
    )
    await give(task, runId)
  }
  expect(await allPublished(to, 3)).toEqual([1, 2, 3])
  expect(await runsOf(task)).toMatchObject([{ id: runId, messages: 3 }])
  await nothingWaits(task)
})

test('messages that a run has from an earlier form of the trigger run record by record where the function takes numbers', async () => {
  const channel = await newChannel()
  const trigger = { channel_id: channel, order: 'channel' }
  const task = await tenant.newTask(tenant.owner, tenant.domain, { inputs: [0], trigger })
  await publishHeld(task, 2, async () => {
    await publish(channel, 1, 2)
    await publish(channel, 3, 4)
    await until(
      'both wait',
      () => countRows('task_messages', task),
      (waiting) => waiting === 2,
    )
    await give(task, randomUUID())
  })
  const runs = await until(
    'all have run',
    () => runsOf(task),
    (found) => found.filter(({ state }) => state === 3).length === 4,
  )
  expect(runs.map(({ inputs }) => inputs[0])).toEqual([1, 2, 3, 4])
  await nothingWaits(task)
})

test('messages of a run that an earlier build has ended are done, and no other run gets those of a started one', async () => {
  const { task, from, to } = await newRelay({ batch: 10 })
  await publish(from, 1)
  await allPublished(to, 1)
  const [first] = await runsOf(task)
  const { database } = tenant
  {
    await using _held = await hold(task)
    await publish(from, 2)
    await until(
      'it waits',
      () => countRows('task_messages', task),
      (waiting) => waiting === 1,
    )
    await sql`UPDATE task_messages SET run_id = ${first?.id}, check_at = now() + interval '1 hour' WHERE task_key = ${keyOf(task)}`.execute(
      database.db,
    )
    await database.transaction((tx) => returnMessages(tx, first?.id ?? ''))
    expect(await lockClaims(database.db, [first?.id ?? '', randomUUID()])).toEqual(new Set([first?.id]))
    await give(task, first?.id ?? '')
  }
  await nothingWaits(task)
  await publish(from, 3)
  expect(await allPublished(to, 2)).toEqual([1, 3])
})

test.each([
  [{ batch: 0 }, 'batch'],
  [{ batch: 501 }, 'batch'],
  [{ batch: 1.5 }, 'batch'],
  [{ order: 'all' }, 'order'],
  [{ batch: 2, debounce: '1s' }, '/trigger/batch'],
  [{ order: 'client', debounce: '1s' }, '/trigger/order'],
])('a trigger with %j is refused', async (fields, path) => {
  const trigger = { channel_id: await newChannel(), ...fields }
  const answer = await tenant.owner.call('POST', '/tasks', { name: 'add', domain_id: tenant.domain, trigger })
  expect(answer.status).toBe(400)
  expect(answer.text).toContain(path)
})

/** While it is held, what guests publish cannot be stored. */
async function refuseCalls(sqlState: string): Promise<AsyncDisposable> {
  const { db } = tenant.database
  await sql
    .raw(
      `CREATE FUNCTION refuse_calls() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '${sqlState}'; END$$`,
    )
    .execute(db)
  await sql
    .raw('CREATE TRIGGER refuse_calls BEFORE INSERT ON held_publications FOR EACH ROW EXECUTE FUNCTION refuse_calls()')
    .execute(db)
  return {
    async [Symbol.asyncDispose]() {
      await sql.raw('DROP TRIGGER refuse_calls ON held_publications').execute(db)
      await sql.raw('DROP FUNCTION refuse_calls()').execute(db)
    },
  }
}

test('a guest that publishes while the database is away waits, and each message goes out once', async () => {
  const { task, from, to } = await newRelay({ batch: 10, order: 'client' })
  {
    await using _away = await refuseCalls('57P01')
    await publish(from, 1, 2, 3)
    await until(
      'the run has begun',
      () => runsOf(task),
      (runs) => runs.some(({ began }) => began > 0),
    )
    // Several attempts.
    await new Promise((resolve) => setTimeout(resolve, 500))
    expect((await runsOf(task)).map(({ ended }) => ended)).toEqual([null])
  }
  await until(
    'all are published',
    () => valuesOf(to),
    (values) => values.length === 3,
  )
  expect(await valuesOf(to)).toEqual([1, 2, 3])
  expect(await runsOf(task)).toHaveLength(1)
})

test('a call of a guest that fails unexpectedly is answered, so that its run does not wait for its timeout', async () => {
  const { task, from } = await newRelay({ batch: 10, order: 'client' })
  await using _refused = await refuseCalls('XX000')
  await publish(from, 1)
  await until(
    'the run has failed',
    () => runsOf(task),
    (runs) => runs.some(({ state }) => state === 4),
  )
})
