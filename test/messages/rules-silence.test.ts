// docs/guides/rules.md
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parse } from 'yaml'
import { takeDomain } from '#api/rules/evaluation/repository.ts'
import { sql } from '#core/sql.ts'
import { sleep } from '#core/time.ts'
import { startTestApi } from '../harness/api.ts'
import { createTestDatabase } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { expectStatus } from './consumers-support.ts'
import { alarmsOf, newRule, sendValue, showRule, untilSeen } from './rules-support.ts'
import type { AlarmBody } from './rules-support.ts'
import { startPlant } from './support.ts'
import type { Device, Plant } from './support.ts'

const ruleTimes = { intervalMs: 20 }
const AFTER = '5s'
const AFTER_MS = 5_000
/** A message may be stored a moment after its arrival, and nobody looks at every moment. */
const LATE_MS = 2_500

let plant: Plant
beforeAll(async () => {
  plant = await startPlant({ ruleTimes })
})
afterAll(() => plant[Symbol.asyncDispose]())

const url = (path: string) => `/${plant.domainId}/${path}`

async function connected(count: number): Promise<{ channel: string; devices: Device[] }> {
  const channel = await plant.newChannel()
  const devices: Device[] = []
  for (let number = 0; number < count; number++) {
    const device = await plant.newDevice()
    await plant.connect(device, channel)
    devices.push(device)
  }
  return { channel, devices }
}

const silence = (channel: string, more: Record<string, unknown> = {}) => ({
  type: 'silence',
  channels: [channel],
  after: AFTER,
  ...more,
})

const untilAlarms = async (ruleId: string, count: number, query = ''): Promise<AlarmBody[]> =>
  await until(async () => {
    const alarms = await alarmsOf(plant, ruleId, query)
    return alarms.length >= count ? alarms : undefined
  }, `${count} alarms${query}`)

async function keepSending(device: Device, channel: string, forMs: number, name = 'temperature'): Promise<void> {
  const endMs = performance.now() + forMs
  while (performance.now() < endMs) {
    await sendValue(plant, device, channel, 1, name)
    await sleep(500)
  }
}

test('a silent client has one alarm, also one that never sent; a message ends it', { timeout: 60_000 }, async () => {
  const { channel, devices } = await connected(3)
  const [talking, stopping, never] = devices as [Device, Device, Device]
  // Time in which there is no rule about silence counts for none.
  await sleep(AFTER_MS)
  const begunMs = Date.now()
  const rule = await newRule(plant, {
    source: silence(channel),
    severity: 'major',
    actions: [{ type: 'alarm', text: '{{ client.name }} has been silent since {{ time }}' }],
  })
  await sendValue(plant, stopping, channel, 7)
  await keepSending(talking, channel, AFTER_MS + LATE_MS)
  const alarms = await untilAlarms(rule.id, 2)
  expect(alarms.map(({ client_id: id }) => id ?? '').toSorted()).toEqual([stopping.id, never.id].toSorted())
  for (const alarm of alarms) {
    expect(alarm).toMatchObject({ status: 'active', severity: 'major', client_name: 'client', count: 1, name: '' })
    expect(alarm.text).toContain('client has been silent since 20')
    expect(Date.parse(alarm.first_at) - begunMs).toBeGreaterThan(AFTER_MS)
  }
  await keepSending(talking, channel, 2_000)
  expect(await alarmsOf(plant, rule.id)).toHaveLength(2)
  await sendValue(plant, never, channel, 7)
  const [cleared] = await untilAlarms(rule.id, 1, '&status=cleared')
  expect(cleared?.client_id).toBe(never.id)
  const { rows } = await sql<{ operation: string; total: number }>`SELECT operation, count(*) AS total FROM journal
    WHERE attributes ->> 'rule_id' = ${rule.id} GROUP BY operation ORDER BY operation`.execute(plant.api.database.db)
  expect(rows).toEqual([
    { operation: 'alarm.clear', total: 1 },
    { operation: 'alarm.raise', total: 2 },
  ])
  expect(await showRule(plant, rule.id)).toMatchObject({ condition: '', raised: 2, open_alarms: 1 })
})

test('who sends while a transaction holds back the log is not silent', { timeout: 60_000 }, async () => {
  const { channel, devices } = await connected(1)
  const [device] = devices as [Device]
  const rule = await newRule(plant, { source: silence(channel) })
  await sendValue(plant, device, channel, 7)
  await plant.api.database.transaction(async (tx) => {
    await sql`SELECT pg_current_xact_id()`.execute(tx)
    await keepSending(device, channel, AFTER_MS + 2 * LATE_MS)
  })
  await keepSending(device, channel, LATE_MS)
  expect(await alarmsOf(plant, rule.id)).toEqual([])
})

test('a value of another name, and a message of another subtopic, do not end it', { timeout: 60_000 }, async () => {
  const { channel, devices } = await connected(1)
  const [device] = devices as [Device]
  const named = await newRule(plant, { source: silence(channel, { names: ['battery'] }) })
  const below = await newRule(plant, { source: silence(channel, { subtopic: 'a/#' }) })
  const any = await newRule(plant, { source: silence(channel) })
  await keepSending(device, channel, AFTER_MS + LATE_MS)
  await untilAlarms(named.id, 1)
  await untilAlarms(below.id, 1)
  expect(await alarmsOf(plant, any.id)).toEqual([])
  await sendValue(plant, device, channel, 3, 'battery')
  await untilAlarms(named.id, 1, '&status=cleared')
  expect(await alarmsOf(plant, below.id, '&status=open')).toHaveLength(1)
})

test('many silent clients are one alarm, which ends when enough are heard', { timeout: 60_000 }, async () => {
  const { channel, devices } = await connected(6)
  const rule = await newRule(plant, { source: silence(channel) })
  const apart = await newRule(plant, { source: silence(channel, { share: 1 }) })
  const [alarm, ...others] = await untilAlarms(rule.id, 1)
  expect(others).toEqual([])
  expect(alarm).toMatchObject({ client_name: '', text: '6 of 6 clients fell silent within a minute' })
  expect(alarm?.client_id).toBeUndefined()
  expect(await untilAlarms(apart.id, 6)).toHaveLength(6)
  for (const device of devices.slice(0, 2)) await sendValue(plant, device, channel, 1)
  await untilAlarms(apart.id, 2, '&status=cleared')
  expect(await alarmsOf(plant, rule.id, '&status=open')).toHaveLength(1)
  await sendValue(plant, devices[2] as Device, channel, 1)
  await untilAlarms(rule.id, 1, '&status=cleared')
  expect(await alarmsOf(plant, rule.id)).toHaveLength(1)
})

test('who was disabled or deleted a moment ago is no part of an outage', { timeout: 60_000 }, async () => {
  const { channel, devices } = await connected(8)
  const rule = await newRule(plant, { source: silence(channel) })
  // The rule knows its clients, and looks at them again after a minute.
  await sendValue(plant, devices[0] as Device, channel, 1)
  await untilSeen(plant, rule.id, 1)
  for (const { id } of devices.slice(0, 3))
    expectStatus(200, await plant.owner.call('POST', url(`clients/${id}/disable`)))
  for (const { id } of devices.slice(3, 5)) expectStatus(200, await plant.owner.call('DELETE', url(`clients/${id}`)))
  const alarms = await untilAlarms(rule.id, 3)
  expect(alarms.map(({ client_id: id = '' }) => id).toSorted()).toEqual(
    devices
      .slice(5)
      .map(({ id }) => id)
      .toSorted(),
  )
})

test('it publishes when it begins and when it ends, and starts nothing without one channel', async () => {
  const { channel, devices } = await connected(1)
  const target = await plant.newChannel()
  const rule = await newRule(plant, {
    source: silence(channel),
    actions: [{ type: 'publish', channel: target, on: ['raise', 'clear'] }],
  })
  await until(async () => (await showRule(plant, rule.id)).acted === 1, 'it has published')
  await sendValue(plant, devices[0] as Device, channel, 1)
  await until(async () => (await showRule(plant, rule.id)).acted === 2, 'it has published the end')
  const task = 'aaaaaaaa-0000-4000-8000-000000000000'
  const refused = await plant.owner.call('POST', url('rules'), {
    name: 'starts',
    source: { type: 'silence', after: '1m' },
    actions: [{ type: 'start', task }],
  })
  expect(refused.status).toBe(400)
  expect(refused.text).toContain('requires exactly one channel')
})

test('an alarm that was cleared by hand is raised again after the whole time', { timeout: 60_000 }, async () => {
  const { channel } = await connected(1)
  const rule = await newRule(plant, { source: silence(channel) })
  const [alarm] = await untilAlarms(rule.id, 1)
  const clearedMs = Date.now()
  expectStatus(200, await plant.owner.call('PATCH', url(`alarms/${alarm?.id}`), { status: 'cleared' }))
  const open = await untilAlarms(rule.id, 1, '&status=active')
  expect(open[0]?.id).not.toBe(alarm?.id)
  expect(Date.parse(open[0]?.first_at ?? '') - clearedMs).toBeGreaterThan(AFTER_MS)
})

test('who is not watched any more is not silent, and another source ends everything', { timeout: 60_000 }, async () => {
  const { channel, devices } = await connected(2)
  const [device, other] = devices as [Device, Device]
  const ids = [device.id, other.id]
  const rule = await newRule(plant, { source: silence(channel, { clients: ids }) })
  await untilAlarms(rule.id, 2)
  const change = async (source: object, more = {}) =>
    expectStatus(200, await plant.owner.call('PATCH', url(`rules/${rule.id}`), { source, ...more }))
  await change(silence(channel, { clients: [device.id] }))
  const [cleared] = await untilAlarms(rule.id, 1, '&status=cleared')
  expect(cleared?.client_id).toBe(other.id)
  await change({ type: 'messages', channels: [channel] }, { condition: 'value > 1.0' })
  expect(await alarmsOf(plant, rule.id, '&status=open')).toEqual([])
  const { rows } =
    await sql`SELECT FROM rule_states s JOIN rules r ON r.key = s.rule_key WHERE r.id = ${rule.id}::uuid`.execute(
      plant.api.database.db,
    )
  expect(rows).toEqual([])
})

test('clients are watched that may publish to its channels and are enabled', { timeout: 60_000 }, async () => {
  const { channel, devices } = await connected(1)
  const [listening, disabled, elsewhere] = [await plant.newDevice(), await plant.newDevice(), await plant.newDevice()]
  await plant.connect(listening, channel, ['subscribe'])
  await plant.connect(disabled, channel)
  expectStatus(200, await plant.owner.call('POST', url(`clients/${disabled.id}/disable`)))
  const rule = await newRule(plant, { source: silence(channel) })
  await plant.owner.call('PATCH', url(`clients/${elsewhere.id}/tags`), { tags: ['alone'] })
  const tagged = await newRule(plant, { source: { type: 'silence', after: AFTER, tags: ['alone'] } })
  expect((await untilAlarms(rule.id, 1)).map((alarm) => alarm.client_id)).toEqual([devices[0]?.id])
  expect((await untilAlarms(tagged.id, 1)).map((alarm) => alarm.client_id)).toEqual([elsewhere.id])
  await sleep(1_000)
  expect(await alarmsOf(plant, rule.id)).toHaveLength(1)
})

test('a rule that is paused and enabled again begins again', { timeout: 60_000 }, async () => {
  const { channel } = await connected(1)
  const rule = await newRule(plant, { source: silence(channel) })
  expectStatus(200, await plant.owner.call('POST', url(`rules/${rule.id}/disable`)))
  await sleep(AFTER_MS + LATE_MS)
  expect(await alarmsOf(plant, rule.id)).toEqual([])
  const enabledMs = Date.now()
  expectStatus(200, await plant.owner.call('POST', url(`rules/${rule.id}/enable`), {}))
  const [alarm] = await untilAlarms(rule.id, 1)
  expect(Date.parse(alarm?.first_at ?? '') - enabledMs).toBeGreaterThan(AFTER_MS)
})

test('a trial counts only who is watched', { timeout: 60_000 }, async () => {
  const { channel, devices } = await connected(2)
  const [talking, gone] = devices as [Device, Device]
  const from = new Date().toISOString()
  for (const device of [talking, gone]) await sendValue(plant, device, channel, 1)
  expectStatus(200, await plant.owner.call('POST', url(`clients/${gone.id}/disable`)))
  await keepSending(talking, channel, AFTER_MS + LATE_MS)
  type Tried = { seen: number; raised: number; series: object[]; is_complete: boolean }
  const { seen, ...result } = expectStatus(
    200,
    await plant.owner.call('POST', url('rules/try'), { source: silence(channel), from }),
  ).json<Tried>()
  expect(result).toMatchObject({ raised: 0, series: [], is_complete: true })
  const { rows } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM records r JOIN channels h ON h.key = r.channel_key
    WHERE h.id = ${channel}::uuid`.execute(plant.api.database.db)
  expect(seen).toBeGreaterThan(5)
  expect(seen).toBeLessThan(rows[0]?.total ?? 0)
})

test('a trial says which clients would have been silent, and when', { timeout: 60_000 }, async () => {
  const { channel, devices } = await connected(2)
  const [talking, stopping] = devices as [Device, Device]
  const from = new Date().toISOString()
  await sendValue(plant, stopping, channel, 1)
  await keepSending(talking, channel, AFTER_MS + LATE_MS)
  await sendValue(plant, stopping, channel, 1)
  const trial = {
    source: silence(channel),
    actions: [{ type: 'alarm', text: '{{ client.name }} since {{ time }}' }],
    from,
  }
  type Tried = {
    raised: number
    cleared: number
    matched: number
    is_complete: boolean
    events: { moment: string; at: string; client_id: string; client_name: string; text: string }[]
  }
  const result = await until(async () => {
    const answer = expectStatus(200, await plant.owner.call('POST', url('rules/try'), trial)).json<Tried>()
    return answer.cleared > 0 ? answer : undefined
  }, 'the trial has seen the message that ends it')
  expect(result).toMatchObject({ raised: 1, cleared: 1, matched: 1, is_complete: true })
  const [raised] = result.events
  expect(raised).toMatchObject({ moment: 'raise', client_id: stopping.id, client_name: 'client' })
  expect(raised?.text).toContain('client since 20')
  expect(Date.parse(raised?.at ?? '') - Date.parse(from)).toBeLessThan(AFTER_MS + LATE_MS)
  expect(
    await sql`SELECT FROM alarms WHERE channel_id = ${channel}::uuid`.execute(plant.api.database.db),
  ).toMatchObject({ rows: [] })
})

const examples = (parse(readFileSync('examples/rules/silence.yaml', 'utf8')) as { rules: Example[] }).rules
type Example = { name: string; source: Record<string, unknown> }

test.each(examples.map((rule) => [rule.name, rule] as const))(
  'the example "%s" can be stored, and finds who is silent',
  { timeout: 60_000 },
  async (_name, rule) => {
    expectStatus(201, await plant.owner.call('POST', url('rules'), rule))
    const { channel, devices } = await connected(2)
    const [talking, silent] = devices as [Device, Device]
    const from = new Date().toISOString()
    await keepSending(talking, channel, AFTER_MS + LATE_MS, 'battery')
    const tried = {
      ...rule,
      source: { ...rule.source, channels: [channel], after: AFTER },
      from,
      description: undefined,
    }
    type Tried = { events: { moment: string; client_id: string }[] }
    const { events } = expectStatus(200, await plant.owner.call('POST', url('rules/try'), tried)).json<Tried>()
    expect(events.map(({ moment, client_id: id }) => [moment, id])).toEqual([['raise', silent.id]])
  },
)

test.each([
  [{ type: 'silence' }, {}, 'after'],
  [{ type: 'silence', after: '4s' }, {}, 'must be between 5s and 720h'],
  [{ type: 'silence', after: '721h' }, {}, 'must be between 5s and 720h'],
  [{ type: 'silence', after: 'soon' }, {}, 'must be a duration'],
  [{ type: 'silence', after: '1m', share: 1.5 }, {}, 'share'],
  [{ type: 'silence', after: '1m' }, { condition: 'value > 1.0' }, 'silence has no condition'],
  [{ type: 'silence', after: '1m' }, { for: '1m' }, 'silence has `after`'],
  [{ type: 'silence', after: '1m' }, { clear_when: 'value > 1.0' }, 'a message ends silence'],
  [
    { type: 'silence', after: '1m' },
    { actions: [{ type: 'alarm', text: '{{ mean("1m") }}' }] },
    'must not have windows',
  ],
  [{ type: 'messages' }, {}, 'is required'],
  [{ type: 'messages', after: '1m' }, { condition: 'value > 1.0' }, 'it is of silence'],
  [{ type: 'noise' }, { condition: 'value > 1.0' }, 'type'],
])('refuses %o %o', async (source, more, words) => {
  const refused = await plant.owner.call('POST', url('rules'), { name: 'refused', source, ...more })
  expect(refused.status, refused.text).toBe(400)
  expect(refused.text).toContain(words)
})

test('after a restart, times begin again, and what was raised stays until a message', { timeout: 60_000 }, async () => {
  await using own = await createTestDatabase()
  const before = await startPlant({ ruleTimes, database: own })
  const [silent, talking] = [await before.newDevice(), await before.newDevice()]
  const channel = await before.newChannel()
  for (const device of [silent, talking]) await before.connect(device, channel)
  const rule = await newRule(before, { source: silence(channel) })
  const alarms = async () => {
    const { rows } = await sql<{
      id: string
      isOpen: boolean
      at: string
    }>`SELECT client_id AS id, cleared_at IS NULL AS "isOpen",
      first_at AS at FROM alarms WHERE rule_id = ${rule.id}::uuid ORDER BY key`.execute(own.database.db)
    return rows
  }
  await until(async () => {
    await sendValue(before, talking, channel, 1)
    await sleep(300)
    return (await alarms()).length === 1
  }, 'the silent client has an alarm')
  await before[Symbol.asyncDispose]()
  await sleep(AFTER_MS)

  const startedMs = Date.now()
  await using api = await startTestApi({ ruleTimes, database: own })
  await until(async () => (await alarms()).length === 2, 'the other client falls silent')
  const [first, second] = await alarms()
  expect(first).toMatchObject({ id: silent.id, isOpen: true })
  expect(second).toMatchObject({ id: talking.id, isOpen: true })
  expect(Date.parse(second?.at ?? '') - startedMs).toBeGreaterThan(AFTER_MS)
  const headers = { 'content-type': 'application/senml+json' }
  await api.as(`Client ${silent.secret}`)(
    'POST',
    `/http/m/${before.domainId}/c/${channel}`,
    [{ n: 'n', v: 1 }],
    headers,
  )
  await until(async () => (await alarms())[0]?.isOpen === false, 'its message clears the alarm')
  expect(await alarms()).toHaveLength(2)
})

test('the messages of a rule about silence are counted', async () => {
  const { channel, devices } = await connected(1)
  const rule = await newRule(plant, { source: silence(channel) })
  await sendValue(plant, devices[0] as Device, channel, 1)
  expect(await untilSeen(plant, rule.id, 1)).toMatchObject({ seen: 1, matched: 0, unmatchable: 0 })
})

test(
  'a domain is held while the step of another one takes long, and after a long step',
  { timeout: 60_000 },
  async () => {
    const { db } = plant.api.database
    const made = async (path: string, body: object) =>
      expectStatus(201, await plant.owner.call('POST', path, body)).json<{
        id: string
        credentials: { secret: string }
      }>()
    const slow: Plant = { ...plant, domainId: (await made('/domains', { name: 'slow' })).id }
    const { channel } = await connected(1)
    await newRule(plant, { source: silence(channel, { after: '1h' }) })
    const client = await made(`/${slow.domainId}/clients`, {})
    const { id: slowChannel } = await made(`/${slow.domainId}/channels`, {})
    const connection = { client_ids: [client.id], channel_ids: [slowChannel], types: ['publish'] }
    expectStatus(201, await plant.owner.call('POST', `/${slow.domainId}/channels/connect`, connection))
    const device = { id: client.id, secret: client.credentials.secret }
    const source = { type: 'messages', channels: [slowChannel] }
    const rule = await newRule(slow, { source, condition: 'mean("1m") > 0.0' })
    await sendValue(slow, device, slowChannel, 1)
    await untilSeen(slow, rule.id, 1)
    const readLeases = async () => {
      const { rows } = await sql<{
        id: string
        left: number
      }>`SELECT d.id, extract(epoch FROM r.leased_until - now())::float8 AS left
      FROM rule_domains r JOIN domains d ON d.key = r.domain_key`.execute(db)
      const of = (id: string) => rows.find((row) => row.id === id)?.left ?? -Infinity
      return { silent: of(plant.domainId), slow: of(slow.domainId) }
    }
    const take = async (id: string) => {
      const { rows } = await sql<{ key: number }>`SELECT key FROM domains WHERE id = ${id}::uuid`.execute(db)
      return await plant.api.database.transaction((tx) => takeDomain(tx, rows[0]?.key ?? 0, 'another process'))
    }
    const leases: number[] = []
    await plant.api.database.transaction(async (tx) => {
      // What was counted cannot be stored until this transaction ends. It writes nothing, so that messages after it are read.
      await sql`LOCK TABLE rules IN SHARE MODE`.execute(tx)
      await sendValue(slow, device, slowChannel, 2)
      for (const endMs = performance.now() + 6_500; performance.now() < endMs; await sleep(200))
        leases.push((await readLeases()).silent)
      expect((await readLeases()).slow).toBeLessThan(0)
      // The step has lost its lease, but not the lock: nobody can evaluate its messages beside it.
      expect([await take(slow.domainId), await take(plant.domainId)]).toEqual([undefined, undefined])
    })
    expect(Math.min(...leases)).toBeGreaterThan(0)
    await untilSeen(slow, rule.id, 2)
    expect((await readLeases()).slow).toBeGreaterThan(1)
  },
)
