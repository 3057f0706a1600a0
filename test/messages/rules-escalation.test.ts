// docs/guides/rules.md, Escalation
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Database } from '#core/database/index.ts'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { sleep } from '#core/time.ts'
import { startTestApi } from '../harness/api.ts'
import { createTestDatabase } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { expectStatus } from './consumers-support.ts'
import { alarmsOf, newRule, sendValue, showRule, untilSeen } from './rules-support.ts'
import type { AlarmBody, RuleBody } from './rules-support.ts'
import { startPlant } from './support.ts'
import type { Device, Plant } from './support.ts'

type Connected = Device & { channelId: string }
type Escalated = AlarmBody & { escalations: number }
type Post = { path: string; moment: string; value: unknown; at: string; after?: string; raised_at?: string }

let plant: Plant
let server: Server
let base: string
const posts: Post[] = []

beforeAll(async () => {
  server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => void chunks.push(chunk))
    request.on('end', () => {
      posts.push({ ...(JSON.parse(Buffer.concat(chunks).toString()) as Post), path: request.url ?? '' })
      response.end()
    })
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  plant = await startPlant(optionsOf())
})
afterAll(async () => {
  await plant[Symbol.asyncDispose]()
  server.closeAllConnections()
  server.close()
})

const optionsOf = () => ({
  environment: { SKEIN_WEBHOOK_HOSTS: new URL(base).host },
  notificationTimes: { retrySeconds: [0.05], intervalMs: 20, rightSeconds: 0.2, postDeadlineMs: 300 },
  ruleTimes: { intervalMs: 20 },
})

/** As if so many minutes had passed since the alarms of the rule were raised. */
async function age({ id }: { id: string }, minutes: number, { transaction }: Database = plant.api.database) {
  const ms = minutes * 60_000
  await transaction(async (tx) => {
    await sql`SELECT FROM rule_domains d JOIN rules r USING (domain_key) WHERE r.id = ${id}::uuid FOR NO KEY UPDATE OF d`.execute(
      tx,
    )
    await sql`UPDATE rule_states s SET escalate_at = s.escalate_at - make_interval(secs => ${ms / 1000}),
        escalation = CASE WHEN s.escalation IS NOT NULL THEN jsonb_set(jsonb_set(s.escalation, '{fromMs}',
          to_jsonb((s.escalation ->> 'fromMs')::float8 - ${ms}::float8)), '{raisedMs}', to_jsonb((s.escalation ->> 'raisedMs')::float8 - ${ms}::float8)) END,
        state = jsonb_set(s.state, '{state,sinceMs}', to_jsonb((s.state #>> '{state,sinceMs}')::float8 - ${ms}::float8))
      FROM rules r WHERE r.key = s.rule_key AND r.id = ${id}::uuid`.execute(tx)
  })
}

const postsAt = (url: string): Post[] => posts.filter(({ path }) => path === new URL(url).pathname)
const momentsAt = (url: string): string[] =>
  postsAt(url).map(({ moment, after, value }) => `${moment} ${after === undefined ? '' : `${after} `}${String(value)}`)

type Watch = {
  rule: RuleBody
  device: Connected
  send(value: number): Promise<void>
  /** What its webhook got. */
  told(): string[]
  alarm(): Promise<Escalated>
  change(fields: object): Promise<void>
}

const stepsAt = (url: string, ...afters: string[]) =>
  afters.map((after) => ({ type: 'webhook', url, on: ['escalate'], after }))

/** A rule over values above 30 of a device, with escalations after 15 minutes and an hour that tell a webhook of its own. */
async function watch(more: { on?: string[]; actions?: object[] } = {}): Promise<Watch> {
  const device = await plant.newConnectedDevice()
  const url = `${base}/${newId()}`
  const { on = ['raise'] } = more
  const actions = [
    { type: 'alarm' },
    ...(on.length === 0 ? [] : [{ type: 'webhook', url, on }]),
    ...stepsAt(url, '1h', '15m'),
    ...(more.actions ?? []),
  ]
  const source = { type: 'messages', channels: [device.channelId] }
  const rule = await newRule(plant, { source, condition: 'value > 30.0', actions })
  let sent = 0
  return {
    rule,
    device,
    async send(value) {
      await sendValue(plant, device, device.channelId, value)
      await untilSeen(plant, rule.id, ++sent)
    },
    told: () => momentsAt(url),
    alarm: async () => (await alarmsOf(plant, rule.id))[0] as Escalated,
    async change(fields) {
      const { id } = (await alarmsOf(plant, rule.id))[0] as AlarmBody
      expectStatus(200, await plant.owner.call('PATCH', `/${plant.domainId}/alarms/${id}`, fields))
    },
  }
}

async function changesOf(alarm: AlarmBody): Promise<string[]> {
  const answer = await plant.owner.call('GET', `/${plant.domainId}/alarms/${alarm.id}/history`)
  return expectStatus(200, answer)
    .json<{ history: { change: string }[] }>()
    .history.map((one) => one.change)
}

async function escalationOf({ rule }: Watch): Promise<{ at: string | null; escalation: object | null }> {
  const { rows } = await sql<{ at: string | null; escalation: object | null }>`
    SELECT s.escalate_at AS at, s.escalation FROM rule_states s JOIN rules r ON r.key = s.rule_key WHERE r.id = ${rule.id}::uuid`.execute(
    plant.api.database.db,
  )
  return rows[0] ?? { at: null, escalation: null }
}

/** Longer than a notification takes to arrive. */
const wait = async () => await sleep(1_500)

async function newWindow(fields: object = {}): Promise<{ id: string }> {
  const at = (ms: number) => new Date(Date.now() + ms).toISOString()
  const body = { name: `window-${newId()}`, starts_at: at(-60_000), ends_at: at(3_600_000), ...fields }
  const answer = await plant.owner.call('POST', `/${plant.domainId}/maintenance-windows`, body)
  return expectStatus(201, answer).json<{ id: string }>()
}

async function removeWindow({ id }: { id: string }): Promise<void> {
  expectStatus(204, await plant.owner.call('DELETE', `/${plant.domainId}/maintenance-windows/${id}`))
}

describe('an alarm that nobody acknowledges', () => {
  test('is escalated once after each time, with its last value, and its history says so', async () => {
    const one = await watch()
    await one.send(31)
    await one.send(32)
    await until(() => one.told().length === 1, 'it is raised')
    await age(one.rule, 14)
    await wait()
    expect(one.told()).toEqual(['raise 31'])
    await age(one.rule, 1)
    await until(() => one.told().length === 2, 'the first step')
    await one.send(33)
    await age(one.rule, 45)
    await until(() => one.told().length === 3, 'the second step')
    await age(one.rule, 600)
    await one.send(34)
    await wait()
    expect(one.told()).toEqual(['raise 31', 'escalate 15m 32', 'escalate 1h 33'])
    const alarm = await one.alarm()
    expect(alarm).toMatchObject({ status: 'active', escalations: 2, count: 4 })
    expect(await changesOf(alarm)).toEqual(['raise', 'escalate', 'escalate'])
    expect((await showRule(plant, one.rule.id)).acted).toBe(3)

    await one.send(20)
    await one.send(35)
    await until(() => one.told().length === 4, 'the next alarm')
    expect((await one.alarm()).escalations).toBe(0)
    await age(one.rule, 15)
    await until(() => one.told().length === 5, 'is escalated too')
    expect(one.told().at(-1)).toBe('escalate 15m 35')
    await one.send(20)
  })

  test('does all steps in order that became due together, and tells since when', async () => {
    const one = await watch({ on: ['raise', 'clear'] })
    await one.send(31)
    await age(one.rule, 90)
    await until(() => one.told().length === 3, 'both steps')
    expect(one.told()).toEqual(['raise 31', 'escalate 15m 31', 'escalate 1h 31'])
    const [, first, second] = posts.filter(({ path }) => path === posts.findLast(() => true)?.path)
    const minutes = (from: string | undefined, to: string | undefined) =>
      Math.round((Date.parse(to ?? '') - Date.parse(from ?? '')) / 60_000)
    expect(minutes(first?.raised_at, first?.at)).toBe(15)
    expect(minutes(second?.raised_at, second?.at)).toBe(60)
    await one.send(20)
    await until(() => one.told().length === 4, 'it is cleared')
  })

  test('also publishes and starts tasks then', async () => {
    const channel = await plant.newChannel()
    const publish = { type: 'publish', channel, payload: '{"v": "{{ value }}"}', on: ['escalate'], after: '15m' }
    const one = await watch({ on: [], actions: [publish] })
    const source = { type: 'messages', channels: [channel] }
    const listening = await newRule(plant, { source, condition: 'double(json.v) == 31.0' })
    await one.send(31)
    await wait()
    expect((await showRule(plant, listening.id)).seen).toBe(0)
    await age(one.rule, 15)
    await untilSeen(plant, listening.id, 1)
    expect((await showRule(plant, listening.id)).matched).toBe(1)
    await one.change({ status: 'acknowledged' })
    await age(one.rule, 60)
    await wait()
    expect((await showRule(plant, listening.id)).seen).toBe(1)
    await one.send(20)
  })
})

describe('nobody is notified', () => {
  test('of an alarm that is acknowledged, until that is taken back', async () => {
    const one = await watch({ on: [] })
    await one.send(31)
    await age(one.rule, 15)
    await until(() => one.told().length === 1, 'the first step')
    await one.change({ status: 'acknowledged' })
    await age(one.rule, 60)
    await until(async () => (await escalationOf(one)).at === null, 'it was looked at')
    await one.send(32)
    await wait()
    expect(one.told()).toEqual(['escalate 15m 31'])
    await one.change({ status: 'active' })
    await until(() => one.told().length === 2, 'what is not done yet')
    await one.change({ status: 'acknowledged' })
    await one.change({ status: 'active' })
    await wait()
    expect(one.told()).toEqual(['escalate 15m 31', 'escalate 1h 32'])
    expect(await changesOf(await one.alarm())).toEqual([
      'raise',
      'escalate',
      'acknowledge',
      'unacknowledge',
      'escalate',
      'acknowledge',
      'unacknowledge',
    ])
    await one.send(20)
  })

  test('of an acknowledgement that is taken back before its time', async () => {
    const one = await watch({ on: [] })
    await one.send(31)
    await one.change({ status: 'acknowledged' })
    await one.change({ status: 'active' })
    await wait()
    expect(one.told()).toEqual([])
    const { at } = await escalationOf(one)
    expect(Date.parse(at ?? '') - Date.now()).toBeGreaterThan(14 * 60_000)
    await one.send(20)
  })

  test('of what is over, also by hand', async () => {
    const [one, other] = [await watch({ on: [] }), await watch({ on: [] })]
    await one.send(31)
    await one.send(20)
    await other.send(31)
    await other.change({ status: 'cleared' })
    await age(one.rule, 60)
    await age(other.rule, 60)
    await wait()
    expect([...one.told(), ...other.told()]).toEqual([])
    await other.send(32)
    await age(other.rule, 15)
    await until(() => other.told().length === 1, 'the new alarm')
    expect(other.told()).toEqual(['escalate 15m 32'])
    await other.send(20)
  })
})

describe('in maintenance', () => {
  test('the time begins when it is over', async () => {
    const one = await watch()
    const window = await newWindow({ rules: [one.rule.id] })
    await one.send(31)
    await age(one.rule, 120)
    await wait()
    expect(one.told()).toEqual([])
    await removeWindow(window)
    await until(() => one.told().length === 1, 'it is raised')
    await wait()
    expect(one.told()).toEqual(['raise 31'])
    await age(one.rule, 15)
    await until(() => one.told().length === 2, 'and escalated')
    await one.send(20)
  })

  test('what was raised before is escalated at its end, unless it is over then', async () => {
    const [one, other] = [await watch(), await watch()]
    await one.send(31)
    await other.send(31)
    await until(() => one.told().length + other.told().length === 2, 'both are raised')
    const window = await newWindow({ rules: [one.rule.id, other.rule.id] })
    await age(one.rule, 20)
    await age(other.rule, 20)
    await wait()
    expect([...one.told(), ...other.told()]).toEqual(['raise 31', 'raise 31'])
    await other.send(20)
    await removeWindow(window)
    await until(() => one.told().length === 2, 'it is escalated')
    await wait()
    expect(one.told()).toEqual(['raise 31', 'escalate 15m 31'])
    expect(other.told()).toEqual(['raise 31'])
    await one.send(20)
  })
})

describe('a rule', () => {
  test('that is disabled escalates nothing, and what became due when it is enabled', async () => {
    const one = await watch({ on: [] })
    await one.send(31)
    const path = `/${plant.domainId}/rules/${one.rule.id}`
    expectStatus(200, await plant.owner.call('POST', `${path}/disable`))
    await age(one.rule, 20)
    await wait()
    expect(one.told()).toEqual([])
    expectStatus(200, await plant.owner.call('POST', `${path}/enable`, {}))
    await until(() => one.told().length === 1, 'what became due')
    await wait()
    expect(one.told()).toEqual(['escalate 15m 31'])
  })

  test('that is changed escalates open alarms by its new steps, and no step below those that are done', async () => {
    const device = await plant.newConnectedDevice()
    const url = `${base}/${newId()}`
    const source = { type: 'messages', channels: [device.channelId] }
    const rule = await newRule(plant, { source, condition: 'value > 30.0' })
    await sendValue(plant, device, device.channelId, 31)
    await untilSeen(plant, rule.id, 1)
    await age(rule, 30)
    const path = `/${plant.domainId}/rules/${rule.id}`
    const change = async (...afters: string[]) =>
      expectStatus(
        200,
        await plant.owner.call('PATCH', path, { actions: [{ type: 'alarm' }, ...stepsAt(url, ...afters)] }),
      )
    await change('20m', '2h')
    await until(() => momentsAt(url).length === 1, 'the step that is due')
    await change('10m', '90m')
    await wait()
    expect(momentsAt(url)).toEqual(['escalate 20m 31'])
    await age(rule, 60)
    await until(() => momentsAt(url).length === 2, 'the new step')
    await change()
    await age(rule, 600)
    await wait()
    expect(momentsAt(url)).toEqual(['escalate 20m 31', 'escalate 1h30m 31'])
    const { rows } = await sql`SELECT FROM rule_states s JOIN rules r ON r.key = s.rule_key
      WHERE r.id = ${rule.id}::uuid AND s.escalate_at IS NOT NULL`.execute(plant.api.database.db)
    expect(rows).toHaveLength(0)
  })

  test('about silence and about state escalates too', { timeout: 60_000 }, async () => {
    const device = await plant.newConnectedDevice()
    const url = `${base}/${newId()}`
    const actions = [{ type: 'alarm' }, ...stepsAt(url, '15m')]
    const of = { channels: [device.channelId], clients: [device.id] }
    const silence = await newRule(plant, { source: { type: 'silence', ...of, after: '5s' }, actions })
    const state = await newRule(plant, { source: { type: 'state', ...of }, condition: '!online', actions })
    await until(async () => (await alarmsOf(plant, state.id)).length === 1, 'the alarm of the state')
    await age(state, 15)
    await until(() => postsAt(url).length === 1, 'it is escalated')
    await until(async () => (await alarmsOf(plant, silence.id)).length === 1, 'the alarm of the silence')
    await age(silence, 15)
    await until(() => postsAt(url).length === 2, 'it is escalated')
    for (const rule of [silence, state])
      expect((await alarmsOf(plant, rule.id))[0]).toMatchObject({ status: 'active', escalations: 1 })
  })

  test('whose alarm had no room escalates it when it is raised', async () => {
    const setQuotas = async (own: object) =>
      expectStatus(200, await plant.api.admin('PUT', `/domains/${plant.domainId}/quotas`, { own }))
    const one = await watch({ on: [] })
    await setQuotas({ open_alarms: 0 })
    await one.send(31)
    await age(one.rule, 120)
    await wait()
    expect(await alarmsOf(plant, one.rule.id)).toHaveLength(0)
    expect(await escalationOf(one)).toEqual({ at: null, escalation: null })
    await setQuotas({})
    await one.send(32)
    await wait()
    expect(one.told()).toEqual([])
    await age(one.rule, 15)
    await until(() => one.told().length === 1, 'it is escalated')
    await one.send(20)
  })

  test.each([
    [[{ type: 'alarm' }, { type: 'mail', to: ['a@example.com'], on: ['escalate'] }], 'actions.1.after is required'],
    [[{ type: 'alarm' }, { type: 'mail', to: ['a@example.com'], after: '15m' }], 'actions.1.after must be absent'],
    [[{ type: 'alarm' }, ...stepsAt('https://example.com', '59s')], 'actions.1.after must be between 1m and 168h'],
    [[{ type: 'alarm' }, ...stepsAt('https://example.com', '169h')], 'actions.1.after must be between 1m and 168h'],
    [[{ type: 'alarm' }, ...stepsAt('https://example.com', 'soon')], 'actions.1.after must be a duration'],
    [stepsAt('https://example.com', '15m'), 'actions.0.on must not have `escalate`'],
  ])('is refused with the actions %j', async (actions, message) => {
    const body = { name: newId(), source: { type: 'messages' }, condition: 'value > 30.0', actions }
    const answer = await plant.owner.call('POST', `/${plant.domainId}/rules`, body)
    expect(expectStatus(400, answer).json<{ message: string }>().message).toContain(message)
  })
})

test('what became due while every process was gone is done once', { timeout: 60_000 }, async () => {
  await using own = await createTestDatabase()
  const options = { ...optionsOf(), database: own }
  const before = await startPlant(options)
  const device = await before.newConnectedDevice()
  const url = `${base}/${newId()}`
  const source = { type: 'messages', channels: [device.channelId] }
  const actions = [{ type: 'alarm' }, ...stepsAt(url, '1h', '15m')]
  const rule = await newRule(before, { source, condition: 'value > 30.0', actions })
  await sendValue(before, device, device.channelId, 31)
  await untilSeen(before, rule.id, 1)
  await before[Symbol.asyncDispose]()
  {
    await using api = await startTestApi({ ...options, ruleTimes: { intervalMs: 3_600_000 } })
    await age(rule, 90, api.database)
    await sql`UPDATE rule_clock SET alive_at = now() - interval '90 minutes'`.execute(api.database.db)
  }
  await using api = await startTestApi(options)
  await until(() => postsAt(url).length === 2, 'both are sent')
  await wait()
  expect(momentsAt(url)).toEqual(['escalate 15m 31', 'escalate 1h 31'])
  const { rows } = await sql<{ escalations: number }>`SELECT escalations FROM alarms`.execute(api.database.db)
  expect(rows).toEqual([{ escalations: 2 }])
})
