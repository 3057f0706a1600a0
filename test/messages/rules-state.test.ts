// docs/guides/rules.md
import { readFileSync } from 'node:fs'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { parse } from 'yaml'
import { sql } from '#core/sql.ts'
import { sleep } from '#core/time.ts'
import { until } from '../harness/until.ts'
import { expectStatus } from './consumers-support.ts'
import { alarmsOf, newRule, showRule, untilSeen } from './rules-support.ts'
import type { AlarmBody } from './rules-support.ts'
import { startPlant } from './support.ts'
import type { Device, Plant } from './support.ts'

const ruleTimes = { intervalMs: 20 }

let plant: Plant
beforeAll(async () => {
  plant = await startPlant({ ruleTimes })
})
afterAll(() => plant[Symbol.asyncDispose]())
afterEach(async () => {
  const { rules } = (await plant.owner.call('GET', url('rules?limit=100'))).json<{ rules: { id: string }[] }>()
  for (const { id } of rules) expectStatus(204, await plant.owner.call('DELETE', url(`rules/${id}`)))
})

const url = (path: string) => `/${plant.domainId}/${path}`

async function desire(device: Device, patch: object, document = ''): Promise<void> {
  const path = url(`clients/${device.id}/desired-state${document === '' ? '' : `/${document}`}`)
  expectStatus(200, await plant.owner.call('PATCH', path, patch))
}

async function report(device: Device, patch: object, document = ''): Promise<void> {
  const path = `/c/${plant.domainId}/state${document === '' ? '' : `/${document}`}`
  expectStatus(200, await plant.api.as(`Client ${device.secret}`)('PATCH', path, patch))
}

const untilAlarms = async (ruleId: string, count: number, query = ''): Promise<AlarmBody[]> =>
  await until(async () => {
    const alarms = await alarmsOf(plant, ruleId, query)
    return alarms.length >= count ? alarms : undefined
  }, `${count} alarms${query}`)

const refusalOf = async (body: object, path = 'rules'): Promise<string> => {
  const answer = await plant.owner.call('POST', url(path), { name: 'refused', ...body })
  expect(answer.status, answer.text).toBe(400)
  return answer.text
}

const OUTDATED = 'has(delta.firmware)'
const MAX_ACTIONS = 10

test('a document that differs raises one alarm, and one that agrees clears it', async () => {
  const device = await plant.newDevice()
  const rule = await newRule(plant, {
    source: { type: 'state', clients: [device.id] },
    condition: 'has(reported.firmware) && reported.firmware != desired.firmware',
    actions: [{ type: 'alarm', text: '{{ client.name }} has {{ reported.firmware }}, not {{ desired.firmware }}' }],
  })
  await untilSeen(plant, rule.id, 1)
  await desire(device, { firmware: '2' })
  await report(device, { firmware: '1' })
  const [alarm] = await untilAlarms(rule.id, 1)
  expect(alarm).toMatchObject({
    client_id: device.id,
    text: 'client has 1, not 2',
    count: 1,
    name: '',
    status: 'active',
  })
  await report(device, { battery: 3 })
  await until(async () => (await alarmsOf(plant, rule.id))[0]?.count === 2, 'a further change is counted')
  await report(device, { firmware: '2' })
  await untilAlarms(rule.id, 1, '&status=cleared')
  expect(await showRule(plant, rule.id)).toMatchObject({ raised: 1, matched: 2, open_alarms: 0, unmatchable: 0 })
})

test('each change is evaluated once, and a report that changes nothing is not evaluated', async () => {
  const device = await plant.newDevice()
  const rule = await newRule(plant, {
    source: { type: 'state', clients: [device.id] },
    condition: 'has(reported.n) && reported.n > 0',
  })
  await untilSeen(plant, rule.id, 1)
  for (let n = 1; n <= 30; n++) await report(device, { n })
  await report(device, { n: 30 })
  await untilSeen(plant, rule.id, 31)
  await sleep(1_000)
  expect(await showRule(plant, rule.id)).toMatchObject({ seen: 31, matched: 30, raised: 1 })
  expect((await alarmsOf(plant, rule.id))[0]).toMatchObject({ count: 30 })
  const { rows } = await sql`SELECT FROM rule_changes`.execute(plant.api.database.db)
  expect(rows).toEqual([])
})

test('a rule begins with what the states are, and after a pause with what they are then', async () => {
  const devices: Device[] = []
  for (let number = 0; number < 60; number++) devices.push(await plant.newDevice())
  const [outdated, ...current] = devices as [Device, ...Device[]]
  for (const device of [outdated, ...current.slice(-1)]) await desire(device, { firmware: '2' })
  const source = { type: 'state', clients: devices.map(({ id }) => id) }
  const rule = await newRule(plant, { source, condition: OUTDATED })
  expect(await untilAlarms(rule.id, 2)).toHaveLength(2)
  expectStatus(200, await plant.owner.call('POST', url(`rules/${rule.id}/disable`)))
  await report(outdated, { firmware: '2' })
  expect((await sql`SELECT FROM rule_changes`.execute(plant.api.database.db)).rows).toEqual([])
  expectStatus(200, await plant.owner.call('POST', url(`rules/${rule.id}/enable`), {}))
  const [cleared] = await untilAlarms(rule.id, 1, '&status=cleared')
  expect(cleared?.client_id).toBe(outdated.id)
  await sleep(500)
  // What went on to hold is no repetition.
  expect((await alarmsOf(plant, rule.id, '&status=open'))[0]).toMatchObject({ count: 1 })
  expect(await showRule(plant, rule.id)).toMatchObject({ raised: 2 })
})

test('clients that were deleted while the rule was disabled have no open alarm when it goes on', async () => {
  const devices: Device[] = []
  for (let number = 0; number < 52; number++) devices.push(await plant.newDevice())
  for (const device of devices) await desire(device, { firmware: '2' })
  await sql`UPDATE clients SET tags = '{doomed}' WHERE id = ANY (${devices.map(({ id }) => id)}::uuid[])`.execute(
    plant.api.database.db,
  )
  const source = { type: 'state', tags: ['doomed'] }
  const rule = await newRule(plant, { source, condition: OUTDATED, clear_for: '1s' })
  await untilAlarms(rule.id, 52)
  const [stays, ...gone] = devices as [Device, ...Device[]]
  expectStatus(200, await plant.owner.call('POST', url(`rules/${rule.id}/disable`)))
  for (const device of gone) expectStatus(200, await plant.owner.call('DELETE', url(`clients/${device.id}`)))
  expectStatus(200, await plant.owner.call('POST', url(`rules/${rule.id}/enable`), {}))
  await untilAlarms(rule.id, 51, '&status=cleared')
  const open = await alarmsOf(plant, rule.id, '&status=open')
  expect(open.map(({ client_id: id }) => id)).toEqual([stays.id])
})

test.each([
  ['changes', '0s'],
  ['what is due', '2s'],
])('a step ends when %s caused enough, and the next one does what is left', async (_, waits) => {
  const devices: Device[] = []
  for (let number = 0; number < 20; number++) devices.push(await plant.newDevice())
  const reported = { text: 'x'.repeat(1_000) }
  for (const device of devices) {
    await report(device, reported)
    await desire(device, { firmware: '2' })
  }
  const channel = await plant.newChannel()
  const payload = JSON.stringify({ of: '{{ client.id }}', text: '{{ reported.text }}'.repeat(40) })
  const publish = { type: 'publish', channel, payload, on: ['raise', 'clear'] }
  const actions = [{ type: 'alarm' }, ...Array.from({ length: MAX_ACTIONS - 1 }, () => publish)]
  const source = { type: 'state', clients: devices.map(({ id }) => id) }
  const { db } = plant.api.database
  const transactions = async (ruleId: string) => {
    const { rows } = await sql`SELECT DISTINCT xmin::text FROM alarms WHERE rule_id = ${ruleId}::uuid`.execute(db)
    return rows.length
  }
  const rule = await newRule(plant, { source, condition: OUTDATED, for: waits, actions })
  await untilAlarms(rule.id, 20)
  expect(await transactions(rule.id)).toBeGreaterThan(1)
  await sql`INSERT INTO rule_changes (domain_key, client_key, document, desired, reported, delta)
    SELECT domain_key, key, '', '{}', ${JSON.stringify(reported)}::jsonb, '{}' FROM clients WHERE id = ANY (${source.clients}::uuid[])`.execute(
    db,
  )
  await untilAlarms(rule.id, 20, '&status=cleared')
  expect(await transactions(rule.id)).toBeGreaterThan(1)
  expect(await showRule(plant, rule.id)).toMatchObject({ raised: 20, acted: 40 * (MAX_ACTIONS - 1) })
  expect((await sql`SELECT FROM rule_changes`.execute(db)).rows).toEqual([])
})

test('a condition that must hold for a time raises without a further change, and not when it ended before', async () => {
  const [stays, recovers] = [await plant.newDevice(), await plant.newDevice()]
  const rule = await newRule(plant, {
    source: { type: 'state', clients: [stays.id, recovers.id] },
    condition: OUTDATED,
    for: '3s',
    actions: [{ type: 'alarm', text: 'needs {{ delta.firmware }}' }],
  })
  for (const device of [stays, recovers]) await desire(device, { firmware: '2' })
  await report(recovers, { firmware: '2' })
  const [alarm] = await untilAlarms(rule.id, 1)
  expect(alarm).toMatchObject({ client_id: stays.id, text: 'needs 2' })
  await sleep(500)
  expect(await showRule(plant, rule.id)).toMatchObject({ raised: 1 })
})

test('a named document is another series, and others do not meet the rule', async () => {
  const device = await plant.newDevice()
  const source = { type: 'state', clients: [device.id], document: 'config' }
  const rule = await newRule(plant, { source, condition: 'has(delta.rate)' })
  await untilSeen(plant, rule.id, 1)
  await desire(device, { rate: 1 })
  await desire(device, { rate: 1 }, 'config')
  const [alarm] = await untilAlarms(rule.id, 1)
  expect(alarm).toMatchObject({ name: 'config' })
  expect((await showRule(plant, rule.id)).seen).toBe(2)
  expectStatus(204, await plant.owner.call('DELETE', url(`clients/${device.id}/desired-state/config`)))
  await untilAlarms(rule.id, 1, '&status=cleared')
})

test('a rule that is about another document from now on has no open alarm of the one before', async () => {
  const device = await plant.newDevice()
  const source = { type: 'state', clients: [device.id] }
  const rule = await newRule(plant, { source, condition: OUTDATED })
  await desire(device, { firmware: '2' })
  await untilAlarms(rule.id, 1)
  const change = async (fields: object) =>
    expectStatus(200, await plant.owner.call('PATCH', url(`rules/${rule.id}`), fields))
  await change({ source: { ...source, document: '' } })
  expect(await alarmsOf(plant, rule.id, '&status=open')).toHaveLength(1)
  await change({ source: { ...source, document: 'config' } })
  expect(await alarmsOf(plant, rule.id, '&status=open')).toEqual([])
  await desire(device, { firmware: '2' }, 'config')
  expect((await untilAlarms(rule.id, 1, '&status=open'))[0]).toMatchObject({ name: 'config' })
})

test('a client that goes offline raises, one that comes back clears', async () => {
  const device = await plant.newDevice()
  const channel = await plant.newChannel()
  await plant.connect(device, channel)
  const rule = await newRule(plant, {
    source: { type: 'state', channels: [channel] },
    condition: '!online',
    actions: [{ type: 'alarm', text: '{{ client.name }} is offline' }],
  })
  await untilAlarms(rule.id, 1)
  const key = sql`(SELECT key FROM clients WHERE id = ${device.id}::uuid)`
  const { db } = plant.api.database
  await sql`INSERT INTO client_telemetry (client_key, first_seen, last_seen, inbound_messages, outbound_messages, unparsed_messages, is_online)
    VALUES (${key}, now(), now(), 0, 0, 0, true)`.execute(db)
  await untilAlarms(rule.id, 1, '&status=cleared')
  await sql`UPDATE client_telemetry SET is_online = true WHERE client_key = ${key}`.execute(db)
  await sql`UPDATE client_telemetry SET is_online = false WHERE client_key = ${key}`.execute(db)
  await untilAlarms(rule.id, 1, '&status=open')
  expect(await showRule(plant, rule.id)).toMatchObject({ raised: 2, seen: 3 })
  await desire(device, { firmware: '2' })
  await sleep(1_000)
  expect((await showRule(plant, rule.id)).seen).toBe(3)
})

test('a client that is deleted or leaves the rule has no open alarm and raises none', async () => {
  const [gone, waiting, left] = [await plant.newDevice(), await plant.newDevice(), await plant.newDevice()]
  for (const device of [gone, waiting, left])
    expectStatus(200, await plant.owner.call('PATCH', url(`clients/${device.id}/tags`), { tags: ['leaving'] }))
  const source = { type: 'state', tags: ['leaving'] }
  const rule = await newRule(plant, { source, condition: OUTDATED })
  const later = await newRule(plant, { source, condition: OUTDATED, for: '3s' })
  for (const device of [gone, waiting, left]) await desire(device, { firmware: '2' })
  await untilAlarms(rule.id, 3)
  expectStatus(200, await plant.owner.call('DELETE', url(`clients/${gone.id}`)))
  for (const device of [waiting, left])
    expectStatus(200, await plant.owner.call('PATCH', url(`clients/${device.id}/tags`), { tags: [] }))
  await report(left, { battery: 1 })
  const cleared = await untilAlarms(rule.id, 2, '&status=cleared')
  expect(cleared.map(({ client_id: id }) => id ?? '').toSorted()).toEqual([gone.id, left.id].toSorted())
  await sleep(3_500)
  expect(await alarmsOf(plant, later.id)).toEqual([])
})

test('changes of another domain do not meet it, and a domain without such rules keeps none', async () => {
  const other = await startOther()
  const rule = await newRule(plant, { source: { type: 'state' }, condition: '!online || has(desired.x)' })
  await untilSeen(plant, rule.id, 1)
  const { seen } = await showRule(plant, rule.id)
  expectStatus(200, await plant.owner.call('PATCH', `${other.path}/desired-state`, { x: 1 }))
  expect((await sql`SELECT FROM rule_changes`.execute(plant.api.database.db)).rows).toEqual([])
  await sleep(800)
  expect((await showRule(plant, rule.id)).seen).toBeGreaterThanOrEqual(seen)
  expect((await alarmsOf(plant, rule.id)).map(({ client_id: id }) => id)).not.toContain(other.id)
})

test('changes that no rule evaluates are removed', async () => {
  const { db } = plant.api.database
  const { id } = await startOther('without rules')
  await sql`INSERT INTO rule_changes (domain_key, client_key, is_online) SELECT domain_key, key, true FROM clients, generate_series(1, 2500)
    WHERE id = ${id}::uuid`.execute(db)
  await until(
    async () => (await sql`SELECT FROM rule_changes LIMIT 1`.execute(db)).rows.length === 0,
    'they are removed',
  )
})

async function startOther(name = 'other'): Promise<{ id: string; path: string }> {
  const domain = expectStatus(201, await plant.owner.call('POST', '/domains', { name })).json<{ id: string }>()
  const made = expectStatus(201, await plant.owner.call('POST', `/${domain.id}/clients`, {})).json<{ id: string }>()
  return { id: made.id, path: `/${domain.id}/clients/${made.id}` }
}

test('what does not belong to it is refused with its field', async () => {
  const state = { type: 'state' }
  expect(await refusalOf({ source: state, condition: 'value > 1.0' })).toContain('condition must not have value')
  expect(await refusalOf({ source: state, condition: 'client.name == "x"' })).toContain(
    'condition must look at desired',
  )
  expect(await refusalOf({ source: state, condition: '' })).toContain('condition is required')
  expect(await refusalOf({ source: state, condition: OUTDATED, clear_when: 'json.x' })).toContain('clear_when')
  expect(await refusalOf({ source: { ...state, names: ['x'] }, condition: OUTDATED })).toContain('names must be absent')
  expect(await refusalOf({ source: { ...state, subtopic: 'x' }, condition: OUTDATED })).toContain(
    'subtopic must be absent',
  )
  expect(await refusalOf({ source: { ...state, after: '1m' }, condition: OUTDATED })).toContain('after must be absent')
  expect(await refusalOf({ source: { ...state, document: '$x' }, condition: OUTDATED })).toContain('document must have')
  expect(await refusalOf({ source: state, condition: 'online && mean("5m") > 1' })).toContain('must not have windows')
  expect(await refusalOf({ source: { type: 'messages', document: 'x' }, condition: 'value > 1.0' })).toContain(
    'document',
  )
  expect(await refusalOf({ source: { type: 'messages' }, condition: 'online' })).toContain('source state')
  expect(await refusalOf({ source: state, condition: OUTDATED, from: '1-1-1' })).toContain('from must be absent')
  expect(
    await refusalOf({ source: state, condition: OUTDATED, actions: [{ type: 'mail', to: ['a@example.com'] }] }),
  ).toContain('requires exactly one channel')
  expect(await refusalOf({ source: state, condition: OUTDATED }, 'rules/try')).toContain('cannot be tried')
})

test('a rule whose user may not read states any more is paused, and looks at all clients when the right is back', async () => {
  const [device, recovers] = [await plant.newDevice(), await plant.newDevice()]
  const rule = await newRule(plant, {
    source: { type: 'state', clients: [device.id, recovers.id] },
    condition: OUTDATED,
    for: '2s',
  })
  await untilSeen(plant, rule.id, 2)
  const { db } = plant.api.database
  const { rows } = await sql<{ key: number }>`SELECT user_key AS key FROM rules WHERE id = ${rule.id}::uuid`.execute(db)
  const setUser = async (key: number) => {
    await sql`UPDATE rules SET user_key = ${key}, checked_at = now() - interval '1 minute' WHERE id = ${rule.id}::uuid`.execute(
      db,
    )
    await sql`UPDATE rule_domains SET version = version + 1`.execute(db)
  }
  await desire(recovers, { firmware: '2' })
  await untilSeen(plant, rule.id, 3)
  await setUser(-1)
  await desire(device, { firmware: '2' })
  await until(async () => (await showRule(plant, rule.id)).paused !== undefined, 'it is paused')
  await report(recovers, { firmware: '2' })
  await sleep(2_500)
  expect(await alarmsOf(plant, rule.id)).toEqual([])
  await setUser(rows[0]?.key ?? 0)
  const [alarm] = await untilAlarms(rule.id, 1)
  expect(alarm?.client_id).toBe(device.id)
  // What waited for a time ended while it was paused.
  expect(await showRule(plant, rule.id)).toMatchObject({ raised: 1 })
})

test('the rights of a rule are not looked at for changes of clients that are none of it', async () => {
  const [device, other] = [await plant.newDevice(), await plant.newDevice()]
  const rule = await newRule(plant, { source: { type: 'state', clients: [device.id] }, condition: OUTDATED })
  const { db } = plant.api.database
  await until(async () => {
    const { rows } = await sql`SELECT FROM rules WHERE id = ${rule.id}::uuid AND look_after IS NULL`.execute(db)
    return rows.length > 0
  }, 'it has looked at all clients')
  await sql`UPDATE rules SET user_key = -1 WHERE id = ${rule.id}::uuid`.execute(db)
  await sql`UPDATE rule_domains SET version = version + 1`.execute(db)
  await desire(other, { firmware: '2' })
  await until(
    async () => (await sql`SELECT FROM rule_changes`.execute(db)).rows.length === 0,
    'the change of the other client was taken',
  )
  expect((await showRule(plant, rule.id)).paused).toBeUndefined()
  await desire(device, { firmware: '2' })
  await until(async () => (await showRule(plant, rule.id)).paused !== undefined, 'it is paused')
})

const examples = (parse(readFileSync('examples/rules/state.yaml', 'utf8')) as { rules: Example[] }).rules
type Example = { name: string; source: Record<string, unknown>; for?: string }

const BAD: Readonly<Record<string, (device: Device) => Promise<void>>> = {
  'old firmware': (device) => desire(device, { firmware: '2' }),
  offline: async () => undefined,
  'battery is low': (device) => report(device, { battery: 12 }),
}

test.each(examples.map((rule) => [rule.name, rule] as const))(
  'the example "%s" finds its device',
  async (name, rule) => {
    const device = await plant.newDevice()
    const source = { ...rule.source, tags: undefined, clients: [device.id] }
    const made = await newRule(plant, { ...rule, name: `${name} here`, source, for: '0s' })
    await BAD[name]?.(device)
    expect((await untilAlarms(made.id, 1))[0]).toMatchObject({ client_id: device.id, count: 1 })
  },
)

test('the definition comes back as it was given, and names what its actions name', async () => {
  const target = await plant.newChannel()
  const fields = {
    source: { type: 'state', document: 'config' },
    condition: 'has(delta.a)',
    clear_when: 'has(reported.a)',
    actions: [{ type: 'publish', channel: target, payload: '{"a": "{{ delta.a }}"}', on: ['raise'] }],
  }
  const rule = await newRule(plant, fields)
  expect(await showRule(plant, rule.id)).toMatchObject({ ...fields, named: [{ type: 'channel', id: target }] })
})
