// docs/guides/rules.md, Actions
import { afterAll, beforeAll, expect, test } from 'vitest'
import { takePublications } from '#api/rules/publications/repository.ts'
import type { Queryable } from '#core/database/index.ts'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { newRule, sendValue, showRule, untilSeen } from './rules-support.ts'
import { startPlant } from './support.ts'

let own: TestDatabase
beforeAll(async () => {
  own = await createTestDatabase()
})
afterAll(() => own[Symbol.asyncDispose]())

/** Puts publications into the queue of a domain, which are due in as many seconds. */
async function queue(db: Queryable, domainId: string, rows: { count: number; dueSeconds: number }): Promise<void> {
  await sql`INSERT INTO rule_publications (domain_key, rule_key, rule_id, user_key, channel_id, subtopic, content_type, payload, depth, origin, due_at)
    SELECT d.key, 1, d.id, 1, d.id, '', 'application/json', '{}', 1, i::text, now() + make_interval(secs => ${rows.dueSeconds})
      FROM domains d, generate_series(1, ${rows.count}) i WHERE d.id = ${domainId}::uuid`.execute(db)
}

test('a domain does not wait for all that another one has published', async () => {
  const { db } = own.database
  const [busy, quiet] = [newId(), newId()]
  for (const id of [busy, quiet])
    await sql`INSERT INTO domains (id, name, route) VALUES (${id}::uuid, ${id}, ${id})`.execute(db)
  await queue(db, busy, { count: 1_000, dueSeconds: -60 })
  await queue(db, quiet, { count: 3, dueSeconds: -1 })
  const countsOf = async () => {
    const { rows, isFull } = await takePublications(db)
    const of = (id: string) => rows.filter(({ domainId }) => domainId === id).length
    return { busy: of(busy), quiet: of(quiet), isFull }
  }
  expect(await countsOf()).toEqual({ busy: 250, quiet: 3, isFull: true })
  expect(await countsOf()).toEqual({ busy: 500, quiet: 0, isFull: true })
  expect(await countsOf()).toEqual({ busy: 250, quiet: 0, isFull: true })
  expect(await countsOf()).toEqual({ busy: 0, quiet: 0, isFull: false })
})

test('a rule does not publish when 10,000 messages of its domain wait, and says so', async () => {
  await using plant = await startPlant({ ruleTimes: { intervalMs: 20 } })
  const device = await plant.newConnectedDevice()
  const { channelId } = device
  const publish = { type: 'publish', channel: channelId, subtopic: 'found', on: ['raise', 'repeat'] }
  const source = { type: 'messages', channels: [channelId], names: ['temperature'] }
  const rule = await newRule(plant, { source, condition: 'value > 30.0', actions: [publish] })
  await queue(plant.api.database.db, plant.domainId, { count: 10_000, dueSeconds: 3_600 })
  await sendValue(plant, device, channelId, 31)
  const full = await untilSeen(plant, rule.id, 1)
  expect(full).toMatchObject({ matched: 1, acted: 0 })
  expect(full.last_error).toMatchObject({
    count: 1,
    reason: expect.stringMatching(/^10000 messages .* wait/) as unknown,
  })
  await sql`DELETE FROM rule_publications WHERE origin = '1'`.execute(plant.api.database.db)
  for (const value of [32, 33]) await sendValue(plant, device, channelId, value)
  expect((await untilSeen(plant, rule.id, 3)).acted).toBeGreaterThanOrEqual(1)
})

test('a message that its channel refuses is not published any more when its rule was stopped', async () => {
  await using plant = await startPlant({ ruleTimes: { intervalMs: 20 } })
  const { db } = plant.api.database
  const device = await plant.newConnectedDevice()
  const target = await plant.newChannel()
  const source = { type: 'messages', channels: [device.channelId], names: ['temperature'] }
  const actions = [{ type: 'publish', channel: target, on: ['raise', 'repeat'] }]
  const newOne = async () => await newRule(plant, { source, condition: 'value > 30.0', actions })
  const [disabled, deleted, other] = [await newOne(), await newOne(), await newOne()]
  const call = async (method: string, path: string) =>
    expect((await plant.owner.call(method, `/${plant.domainId}/${path}`)).status).toBeLessThan(300)
  await call('POST', `channels/${target}/disable`)
  // With a message, the rules would be paused before they cause anything.
  await sql`INSERT INTO rule_publications (domain_key, rule_key, rule_id, user_key, channel_id, subtopic, content_type, payload, depth, origin)
    SELECT domain_key, key, id, user_key, ${target}::uuid, '', 'application/json', '{"at": 31}', 1, id::text FROM rules
    WHERE id = ANY (${[disabled, deleted, other].map(({ id }) => id)}::uuid[])`.execute(db)
  const waiting = async () => {
    const { rows } = await sql<{ id: string }>`SELECT rule_id AS id FROM rule_publications
      WHERE attempts > 0 AND due_at > now() + interval '31 s'`.execute(db)
    return rows.map(({ id }) => id)
  }
  await until(async () => (await waiting()).length === 3, 'all of them wait')
  await call('POST', `rules/${disabled.id}/disable`)
  await call('DELETE', `rules/${deleted.id}`)
  await sql`UPDATE rule_publications SET due_at = now()`.execute(db)
  await until(async () => (await waiting()).join() === other.id, 'only that of the other rule waits')
  // What was refused is noted after it has left the queue.
  const isNoted = async () =>
    (await showRule(plant, disabled.id)).last_error?.reason.startsWith('the rule was stopped: a message was not') ===
    true
  await until(isNoted, 'the reason is noted')
  await call('POST', `channels/${target}/enable`)
  await sql`UPDATE rule_publications SET due_at = now()`.execute(db)
  const published = async () => {
    const answer = await plant.owner.call('GET', `/${plant.domainId}/channels/${target}/messages?format=json`)
    return answer.json<{ total: number }>().total
  }
  await until(async () => (await published()) === 1, 'it is published')
})
