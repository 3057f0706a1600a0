// `dry_run=true`: what a change would do, with all its rules, and nothing done
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { grantRole, newGroup, newMember, setParent, newTenant } from './support.ts'

type Report = {
  total: number
  changes: { operation: string; id?: string; name?: string; attributes: Record<string, unknown> }[]
  rows: { table: string; created: number; updated: number; deleted: number }[]
}

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

async function reportOf(method: 'POST' | 'DELETE', path: string, body?: unknown, by = tenant): Promise<Report> {
  const answer = await by.call(method, `/${tenant.domainId}${path}?dry_run=true`, body)
  expect(answer.status, answer.text).toBe(200)
  return answer.json<Report>()
}

const rowsOf = ({ rows }: Report, table: string) => rows.find((one) => one.table === table)

/** Everything that a change could leave: rows of entities, and the journal. */
async function stored(): Promise<unknown> {
  const { rows } =
    await sql`SELECT (SELECT count(*) FROM clients) AS clients, (SELECT count(*) FROM channels) AS channels,
    (SELECT count(*) FROM groups) AS groups, (SELECT count(*) FROM connections) AS connections,
    (SELECT count(*) FROM roles) AS roles, (SELECT count(*) FROM journal) AS journal`.execute(api.database.db)
  return rows
}

test('a dry run of a deletion lists the entities that it removes, and nothing is removed', async () => {
  const client = await tenant.newClient({ name: 'pump' })
  const [one, other] = [await tenant.newChannel(), await tenant.newChannel()]
  const wanted = { client_ids: [client.id], channel_ids: [one.id, other.id], types: ['publish', 'subscribe'] }
  expect((await tenant.call('POST', `/${tenant.domainId}/channels/connect`, wanted)).status).toBe(201)
  const before = await stored()
  const report = await reportOf('DELETE', `/clients/${client.id}`)
  expect(report).toMatchObject({ total: 1, changes: [{ operation: 'client.remove', id: client.id }] })
  expect(rowsOf(report, 'clients')).toMatchObject({ deleted: 1 })
  expect(rowsOf(report, 'connections')?.deleted).toBeGreaterThanOrEqual(2)
  expect(rowsOf(await reportOf('DELETE', `/channels/${one.id}`), 'connections')?.deleted).toBeGreaterThanOrEqual(1)
  expect(await stored()).toEqual(before)
  expect((await tenant.call('GET', `/${tenant.domainId}/clients/${client.id}`)).status).toBe(200)
  // The next change is made, on whichever connection.
  expect((await tenant.call('DELETE', `/${tenant.domainId}/clients/${client.id}`)).status).toBe(200)
})

test('the older path of a deletion answers the report of a dry run, and nothing is removed', async () => {
  const client = await tenant.newClient({ name: 'pump' })
  for (const path of [`/things/${client.id}`, `/${tenant.domainId}/things/${client.id}`]) {
    const answer = await tenant.call('DELETE', `${path}?dry_run=true`)
    expect(answer.status, answer.text).toBe(200)
    expect(answer.json()).toMatchObject({ total: 1, changes: [{ operation: 'client.remove', id: client.id }] })
  }
  expect((await tenant.call('DELETE', `/things/${client.id}`)).status).toBe(204)
  expect((await tenant.call('GET', `/${tenant.domainId}/clients/${client.id}`)).status).toBe(404)
})

test('a dry run of a group reports that its children move', async () => {
  const top = await newGroup(api, tenant.domainId)
  const bottom = await newGroup(api, tenant.domainId, top)
  const client = await tenant.newClient()
  await setParent(api, tenant.domainId, 'client', client.id, top)
  const before = await stored()
  const report = await reportOf('DELETE', `/groups/${top}`)
  expect(report.changes).toMatchObject([
    { operation: 'client.remove_parent', id: client.id, attributes: { parent_group_id: top } },
    { operation: 'group.remove', id: top, attributes: { children_ids: [bottom] } },
  ])
  expect(rowsOf(report, 'groups')).toMatchObject({ deleted: 1 })
  expect(rowsOf(report, 'clients')).toMatchObject({ updated: 1 })
  expect(await stored()).toEqual(before)
  expect((await tenant.call('GET', `/${tenant.domainId}/groups/${bottom}`)).json()).toMatchObject({ parent_id: top })
})

test('a dry run shows the entities that the caller may read, and counts the others', async () => {
  const top = await newGroup(api, tenant.domainId)
  const [seen, unseen] = [await newGroup(api, tenant.domainId, top), await newGroup(api, tenant.domainId, top)]
  const clients = [await tenant.newClient(), await tenant.newClient(), await tenant.newClient()]
  for (const { id } of clients) await setParent(api, tenant.domainId, 'client', id, top)
  const [readable] = clients
  const member = await newMember(api, tenant, ['read'])
  await grantRole(api, member.user.id, { type: 'group', domainId: tenant.domainId, id: top }, ['read', 'delete'])
  await grantRole(api, member.user.id, { type: 'group', domainId: tenant.domainId, id: seen }, ['read'])
  await grantRole(api, member.user.id, { type: 'client', domainId: tenant.domainId, id: readable?.id ?? '' }, ['read'])
  const answer = await member.call('DELETE', `/${tenant.domainId}/groups/${top}?dry_run=true`)
  expect(answer.status, answer.text).toBe(200)
  const report = answer.json<Report & { hidden?: number }>()
  expect(report).toMatchObject({
    total: 4,
    hidden: 2,
    changes: [
      { operation: 'client.remove_parent', id: readable?.id },
      { operation: 'group.remove', id: top, attributes: { children_ids: [seen] } },
    ],
  })
  for (const id of [unseen, ...clients.slice(1).map((one) => one.id)]) expect(answer.text).not.toContain(id)
  // The rows are counted completely.
  expect(rowsOf(report, 'clients')).toMatchObject({ updated: 3 })
  expect(await reportOf('DELETE', `/groups/${top}`)).not.toHaveProperty('hidden')
})

test('a dry run of a bulk creation has a line for each entity, and refuses what the creation refuses', async () => {
  const before = await stored()
  const ids = [newId(), newId(), newId()]
  const report = await reportOf(
    'POST',
    '/clients/bulk',
    ids.map((id, at) => ({ id, name: `pump ${at}` })),
  )
  expect(report.changes.map(({ operation, id }) => [operation, id])).toEqual(ids.map((id) => ['client.create', id]))
  expect(rowsOf(report, 'clients')).toMatchObject({ created: 3 })
  expect((await reportOf('POST', '/channels/bulk', [{ name: 'a' }])).total).toBe(1)
  const taken = await tenant.newClient()
  const again = await tenant.call('POST', `/${tenant.domainId}/clients/bulk?dry_run=true`, [{ id: taken.id }])
  expect(again.status).toBe(409)
  expect((await tenant.call('DELETE', `/${tenant.domainId}/clients/${taken.id}`)).status).toBe(200)
  expect(await stored()).not.toEqual(before)
  // The ids are free: a trial left nothing.
  expect((await tenant.call('POST', `/${tenant.domainId}/clients/bulk`, [{ id: ids[0] }])).status).toBe(200)
})

test('a dry run of connections and disconnections reports which are new', async () => {
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  const wanted = { client_ids: [client.id], channel_ids: [channel.id], types: ['publish'] }
  const before = await stored()
  const report = await reportOf('POST', '/channels/connect', wanted)
  expect(report.changes).toMatchObject([{ operation: 'channel.connect' }])
  expect(rowsOf(report, 'connections')).toMatchObject({ created: 1 })
  expect(await reportOf('POST', '/channels/disconnect', wanted)).toEqual({ total: 0, changes: [], rows: [] })
  expect(await stored()).toEqual(before)
})

test('a dry run requires the rights of the change, and shows no secrets', async () => {
  const client = await tenant.newClient()
  const reader = await newMember(api, tenant, ['read', 'client_read'])
  const stranger = await newTenant(api)
  const path = `/${tenant.domainId}/clients/${client.id}?dry_run=true`
  expect((await reader.call('DELETE', path)).status).toBe(403)
  expect([403, 404]).toContain((await stranger.call('DELETE', path)).status)
  expect((await api.anonymous('DELETE', path)).status).toBe(401)
  expect((await tenant.call('DELETE', `${path.slice(0, -4)}maybe`)).status).toBe(400)
  const secret = `secret-${newId()}`
  const report = await reportOf('POST', '/clients/bulk', [{ name: 'a', credentials: { secret } }])
  expect(JSON.stringify(report)).not.toContain(secret)
})

test('a dry run of a domain counts its entities, and the domain stays', async () => {
  const owned = await newTenant(api)
  await owned.newClient()
  await owned.newClient()
  await owned.newChannel()
  const url = `/domains/${owned.domainId}`
  const answer = await owned.call('DELETE', `${url}?dry_run=true`)
  expect(answer.status, answer.text).toBe(200)
  const report = answer.json<Report>()
  expect(report).toMatchObject({ total: 1, changes: [{ operation: 'domain.delete', id: owned.domainId }] })
  expect(rowsOf(report, 'domains')).toMatchObject({ updated: 1, deleted: 0 })
  expect(rowsOf(report, 'clients')).toMatchObject({ deleted: 2 })
  expect(rowsOf(report, 'channels')).toMatchObject({ deleted: 1 })
  expect((await owned.call('GET', url)).json()).toMatchObject({ status: 'enabled' })
  expect((await tenant.call('DELETE', `${url}?dry_run=true`)).status).toBe(403)
  expect((await owned.call('DELETE', url)).status).toBe(204)
})

test('a dry run of a user reports the roles that they lose, and refuses what the deletion refuses', async () => {
  const member = await newMember(api, tenant, ['read', 'client_read'])
  const login = (await member.call('GET', '/users/profile')).json<{ id: string }>()
  const before = await stored()
  const answer = await member.call('DELETE', `/users/${login.id}?dry_run=true`)
  expect(answer.status, answer.text).toBe(200)
  const report = answer.json<Report>()
  expect(report).toMatchObject({ total: 1, changes: [{ operation: 'user.delete', id: login.id }] })
  expect(rowsOf(report, 'users')).toMatchObject({ updated: 1 })
  expect(rowsOf(report, 'grants')?.deleted).toBeGreaterThanOrEqual(1)
  expect(await stored()).toEqual(before)
  // The login of the user is still valid.
  expect((await member.call('GET', '/users/profile')).status).toBe(200)
  const owner = (await tenant.call('GET', '/users/profile')).json<{ id: string }>()
  expect((await tenant.call('DELETE', `/users/${owner.id}?dry_run=true`)).status).toBe(409)
  expect((await tenant.call('DELETE', `/users/${login.id}?dry_run=true`)).status).toBe(403)
})
