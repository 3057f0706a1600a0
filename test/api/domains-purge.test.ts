// contract 1.2, decision 46: 30 days of grace, then a domain goes with everything of it
import { expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { newTenant, publish, read, tenantOf } from './support.ts'
import type { Tenant } from './support.ts'

const api = useWorld(() => startTestApi())

async function deletedDaysAgo(tenant: Tenant, days: number): Promise<void> {
  const deleted = await tenant.call('DELETE', `/domains/${tenant.domainId}`)
  expect(deleted.status).toBe(204)
  await sql`UPDATE domains SET deleted_at = now() - make_interval(days => ${days}) WHERE id = ${tenant.domainId}`.execute(
    api.database.db,
  )
}

async function keyOf(tenant: Tenant): Promise<number> {
  const { rows } = await sql<{ key: number }>`SELECT key FROM domains WHERE id = ${tenant.domainId}`.execute(
    api.database.db,
  )
  return (rows[0] as { key: number }).key
}

/** Devices, groups in each other, roles, members, invitations, tasks and messages. */
async function fill(tenant: Tenant): Promise<{ secret: string; channel: string; channelKeys: number[] }> {
  const { call, domainId } = tenant
  const client = await tenant.newClient()
  const [channel, gone] = [await tenant.newChannel(), await tenant.newChannel()]
  for (const { id } of [channel, gone]) await tenant.connect(client.id, id)
  const secret = client.credentials.secret
  for (const { id } of [channel, gone]) expect(await publish(api, { secret, domain: domainId, channel: id })).toBe(202)
  const raw = await api.as(`Client ${secret}`)('POST', `/m/${domainId}/c/${channel.id}`, 'raw', {
    'content-type': 'text/plain',
  })
  expect(raw.status).toBe(202)
  let parent: string | undefined
  for (let depth = 0; depth < 3; depth++) {
    const body = { name: `level ${depth}`, ...(parent === undefined ? {} : { parent_id: parent }) }
    const made = await call('POST', `/${domainId}/groups`, body)
    expect(made.status).toBe(201)
    parent = made.json<{ id: string }>().id
  }
  const [member, invited] = [await api.newUser(), await api.newUser()]
  const relation = { relation: 'viewer', user_ids: [member.id] }
  expect((await call('POST', `/domains/${domainId}/users/assign`, relation)).status).toBe(201)
  const invitation = { user_id: invited.id, domain_id: domainId, relation: 'viewer' }
  expect((await call('POST', '/invitations', invitation)).status).toBe(201)
  await sql`INSERT INTO tasks (id, domain_key, domain_id, name, inputs, env, labels, priority, timeout_ms, memory_limit_bytes, backoff_ms, on_lost, metadata)
    VALUES (gen_random_uuid(), ${await keyOf(tenant)}, ${domainId}, 'add', '[]', '{}', '{}', 0, 1000, 65536, 0, 'fail', '{}')`.execute(
    api.database.db,
  )
  const { rows } = await sql<{
    key: number
  }>`SELECT key FROM channels WHERE domain_key = ${await keyOf(tenant)}`.execute(api.database.db)
  // What a deleted channel leaves behind goes with the domain.
  expect((await call('DELETE', `/${domainId}/channels/${gone.id}`)).status).toBe(204)
  return { secret, channel: channel.id, channelKeys: rows.map((row) => row.key) }
}

/** Rows that belong to the domain, by table: whatever refers to it, and what is stored of its channels. */
async function rowsOf(domainKey: number, channelKeys: readonly number[]): Promise<Record<string, number>> {
  const { db } = api.database
  const { rows: tables } = await sql<{ name: string }>`
    SELECT conrelid::regclass::text AS name FROM pg_constraint WHERE contype = 'f' AND confrelid = 'domains'::regclass`.execute(
    db,
  )
  const counts: Record<string, number> = {}
  for (const { name } of tables) {
    const { rows } = await sql<{ rows: number }>`
      SELECT count(*) AS rows FROM ${sql.table(name)} WHERE domain_key = ${domainKey}`.execute(db)
    counts[name] = rows[0]?.rows ?? 0
  }
  for (const name of ['connections', 'series', 'records', 'payloads', 'rollups', 'rollup_weeks', 'latest_records']) {
    const { rows } = await sql<{ rows: number }>`
      SELECT count(*) AS rows FROM ${sql.table(name)} WHERE channel_key = ANY (${channelKeys}::bigint[])`.execute(db)
    counts[name] = rows[0]?.rows ?? 0
  }
  return counts
}

test('a domain whose grace period is over is removed with all its entities, and nothing else is', async () => {
  const [tenant, other] = [await newTenant(api), await newTenant(api)]
  const [mine, theirs] = [await fill(tenant), await fill(other)]
  const key = await keyOf(tenant)
  const before = await rowsOf(key, mine.channelKeys)
  for (const table of [
    'clients',
    'channels',
    'groups',
    'roles',
    'grants',
    'tasks',
    'invitations',
    'records',
    'payloads',
  ])
    expect(before[table], table).toBeGreaterThan(0)
  const untouched = await rowsOf(await keyOf(other), theirs.channelKeys)
  await deletedDaysAgo(tenant, 31)

  expect(await api.api.domainPurge.round()).toEqual([tenant.domainId])
  const after = await rowsOf(key, mine.channelKeys)
  expect(Object.entries(after).filter(([, rows]) => rows > 0)).toEqual([])
  const kept = await rowsOf(await keyOf(other), theirs.channelKeys)
  // Projections are made as time goes by.
  const projections = {
    rollups: 0,
    rollup_weeks: 0,
    latest_records: 0,
    domain_usage: 0,
    domain_minutes: 0,
    domain_stored_records: 0,
  }
  expect({ ...kept, ...projections }).toEqual({ ...untouched, ...projections })
  expect(await read(api, { secret: theirs.secret, domain: other.domainId, channel: theirs.channel })).toBe(200)
  expect(await publish(api, { secret: theirs.secret, domain: other.domainId, channel: theirs.channel })).toBe(202)

  expect((await tenant.call('POST', `/domains/${tenant.domainId}/enable`)).status).toBe(403)
  expect((await api.admin('GET', `/domains?id=${tenant.domainId}&status=all`)).json()).toMatchObject({ total: 0 })
  const again = await tenant.call('POST', '/domains', { id: tenant.domainId, name: 'anew' })
  expect(again.status).toBe(201)
  expect((await tenant.call('GET', `/${tenant.domainId}/clients`)).json()).toMatchObject({ total: 0 })
})

test('a login that is bound to a domain ends with it, and is never valid for more', async () => {
  const tenant = await newTenant(api)
  const refresh = (token: string, body?: object) => api.as(`Bearer ${token}`)('POST', '/users/tokens/refresh', body)
  const bound = (await refresh(tenant.user.refreshToken, { domain_id: tenant.domainId })).json<{
    access_token: string
    refresh_token: string
  }>()
  await deletedDaysAgo(tenant, 31)
  expect(await api.api.domainPurge.round()).toEqual([tenant.domainId])
  expect((await api.as(`Bearer ${bound.access_token}`)('GET', '/users/profile')).status).toBe(401)
  expect((await refresh(bound.refresh_token)).status).toBe(401)
  expect((await tenant.call('GET', '/users/profile')).status).toBe(200)
})

test('a domain within its grace period stays, and is restored whole', async () => {
  const tenant = await newTenant(api)
  const { secret, channel } = await fill(tenant)
  await deletedDaysAgo(tenant, 29)
  expect(await api.api.domainPurge.round()).toEqual([])
  expect((await tenant.call('POST', `/domains/${tenant.domainId}/enable`)).status).toBe(200)
  expect(await read(api, { secret, domain: tenant.domainId, channel })).toBe(200)
  expect(await api.api.domainPurge.round()).toEqual([])
})

test('a restoration during the removal keeps the domain whole or is too late', async () => {
  for (let attempt = 0; attempt < 4; attempt++) {
    const tenant = await newTenant(api)
    const { channelKeys } = await fill(tenant)
    const key = await keyOf(tenant)
    await deletedDaysAgo(tenant, 31)
    const [removed, restored] = await Promise.all([
      api.api.domainPurge.round(),
      tenant.call('POST', `/domains/${tenant.domainId}/enable`),
    ])
    if (restored.status === 200) {
      expect(removed).toEqual([])
      expect((await tenant.call('GET', `/${tenant.domainId}/clients`)).json()).toMatchObject({ total: 1 })
    } else {
      expect(restored.status).toBe(403)
      expect(removed).toEqual([tenant.domainId])
      expect(Object.values(await rowsOf(key, channelKeys)).every((rows) => rows === 0)).toBe(true)
    }
  }
})

test('one of two concurrent rounds works; an interrupted removal is resumed', async () => {
  const user = await api.newUser()
  const made = await user.call('POST', '/domains', { name: 'half' })
  const tenant = tenantOf(user, made.json<{ id: string }>().id)
  await fill(tenant)
  await deletedDaysAgo(tenant, 31)
  await sql`UPDATE domains SET purge_started_at = now() WHERE id = ${tenant.domainId}`.execute(api.database.db)
  expect((await tenant.call('POST', `/domains/${tenant.domainId}/enable`)).status).toBe(403)
  expect((await tenant.call('GET', '/domains?status=deleted')).json()).toMatchObject({ total: 0 })
  const rounds = await Promise.all([api.api.domainPurge.round(), api.api.domainPurge.round()])
  expect(rounds.flat()).toEqual([tenant.domainId])
})

test('every reference that is removed with a domain, a user or a group has an index', async () => {
  const { rows } = await sql<{ reference: string }>`
    SELECT c.conname AS reference FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid AND t.relkind = 'r'
     WHERE c.contype = 'f' AND c.confdeltype IN ('c', 'n') AND NOT EXISTS (
       SELECT 1 FROM pg_index i WHERE i.indrelid = c.conrelid AND i.indkey[0] = c.conkey[1])`.execute(api.database.db)
  expect(rows.map((row) => row.reference)).toEqual([])
})
