// docs/guides/rules.md, What a rule has done
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { newMember, revokeRoles } from '../api/support.ts'
import type { Tenant } from '../api/support.ts'
import { until } from '../harness/until.ts'
import { expectStatus, send } from './consumers-support.ts'
import { alarmsOf, newRule, sendValue, showRule, untilSeen } from './rules-support.ts'
import type { RuleBody } from './rules-support.ts'
import { startPlant } from './support.ts'
import type { Device, Plant } from './support.ts'

let plant: Plant
let device: Device
let channel: string

beforeAll(async () => {
  plant = await startPlant({ ruleTimes: { intervalMs: 20 } })
  device = await plant.newDevice()
  channel = await plant.newChannel()
  await plant.connect(device, channel)
})
afterAll(() => plant[Symbol.asyncDispose]())

const tenant = () => ({ user: plant.owner, call: plant.owner.call, domainId: plant.domainId }) as unknown as Tenant
const hot = () => ({ source: { type: 'messages', channels: [channel] }, condition: 'value > 30.0' })
const rules = () => `/${plant.domainId}/rules`

test('a rule that is ahead of the others of its domain joins them at its place', async () => {
  const own = await plant.newChannel()
  await plant.connect(device, own)
  const source = { type: 'messages', channels: [own] }
  const fields = { source, condition: 'json.level > 3' }
  const [ahead, others] = [await newRule(plant, fields), await newRule(plant, fields)]
  const { db } = plant.api.database
  const { rows } = await sql<{
    xid: string
    seq: number
    message: number
  }>`SELECT xid::text AS xid, seq, message FROM rule_domains
    WHERE domain_key = (SELECT key FROM domains WHERE id = ${plant.domainId}::uuid)`.execute(db)
  const [begin] = rows
  // More than one step takes: the others are still behind the rule after it.
  for (const level of [4, 5, 6]) await send(plant, device, own, { level, text: 'x'.repeat(600_000) })
  await untilSeen(plant, ahead.id, 3)
  await untilSeen(plant, others.id, 3)
  await sql`WITH moved AS (
      UPDATE rule_domains d SET (xid, seq, message) = ROW (${begin?.xid}::xid8, ${begin?.seq}::bigint, ${begin?.message}::int), version = d.version + 1
        FROM rule_domains before WHERE before.domain_key = d.domain_key AND d.domain_key = (SELECT key FROM domains WHERE id = ${plant.domainId}::uuid)
        RETURNING before.xid, before.seq, before.message)
    UPDATE rules r SET is_behind = true, (xid, seq, message) = ROW (m.xid, m.seq, m.message) FROM moved m WHERE r.id = ${ahead.id}::uuid`.execute(
    db,
  )
  await untilSeen(plant, others.id, 6)
  await send(plant, device, own, { level: 7 })
  await untilSeen(plant, others.id, 7)
  expect(await untilSeen(plant, ahead.id, 4)).toMatchObject({ seen: 4, matched: 4 })
  for (const { id } of [ahead, others]) expectStatus(204, await plant.owner.call('DELETE', `${rules()}/${id}`))
})

describe('the rights of a rule', () => {
  test('are those of who made it: it reads what this user may read, and nothing else', async () => {
    const { call } = await newMember(plant.api, tenant(), ['read', 'rule_create', 'rule_read'])
    const refused = await call('POST', rules(), { name: 'blind', ...hot() })
    expect(refused.status).toBe(403)
    expect((await call('POST', `${rules()}/try`, hot())).status).toBe(403)
    const all = await call('POST', rules(), { name: 'blind', ...hot(), source: { type: 'messages' } })
    expect(all.status).toBe(403)
  })

  test('that are lost pause it at its place, and it goes on there with the rights of who enables it', async () => {
    const member = await newMember(plant.api, tenant(), [
      'read',
      'rule_create',
      'rule_read',
      'channel_subscribe',
      'channel_read',
    ])
    const rule = expectStatus(
      201,
      await member.call('POST', rules(), { name: 'of a member', ...hot() }),
    ).json<RuleBody>()
    const witness = await newRule(plant, hot())
    await sendValue(plant, device, channel, 31)
    await untilSeen(plant, rule.id, 1)
    const { domainId } = plant
    await revokeRoles(plant.api, member.user.id, { type: 'domain', domainId, id: domainId })
    await sendValue(plant, device, channel, 32)
    await sendValue(plant, device, channel, 33)
    await untilSeen(plant, witness.id, 3)
    const paused = await until(async () => {
      const shown = await showRule(plant, rule.id)
      return shown.paused === undefined ? undefined : shown
    }, 'the rule is paused')
    expect(paused).toMatchObject({ seen: 1, status: 'enabled' })
    expect(paused.paused?.reason).not.toBe('')
    expectStatus(200, await plant.owner.call('POST', `${rules()}/${rule.id}/enable`, {}))
    expect(await untilSeen(plant, rule.id, 3)).toMatchObject({ seen: 3, matched: 3, raised: 1 })
    expect(await alarmsOf(plant, rule.id)).toMatchObject([{ count: 3, value: 33 }])
  })

  test('that are lost pause it too when time alone would let it act', async () => {
    const member = await newMember(plant.api, tenant(), ['read', 'rule_create', 'rule_read', 'channel_subscribe'])
    const body = { name: 'waits', ...hot(), for: '3s' }
    const rule = expectStatus(201, await member.call('POST', rules(), body)).json<RuleBody>()
    await sendValue(plant, device, channel, 31)
    await untilSeen(plant, rule.id, 1)
    const { domainId } = plant
    await revokeRoles(plant.api, member.user.id, { type: 'domain', domainId, id: domainId })
    const paused = await until(async () => {
      const shown = await showRule(plant, rule.id)
      return shown.paused === undefined ? undefined : shown
    }, 'the rule is paused')
    expect(paused).toMatchObject({ seen: 1, raised: 0 })
  })
})

test('a rule starts a task with the record that it found, once for each message', async () => {
  const { db } = plant.api.database
  const task = newId()
  await sql`INSERT INTO tasks (id, domain_key, domain_id, name, inputs, env, labels, priority, timeout_ms, memory_limit_bytes, backoff_ms, on_lost, metadata)
    SELECT ${task}::uuid, key, id, 'task', '[]', '{}', '{}', 0, 1000, 65536, 0, 'requeue', '{}' FROM domains WHERE id = ${plant.domainId}::uuid`.execute(
    db,
  )
  const rule = await newRule(plant, { ...hot(), actions: [{ type: 'start', task, on: ['raise', 'repeat'] }] })
  expect(rule.named).toContainEqual({ type: 'task', id: task, name: 'task' })
  for (const value of [20, 41, 42]) await sendValue(plant, device, channel, value)
  expect(await untilSeen(plant, rule.id, 3)).toMatchObject({ matched: 2, acted: 2 })
  type Message = { channel_id: string; publisher: string; records: { n: string; v: number }[] }
  const { rows } = await sql<{ message: Message; origin: string }>`SELECT m.message, m.origin FROM task_messages m
    JOIN tasks t ON t.key = m.task_key WHERE t.id = ${task}::uuid ORDER BY m.key`.execute(db)
  expect(rows.map(({ message }) => message.records.map(({ v }) => v))).toEqual([[41], [42]])
  expect(rows[0]?.message).toMatchObject({ channel_id: channel, publisher: device.id })
  expect(rows[0]?.origin).toMatch(/^message \d+\/\d+ rule /)
  await sql`DELETE FROM tasks WHERE id = ${task}::uuid`.execute(db)
  await sendValue(plant, device, channel, 43)
  await untilSeen(plant, rule.id, 4)
  expect((await showRule(plant, rule.id)).last_error?.reason).toMatch(/was deleted/)
})
