// contract section 10, mechanisms section 2: one row per call, in the transaction of the change, and never a secret
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { newTenant } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

type Row = {
  operation: string
  domain_key: number | null
  actor_kind: string
  actor_id: string | null
  request_id: string | null
  entity_keys: number[]
  attributes: Record<string, unknown>
}

async function lastSeq(): Promise<number> {
  const { rows } = await sql<{ seq: number | null }>`SELECT max(seq) AS seq FROM journal`.execute(api.database.db)
  return rows[0]?.seq ?? 0
}

/** What a call wrote into the journal. */
async function rowsOf(call: () => Promise<unknown>): Promise<Row[]> {
  const before = await lastSeq()
  await call()
  const { rows } =
    await sql<Row>`SELECT operation, domain_key, actor_kind, actor_id, request_id, entity_keys, attributes
    FROM journal WHERE seq > ${before} ORDER BY seq`.execute(api.database.db)
  return rows
}

test('every change writes one row with its operation, its actor, its request and what changed', async () => {
  const { call, domainId, user } = tenant
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  const pair = { client_ids: [client.id], channel_ids: [channel.id] }
  const at = `/${domainId}`
  for (const [operation, method, path, body] of [
    ['client.create', 'POST', `${at}/clients`, { name: 'pump' }],
    ['client.create', 'POST', `${at}/clients/bulk`, [{}, {}, {}]],
    ['client.update', 'PATCH', `${at}/clients/${client.id}`, { name: 'x' }],
    ['client.update_tags', 'PATCH', `${at}/clients/${client.id}/tags`, { tags: ['x'] }],
    ['client.update_secret', 'PATCH', `${at}/clients/${client.id}/secret`, { secret: newId() }],
    ['client.disable', 'POST', `${at}/clients/${client.id}/disable`, undefined],
    ['client.enable', 'POST', `${at}/clients/${client.id}/enable`, undefined],
    ['channel.create', 'POST', `${at}/channels`, {}],
    ['channel.create', 'POST', `${at}/channels/bulk`, [{}, {}]],
    ['channel.update', 'PUT', `${at}/channels/${channel.id}`, { name: 'x' }],
    ['channel.connect', 'POST', `${at}/channels/connect`, pair],
    ['channel.disconnect', 'POST', `${at}/channels/disconnect`, pair],
    ['channel.connect', 'POST', `${at}/channels/connect`, [pair]],
    ['channel.disconnect', 'POST', `${at}/channels/disconnect`, pair],
    ['channel.remove', 'DELETE', `${at}/channels/${channel.id}`, undefined],
    ['client.remove', 'DELETE', `${at}/clients/${client.id}`, undefined],
    ['domain.update', 'PATCH', `/domains/${domainId}`, { name: 'x' }],
    ['domain.disable', 'POST', `/domains/${domainId}/disable`, undefined],
    ['domain.enable', 'POST', `/domains/${domainId}/enable`, undefined],
    ['domain.create', 'POST', '/domains', { name: 'another' }],
    ['user.update', 'PATCH', `/users/${user.id}`, { metadata: { a: 1 } }],
  ] as const) {
    const requestId = `request-${newId()}`
    let status = 0
    const rows = await rowsOf(async () => {
      status = (await call(method, path, body, { 'x-request-id': requestId })).status
    })
    expect(status, operation).toBeLessThan(300)
    expect(rows, operation).toHaveLength(1)
    expect(rows[0]).toMatchObject({ operation, actor_kind: 'user', actor_id: user.id, request_id: requestId })
    expect(rows[0]?.entity_keys.length).toBeGreaterThan(0)
    if (!operation.startsWith('user.')) expect(rows[0]?.domain_key).not.toBeNull()
  }
})

test('requests that change nothing, are refused or only read write no record', async () => {
  const { call, domainId } = tenant
  const client = await tenant.newClient()
  for (const [method, path, body] of [
    ['GET', `/${domainId}/clients`, undefined],
    ['GET', '/users/profile', undefined],
    ['POST', `/${domainId}/clients/${client.id}/enable`, undefined],
    ['POST', `/${domainId}/clients`, { id: client.id }],
    ['POST', `/${domainId}/clients/bulk`, [{}, { id: client.id }]],
    ['POST', `/${domainId}/channels/connect`, { client_ids: [client.id], channel_ids: [newId()] }],
    ['DELETE', `/${domainId}/clients/${newId()}`, undefined],
    ['POST', `/${newId()}/clients`, {}],
  ] as const)
    expect(await rowsOf(() => call(method, path, body)), `${method} ${path}`).toEqual([])
})

test('sign-ins and refused sign-ins are recorded, and a refused one contains the name', async () => {
  const user = await api.newUser()
  const issue = (secret: string) => api.anonymous('POST', '/users/tokens/issue', { identity: user.username, secret })
  expect(await rowsOf(() => issue(user.secret))).toMatchObject([
    { operation: 'user.issue_token', attributes: { id: user.id } },
  ])
  expect(await rowsOf(() => issue('wrong password'))).toMatchObject([
    { operation: 'user.refused_token', attributes: { id: user.id } },
  ])
})

test('registering and refreshing are recorded with the address as well', async () => {
  const user = await api.newUser()
  const row = async (operation: string) => {
    const own = await user.call('GET', `/journal/user/${user.id}?operation=${operation}&with_attributes=true`)
    return own.json<{ journals: { attributes: Record<string, unknown> }[] }>().journals[0]?.attributes
  }
  expect(await row('user.create')).toMatchObject({ id: user.id, address: '127.0.0.1' })
  await api.as(`Bearer ${user.refreshToken}`)('POST', '/users/tokens/refresh')
  expect(await row('user.refresh_token')).toMatchObject({ id: user.id, address: '127.0.0.1' })
})

test('times in records have the usual format', async () => {
  const user = await api.newUser()
  const profile = (await user.call('GET', '/users/profile')).json<{ created_at: string }>()
  const domain = (await user.call('POST', '/domains', { name: 'timed' })).json<{ created_at: string }>()
  const created = (await user.call('GET', `/journal/user/${user.id}?with_attributes=true`)).json<{
    journals: { operation: string; attributes: { created_at?: string } }[]
  }>().journals
  const at = (operation: string) => created.find((row) => row.operation === operation)?.attributes.created_at
  expect([at('user.create'), at('domain.create')]).toEqual([profile.created_at, domain.created_at])
})

test('no row contains a secret, a password or a token, also when a body contains one in a wrong place', async () => {
  const marks = Array.from({ length: 9 }, (_, index) => `mark-${index}-${newId()}`)
  const [a, b, c, d, e, f, g, h, i] = marks as [string, string, string, string, string, string, string, string, string]
  const user = await api.newUser()
  const made = (await user.call('POST', '/domains', { name: 'secretive', secret: a })).json<{ id: string }>()
  await user.call('PATCH', `/domains/${made.id}`, { name: 'x', secret: b, credentials: { secret: b } })
  await user.call('PATCH', `/users/${user.id}`, { metadata: {}, secret: c, credentials: { secret: c } })
  await user.call('PATCH', '/users/secret', { old_secret: user.secret, new_secret: d })
  const client = (await user.call('POST', `/${made.id}/clients`, { credentials: { secret: e } })).json<{ id: string }>()
  await user.call('POST', `/${made.id}/clients/bulk`, [{ credentials: { secret: f } }, {}])
  await user.call('PATCH', `/${made.id}/clients/${client.id}`, { name: 'x', credentials: { secret: g } })
  await user.call('PATCH', `/${made.id}/clients/${client.id}/secret`, { secret: h })
  await user.call('POST', `/${made.id}/channels`, { name: 'x', secret: i })
  const { rows } = await sql<{ row: string }>`SELECT to_jsonb(j)::text AS row FROM journal j`.execute(api.database.db)
  const everything = rows.map((row) => row.row).join('\n')
  for (const [index, mark] of [...marks, user.secret, user.accessToken, user.refreshToken].entries())
    expect(everything.includes(mark), `secret ${index}`).toBe(false)
  expect(everything).not.toContain('argon2')
})

test('the record and the change are in one transaction', async () => {
  const { id } = await tenant.newClient()
  const { rows } = await sql<{
    same: boolean
  }>`SELECT c.xmin::text = ((j.xid::text::numeric - position_offset()::text::numeric) % 4294967296)::bigint::text AS same
    FROM clients c JOIN journal j ON c.key = ANY (j.entity_keys) AND j.operation = 'client.create'
   WHERE c.id = ${id}::uuid`.execute(api.database.db)
  expect(rows).toEqual([{ same: true }])
})
