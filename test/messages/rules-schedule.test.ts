// docs/guides/rules.md#schedules
import { readFileSync } from 'node:fs'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { parse } from 'yaml'
import { sql } from '#core/sql.ts'
import { until } from '../harness/until.ts'
import { expectStatus, newConsumer } from './consumers-support.ts'
import { alarmsOf, newRule, sendValue, sendRecords, showRule } from './rules-support.ts'
import type { RuleBody } from './rules-support.ts'
import { startPlant } from './support.ts'
import type { Device, Plant } from './support.ts'

type Scheduled = RuleBody & { next_tick_at?: string; missed_ticks?: number; source: Record<string, unknown> }

let plant: Plant
beforeAll(async () => {
  plant = await startPlant({ ruleTimes: { intervalMs: 20 } })
})
afterAll(() => plant[Symbol.asyncDispose]())
afterEach(async () => {
  const { rules } = (await plant.owner.call('GET', url('rules?limit=100'))).json<{ rules: { id: string }[] }>()
  for (const { id } of rules) expectStatus(204, await plant.owner.call('DELETE', url(`rules/${id}`)))
})

const url = (path: string) => `/${plant.domainId}/${path}`
const show = async (id: string) => (await showRule(plant, id)) as Scheduled

/** Far away, so that only `tickNow` lets a rule tick. */
const NEVER = '0 0 29 2 *'
const PUBLISHED = `{"at": "{{ time }}", "name": "{{ name }}", "mean": "{{ mean('24h') }}", "client": "{{ client.name }}"}`

async function tickNow(id: string): Promise<void> {
  await sql`UPDATE rules SET next_tick_at = date_trunc('milliseconds', clock_timestamp()) WHERE id = ${id}::uuid`.execute(
    plant.api.database.db,
  )
}

const untilRule = async (id: string, isSo: (rule: Scheduled) => boolean, what: string): Promise<Scheduled> =>
  await until(async () => {
    const rule = await show(id)
    return isSo(rule) ? rule : undefined
  }, what)

/** The JSON messages of a channel that rules published, when there are so many. */
async function publishedTo(channel: string, count: number): Promise<Record<string, unknown>[]> {
  const consumer = await newConsumer(plant, [channel], { order: 'none', ack_wait: '1h' })
  const found = new Map<string, Record<string, unknown>>()
  await until(
    async () => {
      for (const { position, payload } of await consumer.pull(100, '1s'))
        found.set(position, payload as Record<string, unknown>)
      return found.size >= count
    },
    () => `${found.size} of ${count} messages`,
  )
  return [...found.values()]
}

async function newSeries(values: readonly number[]): Promise<{ device: Device; channel: string }> {
  const [device, channel] = [await plant.newDevice(), await plant.newChannel()]
  await plant.connect(device, channel)
  for (const v of values) await sendValue(plant, device, channel, v)
  await untilStored(channel, values.length)
  return { device, channel }
}

async function untilStored(channel: string, count: number): Promise<void> {
  await until(async () => {
    const { rows } = await sql<{
      total: number
    }>`SELECT coalesce(sum(cardinality(m.series_keys)), 0)::int AS total FROM records m
      JOIN channels c ON c.key = m.channel_key WHERE c.id = ${channel}::uuid`.execute(plant.api.database.db)
    return (rows[0]?.total ?? 0) >= count
  }, 'the values are stored')
}

test('a schedule without a condition acts once at each of its times', async () => {
  const channel = await plant.newChannel()
  const rule = (await newRule(plant, {
    source: { type: 'schedule', schedule: NEVER, timezone: 'Europe/Paris' },
    actions: [{ type: 'publish', channel, payload: '{"at": "{{ time }}"}' }],
  })) as Scheduled
  expect(rule).toMatchObject({ condition: '', seen: 0, missed_ticks: 0 })
  expect(Date.parse(rule.next_tick_at ?? '')).toBeGreaterThan(Date.now())
  for (let tick = 1; tick <= 3; tick++) {
    await tickNow(rule.id)
    const after = await untilRule(rule.id, ({ seen }) => seen === tick, `tick ${tick}`)
    expect(after).toMatchObject({ raised: tick, acted: tick, missed_ticks: 0, next_tick_at: rule.next_tick_at })
  }
  const messages = await publishedTo(channel, 3)
  expect(new Set(messages.map(({ at }) => at)).size).toBe(3)
})

test('a condition over a day is evaluated for each series of the clients that are chosen', async () => {
  const hot = await newSeries([20, 40])
  const cold = await newSeries([20, 22])
  const other = await newSeries([90])
  const rule = await newRule(plant, {
    source: { type: 'schedule', schedule: NEVER, names: ['temperature'], clients: [hot.device.id, cold.device.id] },
    condition: 'mean("24h") > 25.0 && count("24h") > 1',
    actions: [{ type: 'alarm', text: 'on average {{ mean("24h") }}, now {{ value }}' }],
  })
  await tickNow(rule.id)
  const seen = await untilRule(rule.id, (one) => one.seen === 2, 'both series')
  expect(seen).toMatchObject({ matched: 1, raised: 1, open_alarms: 1 })
  const [alarm] = await alarmsOf(plant, rule.id)
  expect(alarm).toMatchObject({
    client_id: hot.device.id,
    name: 'temperature',
    value: 40,
    unit: 'Cel',
    text: 'on average 30, now 40',
  })
  await tickNow(rule.id)
  await untilRule(rule.id, (one) => one.seen === 4, 'a second time')
  expect((await alarmsOf(plant, rule.id))[0]).toMatchObject({ count: 2 })
  for (const v of [0, 0, 0]) await sendValue(plant, hot.device, hot.channel, v)
  await untilStored(hot.channel, 5)
  // The window ends at the scheduled time.
  await tickNow(rule.id)
  await until(
    async () => (await alarmsOf(plant, rule.id, '&status=cleared')).length === 1,
    'the mean of all five values',
  )
  expect((await alarmsOf(plant, rule.id)).every(({ client_id: id }) => id !== other.device.id)).toBe(true)
  await sendValue(plant, hot.device, hot.channel, 900)
  await untilStored(hot.channel, 6)
  await tickNow(rule.id)
  await until(async () => (await alarmsOf(plant, rule.id, '&status=open')).length === 1, 'a second alarm')
  // Without its condition nothing would clear it.
  const report = { condition: '', actions: [{ type: 'publish', channel: hot.channel }] }
  expectStatus(200, await plant.owner.call('PATCH', url(`rules/${rule.id}`), report))
  expect(await alarmsOf(plant, rule.id, '&status=open')).toEqual([])
})

test('a report is made for each series, also where there are more than a page, and none of series without values', async () => {
  const [device, channel, reports] = [await plant.newDevice(), await plant.newChannel(), await plant.newChannel()]
  await plant.connect(device, channel)
  const names = Array.from({ length: 45 }, (_, index) => `n${index}`)
  await sendRecords(
    plant,
    device,
    channel,
    names.map((n, v) => ({ n, v })),
    'hall',
  )
  await sendRecords(plant, device, channel, [{ n: 'n0', v: 7 }], 'elsewhere')
  await sendRecords(
    plant,
    device,
    channel,
    [
      { n: 'n44', vs: 'text' },
      { n: 'n3', u: 'V', v: 5 },
    ],
    'hall',
  )
  await untilStored(channel, 48)
  const rule = await newRule(plant, {
    source: { type: 'schedule', schedule: NEVER, channels: [channel], names, subtopic: 'hall' },
    actions: [{ type: 'publish', channel: reports, payload: PUBLISHED }],
  })
  await tickNow(rule.id)
  await untilRule(rule.id, ({ next_tick_at: next }) => Date.parse(next ?? '') > Date.now(), 'its next time')
  const found = await publishedTo(reports, 45)
  expect(found.map(({ name }) => String(name)).toSorted()).toEqual(names.toSorted())
  expect(new Set(found.map(({ at }) => at)).size).toBe(1)
  // A series with two units is one.
  expect(found.find(({ name }) => name === 'n3')).toMatchObject({ mean: 4, client: 'client' })
  expect(await show(rule.id)).toMatchObject({ seen: 45, acted: 45, unmatchable: 0 })
})

test.each([
  ['none', 0],
  ['once', 1],
] as const)('times that were missed are counted, and caught up %s', async (catchUp, evaluated) => {
  const channel = await plant.newChannel()
  const rule = await newRule(plant, {
    source: { type: 'schedule', schedule: '*/20 * * * *', catch_up: catchUp },
    actions: [{ type: 'publish', channel }],
  })
  expectStatus(200, await plant.owner.call('POST', url(`rules/${rule.id}/disable`)))
  expect(await show(rule.id)).not.toHaveProperty('next_tick_at')
  const enabled = (await plant.owner.call('POST', url(`rules/${rule.id}/enable`), {})).json<Scheduled>()
  expect(Date.parse(enabled.next_tick_at ?? '')).toBeGreaterThan(Date.now())
  // What is between these times and now was missed: the newest of them may be a moment ago.
  const begun = Date.parse(enabled.next_tick_at ?? '') - 6 * 1_200_000
  await sql`UPDATE rules SET next_tick_at = to_timestamp(${begun / 1000}::float8) WHERE id = ${rule.id}::uuid`.execute(
    plant.api.database.db,
  )
  const after = await untilRule(rule.id, ({ seen, missed_ticks: missed = 0 }) => seen + missed >= 6, 'all times')
  const { seen, missed_ticks: missed = 0 } = after
  expect(seen + missed).toBe(6)
  if (evaluated === 1) expect(seen).toBe(1)
  // Right after a full interval, the newest time is not missed.
  else if (seen === 0) expect(after.last_error?.reason).toContain('was not evaluated within 60 s')
})

test('a rule that lacks a right is paused, and goes on with what is due', async () => {
  const channel = await plant.newChannel()
  const rule = await newRule(plant, {
    source: { type: 'schedule', schedule: NEVER, catch_up: 'once' },
    actions: [{ type: 'publish', channel }],
  })
  expectStatus(200, await plant.owner.call('POST', url(`channels/${channel}/disable`)))
  await tickNow(rule.id)
  const paused = await untilRule(rule.id, (one) => one.paused !== undefined, 'a pause')
  expect(paused).toMatchObject({ seen: 0, acted: 0 })
  expectStatus(200, await plant.owner.call('POST', url(`channels/${channel}/enable`)))
  expectStatus(200, await plant.owner.call('POST', url(`rules/${rule.id}/enable`), {}))
  await untilRule(rule.id, ({ acted }) => acted === 1, 'the time that was due')
})

test('a changed schedule begins with its next time, and other changes leave it', async () => {
  const channel = await plant.newChannel()
  const rule = (await newRule(plant, {
    source: { type: 'schedule', schedule: NEVER },
    actions: [{ type: 'publish', channel }],
  })) as Scheduled
  const change = async (body: object) =>
    expectStatus(200, await plant.owner.call('PATCH', url(`rules/${rule.id}`), body)).json<Scheduled>()
  expect(await change({ description: 'other' })).toMatchObject({ next_tick_at: rule.next_tick_at })
  const changed = await change({ source: { type: 'schedule', schedule: '0 0 1 1 *', timezone: 'Asia/Tokyo' } })
  expect(new Date(changed.next_tick_at ?? '').toISOString()).toMatch(/-12-31T15:00:00\.000Z$/)
  const messages = await change({ source: { type: 'messages' }, condition: 'value > 1.0' })
  expect(messages).not.toHaveProperty('next_tick_at')
})

test('hundreds of rules that are due at once are all evaluated, each once', async () => {
  const channel = await plant.newChannel()
  const rule = await newRule(plant, {
    source: { type: 'schedule', schedule: NEVER },
    actions: [{ type: 'publish', channel, payload: '"{{ time }}"' }],
  })
  const { db } = plant.api.database
  await sql`INSERT INTO rules (id, domain_key, name, definition, user_key, created_by, is_behind, xid, seq, message)
    SELECT gen_random_uuid(), domain_key, 'copy ' || n, definition, user_key, created_by, false, xid, seq, message
      FROM rules, generate_series(1, 299) AS n WHERE id = ${rule.id}::uuid`.execute(db)
  await sql`UPDATE rule_domains SET version = version + 1`.execute(db)
  await sql`UPDATE rules SET next_tick_at = date_trunc('second', now()) - interval '1 second'`.execute(db)
  await until(async () => {
    const { rows } = await sql<{
      total: number
    }>`SELECT count(*)::int AS total FROM rules WHERE next_tick_at > now()`.execute(db)
    return rows[0]?.total === 300
  }, 'all have a next time')
  const { rows } = await sql<{
    acted: number
    rules: number
  }>`SELECT acted, count(*)::int AS rules FROM rules GROUP BY acted`.execute(db)
  await sql`DELETE FROM rules WHERE name LIKE 'copy %'`.execute(db)
  expect(rows).toEqual([{ acted: 1, rules: 300 }])
})

test('a stored rule that does not compile is paused alone, and goes on when it does', async () => {
  const channel = await plant.newChannel()
  const fields = { source: { type: 'schedule', schedule: NEVER }, actions: [{ type: 'publish', channel }] }
  const [broken, other] = [await newRule(plant, fields), await newRule(plant, fields)]
  const { db } = plant.api.database
  const setZone = async (zone: string) => {
    await sql`UPDATE rules SET definition = jsonb_set(definition, '{source,timezone}', to_jsonb(${zone}::text)),
      checked_at = now() - interval '1 hour' WHERE id = ${broken.id}::uuid`.execute(db)
    await sql`UPDATE rule_domains SET version = version + 1`.execute(db)
  }
  await setZone('Mars/Olympus')
  for (const { id } of [broken, other]) await tickNow(id)
  await untilRule(other.id, ({ acted }) => acted === 1, 'the other rule')
  const paused = await untilRule(broken.id, (one) => one.paused !== undefined, 'a pause')
  expect(paused.paused?.reason).toContain('must be a time zone such as Europe/Paris')
  expect(paused.seen).toBe(0)
  const enabled = await plant.owner.call('POST', url(`rules/${broken.id}/enable`), {})
  expect([enabled.status, enabled.text]).toEqual([400, expect.stringContaining('/source/timezone')])
  await tickNow(other.id)
  await untilRule(other.id, ({ acted }) => acted === 2, 'the other rule goes on')
  // A process that knows the zone looks at it.
  await setZone('Europe/Paris')
  await untilRule(broken.id, (one) => one.paused === undefined, 'the end of the pause')
  await tickNow(broken.id)
  await untilRule(broken.id, ({ acted }) => acted === 1, 'the rule that was paused')
})

test('no rule becomes one with a schedule while a node is alive that does not know it', async () => {
  const { db } = plant.api.database
  const channel = await plant.newChannel()
  const fields = { source: { type: 'schedule', schedule: NEVER }, actions: [{ type: 'publish', channel }] }
  const before = await newRule(plant, fields)
  const messages = await newRule(plant, { source: { type: 'messages' }, condition: 'value > 1.0' })
  await sql`INSERT INTO nodes (id, kind, version, migration, seen_at) SELECT 'older', 'api', '0.0.0', number - 1, now() + interval '1 hour'
    FROM migrations WHERE name = 'rules_by_schedule'`.execute(db)
  try {
    const refused = await plant.owner.call('POST', url('rules'), { name: 'refused', ...fields })
    expect([refused.status, refused.text]).toEqual([503, expect.stringContaining('earlier version')])
    expect((await plant.owner.call('PATCH', url(`rules/${messages.id}`), fields)).status).toBe(503)
    expectStatus(200, await plant.owner.call('PATCH', url(`rules/${before.id}`), { description: 'another' }))
    await newRule(plant, { source: { type: 'messages' }, condition: 'value > 1.0' })
  } finally {
    await sql`DELETE FROM nodes WHERE id = 'older'`.execute(db)
  }
  expectStatus(200, await plant.owner.call('PATCH', url(`rules/${messages.id}`), fields))
})

test('a trial and a position are refused in words', async () => {
  const channel = await plant.newChannel()
  const source = { type: 'schedule', schedule: NEVER }
  const actions = [{ type: 'publish', channel }]
  const tried = await plant.owner.call('POST', url('rules/try'), { source, actions })
  expect(tried.status, tried.text).toBe(400)
  expect(tried.text).toContain('a schedule acts at times to come')
  const placed = await plant.owner.call('POST', url('rules'), { name: 'placed', source, actions, from: '1-1-1' })
  expect(placed.status, placed.text).toBe(400)
  expect(placed.text).toContain('a schedule begins with its next time')
})

test('the ready rules are accepted, and report what they say', async () => {
  const { rules } = parse(readFileSync('examples/rules/schedule.yaml', 'utf8')) as { rules: Record<string, unknown>[] }
  const { channel } = await newSeries([20, 30])
  const reports = await plant.newChannel()
  expect(rules.map(({ name }) => name)).toEqual(['daily report', 'warm on average', 'reminder'])
  for (const { source, actions, ...rule } of rules) {
    const own = (actions as { type: string; channel?: string }[]).map((action) =>
      action.type === 'publish' ? { ...action, channel: reports } : action,
    )
    const made = await newRule(plant, { ...rule, source: { ...(source as object), channels: [channel] }, actions: own })
    await tickNow(made.id)
    await untilRule(made.id, ({ seen }) => seen === 1, `${made.name} is evaluated`)
  }
  expect((await publishedTo(reports, 2)).map(({ text }) => text)).toContain(
    'client: temperature 25 on average, from 20 to 30',
  )
})
