// docs/guides/rules.md section A function as the condition
import { randomUUID } from 'node:crypto'
import { beforeAll, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { decidingModule } from './deciding-guest.ts'
import { startTestTenant } from './platform.ts'

const tenant = useWorld(startTestTenant)
let file: string
beforeAll(async () => {
  file = await decidingModule()
})

type Rule = {
  id: string
  condition: string
  condition_task?: string
  named: { type: string; id: string; name: string }[]
  paused?: { reason: string }
  last_error?: { reason: string; count: number }
  seen: number
  matched: number
  unmatchable: number
  raised: number
}
type Alarm = { name: string; status: string; severity: string; count: number; text: string }

const call = (method: 'GET' | 'POST' | 'PATCH' | 'DELETE', path: string, body?: unknown) =>
  tenant.owner.call(method, path, body)

async function created<T>(path: string, body: object): Promise<T> {
  const answer = await call('POST', path, body)
  expect(answer.status, answer.text).toBe(201)
  return answer.json<T>()
}

const newChannel = () => tenant.newChannel(tenant.owner.call, tenant.domain)
const newTask = async (fields: object = {}) =>
  (await created<{ id: string }>('/tasks', { name: 'decides', domain_id: tenant.domain, file, ...fields })).id
const publish = (channel: string, records: Record<string, number>) =>
  tenant.publish(
    tenant.owner.call,
    tenant.domain,
    channel,
    Object.entries(records).map(([n, v]) => ({ n, v })),
  )
const newRule = (channel: string, task: string, fields: object = {}) =>
  created<Rule>(`/${tenant.domain}/rules`, {
    name: `rule-${randomUUID()}`,
    source: { type: 'messages', channels: [channel] },
    condition_task: task,
    ...fields,
  })
const show = async (id: string) => (await call('GET', `/${tenant.domain}/rules/${id}`)).json<Rule>()
const untilRule = (id: string, what: string, is: (rule: Rule) => boolean) =>
  until(async () => {
    const rule = await show(id)
    return is(rule) ? rule : undefined
  }, what)
const untilSeen = (id: string, seen: number) => untilRule(id, `${seen} records are seen`, (rule) => rule.seen >= seen)
async function alarmsOf(id: string): Promise<Alarm[]> {
  const { alarms } = (await call('GET', `/${tenant.domain}/alarms?rule=${id}&limit=100`)).json<{ alarms: Alarm[] }>()
  return alarms.toSorted((one, other) => (one.name < other.name ? -1 : 1))
}

test('what the function returns raises, repeats and clears, with its severity', { timeout: 90_000 }, async () => {
  const [channel, task] = [await newChannel(), await newTask()]
  const rule = await newRule(channel, task, { actions: [{ type: 'alarm', text: '{{ name }} is {{ value }}' }] })
  expect(rule).toMatchObject({ condition: '', condition_task: task })
  expect(rule.named).toContainEqual({ type: 'task', id: task, name: 'decides' })
  await publish(channel, { cold: 1, warm: 6, hot: 9, odd: 8 })
  expect(await untilSeen(rule.id, 4)).toMatchObject({ seen: 4, matched: 2, unmatchable: 1, raised: 2 })
  expect((await show(rule.id)).last_error?.reason).toMatch(/^the function returned something else than true, false/)
  expect(await alarmsOf(rule.id)).toMatchObject([
    { name: 'hot', status: 'active', severity: 'major', text: 'hot is 9', count: 1 },
    { name: 'warm', status: 'active', severity: 'warning', text: 'warm is 6', count: 1 },
  ])
  await publish(channel, { warm: 5, hot: 2 })
  await untilSeen(rule.id, 6)
  expect(await alarmsOf(rule.id)).toMatchObject([
    { name: 'hot', status: 'cleared', severity: 'major' },
    { name: 'warm', status: 'active', count: 2 },
  ])
  const { rows } = await sql<{
    total: number
  }>`SELECT count(*)::int AS total FROM rule_calls c JOIN rules r ON r.key = c.rule_key
    WHERE r.id = ${rule.id}`.execute(tenant.database.db)
  expect(rows).toEqual([{ total: 0 }])
})

test('its shape in time is on top of what the function says', { timeout: 90_000 }, async () => {
  const [channel, task] = [await newChannel(), await newTask()]
  const rule = await newRule(channel, task, { for: '1s' })
  await publish(channel, { short: 6, long: 9 })
  await publish(channel, { short: 1 })
  // It raises when the time is over, without a further message.
  await until(async () => ((await alarmsOf(rule.id)).length > 0 ? true : undefined), 'the alarm')
  expect(await alarmsOf(rule.id)).toMatchObject([{ name: 'long', severity: 'major' }])
})

test('messages are decided in order, in calls of up to a hundred, each once', { timeout: 90_000 }, async () => {
  const [channel, task] = [await newChannel(), await newTask()]
  const rule = await newRule(channel, task)
  const count = 230
  for (let from = 0; from < count; from += 10)
    await publish(channel, Object.fromEntries(Array.from({ length: 10 }, (_, at) => [`r${from + at}`, 6])))
  const seen = await untilSeen(rule.id, count)
  expect(seen).toMatchObject({ seen: count, matched: count, raised: count })
  const { runs } = (await call('GET', `/tasks/${task}/runs?limit=100`)).json<{ runs: { cause: object }[] }>()
  expect(runs.length).toBeLessThan(count / 5)
  expect(runs[0]?.cause).toMatchObject({ type: 'message', channel_id: channel })
})

test('a slow function delays no other rule, also not another function', { timeout: 90_000 }, async () => {
  const [channel, task] = [await newChannel(), await newTask()]
  // No worker has the label: its run waits.
  const waiting = await newRule(channel, await newTask({ labels: { site: 'nowhere' } }))
  const [other, plain] = [
    await newRule(channel, task),
    await newRule(channel, task, { condition_task: '', condition: 'value > 5.0' }),
  ]
  await publish(channel, { a: 6 })
  await untilSeen(other.id, 1)
  await untilSeen(plain.id, 1)
  await publish(channel, { a: 9 })
  await untilSeen(other.id, 2)
  const behind = await show(waiting.id)
  expect(behind).toMatchObject({ seen: 0 })
  expect(behind).toHaveProperty('behind_since')
  // The rule is changed: its messages are evaluated from where it stands, and no result of before counts.
  const changed = await call('PATCH', `/${tenant.domain}/rules/${waiting.id}`, { condition: 'value > 5.0' })
  expect(changed.status, changed.text).toBe(200)
  expect(changed.json<Rule>()).not.toHaveProperty('condition_task')
  expect(await untilSeen(waiting.id, 2)).toMatchObject({ seen: 2, matched: 2 })
  const back = await call('PATCH', `/${tenant.domain}/rules/${plain.id}`, { condition_task: task })
  expect(back.json<Rule>()).toMatchObject({ condition: '', condition_task: task })
  await publish(channel, { a: 6 })
  expect(await untilSeen(plain.id, 3)).toMatchObject({ seen: 3, matched: 3 })
})

test('a function that fails again and again pauses its rule, which goes on there', { timeout: 120_000 }, async () => {
  const [channel, task] = [await newChannel(), await newTask()]
  const rule = await newRule(channel, task)
  await publish(channel, { a: 7 })
  const failing = await untilRule(rule.id, 'an error', ({ last_error: error }) => error !== undefined)
  expect(failing.last_error?.reason).toMatch(/^the task that decides failed: the run of the task failed/)
  const ofRule = sql`rule_key = (SELECT key FROM rules WHERE id = ${rule.id})`
  await until(async () => {
    const { rows } =
      await sql`UPDATE rule_calls SET attempt = 3, due_at = now() WHERE ${ofRule} AND status = 'open' AND attempt > 1
      RETURNING rule_key`.execute(tenant.database.db)
    return rows.length > 0 ? true : undefined
  }, 'the next attempt')
  const paused = await untilRule(rule.id, 'the pause', (one) => one.paused !== undefined)
  expect(paused.paused?.reason).toMatch(/^the task that decides failed 3 times for the same messages/)
  expect(paused.seen).toBe(0)
  await call('PATCH', `/${tenant.domain}/rules/${rule.id}`, { condition_task: '', condition: 'value > 5.0' })
  expect(await untilSeen(rule.id, 1)).toMatchObject({ seen: 1, matched: 1 })
})

test('a task that is deleted pauses its rules, and says why', { timeout: 90_000 }, async () => {
  const [channel, task] = [await newChannel(), await newTask()]
  const rule = await newRule(channel, task)
  expect((await call('DELETE', `/tasks/${task}`)).status).toBeLessThan(300)
  await publish(channel, { a: 6 })
  const { paused } = await untilRule(rule.id, 'the pause', (one) => one.paused !== undefined)
  expect(paused?.reason).toBe('the task that decides cannot be started: the task was deleted')
})

test(
  'the user of the rule needs the right to start tasks, and the rule is paused without it',
  { timeout: 90_000 },
  async () => {
    const [channel, task] = [await newChannel(), await newTask()]
    const actions = ['rule_create', 'rule_read', 'rule_update', 'channel_subscribe']
    const body = {
      name: `rule-${randomUUID()}`,
      source: { type: 'messages', channels: [channel] },
      condition_task: task,
    }
    const poor = await tenant.newMember(tenant.owner.call, tenant.domain, actions)
    const refused = await poor.call('POST', `/${tenant.domain}/rules`, body)
    expect([refused.status, refused.text]).toEqual([403, expect.stringContaining('task_start')])
    const able = await tenant.newMember(tenant.owner.call, tenant.domain, [...actions, 'task_start'])
    const made = await able.call('POST', `/${tenant.domain}/rules`, body)
    expect(made.status, made.text).toBe(201)
    const { id } = made.json<Rule>()
    await publish(channel, { a: 6 })
    await untilSeen(id, 1)
    const removed = await tenant.owner.call('POST', `${able.role}/actions/delete`, { actions: ['task_start'] })
    expect(removed.status, removed.text).toBeLessThan(300)
    await publish(channel, { a: 9 })
    const { paused, seen } = await untilRule(id, 'the pause', (one) => one.paused !== undefined)
    expect([paused?.reason, seen]).toEqual([expect.stringContaining('task_start'), 1])
  },
)

test('a rule that an earlier version let go on with the others goes on by itself', { timeout: 90_000 }, async () => {
  const { db } = tenant.database
  const [channel, task] = [await newChannel(), await newTask()]
  const rule = await newRule(channel, task)
  await publish(channel, { a: 6 })
  await untilSeen(rule.id, 1)
  await sql`UPDATE rules SET is_behind = false WHERE id = ${rule.id}::uuid`.execute(db)
  await sql`UPDATE rule_domains SET version = version + 1`.execute(db)
  await publish(channel, { a: 9 })
  expect(await untilSeen(rule.id, 2)).toMatchObject({ seen: 2, matched: 2, raised: 1 })
  await sql`INSERT INTO nodes (id, kind, version, migration, seen_at) SELECT 'older', 'api', '0.0.0', number - 1, now() + interval '1 hour'
    FROM migrations WHERE name = 'functions_of_rules'`.execute(db)
  const fields = { name: randomUUID(), source: { type: 'messages', channels: [channel] }, condition_task: task }
  try {
    const refused = await call('POST', `/${tenant.domain}/rules`, fields)
    expect([refused.status, refused.text]).toEqual([503, expect.stringContaining('earlier version')])
  } finally {
    await sql`DELETE FROM nodes WHERE id = 'older'`.execute(db)
  }
  expect((await call('POST', `/${tenant.domain}/rules`, fields)).status).toBe(201)
})

test('what time changes in other domains does not wait for a function', { timeout: 90_000 }, async () => {
  const { db } = tenant.database
  const [channel, task] = [await newChannel(), await newTask({ labels: { site: 'nowhere' } })]
  const waiting = await newRule(channel, task, { for: '1s' })
  await publish(channel, { a: 6 })
  await until(async () => {
    const { rows } = await sql`SELECT FROM rule_calls c JOIN rules r ON r.key = c.rule_key
      WHERE r.id = ${waiting.id}::uuid`.execute(db)
    return rows.length === 1
  }, 'the call')
  const state = { state: { status: 'pending', sinceMs: 0, cause: '' } }
  await sql`INSERT INTO rule_states (rule_key, publisher_id, channel_key, subtopic, name, series_digest, state, due_at)
    SELECT key, '', 0, '', 'n' || n, sha256(convert_to('n' || n, 'UTF8')), ${JSON.stringify(state)}::jsonb, now() - interval '1 hour'
      FROM rules, generate_series(1, 1100) AS n WHERE id = ${waiting.id}::uuid`.execute(db)
  const domain = await tenant.newDomain(tenant.owner.call)
  const other = await tenant.newChannel(tenant.owner.call, domain)
  const held = { name: 'held', source: { type: 'messages' }, condition: 'value > 5.0', for: '1s' }
  const { id } = await created<Rule>(`/${domain}/rules`, held)
  await tenant.publish(tenant.owner.call, domain, other, [{ n: 'a', v: 6 }])
  await until(
    async () => (await call('GET', `/${domain}/alarms?rule=${id}`)).json<{ total: number }>().total === 1,
    'the alarm of the other domain',
  )
  expect(await show(waiting.id)).toMatchObject({ seen: 0 })
  expect((await call('DELETE', `/${tenant.domain}/rules/${waiting.id}`)).status).toBe(204)
})

test('what does not fit a function is refused with its field', async () => {
  const [channel, task] = [await newChannel(), await newTask()]
  const source = { type: 'messages', channels: [channel] }
  const silence = { type: 'silence', channels: [channel], after: '1h' }
  const cases: [object, string][] = [
    [{ source, condition_task: task, condition: 'value > 1.0' }, '/condition'],
    [{ source, condition_task: task, clear_when: 'value > 1.0' }, '/clear_when'],
    [{ source: silence, condition_task: task }, '/condition_task'],
    [{ source: { type: 'schedule', schedule: '0 6 * * *' }, condition_task: task }, '/condition_task'],
    [{ source: { type: 'state' }, condition_task: task }, '/condition_task'],
    [{ source, condition_task: randomUUID() }, '/condition_task'],
    [{ source, condition_task: 'hot' }, '/condition_task'],
    [{ source, condition_task: task, actions: [{ type: 'alarm', text: '{{ mean("5m") }}' }] }, '/actions'],
  ]
  for (const [fields, path] of cases) {
    const answer = await call('POST', `/${tenant.domain}/rules`, { name: randomUUID(), ...fields })
    expect([answer.status, answer.json<{ details?: { path: string }[] }>().details?.[0]?.path], answer.text).toEqual([
      400,
      path,
    ])
  }
  const tried = await call('POST', `/${tenant.domain}/rules/try`, { source, condition_task: task })
  expect([tried.status, tried.text]).toEqual([400, expect.stringContaining('a trial does not call it')])
  // With another source it is about something else, as an expression would be.
  const rule = await newRule(channel, task)
  const change = { source: silence }
  const changed = await call('PATCH', `/${tenant.domain}/rules/${rule.id}`, change)
  expect(changed.status, changed.text).toBe(200)
  expect(changed.json<Rule>()).not.toHaveProperty('condition_task')
})
