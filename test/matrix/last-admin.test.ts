// contract 2.4 "Last admin", decision 33: no two requests together leave a domain without an administrator, in whatever way each takes one out
import { afterAll, beforeAll, expect, test } from 'vitest'
import { adminRoleId } from '#api/identity/index.ts'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { TestApi, TestResponse } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'

const DEADLINE_MS = 30_000

let api: TestApi
beforeAll(async () => {
  api = await startTestApi()
})
afterAll(() => api[Symbol.asyncDispose]())

type World = { domainId: string; roleId: string; key: number }
type Way = (world: World, userId: string) => Promise<TestResponse>

const WAYS: Record<string, Way> = {
  'out of the role': ({ domainId, roleId }, id) =>
    api.admin('POST', `/domains/${domainId}/roles/${roleId}/members/delete`, { members: [id] }),
  'all out of the role': ({ domainId, roleId }) =>
    api.admin('POST', `/domains/${domainId}/roles/${roleId}/members/delete-all`),
  'out of every role': ({ domainId }, id) =>
    api.admin('DELETE', `/domains/${domainId}/roles/members`, { member_ids: [id] }),
  unassigned: ({ domainId }, id) => api.admin('POST', `/domains/${domainId}/users/unassign`, { user_ids: [id] }),
  disabled: (_world, id) => api.admin('POST', `/users/${id}/disable`),
  deleted: (_world, id) => api.admin('DELETE', `/users/${id}`),
}

async function newWorld(userIds: readonly string[]): Promise<World> {
  const domainId = newId()
  const { db } = api.database
  const { rows } = await sql<{ key: number }>`INSERT INTO domains (id, name, route)
    VALUES (${domainId}, 'plant', ${`w${domainId.slice(0, 30)}`}) RETURNING key`.execute(db)
  const { key } = rows[0] as { key: number }
  await sql`WITH made AS (
      INSERT INTO users (id, first_name, last_name, username, secret_hash)
      SELECT id, 'F ' || id, 'L ' || id, 'u-' || left(id::text, 13), '' FROM unnest(${userIds}::uuid[]) AS id RETURNING key)
    INSERT INTO grants (user_key, entity_type, domain_key, entity_key) SELECT key, 'domain', ${key}, ${key} FROM made`.execute(
    db,
  )
  return { domainId, key, roleId: adminRoleId('domain', key) }
}

/** Until both have ended, or each waits for a lock of the database or has ended. */
async function meet(work: readonly Promise<unknown>[]): Promise<void> {
  let ended = 0
  for (const one of work)
    one.then(
      () => ended++,
      () => ended++,
    )
  const deadline = performance.now() + DEADLINE_MS
  for (;;) {
    const { rows } = await sql<{ waiting: number }>`SELECT count(*)::int AS waiting FROM pg_stat_activity
      WHERE datname = current_database() AND wait_event_type = 'Lock'`.execute(api.database.db)
    if (ended + (rows[0]?.waiting ?? 0) >= work.length) return
    if (performance.now() > deadline) throw new Error('neither waits nor ends')
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

const PAIRS = Object.keys(WAYS).flatMap((one) => Object.keys(WAYS).map((other) => [one, other] as const))

test.each(PAIRS)('one administrator who can sign in remains when one %s and the other %s', async (one, other) => {
  const [first, second] = [newId(), newId()]
  const world = await newWorld([first, second])
  let work: Promise<TestResponse>[] = []
  // What each checks before it writes is checked while neither has written.
  await api.database.transaction(async (tx) => {
    await sql`LOCK TABLE grants, users IN SHARE MODE`.execute(tx)
    work = [(WAYS[one] as Way)(world, first), (WAYS[other] as Way)(world, second)]
    await meet(work)
  })
  const statuses = (await Promise.all(work)).map(({ status }) => status)
  expect(statuses.filter((status) => status >= 300 && status !== 409)).toEqual([])
  expect(statuses).toContain(409)
  const { rows } = await sql`SELECT 1 FROM grants g JOIN users u ON u.key = g.user_key AND u.status = 'enabled'
    WHERE g.entity_key = ${world.key} AND g.role_key = 0`.execute(api.database.db)
  expect(rows.length).toBeGreaterThan(0)
})
