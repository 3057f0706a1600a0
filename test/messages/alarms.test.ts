// contract decision 100; docs/guides/rules.md
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { newMember } from '../api/support.ts'
import type { Tenant } from '../api/support.ts'
import { removeOldAlarms } from '#api/rules/alarms/repository.ts'
import { expectStatus } from './consumers-support.ts'
import { alarmsOf, newRule, sendValue, showRule, untilSeen } from './rules-support.ts'
import type { AlarmBody } from './rules-support.ts'
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

const url = (path: string) => `/${plant.domainId}/${path}`
const tenant = () => ({ user: plant.owner, call: plant.owner.call, domainId: plant.domainId }) as unknown as Tenant

/** A rule with an open alarm of each device. */
async function withAlarms(severity = 'warning') {
  const channel = await plant.newChannel()
  await plant.connect(device, channel)
  await plant.connect(other, channel)
  const source = { type: 'messages', channels: [channel] }
  const rule = await newRule(plant, { source, condition: 'value > 30.0', severity })
  await sendValue(plant, device, channel, 31)
  await sendValue(plant, other, channel, 32)
  await untilSeen(plant, rule.id, 2)
  const alarms = await alarmsOf(plant, rule.id)
  const of = (who: Device) => alarms.find((alarm) => alarm.client_id === who.id) as AlarmBody
  return { channel, rule, alarms, mine: of(device), others: of(other) }
}

type Change = { change: string; actor_id?: string; actor_name?: string; assignee_id?: string; comment?: string }

async function historyOf(id: string): Promise<Change[]> {
  const response = await plant.owner.call('GET', url(`alarms/${id}/history?limit=100`))
  return expectStatus(200, response).json<{ history: Change[] }>().history
}

const patch = (id: string, body: unknown) => plant.owner.call('PATCH', url(`alarms/${id}`), body)

describe('an alarm', () => {
  test('is acknowledged, assigned, commented and cleared, and its history says who did it', async () => {
    const { mine, rule } = await withAlarms()
    const done = await patch(mine.id, { status: 'acknowledged', assignee_id: plant.owner.id, comment: 'on my way' })
    expect(expectStatus(200, done).json()).toMatchObject({
      status: 'acknowledged',
      acknowledged_by: plant.owner.id,
      assignee_id: plant.owner.id,
      comments: 1,
    })
    expect((await patch(mine.id, { status: 'active', assignee_id: '' })).json()).toMatchObject({ status: 'active' })
    expect((await patch(mine.id, { status: 'cleared' })).json()).toMatchObject({
      status: 'cleared',
      cleared_by: plant.owner.id,
    })
    const history = await historyOf(mine.id)
    expect(history.map(({ change }) => change)).toEqual([
      'raise',
      'comment',
      'assign',
      'acknowledge',
      'assign',
      'unacknowledge',
      'clear',
    ])
    expect(history[0]?.actor_id).toBeUndefined()
    expect(history[1]).toMatchObject({ comment: 'on my way', actor_id: plant.owner.id })
    expect(history[2]).toMatchObject({ assignee_id: plant.owner.id })
    expect(history[4]?.assignee_id).toBeUndefined()
    expect((await patch(mine.id, { status: 'active' })).status).toBe(409)
    expect((await patch(mine.id, { comment: 'it was the pump' })).json()).toMatchObject({ comments: 2 })
    const { rows } = await sql<{
      operation: string
    }>`SELECT operation FROM journal WHERE attributes ->> 'id' = ${mine.id}
      AND actor_kind = 'user' ORDER BY xid, seq`.execute(plant.api.database.db)
    expect(rows.map(({ operation }) => operation)).toEqual([
      'alarm.comment',
      'alarm.assign',
      'alarm.acknowledge',
      'alarm.assign',
      'alarm.unacknowledge',
      'alarm.clear',
      'alarm.comment',
    ])
    expect((await showRule(plant, rule.id)).open_alarms).toBe(1)
  })

  test('that was cleared by hand while its condition holds is raised again by the next message', async () => {
    const { mine, rule, channel } = await withAlarms()
    await patch(mine.id, { status: 'cleared' })
    await sendValue(plant, device, channel, 40)
    await untilSeen(plant, rule.id, 3)
    const alarms = (await alarmsOf(plant, rule.id)).filter((alarm) => alarm.client_id === device.id)
    expect(alarms.map(({ status }) => status)).toEqual(['active', 'cleared'])
    expect(alarms[0]).toMatchObject({ value: 40, count: 1 })
  })

  test('is changed with others: all or none', async () => {
    const { mine, others } = await withAlarms()
    const unknown = newId()
    const refused = await plant.owner.call('POST', url('alarms/bulk'), {
      ids: [mine.id, unknown],
      status: 'acknowledged',
    })
    expect(refused.status).toBe(404)
    expect(refused.json()).toMatchObject({ details: [{ path: '/ids/1' }] })
    expect((await plant.owner.call('GET', url(`alarms/${mine.id}`))).json()).toMatchObject({ status: 'active' })
    const ids = [mine.id, others.id]
    const done = await plant.owner.call('POST', url('alarms/bulk'), { ids, status: 'acknowledged', comment: 'seen' })
    expect(expectStatus(200, done).json<{ alarms: AlarmBody[] }>().alarms).toMatchObject([
      { status: 'acknowledged', comments: 1 },
      { status: 'acknowledged', comments: 1 },
    ])
  })

  test('is found by what it is about, page by page', async () => {
    const { rule, mine, others } = await withAlarms('critical')
    await plant.owner.call('PATCH', url(`clients/${other.id}/tags`), { tags: ['north'] })
    await patch(others.id, { status: 'acknowledged', assignee_id: plant.owner.id })
    const found = async (query: string) => (await alarmsOf(plant, rule.id, query)).map(({ id }) => id).toSorted()
    const both = [mine.id, others.id].toSorted()
    expect(await found('&status=open')).toEqual(both)
    expect(await found('&status=active')).toEqual([mine.id])
    expect(await found('&status=acknowledged')).toEqual([others.id])
    expect(await found('&status=cleared')).toEqual([])
    expect(await found('&severity=critical,info')).toEqual(both)
    expect(await found('&severity=info')).toEqual([])
    expect(await found(`&client=${device.id}`)).toEqual([mine.id])
    expect(await found('&tag=north')).toEqual([others.id])
    expect(await found(`&assignee=${plant.owner.id}`)).toEqual([others.id])
    expect(await found('&assignee=none')).toEqual([mine.id])
    expect(await found(`&text=${rule.name.slice(2).toUpperCase()}`)).toEqual(both)
    expect(await found('&text=nothing')).toEqual([])
    const [before, after] = [new Date(Date.now() - 600_000).toISOString(), new Date(Date.now() + 600_000).toISOString()]
    expect(await found(`&from=${before}&to=${after}`)).toEqual(both)
    expect(await found(`&from=${after}`)).toEqual([])
    expect(await found(`&to=${before}`)).toEqual([])
    const page = await plant.owner.call('GET', url(`alarms?rule=${rule.id}&limit=1`))
    const first = page.json<{ total: number; next: string; alarms: AlarmBody[] }>()
    expect(first.total).toBe(2)
    const next = await plant.owner.call(
      'GET',
      url(`alarms?rule=${rule.id}&limit=1&cursor=${encodeURIComponent(first.next)}`),
    )
    const ids = [first.alarms[0]?.id, next.json<{ alarms: AlarmBody[] }>().alarms[0]?.id]
    expect(new Set(ids)).toEqual(new Set(both))
    for (const query of [
      'severity=bad',
      'client=x',
      'from=yesterday',
      'from=2026-02-30T00:00:00Z',
      'assignee=me',
      'status=new',
    ])
      expect((await plant.owner.call('GET', url(`alarms?${query}`))).status, query).toBe(400)
  })

  test('is deleted with its history, and unknown ones are not found', async () => {
    const { mine } = await withAlarms()
    expect((await plant.owner.call('DELETE', url(`alarms/${mine.id}`))).status).toBe(204)
    for (const path of [`alarms/${mine.id}`, `alarms/${mine.id}/history`, 'alarms/x'])
      expect((await plant.owner.call('GET', url(path))).status).toBe(404)
    expect((await patch(mine.id, { comment: 'late' })).status).toBe(404)
    expect((await plant.owner.call('DELETE', url(`alarms/${mine.id}`))).status).toBe(404)
  })

  test('is assigned only to users who may read alarms of the domain', async () => {
    const { mine } = await withAlarms()
    const stranger = await plant.api.newUser()
    for (const id of [stranger.id, newId(), 'x']) {
      const refused = await patch(mine.id, { assignee_id: id })
      expect(refused.status).toBe(400)
      expect(refused.json()).toMatchObject({ details: [{ path: '/assignee_id' }] })
    }
  })

  test('is read, changed and deleted with the actions of alarms', async () => {
    const { mine } = await withAlarms()
    const reader = await newMember(plant.api, tenant(), ['read', 'alarm_read'])
    const updater = await newMember(plant.api, tenant(), ['read', 'alarm_update'])
    const deleter = await newMember(plant.api, tenant(), ['read', 'alarm_delete'])
    const at = url(`alarms/${mine.id}`)
    expect((await reader.call('GET', at)).status).toBe(200)
    expect((await reader.call('PATCH', at, { status: 'acknowledged' })).status).toBe(403)
    expect((await reader.call('DELETE', at)).status).toBe(403)
    expect((await updater.call('GET', at)).status).toBe(403)
    expect((await updater.call('PATCH', at, { status: 'acknowledged' })).status).toBe(200)
    expect((await deleter.call('PATCH', at, { status: 'cleared' })).status).toBe(403)
    expect((await deleter.call('DELETE', at)).status).toBe(204)
  })

  test('is not raised beyond the quota of the domain, but with the next message when there is room', async () => {
    const { rows } = await sql<{
      total: number
    }>`SELECT count(*) AS total FROM alarms WHERE cleared_at IS NULL`.execute(plant.api.database.db)
    const limit = rows[0]?.total ?? 0
    const quotas = `/domains/${plant.domainId}/quotas`
    expectStatus(200, await plant.api.admin('PUT', quotas, { own: { open_alarms: limit } }))
    const channel = await plant.newChannel()
    await plant.connect(device, channel)
    const source = { type: 'messages', channels: [channel] }
    const rule = await newRule(plant, { source, condition: 'value > 30.0' })
    await sendValue(plant, device, channel, 31)
    await untilSeen(plant, rule.id, 1)
    expect(await alarmsOf(plant, rule.id)).toEqual([])
    expect((await showRule(plant, rule.id)).last_error?.reason).toMatch(/as many open alarms as it may/)
    expectStatus(200, await plant.api.admin('PUT', quotas, { own: {} }))
    await sendValue(plant, device, channel, 32)
    await untilSeen(plant, rule.id, 2)
    expect(await alarmsOf(plant, rule.id)).toMatchObject([{ value: 32, count: 1, status: 'active' }])
  })

  test('is removed a year after it was cleared, and open ones never', async () => {
    const { mine, others, rule } = await withAlarms()
    await patch(mine.id, { status: 'cleared' })
    const { db } = plant.api.database
    await sql`UPDATE alarms SET first_at = now() - interval '400 days', last_at = now() - interval '400 days',
      cleared_at = cleared_at - interval '366 days' WHERE rule_id = ${rule.id}::uuid`.execute(db)
    expect(await removeOldAlarms(db, 365, 100)).toBe(1)
    expect((await alarmsOf(plant, rule.id)).map(({ id }) => id)).toEqual([others.id])
  })

  test('is removed as soon after it was cleared as its domain says, a few at a time', async () => {
    const { mine, others, rule } = await withAlarms()
    const domain = `/domains/${plant.domainId}`
    const keep = (days: unknown) => plant.owner.call('PATCH', domain, { alarm_retention_days: days })
    const { db } = plant.api.database
    for (const { id } of [mine, others]) expectStatus(200, await patch(id, { status: 'cleared', comment: 'done' }))
    await sql`UPDATE alarms SET cleared_at = now() - interval '31 days' WHERE rule_id = ${rule.id}::uuid`.execute(db)
    await sql`UPDATE alarms SET cleared_at = cleared_at - interval '1 day' WHERE id = ${mine.id}::uuid`.execute(db)
    expect(await removeOldAlarms(db, 365, 100)).toBe(0)
    for (const days of [0, -1, 1.5, 36_501, '30', 'a year']) expect((await keep(days)).status, String(days)).toBe(400)
    expect(expectStatus(200, await keep(33)).json()).toMatchObject({ alarm_retention_days: 33 })
    expect(await removeOldAlarms(db, 365, 100)).toBe(0)
    expectStatus(200, await keep(30))
    expect(await removeOldAlarms(db, 365, 1)).toBe(1)
    expect((await alarmsOf(plant, rule.id)).map(({ id }) => id)).toEqual([others.id])
    expect(expectStatus(200, await keep(null)).json()).not.toHaveProperty('alarm_retention_days')
    expect(await removeOldAlarms(db, 365, 100)).toBe(0)
    // A domain may keep them for longer than others do.
    expectStatus(200, await keep(36_500))
    expect(await removeOldAlarms(db, 30, 100)).toBe(0)
    expectStatus(200, await keep(31))
    expect(await removeOldAlarms(db, 30, 100)).toBe(1)
    const { rows } = await sql<{
      after: { alarm_retention_days: number | null }
    }>`SELECT attributes -> 'after' AS after FROM journal WHERE operation = 'domain.update'
      AND attributes ->> 'id' = ${plant.domainId} ORDER BY xid, seq`.execute(db)
    expect(rows.map(({ after }) => after.alarm_retention_days)).toEqual([33, 30, null, 36_500, 31])
    expectStatus(200, await keep(null))
  })
})
