/** Ten thousand triggers on one channel: a message reaches all of them, and the trigger of another domain does not wait for them. */
import { expect, test } from 'vitest'
import { MAX_TRIGGERS_AT_ONCE } from '#api/automation/trigger-remainders.ts'
import { sql } from '#core/sql.ts'
import { useWorld } from '../harness/world.ts'
import { startTestTenant } from './platform.ts'
import { until } from './support.ts'

const TRIGGERS = 10_000
const FEW = MAX_TRIGGERS_AT_ONCE + 100

const tenant = useWorld(startTestTenant)

/** As many tasks as this one, with its trigger: through the API they would take minutes. */
async function multiply(task: string, count: number): Promise<void> {
  const { db } = tenant.database
  const columnsOf = async (table: string) =>
    (
      await sql<{ name: string }>`SELECT column_name AS name FROM information_schema.columns
        WHERE table_schema = current_schema() AND table_name = ${table}
          AND is_identity = 'NO' AND column_name NOT IN ('id', 'task_key') ORDER BY ordinal_position`.execute(db)
    ).rows.map(({ name }) => sql.ref(name))
  const [ofTask, ofTrigger] = [sql.join(await columnsOf('tasks')), sql.join(await columnsOf('task_triggers'))]
  await sql`WITH added AS (INSERT INTO tasks (id, ${ofTask}) SELECT gen_random_uuid(), ${ofTask} FROM tasks, generate_series(1, ${count}) n
      WHERE id = ${task} RETURNING key)
    INSERT INTO task_triggers (task_key, ${ofTrigger}) SELECT added.key, ${ofTrigger} FROM added, task_triggers
      WHERE task_key = (SELECT key FROM tasks WHERE id = ${task})`.execute(db)
}

/** Notes each statement that hands messages to tasks: its transaction, and what it handed. */
async function notingHanded() {
  const { db } = tenant.database
  for (const text of [
    'CREATE TABLE handed (place bigint GENERATED ALWAYS AS IDENTITY, xid xid8, task_key bigint, origin text)',
    `CREATE FUNCTION note_handed() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
       INSERT INTO handed (xid, task_key, origin) SELECT pg_current_xact_id(), task_key, origin FROM new_rows ORDER BY key; RETURN NULL; END$$`,
    `CREATE TRIGGER note_handed AFTER INSERT ON task_messages REFERENCING NEW TABLE AS new_rows
       FOR EACH STATEMENT EXECUTE FUNCTION note_handed()`,
  ])
    await sql.raw(text).execute(db)
  return {
    async most(): Promise<number> {
      const { rows } = await sql<{ rows: number }>`
        SELECT max(rows)::int AS rows FROM (SELECT count(*) AS rows FROM handed GROUP BY xid) t`.execute(db)
      return rows[0]?.rows ?? 0
    },
    /** What other tasks were handed before the first of this one. */
    async before(task: string): Promise<number> {
      const { rows } = await sql<{ rows: number }>`SELECT count(*)::int AS rows FROM handed
        WHERE place < (SELECT min(h.place) FROM handed h JOIN tasks t ON t.key = h.task_key WHERE t.id = ${task})`.execute(
        db,
      )
      return rows[0]?.rows ?? 0
    },
    /** How many tasks were handed each of these sequences, by the origins of their messages. */
    async sequences(domain: string): Promise<{ origins: string[]; tasks: number }[]> {
      const { rows } = await sql<{ origins: string[]; tasks: number }>`SELECT origins, count(*)::int AS tasks FROM (
          SELECT array_agg(h.origin ORDER BY h.place) AS origins FROM handed h JOIN tasks t ON t.key = h.task_key
           WHERE t.domain_key = (SELECT key FROM domains WHERE id = ${domain}) GROUP BY h.task_key) t GROUP BY origins`.execute(
        db,
      )
      return rows
    },
    async [Symbol.asyncDispose]() {
      await sql.raw('DROP TRIGGER note_handed ON task_messages').execute(db)
      await sql.raw('DROP FUNCTION note_handed()').execute(db)
      await sql.raw('DROP TABLE handed').execute(db)
    },
  }
}

async function remaining(): Promise<number> {
  const { rows } = await sql<{ rows: number }>`SELECT count(*)::int AS rows FROM trigger_remainders`.execute(
    tenant.database.db,
  )
  return rows[0]?.rows ?? 0
}

const runsOf = async (task: string) =>
  (await tenant.owner.call('GET', `/tasks/${task}/runs?limit=1`)).json<{ total: number }>().total

test('a message starts a run of each, and the trigger of another domain is served meanwhile', async () => {
  await using handed = await notingHanded()
  const { call } = tenant.owner
  const channel = await tenant.newChannel(call, tenant.domain)
  const flooded = await tenant.newTask(tenant.owner, tenant.domain, {
    inputs: [0],
    labels: { zone: 'nowhere' },
    trigger: { channel_id: channel },
  })
  await multiply(flooded, TRIGGERS - 1)
  const other = await tenant.newDomain(call)
  const quiet = await tenant.newChannel(call, other)
  const listener = await tenant.newTask(tenant.owner, other, { inputs: [0], trigger: { channel_id: quiet } })
  await tenant.publish(call, tenant.domain, channel, [{ n: 'a', v: 1 }])
  const started = async () =>
    (
      await sql<{
        runs: number
      }>`SELECT count(*)::int AS runs FROM runs WHERE domain_key = (SELECT key FROM domains WHERE id = ${tenant.domain})`.execute(
        tenant.database.db,
      )
    ).rows[0]?.runs ?? 0
  const startedBefore: number[] = []
  for (let message = 1; message <= 3; message++) {
    await tenant.publish(call, other, quiet, [{ n: 'a', v: message }])
    await until(
      'its run',
      () => runsOf(listener),
      (runs) => runs === message,
      60_000,
    )
    startedBefore.push(await started())
  }
  // The first of them did not wait for the runs of the other domain.
  expect(startedBefore[0]).toBeLessThan(TRIGGERS)
  await until('all runs', started, (runs) => runs === TRIGGERS, 120_000)
  // One transaction for all of them would hold up every later message of the log.
  expect(await handed.most()).toBeLessThanOrEqual(MAX_TRIGGERS_AT_ONCE)
  expect(await handed.before(listener)).toBeLessThan(TRIGGERS / 2)
}, 240_000)

/** As many triggers of a channel as two steps serve. */
async function manyOnOneChannel(trigger: Record<string, unknown> = {}) {
  const domain = await tenant.newDomain(tenant.owner.call)
  const channel = await tenant.newChannel(tenant.owner.call, domain)
  const newTask = (given: Record<string, unknown>) =>
    tenant.newTask(tenant.owner, domain, {
      inputs: [0],
      labels: { zone: 'nowhere' },
      trigger: { channel_id: channel, ...given },
    })
  const task = await newTask(trigger)
  await multiply(task, FEW - 1)
  const publish = (v: number, n = 'a') => tenant.publish(tenant.owner.call, domain, channel, [{ n, v }])
  return { domain, channel, task, newTask, publish }
}

/** No step ends until it is disposed. */
async function refusingSteps() {
  const { db } = tenant.database
  for (const text of [
    `CREATE FUNCTION refuse_step() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'not now'; END$$`,
    'CREATE TRIGGER refuse_step BEFORE UPDATE OR DELETE ON trigger_remainders FOR EACH ROW EXECUTE FUNCTION refuse_step()',
  ])
    await sql.raw(text).execute(db)
  return {
    async [Symbol.asyncDispose]() {
      await sql.raw('DROP TRIGGER refuse_step ON trigger_remainders').execute(db)
      await sql.raw('DROP FUNCTION refuse_step()').execute(db)
    },
  }
}

test('each trigger gets the messages of its channel once and in their order, also those that come meanwhile', async () => {
  await using handed = await notingHanded()
  const { domain, publish } = await manyOnOneChannel()
  for (let v = 1; v <= 5; v++) await publish(v)
  const found = await until(
    'all have all',
    () => handed.sequences(domain),
    (sequences) => sequences.length === 1 && sequences[0]?.origins.length === 5,
    60_000,
  )
  expect(found).toEqual([{ origins: found[0]?.origins, tasks: FEW }])
  const numbers = (found[0]?.origins ?? []).map((origin) => Number(/\d+/.exec(origin)?.[0]))
  expect(numbers).toEqual(numbers.toSorted((one, other) => one - other))
  await until('nothing remains', remaining, (rows) => rows === 0)
}, 120_000)

test('a later message that few triggers match does not pass one that is still handed out to many', async () => {
  await using handed = await notingHanded()
  const { domain, newTask, publish } = await manyOnOneChannel({ name: 'a' })
  await newTask({})
  const refusing = await refusingSteps()
  await publish(1)
  await until('the first is noted', remaining, (rows) => rows === 1)
  await publish(2, 'b')
  await until('the second is noted behind it', remaining, (rows) => rows === 2)
  expect(await handed.sequences(domain)).toEqual([])
  await refusing[Symbol.asyncDispose]()
  await until('nothing remains', remaining, (rows) => rows === 0)
  const found = (await handed.sequences(domain)).toSorted((one, other) => one.tasks - other.tasks)
  const [first, second] = found[0]?.origins ?? []
  expect(found).toEqual([
    { origins: [first, second], tasks: 1 },
    { origins: [first], tasks: FEW },
  ])
  expect(second).toBeDefined()
}, 120_000)

test('a trigger that was behind, and read a message by itself, does not get it again in the steps', async () => {
  await using handed = await notingHanded()
  const { domain, task, publish } = await manyOnOneChannel()
  const { db } = tenant.database
  const isBehind = async () => {
    const { rows } = await sql<{ is_behind: boolean }>`SELECT g.behind_since IS NOT NULL AS is_behind
      FROM task_triggers g JOIN tasks t ON t.key = g.task_key WHERE t.id = ${task}`.execute(db)
    return rows[0]?.is_behind
  }
  const { rows: places } = await sql<{ xid: string; seq: number }>`
    SELECT xid::text AS xid, seq FROM consumers WHERE name = 'task triggers'`.execute(db)
  const [place] = places
  const refusing = await refusingSteps()
  await publish(1)
  await until('it is noted', remaining, (rows) => rows === 1)
  await sql`UPDATE task_triggers SET behind_xid = ${place?.xid}::xid8, behind_seq = ${(place?.seq ?? 0) + 1}, behind_message = 0, behind_since = now()
    WHERE task_key = (SELECT key FROM tasks WHERE id = ${task})`.execute(db)
  await until(
    'it has read it',
    () => handed.sequences(domain),
    (all) => all[0]?.tasks === 1,
  )
  expect(await isBehind()).toBe(true)
  await refusing[Symbol.asyncDispose]()
  await until('nothing remains', remaining, (rows) => rows === 0)
  await until('it is served with the others', isBehind, (behind) => behind === false)
  expect(await handed.sequences(domain)).toEqual([{ origins: [expect.any(String)], tasks: FEW }])
}, 120_000)
