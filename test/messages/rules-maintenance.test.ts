// docs/guides/rules.md, Maintenance
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { sleep } from '#core/time.ts'
import { startTestApi } from '../harness/api.ts'
import { createTestDatabase } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { expectStatus } from './consumers-support.ts'
import { alarmsOf, newRule, sendValue, untilSeen } from './rules-support.ts'
import type { AlarmBody, RuleBody } from './rules-support.ts'
import { startPlant } from './support.ts'
import type { Device, Plant } from './support.ts'

type Connected = Device & { channelId: string }
type Window = { id: string; name: string; active_until?: string; next_at?: string; named: { name: string }[] }
type Silenced = AlarmBody & { maintenance_id?: string; maintenance_name?: string; silenced_until?: string }
type Post = { path: string; moment: string; value: unknown }

let plant: Plant
let server: Server
let base: string
const posts: Post[] = []

beforeAll(async () => {
  server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => void chunks.push(chunk))
    request.on('end', () => {
      const { moment, value } = JSON.parse(Buffer.concat(chunks).toString()) as Omit<Post, 'path'>
      posts.push({ path: request.url ?? '', moment, value })
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

const ALL = ['raise', 'repeat', 'clear']
const inMs = (ms: number) => new Date(Date.now() + ms).toISOString()
const now = () => ({ starts_at: inMs(-60_000), ends_at: inMs(3_600_000) })

async function newWindow(fields: object, status = 201): Promise<Window & { message: string }> {
  const body = { name: `window-${newId()}`, ...fields }
  const answer = await plant.owner.call('POST', `/${plant.domainId}/maintenance-windows`, body)
  return expectStatus(status, answer).json<Window & { message: string }>()
}

async function change({ id }: Window, fields: object): Promise<Window> {
  const answer = await plant.owner.call('PATCH', `/${plant.domainId}/maintenance-windows/${id}`, fields)
  return expectStatus(200, answer).json<Window>()
}

async function remove({ id }: Window): Promise<void> {
  expectStatus(204, await plant.owner.call('DELETE', `/${plant.domainId}/maintenance-windows/${id}`))
}

type Watch = { rule: RuleBody; device: Connected; send(value: number): Promise<void>; posts(): string[] }

/** A rule over values above 30 of a device, which tells a webhook of its own. */
async function watch(more: { actions?: object[]; device?: Connected } = {}): Promise<Watch> {
  const device = more.device ?? (await plant.newConnectedDevice())
  const url = `${base}/${newId()}`
  const actions = [{ type: 'alarm' }, { type: 'webhook', url, on: ALL }, ...(more.actions ?? [])]
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
    posts: () =>
      posts
        .filter(({ path }) => path === new URL(url).pathname)
        .map(({ moment, value }) => `${moment} ${String(value)}`),
  }
}

const alarmOf = async ({ rule }: Watch): Promise<Silenced> => (await alarmsOf(plant, rule.id))[0] as Silenced

async function changesOf(alarm: AlarmBody): Promise<string[]> {
  const answer = await plant.owner.call('GET', `/${plant.domainId}/alarms/${alarm.id}/history`)
  return expectStatus(200, answer)
    .json<{ history: { change: string }[] }>()
    .history.map((one) => one.change)
}

/** Longer than a notification takes to arrive. */
const wait = async () => await sleep(1_500)

describe('in a maintenance window', () => {
  test('an alarm is raised and nobody is notified; at its end it is sent, if it is still active', async () => {
    const window = await newWindow(now())
    const one = await watch()
    await one.send(31)
    await one.send(32)
    await wait()
    expect(one.posts()).toEqual([])
    const alarm = await alarmOf(one)
    expect(alarm).toMatchObject({
      status: 'active',
      count: 2,
      maintenance_id: window.id,
      maintenance_name: window.name,
    })
    expect(Date.parse(alarm.silenced_until ?? '')).toBeCloseTo(Date.parse(window.active_until ?? ''), -4)
    expect(await alarmsOf(plant, one.rule.id, '&silenced=true')).toHaveLength(1)
    expect(await alarmsOf(plant, one.rule.id, '&silenced=false')).toHaveLength(0)

    await remove(window)
    await until(() => one.posts().length === 1, 'what is still active is sent')
    expect(await alarmOf(one)).toMatchObject({ status: 'active', maintenance_name: window.name })
    expect((await alarmOf(one)).silenced_until).toBeUndefined()
    await one.send(33)
    await one.send(20)
    await until(() => one.posts().length === 3, 'its end is sent')
    expect(one.posts()).toEqual(['raise 32', 'repeat 33', 'clear 20'])
    expect(await changesOf(alarm)).toEqual(['raise', 'unsilence', 'clear'])
  })

  test('nobody is notified of what is raised and cleared, and it stays marked', async () => {
    const window = await newWindow(now())
    const one = await watch()
    await one.send(31)
    await one.send(20)
    await remove(window)
    await wait()
    expect(one.posts()).toEqual([])
    const alarm = await alarmOf(one)
    expect(alarm).toMatchObject({ status: 'cleared', maintenance_name: window.name })
    expect(alarm.silenced_until).toBeDefined()
    await one.send(35)
    await until(() => one.posts().length === 1, 'the next one is sent')
    expect((await alarmOf(one)).silenced_until).toBeUndefined()
    await one.send(20)
  })

  test('contacts are notified of the end of what was sent before, and of nothing between', async () => {
    const one = await watch()
    await one.send(31)
    await until(() => one.posts().length === 1, 'it is sent')
    const window = await newWindow(now())
    await one.send(32)
    await one.send(20)
    await until(() => one.posts().length === 2, 'its end is sent')
    await remove(window)
    await wait()
    expect(one.posts()).toEqual(['raise 31', 'clear 20'])
    expect((await alarmOf(one)).silenced_until).toBeUndefined()
  })

  test('nobody is notified at its end of an alarm that a user acknowledged', async () => {
    const window = await newWindow(now())
    const one = await watch()
    await one.send(31)
    const { id } = await alarmOf(one)
    const path = `/${plant.domainId}/alarms/${id}`
    expectStatus(200, await plant.owner.call('PATCH', path, { status: 'acknowledged' }))
    await remove(window)
    await until(async () => (await alarmOf(one)).silenced_until === undefined, 'the maintenance is over')
    await wait()
    expect(one.posts()).toEqual([])
    await one.send(20)
    await until(() => one.posts().length === 1, 'its end is sent')
  })

  test('rules go on to publish', async () => {
    const window = await newWindow(now())
    const channel = await plant.newChannel()
    const one = await watch({ actions: [{ type: 'publish', channel, payload: '{"v": 1}' }] })
    const listening = await newRule(plant, { source: { type: 'messages', channels: [channel] }, condition: 'true' })
    await one.send(31)
    await untilSeen(plant, listening.id, 1)
    await remove(window)
    await until(() => one.posts().length === 1, 'it is sent')
    await wait()
    const { rows } = await sql<{
      total: number
    }>`SELECT seen AS total FROM rules WHERE id = ${listening.id}::uuid`.execute(plant.api.database.db)
    expect(rows[0]?.total).toBe(1)
    await one.send(20)
  })
})

describe('a maintenance window is about', () => {
  test('clients of a group, also of one below it, of a tag, by id, and rules', async () => {
    const call = plant.owner.call
    const group = expectStatus(201, await call('POST', `/${plant.domainId}/groups`, { name: 'site' })).json<Window>()
    const below = expectStatus(
      201,
      await call('POST', `/${plant.domainId}/groups`, { name: 'hall', parent_id: group.id }),
    ).json<Window>()
    const inGroup = await watch()
    expectStatus(
      200,
      await call('POST', `/${plant.domainId}/clients/${inGroup.device.id}/parent`, { parent_group_id: below.id }),
    )
    const tagged = await watch()
    expectStatus(200, await call('PATCH', `/${plant.domainId}/clients/${tagged.device.id}/tags`, { tags: ['old'] }))
    const [byId, ofRule, other] = [await watch(), await watch(), await watch()]
    const windows = [
      await newWindow({ ...now(), groups: [group.id] }),
      await newWindow({ ...now(), tags: ['old', 'worn'] }),
      await newWindow({ ...now(), clients: [byId.device.id] }),
      await newWindow({ ...now(), rules: [ofRule.rule.id] }),
      await newWindow({ ...now(), rules: [other.rule.id], clients: [byId.device.id] }),
    ]
    expect(windows[0]?.named).toEqual([{ type: 'group', id: group.id, name: 'site' }])
    const all = [inGroup, tagged, byId, ofRule, other]
    for (const one of all) await one.send(31)
    await until(() => other.posts().length === 1, 'what is in no window is sent')
    await wait()
    expect(all.map((one) => one.posts().length)).toEqual([0, 0, 0, 0, 1])
    for (const window of windows) await remove(window)
    await until(() => all.every((one) => one.posts().length === 1), 'all are sent')
    for (const one of all) await one.send(20)
  })

  test('all clients of an outage, or it is sent', { timeout: 60_000 }, async () => {
    const channel = await plant.newChannel()
    const devices: Device[] = []
    for (let number = 0; number < 6; number++) {
      const device = await plant.newDevice()
      await plant.connect(device, channel)
      devices.push(device)
    }
    const url = `${base}/${newId()}`
    const told = () => posts.filter(({ path }) => path === new URL(url).pathname)
    const source = { type: 'silence', channels: [channel], after: '5s' }
    const window = await newWindow({ ...now(), clients: devices.map(({ id }) => id) })
    const rule = await newRule(plant, { source, actions: [{ type: 'alarm' }, { type: 'webhook', url }] })
    const [alarm] = await until(async () => {
      const alarms = await alarmsOf(plant, rule.id)
      return alarms.length > 0 ? (alarms as Silenced[]) : undefined
    }, 'the outage')
    expect(alarm?.text).toContain('fell silent within a minute')
    expect(alarm?.maintenance_name).toBe(window.name)
    await wait()
    expect(told()).toHaveLength(0)
    await change(window, { clients: devices.slice(1).map(({ id }) => id) })
    await until(() => told().length === 1, 'an outage of others too is sent')
    await remove(window)
    expectStatus(204, await plant.owner.call('DELETE', `/${plant.domainId}/rules/${rule.id}`))
  })
})

describe('the end of a maintenance window', () => {
  test('that another one covers silences on', async () => {
    const [first, second] = [await newWindow(now()), await newWindow(now())]
    const one = await watch()
    await one.send(31)
    await remove(first)
    await wait()
    expect(one.posts()).toEqual([])
    expect(await alarmOf(one)).toMatchObject({ maintenance_id: second.id, maintenance_name: second.name })
    await remove(second)
    await until(() => one.posts().length === 1, 'it is sent')
    await one.send(20)
  })

  test('tells nobody of a client that is not one of the rule any more, and clears its alarm', async () => {
    const device = await plant.newDevice()
    const tag = async (tags: string[]) =>
      expectStatus(200, await plant.owner.call('PATCH', `/${plant.domainId}/clients/${device.id}/tags`, { tags }))
    await tag(['leaving'])
    const url = `${base}/${newId()}`
    const channel = await plant.newChannel()
    await plant.connect(device, channel)
    const window = await newWindow(now())
    const rule = await newRule(plant, {
      source: { type: 'state', tags: ['leaving'], channels: [channel] },
      condition: '!online',
      actions: [{ type: 'alarm' }, { type: 'webhook', url, on: ALL }],
    })
    await until(async () => (await alarmsOf(plant, rule.id)).length === 1, 'it is raised')
    await tag([])
    await remove(window)
    await until(async () => (await alarmsOf(plant, rule.id, '&status=cleared')).length === 1, 'it is cleared')
    await wait()
    expect(posts.filter(({ path }) => path === new URL(url).pathname)).toEqual([])
  })

  test('comes also when a thousand ends of a disabled rule wait', async () => {
    const one = await watch()
    const disabled = await newRule(plant, {
      source: { type: 'messages', channels: [one.device.channelId] },
      condition: 'false',
      status: 'disabled',
    })
    const { db } = plant.api.database
    await sql`INSERT INTO rule_states (rule_key, publisher_id, channel_key, subtopic, name, series_digest, state, due_at, silenced_until)
      SELECT r.key, '', 1, '', n::text, sha256(n::text::bytea), '{"state": {"status": "active", "sinceMs": 1, "cause": "", "count": 1}}',
        '2020-01-01', '2020-01-01' FROM rules r, generate_series(1, 1000) n WHERE r.id = ${disabled.id}::uuid`.execute(
      db,
    )
    const window = await newWindow({ starts_at: inMs(-60_000), ends_at: inMs(3_000) })
    await one.send(31)
    expect((await alarmOf(one)).maintenance_name).toBe(window.name)
    await until(() => one.posts().length === 1, 'it is sent')
    await one.send(20)
    await remove(window)
    expectStatus(204, await plant.owner.call('DELETE', `/${plant.domainId}/rules/${disabled.id}`))
  })

  test('comes by itself, and tells once, also when every process was gone meanwhile', { timeout: 60_000 }, async () => {
    await using own = await createTestDatabase()
    const options = { ...optionsOf(), database: own }
    const before = await startPlant(options)
    const device = await before.newConnectedDevice()
    const url = `${base}/${newId()}`
    const told = () => posts.filter(({ path }) => path === new URL(url).pathname)
    const source = { type: 'messages', channels: [device.channelId] }
    const actions = [{ type: 'webhook', url }]
    const rule = await newRule(before, { source, condition: 'value > 30.0', actions })
    const window = { name: 'short', starts_at: inMs(-60_000), ends_at: inMs(4_000) }
    expectStatus(201, await before.owner.call('POST', `/${before.domainId}/maintenance-windows`, window))
    await sendValue(before, device, device.channelId, 31)
    await untilSeen(before, rule.id, 1)
    await before[Symbol.asyncDispose]()
    await sleep(3_000)
    expect(told()).toHaveLength(0)
    await using api = await startTestApi(options)
    await until(() => told().length > 0, 'it is sent')
    await wait()
    expect(told()).toHaveLength(1)
    const { rows } = await sql`SELECT FROM rule_states WHERE silenced_until IS NOT NULL`.execute(api.database.db)
    expect(rows).toHaveLength(0)
  })
})

describe('a maintenance window', () => {
  test('by a schedule says when it is next, and until when it is', async () => {
    const timezone = 'Asia/Tokyo'
    const always = await newWindow({ schedule: '* * * * *', duration: '1m', timezone }, 400)
    expect(always.message).toContain('duration must be less than the time from one start to the next')
    const window = await newWindow({ schedule: '0 3 * * 0', duration: '2h', timezone })
    expect(window).toMatchObject({ schedule: '0 3 * * 0', duration: '2h', timezone, rules: [], tags: [] })
    // 03:00 in Tokyo, where no daylight saving is.
    expect(window.next_at).toMatch(/T18:00:00/)
    expect(new Date(window.next_at ?? '').getUTCDay()).toBe(6)
    const hour = new Date().getUTCHours()
    const daily = await change(window, { schedule: `0 ${hour} * * *`, timezone: 'UTC', duration: '1h' })
    expect(daily.active_until).toBe(`${new Date(Date.now() + 3_600_000).toISOString().slice(0, 13)}:00:00.000000Z`)
    const once = await change(window, { schedule: '', ...now() })
    expect(once).not.toHaveProperty('schedule')
    expect(once).not.toHaveProperty('duration')
    await remove(window)
    expectStatus(404, await plant.owner.call('GET', `/${plant.domainId}/maintenance-windows/${window.id}`))
  })

  test.each([
    [{}, 'starts_at is required without `schedule`'],
    [{ starts_at: inMs(0) }, 'ends_at is required'],
    [{ starts_at: inMs(5), ends_at: inMs(5) }, 'ends_at must be after'],
    [{ starts_at: 'tomorrow', ends_at: inMs(5) }, 'starts_at must be a time'],
    [{ ...now(), duration: '2h' }, 'duration must be absent'],
    [{ ...now(), timezone: 'UTC' }, 'timezone must be absent'],
    [{ schedule: '0 3 * * *' }, 'duration is required'],
    [{ schedule: '0 3 * * *', duration: '30s' }, 'duration must be between 1m and 720h'],
    [{ schedule: '0 3 * * *', duration: '721h' }, 'duration must be between 1m and 720h'],
    [{ schedule: '0 3 * * *', duration: '24h' }, 'duration must be less than'],
    [{ schedule: '0 3 31 2 *', duration: '1h' }, 'schedule must be a cron expression'],
    [{ schedule: 'now', duration: '1h' }, 'schedule must be a cron expression'],
    [{ schedule: '0 3 * * *', duration: '1h', timezone: 'Mars/Base' }, 'timezone must be a time zone'],
    [{ ...now(), rules: [newId()] }, 'rules.0 is not the id of a rule'],
    [{ ...now(), clients: [newId()] }, 'clients.0 is not the id of a client'],
    [{ ...now(), groups: ['none'] }, 'groups.0 must be a UUID'],
  ])('is refused with %j', async (fields, message) => {
    expect((await newWindow(fields, 400)).message).toContain(message)
  })

  test('has a name of its own, and is seen in its domain alone', async () => {
    const window = await newWindow(now())
    expectStatus(
      409,
      await plant.owner.call('POST', `/${plant.domainId}/maintenance-windows`, { ...now(), name: window.name }),
    )
    const stranger = await plant.api.newUser()
    const theirs = expectStatus(201, await stranger.call('POST', '/domains', { name: 'other' })).json<{ id: string }>()
    for (const method of ['GET', 'PATCH', 'DELETE'] as const) {
      const body = method === 'PATCH' ? { name: 'mine' } : undefined
      expectStatus(404, await stranger.call(method, `/${theirs.id}/maintenance-windows/${window.id}`, body))
      expectStatus(403, await stranger.call(method, `/${plant.domainId}/maintenance-windows/${window.id}`, body))
    }
    await remove(window)
  })
})
