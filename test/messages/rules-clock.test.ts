// docs/decisions/0133-the-rules-of-a-domain-share-a-place.md
import { expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { startTestApi } from '../harness/api.ts'
import { createTestDatabase } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { newRule, sendValue, untilSeen } from './rules-support.ts'
import { startPlant } from './support.ts'

const ruleTimes = { intervalMs: 20 }

test('a time in which no process was there counts for no rule, and moves nothing that begins after it', async () => {
  await using own = await createTestDatabase()
  const before = await startPlant({ ruleTimes, database: own })
  const { id: deviceId, secret, channelId } = await before.newConnectedDevice()
  const source = { type: 'messages', channels: [channelId] }
  const rule = await newRule(before, { source, condition: 'value > 30.0', for: '1h' })
  const device = { id: deviceId, secret }
  await sendValue(before, device, channelId, 31, 'first')
  await untilSeen(before, rule.id, 1)
  await before[Symbol.asyncDispose]()

  const { db } = own.database
  await sql`UPDATE rule_states SET due_at = due_at - interval '2 hours',
    state = jsonb_set(state, '{state,sinceMs}', to_jsonb((state -> 'state' ->> 'sinceMs')::float8 - 7200000))`.execute(
    db,
  )
  await sql`UPDATE rule_clock SET alive_at = now() - interval '2 hours'`.execute(db)

  await using api = await startTestApi({ ruleTimes, database: own })
  const headers = { 'content-type': 'application/senml+json' }
  for (const n of ['first', 'second'])
    await api.as(`Client ${secret}`)('POST', `/http/m/${before.domainId}/c/${channelId}`, [{ n, v: 32 }], headers)
  await until(async () => {
    const { rows } = await sql<{ seen: number }>`SELECT seen FROM rules WHERE id = ${rule.id}::uuid`.execute(db)
    return rows[0]?.seen === 3
  }, 'the rule has seen what was sent after the start')
  const { rows } = await sql<{
    name: string
    status: string
    isWaiting: boolean
  }>`SELECT name, state -> 'state' ->> 'status' AS status,
      due_at BETWEEN now() + interval '59 minutes' AND now() + interval '61 minutes' AS "isWaiting"
    FROM rule_states ORDER BY name`.execute(db)
  expect(rows).toEqual([
    { name: 'first', status: 'pending', isWaiting: true },
    { name: 'second', status: 'pending', isWaiting: true },
  ])
})
