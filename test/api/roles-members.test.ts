// contract 2.4, decisions 33, 45, 46, 47: giving and taking roles, the last administrator, and requests that meet
import { describe, expect, test } from 'vitest'
import {
  ACTIONS,
  addMembers,
  adminRoleId,
  ensureRelationRole,
  removeMembers,
  requireNotLastAdmin,
} from '#api/identity/index.ts'
import type { RoleEntity } from '#api/identity/index.ts'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { removeUserEverywhere } from '../../api/identity/roles/index.ts'
import type { Caller, TestResponse, TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import type { EntityType, Tenant } from './support.ts'
import { grantRole, newGroup, setParent, statusesOf, newTenant } from './support.ts'

type Role = { role_id: string; role_name: string; actions: string[]; members: string[] }
type Member = { member_id: string; roles: { role_name: string; access_type: string; access_provider_id?: string }[] }

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

const on = (type: EntityType, id: string, domainId = tenant.domainId) => ({ type, domainId, id })

async function newMember(actions: readonly string[] = [], own = tenant): Promise<TestUser> {
  const user = await api.newUser()
  await grantRole(api, user.id, on('domain', own.domainId, own.domainId), actions)
  return user
}

const domainRoles = (own = tenant) => `/domains/${own.domainId}/roles`
const clientRoles = (clientId: string, own = tenant) => `/${own.domainId}/clients/${clientId}/roles`

async function createRole(call: Caller, base: string, body: Record<string, unknown>): Promise<Role> {
  const created = await call('POST', base, { role_name: `role ${newId()}`, ...body })
  expect(created.status, created.text).toBe(201)
  return created.json<Role>()
}

const adminOf = async (call: Caller, base: string) =>
  (await call('GET', `${base}?limit=1`)).json<{ roles: Role[] }>().roles[0] as Role

async function membersOf(call: Caller, base: string): Promise<string[]> {
  return (await call('GET', `${base}/${(await adminOf(call, base)).role_id}`)).json<Role>().members.toSorted()
}

async function keyOf(table: 'users' | 'domains' | 'clients', id: string): Promise<number> {
  const { rows } = await sql<{ key: number }>`SELECT key FROM ${sql.table(table)} WHERE id = ${id}`.execute(
    api.database.db,
  )
  return (rows[0] as { key: number }).key
}

describe('the granting rule', () => {
  test('a caller adds to a role only their own actions, on any path', async () => {
    const manager = await newMember(['manage_role', 'view_role_users', 'client_read'])
    const base = domainRoles()
    const refused = await manager.call('POST', base, { role_name: newId(), optional_actions: ['client_delete'] })
    expect(refused.status).toBe(403)
    expect(refused.json()).toMatchObject({ message: expect.stringContaining('client_delete') as string })
    const role = await createRole(manager.call, base, { optional_actions: ['client_read'] })
    const at = `${base}/${role.role_id}`
    expect((await manager.call('POST', `${at}/actions`, { actions: ['client_delete'] })).status).toBe(403)
    expect((await manager.call('PUT', at, { actions: ['client_read', 'delete'] })).status).toBe(403)
    expect((await manager.call('PUT', at, { actions: ['client_read', 'manage_role'] })).status).toBe(200)
  })

  test('existing actions of a role stay when a caller without them changes the rest', async () => {
    const role = await createRole(tenant.call, domainRoles(), { optional_actions: ['client_delete'] })
    const manager = await newMember(['manage_role', 'client_read'])
    const at = `${domainRoles()}/${role.role_id}`
    expect((await manager.call('PUT', at, { actions: ['client_delete', 'client_read'] })).status).toBe(200)
    expect((await manager.call('POST', `${at}/actions/delete`, { actions: ['client_delete'] })).status).toBe(204)
    expect((await manager.call('POST', `${at}/actions`, { actions: ['client_delete'] })).status).toBe(403)
  })

  test('a caller assigns only roles whose actions they all have, the built-in role included', async () => {
    const adder = await newMember(['add_role_users', 'client_read'])
    const user = await api.newUser()
    const strong = await createRole(tenant.call, domainRoles(), { optional_actions: ['client_read', 'client_update'] })
    const weak = await createRole(tenant.call, domainRoles(), { optional_actions: ['client_read'] })
    const give = (roleId: string) => adder.call('POST', `${domainRoles()}/${roleId}/members`, { members: [user.id] })
    expect((await give(strong.role_id)).status).toBe(403)
    expect((await give((await adminOf(tenant.call, domainRoles())).role_id)).status).toBe(403)
    expect((await give(weak.role_id)).status).toBe(200)
  })

  test('creating a role with members requires the right to add members too', async () => {
    const manager = await newMember(['manage_role'])
    const body = { role_name: newId(), optional_members: [manager.id] }
    expect((await manager.call('POST', domainRoles(), body)).status).toBe(403)
    expect((await manager.call('POST', domainRoles(), { role_name: newId() })).status).toBe(201)
  })

  test('inherited actions suffice: with a domain role a caller assigns roles on a client and on a group', async () => {
    const { id } = await tenant.newClient()
    const groupId = await newGroup(api, tenant.domainId)
    const manager = await newMember(['client_read', 'client_manage_role', 'group_read', 'group_manage_role'])
    expect((await createRole(manager.call, clientRoles(id), { optional_actions: ['read'] })).actions).toEqual(['read'])
    const updating = { role_name: newId(), optional_actions: ['update'] }
    expect((await manager.call('POST', clientRoles(id), updating)).status).toBe(403)
    const groupRoles = `/${tenant.domainId}/groups/${groupId}/roles`
    await createRole(manager.call, groupRoles, { optional_actions: ['read', 'subgroup_read', 'client_read'] })
    for (const action of ['update', 'client_update', 'subgroup_update', 'channel_read', 'subgroup_channel_read'])
      expect((await manager.call('POST', groupRoles, { role_name: newId(), actions: [action] })).status).toBe(403)
  })

  test('a personal token of an administrator grants no more than its scope', async () => {
    const { id } = await tenant.newClient()
    const role = await createRole(tenant.call, clientRoles(id), {})
    const made = await tenant.call('POST', '/pats', { name: 'narrow', duration: '1h' })
    expect(made.status, made.text).toBe(201)
    const narrow = api.as(`Bearer ${made.json<{ secret: string }>().secret}`)
    const refused = await narrow('POST', `${clientRoles(id)}/${role.role_id}/actions`, { actions: ['read'] })
    expect(refused.status).toBe(403)
  })
})

describe('each call requires its own action', () => {
  test.each([
    ['manage_role', 'GET', '', undefined],
    ['manage_role', 'POST', '', { role_name: 'x' }],
    ['manage_role', 'GET', '/ROLE', undefined],
    ['manage_role', 'PUT', '/ROLE', { role_name: 'x' }],
    ['manage_role', 'DELETE', '/ROLE', undefined],
    ['manage_role', 'POST', '/ROLE/actions', { actions: ['read'] }],
    ['manage_role', 'GET', '/ROLE/actions', undefined],
    ['manage_role', 'POST', '/ROLE/actions/delete', { actions: ['read'] }],
    ['manage_role', 'POST', '/ROLE/actions/delete-all', undefined],
    ['manage_role', 'POST', '/ROLE/members/delete-all', undefined],
    ['view_role_users', 'GET', '/members', undefined],
    ['view_role_users', 'GET', '/ROLE/members', undefined],
    ['add_role_users', 'POST', '/ROLE/members', { members: ['USER'] }],
    ['remove_role_users', 'POST', '/ROLE/members/delete', { members: ['USER'] }],
    ['remove_role_users', 'DELETE', '/members', { member_ids: ['USER'] }],
  ] as const)('%s for %s /roles%s', async (action, method, path, body) => {
    const rights = ['manage_role', 'view_role_users', 'add_role_users', 'remove_role_users']
    const { id } = await tenant.newClient()
    const role = await createRole(tenant.call, clientRoles(id), {})
    const user = await newMember()
    const [holder, other] = [await newMember(), await newMember()]
    await grantRole(api, holder.id, on('client', id), ['read', action])
    await grantRole(api, other.id, on('client', id), ['read', ...rights.filter((right) => right !== action)])
    const url = clientRoles(id) + path.replace('ROLE', role.role_id)
    const sent = body === undefined ? undefined : (JSON.parse(JSON.stringify(body).replace('USER', user.id)) as object)
    const refused = await other.call(method, url, sent)
    expect(refused.status).toBe(403)
    expect(refused.json()).toMatchObject({ message: expect.stringContaining(action) as string })
    expect((await holder.call(method, url, sent)).status).toBeLessThan(300)
  })

  test('a caller who manages roles without the right to view members sees roles without members', async () => {
    const { id } = await tenant.newClient()
    const manager = await newMember()
    await grantRole(api, manager.id, on('client', id), ['read', 'manage_role'])
    const admin = await adminOf(manager.call, clientRoles(id))
    expect(admin).toMatchObject({ role_name: 'admin', members: [] })
  })
})

describe('the members of an entity', () => {
  test('are all users with a role that applies to it, by each path, with filters', async () => {
    const [top, parent] = await (async () => {
      const first = await newGroup(api, tenant.domainId)
      return [first, await newGroup(api, tenant.domainId, first)] as const
    })()
    const { id } = await tenant.newClient()
    await setParent(api, tenant.domainId, 'client', id, parent)
    const [direct, byParent, byTop, byDomain, none] = [
      await newMember(),
      await newMember(),
      await newMember(),
      await newMember(['client_update']),
      await newMember(['channel_read']),
    ]
    await grantRole(api, direct.id, on('client', id), ['read'])
    await grantRole(api, byParent.id, on('group', parent), ['client_read'])
    await grantRole(api, byTop.id, on('group', top), 'admin')
    await grantRole(api, none.id, on('group', top), ['client_read'])
    const list = async (query = '') =>
      (await tenant.call('GET', `${clientRoles(id)}/members?limit=100${query}`)).json<{
        total: number
        members: Member[]
      }>()
    const all = await list()
    const typesOf = (userId: string) =>
      all.members.find((member) => member.member_id === userId)?.roles.map((role) => role.access_type)
    expect(typesOf(direct.id)).toEqual(['direct'])
    expect(typesOf(byParent.id)).toEqual(['direct_group'])
    expect(typesOf(byTop.id)).toEqual(['indirect_group'])
    expect(typesOf(byDomain.id)).toEqual(['domain'])
    expect(typesOf(tenant.user.id)).toEqual(['direct', 'domain'])
    expect(typesOf(none.id)).toBeUndefined()
    expect(all.total).toBe(all.members.length)
    const ids = async (query: string) => (await list(query)).members.map((member) => member.member_id)
    expect(await ids('&access_type=indirect_group')).toEqual([byTop.id])
    expect(await ids(`&access_provider_id=${parent}`)).toEqual([byParent.id])
    expect(await ids(`&access_provider_id=${top}&role_name=admin`)).toEqual([byTop.id])
    expect(await ids(`&actions=client_update,read`)).toEqual([tenant.user.id, byTop.id])
    const role = await adminOf(tenant.call, clientRoles(id))
    expect(await ids(`&role_id=${role.role_id}`)).toEqual([tenant.user.id])
    const own = (await tenant.call('GET', `${clientRoles(id)}/members?limit=1&offset=1`)).json<{ members: Member[] }>()
    expect(own.members).toEqual(all.members.slice(1, 2))
    const past = (await tenant.call('GET', `${clientRoles(id)}/members?offset=1000`)).json()
    expect(past).toMatchObject({ total: all.total, members: [] })
    const [indirect] = (await list('&access_type=indirect_group')).members
    expect(indirect?.roles[0]).toMatchObject({ access_provider_id: top, access_provider_path: top })
  })

  test('DELETE removes every role on the entity and no role on others', async () => {
    const { id } = await tenant.newClient()
    const user = await newMember(['client_read'])
    await createRole(tenant.call, clientRoles(id), { optional_actions: ['update'], optional_members: [user.id] })
    await createRole(tenant.call, clientRoles(id), { optional_actions: ['delete'], optional_members: [user.id] })
    expect((await tenant.call('DELETE', `${clientRoles(id)}/members`, { member_ids: [] })).status).toBe(400)
    expect((await tenant.call('DELETE', `${clientRoles(id)}/members`, { member_ids: [user.id] })).status).toBe(204)
    const view = `/${tenant.domainId}/clients/${id}`
    expect((await user.call('GET', view)).status).toBe(200)
    expect((await user.call('PATCH', view, { name: 'x' })).status).toBe(403)
  })
})

describe('a user who leaves a domain', () => {
  test('loses every role in it, and entities without another administrator fall to the administrators of the domain', async () => {
    const own = await newTenant(api)
    const user = await newMember(['client_create', 'channel_create'], own)
    const alone = (await user.call('POST', `/${own.domainId}/clients`, {})).json<{ id: string }>().id
    const shared = (await user.call('POST', `/${own.domainId}/clients`, {})).json<{ id: string }>().id
    const second = await newMember([], own)
    await grantRole(api, second.id, on('client', shared, own.domainId), 'admin')
    const elsewhere = await tenant.newClient()
    await grantRole(api, user.id, on('domain', tenant.domainId), ['client_read'])
    expect((await own.call('DELETE', `${domainRoles(own)}/members`, { member_ids: [user.id] })).status).toBe(204)
    expect((await user.call('GET', `/${own.domainId}/clients/${alone}`)).status).toBe(403)
    expect(await membersOf(own.call, clientRoles(alone, own))).toEqual([own.user.id])
    expect(await membersOf(own.call, clientRoles(shared, own))).toEqual([second.id])
    expect((await user.call('GET', `/${tenant.domainId}/clients/${elsewhere.id}`)).status).toBe(200)
    // Coming back brings nothing of it back.
    await grantRole(api, user.id, on('domain', own.domainId, own.domainId), [])
    expect((await user.call('GET', `/${own.domainId}/clients/${alone}`)).status).toBe(404)
  })

  test('is also a user who loses their last role in it, by any request', async () => {
    for (const take of ['members/delete', 'members/delete-all', ''] as const) {
      const user = await api.newUser()
      const role = await createRole(tenant.call, domainRoles(), { optional_members: [user.id] })
      const { id } = await tenant.newClient()
      await grantRole(api, user.id, on('client', id), ['read'])
      expect((await user.call('GET', `/${tenant.domainId}/clients/${id}`)).status).toBe(200)
      const at = `${domainRoles()}/${role.role_id}`
      const taken =
        take === ''
          ? await tenant.call('DELETE', at)
          : await tenant.call('POST', `${at}/${take}`, take === 'members/delete' ? { members: [user.id] } : undefined)
      expect(taken.status).toBeLessThan(300)
      expect((await user.call('GET', `/${tenant.domainId}/clients/${id}`)).status).toBe(403)
      await grantRole(api, user.id, on('domain', tenant.domainId), [])
      expect((await user.call('GET', `/${tenant.domainId}/clients/${id}`)).status).toBe(404)
    }
  })
})

describe('force=true', () => {
  test('the platform administrator takes the place of the last administrator of a domain', async () => {
    const own = await newTenant(api)
    const admin = (await api.admin('GET', '/users/profile')).json<{ id: string }>()
    const role = await adminOf(own.call, domainRoles(own))
    const at = `${domainRoles(own)}/${role.role_id}/members/delete`
    const body = { members: [own.user.id] }
    expect((await own.call('POST', `${at}?force=true`, body)).status).toBe(403)
    expect((await api.admin('POST', at, body)).status).toBe(409)
    expect((await api.admin('POST', `${at}?force=true`, body)).status).toBe(200)
    expect(await membersOf(api.admin, domainRoles(own))).toEqual([admin.id])
    expect((await api.admin('POST', `${at}?force=true`, { members: [admin.id] })).status).toBe(409)
  })

  test('removes all members of a built-in role in favour of the platform administrator', async () => {
    const { id } = await tenant.newClient()
    const admin = (await api.admin('GET', '/users/profile')).json<{ id: string }>()
    await grantRole(api, (await newMember()).id, on('client', id), 'admin')
    const { role_id: roleId } = await adminOf(tenant.call, clientRoles(id))
    const at = `${clientRoles(id)}/${roleId}/members/delete-all`
    expect((await tenant.call('POST', `${at}?force=true`)).status).toBe(403)
    expect((await api.admin('POST', `${at}?force=true`)).status).toBe(204)
    expect(await membersOf(tenant.call, clientRoles(id))).toEqual([admin.id])
  })
})

describe('relations', () => {
  const entityOf = async (own: Tenant): Promise<RoleEntity> => {
    const key = await keyOf('domains', own.domainId)
    return { type: 'domain', key, id: own.domainId, domainKey: key, domainId: own.domainId }
  }

  test('the role of a relation is created once, also by two concurrent requests', async () => {
    const own = await newTenant(api)
    const entity = await entityOf(own)
    const roles = await Promise.all(
      Array.from({ length: 6 }, () =>
        api.database.transaction((tx) => ensureRelationRole(tx, entity, 'editor', own.user.id)),
      ),
    )
    expect(new Set(roles.map((role) => role.id)).size).toBe(1)
    expect(roles[0]?.actions).toContain('client_update')
    const admin = await api.database.transaction((tx) => ensureRelationRole(tx, entity, 'administrator', own.user.id))
    expect(admin).toMatchObject({ id: adminRoleId('domain', entity.key), actions: ACTIONS.domain })
  })

  test('members are added and removed by relation in one transaction, or not at all', async () => {
    const own = await newTenant(api)
    const entity = await entityOf(own)
    const user = await api.newUser()
    await api.api.identity.journal.change('system', async (tx, record) => {
      const role = await ensureRelationRole(tx, entity, 'viewer', own.user.id)
      const members = await addMembers(tx, entity, role, [user.id])
      record({ operation: 'domain.role.add_members', entityKeys: members.map((member) => member.key) })
    })
    expect((await user.call('GET', `/domains/${own.domainId}`)).status).toBe(200)
    const failing = api.database.transaction(async (tx) => {
      const role = await ensureRelationRole(tx, entity, 'editor', own.user.id)
      await addMembers(tx, entity, role, [user.id, newId()])
    })
    await expect(failing).rejects.toMatchObject({ kind: 'unprocessable' })
    const names = (await own.call('GET', `${domainRoles(own)}?limit=100`)).json<{ roles: Role[] }>().roles
    expect(names.map((role) => role.role_name)).toEqual(['admin', 'viewer'])
    const key = await keyOf('users', own.user.id)
    const sole = api.database.transaction((tx) => requireNotLastAdmin(tx, entity, [key]))
    await expect(sole).rejects.toMatchObject({ kind: 'invalid_state' })
    const leaving = api.database.transaction((tx) => removeMembers(tx, entity, { users: [own.user.id] }))
    await expect(leaving).rejects.toMatchObject({ kind: 'invalid_state' })
  })
})

describe('the deletion of a user', () => {
  const removeUser = (key: number, takenOverBy?: { key: number }) =>
    api.api.identity.journal.change('system', async (tx, record) => {
      const removed = await removeUserEverywhere(tx, key, takenOverBy)
      record({ operation: 'user.delete', entityKeys: removed.entityKeys })
      return removed
    })

  test('is refused with the domain while a domain would lose its last administrator; force overrides it', async () => {
    const own = await newTenant(api)
    const key = await keyOf('users', own.user.id)
    await expect(removeUser(key)).rejects.toMatchObject({
      kind: 'invalid_state',
      message: expect.stringContaining(own.domainId) as string,
    })
    const admin = (await api.admin('GET', '/users/profile')).json<{ id: string }>()
    const removed = await removeUser(key, { key: await keyOf('users', admin.id) })
    expect(removed.takenOver).toEqual([own.domainId])
    expect(await membersOf(api.admin, domainRoles(own))).toEqual([admin.id])
    expect((await own.call('GET', `/domains/${own.domainId}`)).status).toBe(403)
  })

  test('removes every role in every domain and fills empty built-in roles with the administrators', async () => {
    const [first, second] = [await newTenant(api), await newTenant(api)]
    const user = await newMember(['client_create'], first)
    await grantRole(api, user.id, on('domain', second.domainId, second.domainId), 'admin')
    const made = [
      (await user.call('POST', `/${first.domainId}/clients`, {})).json<{ id: string }>().id,
      (await user.call('POST', `/${second.domainId}/clients`, {})).json<{ id: string }>().id,
    ] as const
    const key = await keyOf('users', user.id)
    await removeUser(key)
    const { rows } = await sql`SELECT 1 FROM grants WHERE user_key = ${key}`.execute(api.database.db)
    expect(rows).toEqual([])
    expect(await membersOf(first.call, clientRoles(made[0], first))).toEqual([first.user.id])
    expect(await membersOf(second.call, clientRoles(made[1], second))).toEqual([second.user.id])
  })

  test('takes one statement for 5,000 clients of which the user is the only administrator', async () => {
    const own = await newTenant(api)
    const user = await newMember(['client_create'], own)
    const bulk = Array.from({ length: 5000 }, () => ({}))
    expect((await user.call('POST', `/${own.domainId}/clients/bulk`, bulk)).status).toBe(200)
    const { entityKeys } = await removeUser(await keyOf('users', user.id))
    expect(new Set(entityKeys)).toEqual(new Set([await keyOf('users', own.user.id), await keyOf('users', user.id)]))
    const { rows } = await sql<{ count: number }>`SELECT count(*) AS count FROM clients c WHERE c.domain_key = (
        SELECT key FROM domains WHERE id = ${own.domainId}) AND NOT EXISTS (
        SELECT 1 FROM grants g WHERE g.entity_key = c.key AND g.role_key = 0)`.execute(api.database.db)
    expect(rows[0]?.count).toBe(0)
  })
})

describe('two concurrent requests', () => {
  /** Both orders of two requests are allowed, and nothing else. */
  async function race(...requests: (() => Promise<TestResponse>)[]): Promise<number[]> {
    return statusesOf(await Promise.all(requests.map((request) => request())))
  }
  const ROUNDS = 6

  test('that remove two administrators of each other keep one', async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const own = await newTenant(api)
      const second = await newMember([], own)
      await grantRole(api, second.id, on('domain', own.domainId, own.domainId), 'admin')
      const { role_id: roleId } = await adminOf(own.call, domainRoles(own))
      const at = `${domainRoles(own)}/${roleId}/members/delete`
      const statuses = await race(
        () => own.call('POST', at, { members: [second.id] }),
        () => second.call('POST', at, { members: [own.user.id] }),
      )
      // The second one is refused as the last, or has no right any more.
      expect(statuses[0]).toBe(200)
      expect([403, 409]).toContain(statuses[1])
      expect(await membersOf(api.admin, domainRoles(own))).toHaveLength(1)
    }
  })

  test('that disable one administrator and remove the other keep one who can sign in', async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const own = await newTenant(api)
      const second = await newMember([], own)
      await grantRole(api, second.id, on('domain', own.domainId, own.domainId), 'admin')
      const { role_id: roleId } = await adminOf(own.call, domainRoles(own))
      const statuses = await race(
        () => api.admin('POST', `/users/${second.id}/disable`),
        () => api.admin('POST', `${domainRoles(own)}/${roleId}/members/delete`, { members: [own.user.id] }),
      )
      expect(statuses).toEqual([200, 409])
      const { rows } = await sql`SELECT 1 FROM grants g JOIN users u ON u.key = g.user_key AND u.status = 'enabled'
        WHERE g.entity_key = ${await keyOf('domains', own.domainId)} AND g.role_key = 0`.execute(api.database.db)
      expect(rows).toHaveLength(1)
    }
  })

  test('that assign a role on a client and remove the user from the domain leave no role', async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const own = await newTenant(api)
      const user = await newMember([], own)
      const { id } = await own.newClient()
      const role = await createRole(own.call, clientRoles(id, own), { optional_actions: ['read'] })
      const statuses = await race(
        () => own.call('POST', `${clientRoles(id, own)}/${role.role_id}/members`, { members: [user.id] }),
        () => own.call('DELETE', `${domainRoles(own)}/members`, { member_ids: [user.id] }),
      )
      expect([
        [200, 204],
        [204, 422],
      ]).toContainEqual(statuses)
      const { rows } = await sql`SELECT 1 FROM grants WHERE user_key = ${await keyOf('users', user.id)}`.execute(
        api.database.db,
      )
      expect(rows).toEqual([])
    }
  })

  test('that remove two members of a built-in role, at the client and at the domain, keep members in it', async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const own = await newTenant(api)
      const [first, second] = [await newMember([], own), await newMember([], own)]
      const { id } = await own.newClient()
      for (const user of [first, second]) await grantRole(api, user.id, on('client', id, own.domainId), 'admin')
      const { role_id: roleId } = await adminOf(own.call, clientRoles(id, own))
      const at = `${clientRoles(id, own)}/${roleId}/members/delete`
      await own.call('POST', at, { members: [own.user.id] })
      const statuses = await race(
        () => own.call('POST', at, { members: [first.id] }),
        () => own.call('DELETE', `${domainRoles(own)}/members`, { member_ids: [second.id] }),
      )
      expect([
        [204, 204],
        [204, 409],
      ]).toContainEqual(statuses)
      expect((await membersOf(own.call, clientRoles(id, own))).length).toBeGreaterThan(0)
    }
  })

  test('that assign a role and delete its client leave nothing', async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const user = await newMember()
      const { id } = await tenant.newClient()
      const key = await keyOf('clients', id)
      const role = await createRole(tenant.call, clientRoles(id), { optional_actions: ['read'] })
      const statuses = await race(
        () => tenant.call('POST', `${clientRoles(id)}/${role.role_id}/members`, { members: [user.id] }),
        () => tenant.call('DELETE', `/${tenant.domainId}/clients/${id}`),
      )
      expect([
        [200, 200],
        [200, 404],
      ]).toContainEqual(statuses)
      const { rows } = await sql`SELECT 1 FROM grants WHERE entity_key = ${key}
        UNION ALL SELECT 1 FROM roles WHERE entity_key = ${key}`.execute(api.database.db)
      expect(rows).toEqual([])
    }
  })

  test('that create roles of one name create exactly one', async () => {
    const name = newId()
    const statuses = await race(
      ...Array.from({ length: 5 }, () => () => tenant.call('POST', domainRoles(), { role_name: name })),
    )
    expect(statuses).toEqual([201, 409, 409, 409, 409])
  })
})

test('a revoked membership ends at once, for messages too', async () => {
  const user = await newMember()
  const channel = await tenant.newChannel()
  const base = `/${tenant.domainId}/channels/${channel.id}/roles`
  const role = await createRole(tenant.call, base, {
    optional_actions: ['publish'],
    optional_members: [user.id],
  })
  const send = async () =>
    (
      await user.call('POST', `/m/${tenant.domainId}/c/${channel.id}`, JSON.stringify([{ n: 'a', v: 1 }]), {
        'content-type': 'application/senml+json',
      })
    ).status
  expect(await send()).toBe(202)
  expect((await tenant.call('POST', `${base}/${role.role_id}/members/delete-all`)).status).toBe(204)
  expect(await send()).toBe(403)
})

test('each change of roles is one journal record with the operation and the members', async () => {
  const { id } = await tenant.newClient()
  const user = await newMember()
  const role = await createRole(tenant.call, clientRoles(id), {
    role_name: 'logged',
    optional_actions: ['read'],
    optional_members: [user.id],
  })
  const at = `${clientRoles(id)}/${role.role_id}`
  await tenant.call('PUT', at, { role_name: 'renamed' })
  await tenant.call('POST', `${at}/actions`, { actions: ['update'] })
  await tenant.call('POST', `${at}/actions/delete`, { actions: ['update'] })
  await tenant.call('POST', `${at}/actions/delete-all`)
  await tenant.call('POST', `${at}/members/delete`, { members: [user.id] })
  await tenant.call('POST', `${at}/members`, { members: [user.id] })
  await tenant.call('POST', `${at}/members/delete-all`)
  await tenant.call('DELETE', at)
  const key = await keyOf('clients', id)
  const { rows } = await sql<{ operation: string; attributes: Record<string, unknown> }>`
    SELECT operation, attributes FROM journal WHERE entity_keys @> ARRAY[${key}]::bigint[] AND operation LIKE 'client.role.%'
     ORDER BY seq`.execute(api.database.db)
  expect(rows.map((row) => row.operation.replace('client.role.', ''))).toEqual([
    'add',
    'update_name',
    'add_actions',
    'remove_actions',
    'remove_all_actions',
    'remove_members',
    'add_members',
    'remove_all_members',
    'remove',
  ])
  for (const row of rows) expect(row.attributes).toMatchObject({ id: role.role_id, entity_id: id })
  expect(rows[0]?.attributes).toMatchObject({ name: 'logged', actions: ['read'], members: [user.id] })
  expect(rows[1]?.attributes).toMatchObject({ before: { name: 'logged' }, after: { name: 'renamed' } })
})

// decision 24: `c_list` is membership, `m_write` publish, `m_read` subscribe
test('actions are accepted by the names of earlier product versions', async () => {
  const { id } = await tenant.newChannel()
  const base = `/${tenant.domainId}/channels/${id}/roles`
  const role = await createRole(tenant.call, base, { optional_actions: ['m_write'] })
  expect(role.actions).toEqual(['publish'])
  expect((await tenant.call('POST', `${base}/${role.role_id}/actions`, { actions: ['m_read'] })).status).toBe(200)
  expect((await tenant.call('GET', `${base}/${role.role_id}`)).json<Role>().actions).toEqual(['publish', 'subscribe'])
  const groupId = await newGroup(api, tenant.domainId)
  const listing = await createRole(tenant.call, `/groups/${groupId}/roles`, { actions: ['c_list'] })
  expect(listing.actions).toEqual(['membership'])
  expect((await tenant.call('POST', base, { role_name: newId(), actions: ['c_list'] })).status).toBe(400)
  const total = async (list: string) =>
    (await tenant.call('GET', `/${tenant.domainId}/${list}`)).json<{ total: number }>().total
  expect(await total(`channels?id=${id}&actions=m_write,m_read`)).toBe(1)
  expect(await total(`groups?id=${groupId}&actions=c_list`)).toBe(1)
  const why = `access?subject=${tenant.user.id}&entity=channel:${id}&action=m_write`
  expect((await tenant.call('GET', `/${tenant.domainId}/${why}`)).json()).toMatchObject({
    action: 'publish',
    allowed: true,
  })
})
