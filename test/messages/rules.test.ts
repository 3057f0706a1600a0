// contract decision 100; docs/guides/rules.md
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { sleep } from '#core/time.ts'
import { until } from '../harness/until.ts'
import { expectStatus, send } from './consumers-support.ts'
import { alarmsOf, newRule, sendRecords, sendValue, showRule, untilSeen } from './rules-support.ts'
import type { RuleBody } from './rules-support.ts'
import { startPlant } from './support.ts'
import type { Device, Plant } from './support.ts'

let plant: Plant
let device: Device
let other: Device

beforeAll(async () => {
  plant = await startPlant({ ruleTimes: { intervalMs: 20 } })
  ;[device, other] = [await plant.newDevice(), await plant.newDevice()]
})
afterAll(() => plant[Symbol.asyncDispose]())

async function newChannel(): Promise<string> {
  const channelId = await plant.newChannel()
  await plant.connect(device, channelId)
  await plant.connect(other, channelId)
  return channelId
}

const hot = (channel: string, more: Record<string, unknown> = {}) => ({
  source: { type: 'messages', channels: [channel] },
  condition: 'value > 30.0',
  ...more,
})

const url = (path: string) => `/${plant.domainId}/${path}`

describe('a rule', () => {
  test('raises one alarm for each client and series, adds to it, clears it, and raises again', async () => {
    const channel = await newChannel()
    const rule = await newRule(plant, {
      ...hot(channel),
      severity: 'major',
      actions: [{ type: 'alarm', text: '{{ name }} is {{ value }} at {{ client.name }}' }],
    })
    for (const value of [20, 31, 35, 33]) await sendValue(plant, device, channel, value)
    await sendValue(plant, other, channel, 40, 'pressure')
    await untilSeen(plant, rule.id, 5)
    const alarms = await alarmsOf(plant, rule.id)
    expect(alarms).toHaveLength(2)
    const alarm = alarms.find(({ name }) => name === 'temperature')
    expect(alarm).toMatchObject({
      status: 'active',
      severity: 'major',
      client_id: device.id,
      client_name: 'client',
      channel_name: 'channel',
      rule_name: rule.name,
      unit: 'Cel',
      value: 33,
      count: 3,
    })
    expect(alarm?.text).toMatch(/^temperature is 31(\.0)? at client$/)
    await sendValue(plant, device, channel, 25)
    await untilSeen(plant, rule.id, 6)
    const [cleared] = await alarmsOf(plant, rule.id, '&status=cleared')
    expect(cleared).toMatchObject({ id: alarm?.id, status: 'cleared', value: 33, count: 3 })
    expect(cleared?.cleared_by).toBeUndefined()
    await sendValue(plant, device, channel, 50)
    const shown = await untilSeen(plant, rule.id, 7)
    expect(shown).toMatchObject({ seen: 7, matched: 5, raised: 3, open_alarms: 2, unmatchable: 0 })
    expect(await alarmsOf(plant, rule.id)).toHaveLength(3)
    const { rows } = await sql<{ operation: string; total: number }>`SELECT operation, count(*) AS total FROM journal
      WHERE attributes ->> 'rule_id' = ${rule.id} GROUP BY operation ORDER BY operation`.execute(plant.api.database.db)
    expect(rows).toEqual([
      { operation: 'alarm.clear', total: 1 },
      { operation: 'alarm.raise', total: 3 },
    ])
  })

  test('meets only the subtopics, names and clients of its source', async () => {
    const channel = await newChannel()
    await plant.owner.call('PATCH', url(`clients/${other.id}/tags`), { tags: ['roof'] })
    const source = { type: 'messages', channels: [channel] }
    const bySubtopic = await newRule(plant, { ...hot(channel), source: { ...source, subtopic: 'a/+' } })
    const byName = await newRule(plant, { ...hot(channel), source: { ...source, names: ['inside'] } })
    const byClient = await newRule(plant, { ...hot(channel), source: { ...source, clients: [device.id] } })
    const byTag = await newRule(plant, { ...hot(channel), source: { ...source, tags: ['roof', 'cellar'] } })
    await sendRecords(plant, device, channel, [{ n: 'inside', v: 40 }], 'a/b')
    await sendRecords(plant, other, channel, [{ n: 'outside', v: 40 }], 'a/b/c')
    await sendRecords(plant, other, channel, [{ n: 'inside', v: 40 }])
    await untilSeen(plant, byName.id, 2)
    const seen = await Promise.all([bySubtopic, byName, byClient, byTag].map(({ id }) => showRule(plant, id)))
    expect(seen.map((one) => one.seen)).toEqual([1, 2, 1, 2])
  })

  test('meets the clients of its groups and of those below them', async () => {
    const channel = await newChannel()
    const parent = (await plant.owner.call('POST', url('groups'), { name: 'building' })).json<{ id: string }>().id
    const child = (await plant.owner.call('POST', url('groups'), { name: 'floor', parent_id: parent })).json<{
      id: string
    }>().id
    const inside = await plant.newDevice()
    await plant.connect(inside, channel)
    const moved = await plant.owner.call('POST', url(`clients/${inside.id}/parent`), { parent_group_id: child })
    expect(moved.status).toBe(200)
    const source = { type: 'messages', channels: [channel], groups: [parent] }
    const rule = await newRule(plant, { ...hot(channel), source })
    await sendValue(plant, device, channel, 40)
    await sendValue(plant, inside, channel, 40)
    await untilSeen(plant, rule.id, 1)
    const alarms = await alarmsOf(plant, rule.id)
    expect(alarms.map((alarm) => alarm.client_id)).toEqual([inside.id])
    const byGroup = await plant.owner.call('GET', url(`alarms?group=${parent}&rule=${rule.id}`))
    expect(byGroup.json()).toMatchObject({ total: 1 })
  })

  test('waits and clears by the time of the server when clocks of devices are wrong by years; windows follow the time that the rule chose', async () => {
    const channel = await newChannel()
    const source = { type: 'messages', channels: [channel] }
    const waiting = await newRule(plant, { source, condition: 'value > 30.0', for: '1s' })
    const windows = { source, condition: 'count("1m") >= 3' }
    const byArrival = await newRule(plant, windows)
    const byMessage = await newRule(plant, { ...windows, window_time: 'message' })
    const [past, future] = [Date.UTC(2001, 0, 1) / 1000, Date.UTC(2061, 0, 1) / 1000]
    const sent = async (v: number, t: number) => await sendRecords(plant, device, channel, [{ n: 'temperature', v, t }])
    const begunMs = Date.now()
    await sent(31, future)
    await sent(32, past)
    // Late and out of order, within a minute of the first one of that time.
    await sent(33, past - 10)
    const [alarm] = await until(async () => {
      const open = await alarmsOf(plant, waiting.id)
      return open.length === 1 ? open : undefined
    }, 'the condition has held for a second')
    const firstMs = Date.parse(alarm?.first_at ?? '')
    expect(firstMs - begunMs).toBeGreaterThanOrEqual(0)
    expect(Math.abs(firstMs - begunMs)).toBeLessThan(60_000)
    expect(await untilSeen(plant, byArrival.id, 3)).toMatchObject({ matched: 1 })
    // The record in the past is the second of its minute, and the late one is before it.
    expect(await untilSeen(plant, byMessage.id, 3)).toMatchObject({ matched: 0 })
    await sent(34, past - 5)
    await sent(35, past + 1)
    expect(await untilSeen(plant, byMessage.id, 5)).toMatchObject({ matched: 1 })
    await sent(20, past)
    await until(async () => (await alarmsOf(plant, waiting.id))[0]?.status === 'cleared', 'the alarm is cleared')
  })

  test('reads JSON objects, and counts what its condition has no result for', async () => {
    const channel = await newChannel()
    const rule = await newRule(plant, { ...hot(channel), condition: 'json.level > 3' })
    await send(plant, device, channel, { level: 4 })
    await send(plant, device, channel, { other: 'x' })
    await sendRecords(plant, device, channel, [{ n: 'door', vs: 'open' }])
    const shown = await untilSeen(plant, rule.id, 3)
    expect(shown).toMatchObject({ matched: 1, unmatchable: 2, raised: 1 })
  })

  test('raises after `for`, and clears after `clear_for`, without a further message', async () => {
    const channel = await newChannel()
    const rule = await newRule(plant, { ...hot(channel), for: '1s', clear_when: 'value < 28.0', clear_for: '1s' })
    await sendValue(plant, device, channel, 31)
    await untilSeen(plant, rule.id, 1)
    expect(await alarmsOf(plant, rule.id)).toEqual([])
    const [alarm] = await until(async () => {
      const alarms = await alarmsOf(plant, rule.id)
      return alarms.length > 0 ? alarms : undefined
    }, 'the alarm was raised')
    expect(alarm).toMatchObject({ status: 'active', value: 31, unit: 'Cel', client_id: device.id })
    await sendValue(plant, device, channel, 29)
    await sendValue(plant, device, channel, 27)
    await until(async () => (await alarmsOf(plant, rule.id, '&status=cleared')).length === 1, 'the alarm was cleared')
  })

  test('asks windows of its series, which a new process reads from the store', async () => {
    const channel = await newChannel()
    for (const value of [10, 20]) await sendValue(plant, device, channel, value)
    const rule = await newRule(plant, { ...hot(channel), condition: 'mean("5m") > 15.0 && count("5m") == 3' })
    await sendValue(plant, device, channel, 30)
    const shown = await untilSeen(plant, rule.id, 1)
    expect(shown).toMatchObject({ matched: 1, raised: 1 })
  })

  test('publishes what it found, in the transaction that found it', async () => {
    const channel = await newChannel()
    const target = await newChannel()
    const rule = await newRule(plant, {
      ...hot(channel),
      actions: [
        { type: 'publish', channel: target, subtopic: 'hot', on: ['raise', 'clear'] },
        {
          type: 'publish',
          channel: target,
          subtopic: 'all',
          payload: '{"v": "{{ value }}", "client": "{{ client.id }}"}',
          on: ['raise', 'repeat'],
        },
      ],
    })
    expect(rule.named).toContainEqual({ type: 'channel', id: target, name: 'channel' })
    for (const value of [31, 32, 10]) await sendValue(plant, device, channel, value)
    type Page = { messages: { payload: Record<string, unknown>; protocol: string }[] }
    const published = async (subtopic: string) =>
      await until(async () => {
        const page = await plant.owner.call(
          'GET',
          `/m/${plant.domainId}/c/${target}?subtopic=${subtopic}&format=${subtopic}&dir=asc`,
        )
        const { messages } = expectStatus(200, page).json<Page>()
        return messages.length === 2 ? messages : undefined
      }, 'both messages were published')
    // Both have the time of one transaction.
    const all = (await published('all')).toSorted(
      (left, right) => Number(left.payload['v']) - Number(right.payload['v']),
    )
    expect(all).toMatchObject([
      { payload: { v: 31, client: device.id }, protocol: 'rule' },
      { payload: { v: 32, client: device.id } },
    ])
    const moments = (await published('hot')).map(({ payload }) => payload)
    expect(moments.toSorted((left, right) => Number(right['value']) - Number(left['value']))).toMatchObject([
      {
        moment: 'raise',
        rule: { id: rule.id },
        client: { id: device.id, name: 'client' },
        name: 'temperature',
        value: 31,
      },
      { moment: 'clear', value: 10 },
    ])
    expect(await showRule(plant, rule.id)).toMatchObject({ acted: 4 })
    expect(await alarmsOf(plant, rule.id)).toEqual([])
  })

  test('evaluates series whose subtopic and name are longer than an entry of an index', async () => {
    const channel = await newChannel()
    const rule = await newRule(plant, {
      ...hot(channel),
      actions: [{ type: 'alarm' }, { type: 'publish', channel: await newChannel() }],
    })
    // Without a pattern: PostgreSQL compresses what it indexes.
    const chars = (count: number) =>
      Array.from({ length: count }, () => String.fromCodePoint(0x4e00 + Math.trunc(Math.random() * 0x5000))).join('')
    const subtopic = encodeURIComponent(chars(1_000))
    const records = [{ n: 'n'.repeat(500), v: 31 }]
    for (let turn = 0; turn < 2; turn++) await sendRecords(plant, device, channel, records, subtopic)
    expect(await untilSeen(plant, rule.id, 2)).toMatchObject({ raised: 1, acted: 1, open_alarms: 1 })
    const [alarm] = await alarmsOf(plant, rule.id)
    expect(alarm).toMatchObject({ count: 2 })
    const cleared = await plant.owner.call('PATCH', url(`alarms/${alarm?.id}`), { status: 'cleared' })
    expectStatus(200, cleared)
    await sendRecords(plant, device, channel, records, subtopic)
    expect(await untilSeen(plant, rule.id, 3)).toMatchObject({ raised: 2, open_alarms: 1 })
  })

  test('that causes itself is paused with the reason', async () => {
    const channel = await newChannel()
    const rule = await newRule(plant, {
      source: { type: 'messages', channels: [channel] },
      condition: 'true',
      actions: [{ type: 'publish', channel, on: ['raise', 'repeat'] }],
    })
    await sendValue(plant, device, channel, 1)
    const paused = await until(async () => {
      const shown = await showRule(plant, rule.id)
      return shown.paused === undefined ? undefined : shown
    }, 'the rule was paused')
    expect(paused.paused?.reason).toMatch(/^8 rules in a row caused the message/)
    expect(paused.acted).toBe(8)
    // It goes on behind the message that paused it.
    expectStatus(200, await plant.owner.call('POST', url(`rules/${rule.id}/enable`), {}))
    await until(async () => (await showRule(plant, rule.id)).paused === undefined, 'the pause ended')
    expectStatus(204, await plant.owner.call('DELETE', url(`rules/${rule.id}`)))
  })

  test('that causes too much for one message is paused behind it, and the others go on', async () => {
    const channel = await newChannel()
    const small = await newRule(plant, { ...hot(channel), condition: 'value < 0.0' })
    const large = await newRule(plant, {
      ...hot(channel),
      condition: 'value >= 0.0',
      actions: [{ type: 'alarm', text: '{{ subtopic }}'.repeat(18) }],
    })
    const records = Array.from({ length: 2_500 }, (_, at) => ({ n: `n${at}`, v: at }))
    await sendRecords(plant, device, channel, records, 's'.repeat(900))
    await sendValue(plant, device, channel, 1)
    await untilSeen(plant, small.id, 2_501)
    const paused = await showRule(plant, large.id)
    expect(paused.paused?.reason).toMatch(/^the rule caused 3\d\.\d MB of alarms and messages for the message of /)
    expect(paused.raised).toBeGreaterThan(1_500)
    expect(paused.raised).toBeLessThan(2_100)
    for (const { id } of [small, large]) expectStatus(204, await plant.owner.call('DELETE', url(`rules/${id}`)))
  })

  test('begins at an exact position, and evaluates no message twice when it joins the others', async () => {
    const channel = await newChannel()
    const first = await newRule(plant, hot(channel))
    for (let value = 31; value <= 40; value++) await sendValue(plant, device, channel, value)
    await untilSeen(plant, first.id, 10)
    const { rows } = await sql<{ place: string }>`SELECT b.xid::text || '-' || m.batch_seq || '-' || m.message AS place
      FROM records m JOIN ingest_batches b ON b.seq = m.batch_seq JOIN channels c ON c.key = m.channel_key
      WHERE c.id = ${channel}::uuid ORDER BY b.xid, b.seq, m.message OFFSET 3 LIMIT 1`.execute(plant.api.database.db)
    const late = await newRule(plant, { ...hot(channel), from: rows[0]?.place })
    for (let value = 41; value <= 45; value++) await sendValue(plant, device, channel, value)
    await untilSeen(plant, late.id, 12)
    await untilSeen(plant, first.id, 15)
    expect(await showRule(plant, late.id)).toMatchObject({ seen: 12, matched: 12, raised: 1 })
    const [alarm] = await alarmsOf(plant, late.id)
    expect(alarm).toMatchObject({ count: 12 })
  })

  test('that is behind keeps its windows from step to step, and the rules are not read again', async () => {
    const channel = await newChannel()
    const first = await newRule(plant, { ...hot(channel), condition: 'value < 0.0' })
    const beganAt = Date.now() / 1000 - 600
    // More than one step evaluates.
    for (let message = 0; message < 6; message++) {
      const records = Array.from({ length: 5_000 }, (_, at) => ({
        n: `n${at % 5}`,
        t: beganAt + (message * 5_000 + at) / 100,
        v: at,
      }))
      await sendRecords(plant, device, channel, records)
    }
    await untilSeen(plant, first.id, 30_000)
    const versionOf = async () => {
      const { rows } = await sql<{
        version: number
      }>`SELECT d.version FROM rule_domains d JOIN rules r ON r.domain_key = d.domain_key
        WHERE r.id = ${first.id}::uuid`.execute(plant.api.database.db)
      return rows[0]?.version ?? 0
    }
    const { rows } = await sql<{ place: string }>`SELECT b.xid::text || '-' || m.batch_seq || '-' || m.message AS place
      FROM records m JOIN ingest_batches b ON b.seq = m.batch_seq JOIN channels c ON c.key = m.channel_key
      WHERE c.id = ${channel}::uuid ORDER BY b.xid, b.seq, m.message LIMIT 1`.execute(plant.api.database.db)
    const before = await versionOf()
    const late = await newRule(plant, { ...hot(channel), condition: 'count("1h") == 6000', from: rows[0]?.place })
    // Of each of five names, one record is the last.
    expect(await untilSeen(plant, late.id, 30_000)).toMatchObject({ seen: 30_000, matched: 5, raised: 5 })
    await until(async () => (await versionOf()) >= before + 2, 'the rule joined the others')
    expect(await versionOf()).toBe(before + 2)
  })

  test('is tried over what arrived, and begins exactly behind the trial', async () => {
    const channel = await newChannel()
    for (const value of [31, 20, 32, 33]) await sendValue(plant, device, channel, value)
    await sendRecords(plant, other, channel, [{ n: 'door', vs: 'open' }])
    const definition = { ...hot(channel), actions: [{ type: 'alarm', text: '{{ value }}' }] }
    type Trial = { next: string; seen: number; events: { moment: string; value: unknown; client_id: string }[] }
    const tried = await until(async () => {
      const trial = expectStatus(200, await plant.owner.call('POST', url('rules/try'), definition)).json<Trial>()
      return trial.seen === 5 ? trial : undefined
    }, 'the trial sees all records')
    expect(tried).toMatchObject({ matched: 3, unmatchable: 1, raised: 2, cleared: 1, is_complete: true })
    expect(tried).toMatchObject({ series: [{ client_id: device.id, name: 'temperature', raised: 2, repeated: 1 }] })
    expect(tried).toMatchObject({ reasons: [{ count: 1 }] })
    expect(tried.events.map(({ moment, value }) => [moment, value])).toEqual([
      ['raise', 31],
      ['clear', 20],
      ['raise', 32],
    ])
    const before = new Date(Date.now() - 86_400_000).toISOString()
    const yesterday = { ...definition, from: before, to: new Date(Date.now() - 3_600_000).toISOString() }
    const none = await plant.owner.call('POST', url('rules/try'), yesterday)
    expect(none.json()).toMatchObject({ seen: 0, events: [], is_complete: true })
    expect((await plant.owner.call('GET', url(`rules?channel=${channel}`))).json()).toMatchObject({ total: 0 })
    for (const value of [40, 41]) await sendValue(plant, device, channel, value)
    const rule = await newRule(plant, { ...definition, from: tried.next })
    await sendValue(plant, device, channel, 42)
    expect(await untilSeen(plant, rule.id, 3)).toMatchObject({ seen: 3, matched: 3, raised: 1 })
    const odd = await plant.owner.call('POST', url('rules/try'), { ...definition, from: before, to: before })
    expect(odd.json()).toMatchObject({ details: [{ path: '/to' }] })
  })

  test('disabled evaluates nothing, and goes on with what is sent after it is enabled', async () => {
    const channel = await newChannel()
    const [rule, witness] = [await newRule(plant, hot(channel)), await newRule(plant, hot(channel))]
    expectStatus(200, await plant.owner.call('POST', url(`rules/${rule.id}/disable`)))
    await sendValue(plant, device, channel, 31)
    await untilSeen(plant, witness.id, 1)
    expectStatus(200, await plant.owner.call('POST', url(`rules/${rule.id}/enable`), {}))
    await sendValue(plant, device, channel, 32)
    await untilSeen(plant, witness.id, 2)
    expect(await untilSeen(plant, rule.id, 1)).toMatchObject({ seen: 1, status: 'enabled' })
  })

  test('that was disabled while it waited for `for` begins again', async () => {
    const channel = await newChannel()
    const rule = await newRule(plant, hot(channel, { for: '1s' }))
    await sendValue(plant, device, channel, 31)
    await untilSeen(plant, rule.id, 1)
    expectStatus(200, await plant.owner.call('POST', url(`rules/${rule.id}/disable`)))
    await sleep(1_100)
    expectStatus(200, await plant.owner.call('POST', url(`rules/${rule.id}/enable`), {}))
    await sendValue(plant, device, channel, 20)
    expect(await untilSeen(plant, rule.id, 2)).toMatchObject({ seen: 2, raised: 0 })
  })

  test('waits for the time that it was changed to', async () => {
    const channel = await newChannel()
    const [shorter, longer] = [
      await newRule(plant, hot(channel, { for: '1h' })),
      await newRule(plant, hot(channel, { for: '2s' })),
    ]
    await sendValue(plant, device, channel, 31)
    for (const { id } of [shorter, longer]) await untilSeen(plant, id, 1)
    expectStatus(200, await plant.owner.call('PATCH', url(`rules/${longer.id}`), { for: '1h' }))
    expectStatus(200, await plant.owner.call('PATCH', url(`rules/${shorter.id}`), { for: '2s' }))
    await until(async () => (await showRule(plant, shorter.id)).raised === 1, 'the alarm was raised')
    expect(await showRule(plant, longer.id)).toMatchObject({ raised: 0 })
    const { rows } = await sql<{
      isLate: boolean
    }>`SELECT s.due_at > now() + interval '30 minutes' AS "isLate" FROM rule_states s
      JOIN rules r ON r.key = s.rule_key WHERE r.id = ${longer.id}::uuid`.execute(plant.api.database.db)
    expect(rows).toEqual([{ isLate: true }])
  })

  test('clears after `clear_for` the alarm of a channel that it does not read any more', async () => {
    const [kept, left] = [await newChannel(), await newChannel()]
    const source = { type: 'messages', channels: [kept, left] }
    const rule = await newRule(plant, { source, condition: 'value > 30.0', clear_for: '2s' })
    for (const value of [31, 20]) await sendValue(plant, device, left, value)
    await untilSeen(plant, rule.id, 2)
    const changed = await plant.owner.call('PATCH', url(`rules/${rule.id}`), {
      source: { ...source, channels: [kept] },
    })
    expectStatus(200, changed)
    await until(async () => (await alarmsOf(plant, rule.id, '&status=cleared')).length === 1, 'the alarm was cleared')
  })

  test('that was locked for a moment is evaluated soon after it', async () => {
    const channel = await newChannel()
    const rule = await newRule(plant, hot(channel))
    await sendValue(plant, device, channel, 20)
    await untilSeen(plant, rule.id, 1)
    await plant.api.database.transaction(async (tx) => {
      await sql`SELECT FROM rule_domains FOR NO KEY UPDATE`.execute(tx)
      await sendValue(plant, device, channel, 31)
      await sleep(300)
    })
    const freeMs = performance.now()
    await untilSeen(plant, rule.id, 2)
    // Rules of another process are asked for again after five seconds.
    expect(performance.now() - freeMs).toBeLessThan(2_000)
  })

  test('is created, listed, changed and deleted; its open alarms are cleared and stay', async () => {
    const channel = await newChannel()
    const { call } = plant.owner
    const body = {
      name: 'thermostat',
      description: 'too hot',
      source: { type: 'messages', channels: [channel], subtopic: 'a/#' },
      condition: 'value > 30.0',
      for: '2m',
      clear_when: 'value < 28.0',
      cooldown: '10m',
      severity: 'critical',
    }
    const response = expectStatus(201, await call('POST', url('rules'), body))
    const rule = response.json<RuleBody>()
    expect(response.headers['location']).toBe(url(`rules/${rule.id}`))
    const defaults = { status: 'enabled', clear_for: '0s', window_time: 'arrival', actions: [{ type: 'alarm' }] }
    expect(rule).toMatchObject({ ...body, ...defaults, acts_as: plant.owner.id, seen: 0 })
    const listed = await call('GET', url(`rules?name=THERMO&channel=${channel}&status=enabled`))
    expect(listed.json()).toMatchObject({ total: 1, rules: [{ id: rule.id, named: [{ id: channel }] }] })
    const changed = await call('PATCH', url(`rules/${rule.id}`), {
      for: '0s',
      source: { ...body.source, subtopic: '#' },
    })
    expect(changed.json()).toMatchObject({ for: '0s', condition: 'value > 30.0', cooldown: '10m' })
    const again = await call('POST', url('rules'), body)
    expect(again.status).toBe(409)
    expect(again.json()).toMatchObject({ details: [{ path: '/name' }] })
    await sendValue(plant, device, channel, 31)
    await untilSeen(plant, rule.id, 1)
    expect((await call('DELETE', url(`rules/${rule.id}`))).status).toBe(204)
    expect((await call('GET', url(`rules/${rule.id}`))).status).toBe(404)
    const [alarm] = await alarmsOf(plant, rule.id)
    expect(alarm).toMatchObject({ status: 'cleared', rule_name: 'thermostat', cleared_by: plant.owner.id })
  })

  test('refuses what is malformed, and names the field', async () => {
    const channel = await newChannel()
    const unknown = '9f0e2b9e-3f53-4c3b-a3a6-0d2ec0a1a001'
    const source = { type: 'messages', channels: [channel] }
    const refused: [string, Record<string, unknown>][] = [
      ['/name', { name: '' }],
      ['/source/type', { source: { type: 'noise' } }],
      ['/source/channels', { source: { ...source, channels: [] } }],
      ['/source/channels/0', { source: { ...source, channels: ['pump'] } }],
      ['/source/groups/0', { source: { ...source, groups: [unknown] } }],
      ['/source/clients/0', { source: { ...source, clients: [unknown] } }],
      ['/source/subtopic', { source: { ...source, subtopic: '#/a' } }],
      ['/condition', { condition: '' }],
      ['/condition', { condition: 'value >' }],
      ['/condition', { condition: 'value > "a"' }],
      ['/condition', { condition: 'mean("25h") > 1.0' }],
      ['/clear_when', { clear_when: 'values < 1.0' }],
      ['/for', { for: '25h' }],
      ['/for', { for: 'soon' }],
      ['/cooldown', { cooldown: '-1s' }],
      ['/severity', { severity: 'bad' }],
      ['/actions/0/text', { actions: [{ type: 'alarm', text: '{{ value > }}' }] }],
      ['/actions', { actions: [{ type: 'alarm' }, { type: 'alarm' }] }],
      ['/actions/0/task', { actions: [{ type: 'start', task: unknown }] }],
      ['/from', { from: 'yesterday' }],
    ]
    for (const [path, fields] of refused) {
      const response = await plant.owner.call('POST', url('rules'), { name: 'odd', ...hot(channel), ...fields })
      expect(response.status, JSON.stringify(fields)).toBe(400)
      const details = response.json<{ details: { path: string; message: string }[] }>().details
      expect(details[0]?.path, JSON.stringify([fields, details])).toBe(path)
    }
    const wrong = await plant.owner.call('POST', url('rules'), {
      ...hot(channel),
      name: 'odd',
      condition: 'value >> 3',
    })
    expect(wrong.json<{ message: string }>().message).toMatch(/line 1, column \d+/)
  })
})
