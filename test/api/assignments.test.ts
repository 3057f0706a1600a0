// contract 4.3: users assigned to domains, groups and channels, clients shared with users; decisions 24, 31b, 33, 45
import { describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { ACTIONS } from '#api/identity/index.ts'
import { sql } from '#core/sql.ts'
import type { Caller, TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { grantRole, newGroup, newTenant, setParent, statusesOf, tenantOf } from './support.ts'
import type { Tenant } from './support.ts'

const api = useWorld(() => startTestApi())

type Type = 'domain' | 'group' | 'channel' | 'client'
type UserPage = { total: number; users: { id: string }[]; members: { id: string }[] }

/** What users are assigned to, by the path of the entity; `id` makes one in the tenant's domain. */
const ENTITIES = {
  group: async (tenant: Tenant) =>
    (await tenant.call('POST', `/${tenant.domainId}/groups`, { name: 'hall' })).json<{ id: string }>().id,
  channel: async (tenant: Tenant) => (await tenant.newChannel()).id,
  client: async (tenant: Tenant) => (await tenant.newClient()).id,
} as const satisfies Partial<Record<Type, (tenant: Tenant) => Promise<string>>>
const ENTITY_TYPES = ['group', 'channel', 'client'] as const

const wordsOf = (type: Type) => (type === 'client' ? ['share', 'unshare'] : ['users/assign', 'users/unassign'])
const assign = (call: Caller, base: string, type: Type, relation: string, users: readonly { id: string }[]) =>
  call('POST', `${base}/${wordsOf(type)[0]}`, { relation, user_ids: users.map((user) => user.id) })
const unassign = (call: Caller, base: string, type: Type, body: Record<string, unknown>, query = '') =>
  call('POST', `${base}/${wordsOf(type)[1]}${query}`, body)
const usersOf = async (call: Caller, path: string) => {
  const answer = await call('GET', path)
  expect(answer.status, answer.text).toBe(200)
  return answer.json<UserPage>()
}
const idsOf = (users: readonly { id: string }[]) => users.map((user) => user.id).toSorted()

/** A user who belongs to the domain and may do nothing else there. */
async function newMember(tenant: Tenant): Promise<TestUser> {
  const user = await api.newUser()
  expect((await assign(tenant.call, `/domains/${tenant.domainId}`, 'domain', 'member', [user])).status).toBe(201)
  return user
}

describe('a domain', () => {
  test('assigns users by a relation, and lists them under both names', async () => {
    const tenant = await newTenant(api)
    const [first, second] = [await api.newUser(), await api.newUser()]
    const base = `/domains/${tenant.domainId}`
    const assigned = await assign(tenant.call, base, 'domain', 'Editor', [first, second])
    expect([assigned.status, assigned.text]).toEqual([201, ''])
    expect((await assign(tenant.call, base, 'domain', 'editor', [first])).status).toBe(201)

    expect((await first.call('POST', `/${tenant.domainId}/clients`, {})).status).toBe(201)
    expect((await first.call('GET', '/domains')).json()).toMatchObject({
      domains: [{ id: tenant.domainId, permission: 'editor' }],
    })
    for (const path of [`${base}/users`, `/${tenant.domainId}/users`]) {
      const page = await usersOf(tenant.call, path)
      expect(page).toMatchObject({ total: 3, offset: 0, limit: 10 })
      expect(idsOf(page.users)).toEqual(idsOf([tenant.user, first, second]))
      expect(page.members).toEqual(page.users)
      expect(JSON.stringify(page)).not.toContain('secret')
      expect(idsOf((await usersOf(tenant.call, `${path}?name=Last ${first.username.slice(5)}`)).users)).toEqual([
        first.id,
      ])
      expect(idsOf((await usersOf(tenant.call, `${path}?username=${second.username}`)).users)).toEqual([second.id])
      expect((await usersOf(tenant.call, `${path}?status=disabled`)).users).toEqual([])
      expect((await usersOf(tenant.call, `${path}?limit=1&offset=2`)).users).toHaveLength(1)
      expect((await tenant.call('GET', `${path}?only_total=true`)).json()).toEqual({ total: 3, users: [], members: [] })
      for (const query of ['limit=0', 'limit=101', 'status=gone', 'metadata=x'])
        expect((await tenant.call('GET', `${path}?${query}`)).status, query).toBe(400)
    }
  })

  test('removes a user by one relation, or by all of them with every role in the domain', async () => {
    const tenant = await newTenant(api)
    const user = await api.newUser()
    const base = `/domains/${tenant.domainId}`
    const channel = await tenant.newChannel()
    const path = `/${tenant.domainId}/channels/${channel.id}`
    await assign(tenant.call, base, 'domain', 'member', [user])
    await assign(tenant.call, base, 'domain', 'viewer', [user])
    await assign(tenant.call, path, 'channel', 'editor', [user])

    const body = { relation: 'viewer', user_ids: [user.id] }
    const left = await unassign(tenant.call, base, 'domain', body)
    expect([left.status, left.text]).toEqual([204, ''])
    expect((await user.call('GET', base)).status).toBe(200)
    expect((await user.call('PATCH', path, { name: 'still mine' })).status).toBe(200)
    expect((await unassign(tenant.call, base, 'domain', { ...body, relation: 'guest' })).status).toBe(204)

    expect((await unassign(tenant.call, base, 'domain', { user_id: user.id })).status).toBe(204)
    expect((await user.call('GET', base)).status).toBe(403)
    expect((await user.call('PATCH', path, { name: 'not mine' })).status).toBe(403)
    expect(idsOf((await usersOf(tenant.call, `${path}/users`)).users)).toEqual([tenant.user.id])
    expect((await unassign(tenant.call, base, 'domain', { user_id: user.id })).status).toBe(204)
  })

  test('keeps its last administrator: 409 names the domain, and the platform administrator may override it', async () => {
    const tenant = await newTenant(api)
    const base = `/domains/${tenant.domainId}`
    for (const body of [{ user_id: tenant.user.id }, { relation: 'administrator', user_ids: [tenant.user.id] }]) {
      const refused = await unassign(tenant.call, base, 'domain', body)
      expect(refused.status).toBe(409)
      expect(refused.json<{ message: string }>().message).toContain(tenant.domainId)
      expect((await unassign(tenant.call, base, 'domain', body, '?force=true')).status).toBe(403)
      expect((await unassign(api.admin, base, 'domain', body)).status).toBe(409)
    }
    expect((await unassign(api.admin, base, 'domain', { user_id: tenant.user.id }, '?force=true')).status).toBe(204)
    expect((await tenant.call('GET', base)).status).toBe(403)
    expect((await usersOf(api.admin, `${base}/users`)).total).toBe(1)
  })

  test('keeps one of two administrators who remove each other at once', async () => {
    const tenant = await newTenant(api)
    const user = await api.newUser()
    const base = `/domains/${tenant.domainId}`
    await assign(tenant.call, base, 'domain', 'administrator', [user])
    const answers = await Promise.all([
      unassign(tenant.call, base, 'domain', { user_id: user.id }),
      unassign(user.call, base, 'domain', { user_id: tenant.user.id }),
    ])
    // The second caller is no longer a member, or is the last one.
    const [done, refused] = statusesOf(answers)
    expect(done).toBe(204)
    expect([403, 409]).toContain(refused)
    expect((await usersOf(api.admin, `${base}/users`)).total).toBe(1)
  })
})

describe.each(ENTITY_TYPES)('a %s', (type) => {
  const setUp = async () => {
    const tenant = await newTenant(api)
    const id = await ENTITIES[type](tenant)
    return { tenant, id, scoped: `/${tenant.domainId}/${type}s/${id}`, unscoped: `/${type}s/${id}` }
  }

  test('is assigned to members of its domain by a relation and unassigned, with the domain in the path or not', async () => {
    const { tenant, scoped, unscoped } = await setUp()
    for (const base of [scoped, unscoped]) {
      const user = await newMember(tenant)
      const mayRead = async () => (await user.call('GET', `/${tenant.domainId}/${type}s?name=&limit=100`)).json()
      expect(await mayRead()).toMatchObject({ total: 0 })
      const assigned = await assign(tenant.call, base, type, 'VIEWER', [user])
      expect([assigned.status, assigned.text]).toEqual([201, ''])
      expect(await mayRead()).toMatchObject({ total: 1 })
      for (const path of [`${scoped}/users`, `${unscoped}/users`]) {
        const page = await usersOf(tenant.call, path)
        expect(idsOf(page.users)).toEqual(idsOf([tenant.user, user]))
        expect(page.members).toEqual(page.users)
      }
      expect((await user.call('GET', `${base}/permissions`)).json()).toEqual({
        permissions: ACTIONS[type].filter((action) => /(^|_)(read|subscribe)$/.test(action)),
      })
      const removed = await unassign(tenant.call, base, type, { relation: 'viewer', user_ids: [user.id] })
      expect([removed.status, removed.text]).toEqual([204, ''])
      expect(await mayRead()).toMatchObject({ total: 0 })
      expect((await user.call('GET', `${base}/permissions`)).status).toBe(404)
    }
  })

  test('is assigned to members of its domain only, to all of them or none', async () => {
    const { tenant, scoped } = await setUp()
    const [member, stranger] = [await newMember(tenant), await api.newUser()]
    const refused = await assign(tenant.call, scoped, type, 'viewer', [member, stranger])
    expect(refused.status).toBe(422)
    expect(refused.json<{ message: string }>().message).toContain(stranger.id)
    const unknown = { id: newId() }
    expect((await assign(tenant.call, scoped, type, 'viewer', [unknown])).status).toBe(422)
    expect(idsOf((await usersOf(tenant.call, `${scoped}/users`)).users)).toEqual([tenant.user.id])
  })

  test('is not assigned by a caller without the right, nor with more actions than the caller has', async () => {
    const { tenant, id, scoped } = await setUp()
    const [giver, reader, user, foreign] = [
      await newMember(tenant),
      await newMember(tenant),
      await newMember(tenant),
      await newTenant(api),
    ]
    const on = { type, domainId: tenant.domainId, id } as const
    await grantRole(api, giver.id, on, ['read', 'update', 'add_role_users', 'remove_role_users'])
    await grantRole(api, reader.id, on, ['read'])

    expect((await assign(giver.call, scoped, type, 'administrator', [user])).status).toBe(403)
    expect((await assign(giver.call, scoped, type, 'administrator', [giver])).status).toBe(403)
    expect((await assign(reader.call, scoped, type, 'viewer', [user])).status).toBe(403)
    expect((await unassign(reader.call, scoped, type, { user_id: giver.id })).status).toBe(403)
    expect((await reader.call('GET', `${scoped}/users`)).status).toBe(403)

    const hidden = await assign(user.call, scoped, type, 'viewer', [user])
    const none = await assign(user.call, `/${tenant.domainId}/${type}s/${newId()}`, type, 'viewer', [user])
    expect([hidden.status, none.status, none.text]).toEqual([404, 404, hidden.text])
    for (const path of ['users', 'permissions']) {
      expect((await foreign.call('GET', `${scoped}/${path}`)).status).toBe(403)
      expect((await foreign.call('GET', `/${type}s/${id}/${path}`)).status).toBe(404)
      expect((await api.anonymous('GET', `${scoped}/${path}`)).status).toBe(401)
    }
    expect((await assign(foreign.call, scoped, type, 'viewer', [foreign.user])).status).toBe(403)
    expect((await assign(foreign.call, `/${type}s/${id}`, type, 'viewer', [foreign.user])).status).toBe(404)
  })

  test('keeps an administrator', async () => {
    const { tenant, scoped } = await setUp()
    const refused = await unassign(tenant.call, scoped, type, { user_id: tenant.user.id })
    expect(refused.status).toBe(409)
    const user = await newMember(tenant)
    expect((await assign(tenant.call, scoped, type, 'administrator', [user])).status).toBe(201)
    expect((await unassign(tenant.call, scoped, type, { user_ids: [tenant.user.id] })).status).toBe(204)
    expect(idsOf((await usersOf(tenant.call, `${scoped}/users`)).users)).toEqual([user.id])
  })

  test('names the invalid part of a body', async () => {
    const { tenant, scoped } = await setUp()
    const [give, take] = wordsOf(type).map((word) => `${scoped}/${word}`) as [string, string]
    const ids = [newId()]
    for (const body of [
      {},
      { relation: 'viewer' },
      { user_ids: ids },
      { relation: 'viewer', user_ids: [] },
      { relation: 'owner', user_ids: ids },
      { relation: 'viewer', user_ids: ['me'] },
    ])
      expect((await tenant.call('POST', give, body)).status, JSON.stringify(body)).toBe(400)
    for (const body of [{}, { user_ids: [] }, { user_id: 'me' }, { relation: 'owner', user_ids: ids }])
      expect((await tenant.call('POST', take, body)).status, JSON.stringify(body)).toBe(400)
    expect((await tenant.call('POST', give, 'x', { 'content-type': 'text/plain' })).status).toBe(415)
    const many = Array.from({ length: 1001 }, () => newId())
    expect((await tenant.call('POST', give, { relation: 'viewer', user_ids: many })).status).toBe(413)
  })
})

test('an id that fits entities of two domains is a conflict that names the scoped path', async () => {
  const user = await api.newUser()
  const domains = await Promise.all(['one', 'two'].map((name) => user.call('POST', '/domains', { name })))
  const [one, two] = domains.map((answer) => tenantOf(user, answer.json<{ id: string }>().id)) as [Tenant, Tenant]
  const { id } = await one.newChannel()
  await two.newChannel({ id })
  const conflict = await user.call('GET', `/channels/${id}/permissions`)
  expect(conflict.status).toBe(409)
  expect(conflict.json<{ message: string }>().message).toContain('<domain_id>')
  expect((await assign(user.call, `/channels/${id}`, 'channel', 'viewer', [user])).status).toBe(409)
  expect((await user.call('GET', `/${one.domainId}/channels/${id}/permissions`)).status).toBe(200)
})

test('permissions are all actions that the caller has, inherited ones included', async () => {
  const tenant = await newTenant(api)
  const user = await newMember(tenant)
  const { id } = await tenant.newClient()
  const group = await newGroup(api, tenant.domainId)
  await setParent(api, tenant.domainId, 'client', id, group)
  await grantRole(api, user.id, { type: 'group', domainId: tenant.domainId, id: group }, [
    'client_read',
    'client_update',
  ])
  const permissionsOf = async (call: Caller, path: string) =>
    (await call('GET', path)).json<{ permissions: string[] }>().permissions
  const path = `/${tenant.domainId}/clients/${id}/permissions`
  expect(await permissionsOf(user.call, path)).toEqual(['update', 'read'])
  expect(await permissionsOf(tenant.call, path)).toEqual([...ACTIONS.client])
  expect(await permissionsOf(api.admin, path)).toEqual([...ACTIONS.client])
  expect(await permissionsOf(user.call, `/domains/${tenant.domainId}/permissions`)).toEqual(['read'])
  expect(await permissionsOf(tenant.call, `/domains/${tenant.domainId}/permissions`)).toEqual([...ACTIONS.domain])
  expect((await user.call('GET', `/domains/${newId()}/permissions`)).status).toBe(403)
})

test('the groups of a user are listed for the user and for administrators, as far as the caller can read them', async () => {
  const tenant = await newTenant(api)
  const [user, other] = [await newMember(tenant), await newMember(tenant)]
  const group = await newGroup(api, tenant.domainId)
  await newGroup(api, tenant.domainId)
  const on = { type: 'group', domainId: tenant.domainId, id: group } as const
  await grantRole(api, user.id, on, ['read'])
  for (const path of [`/${tenant.domainId}/users/${user.id}/groups`, `/users/${user.id}/groups`]) {
    for (const call of [user.call, tenant.call]) {
      const page = (await call('GET', path)).json<{ total: number; groups: { id: string }[] }>()
      expect(page, path).toMatchObject({ total: 1, groups: [{ id: group }] })
    }
    expect((await other.call('GET', path)).status).toBe(403)
  }
})

test('many concurrent assignments all take effect, and the role is created once', async () => {
  const tenant = await newTenant(api)
  const users = await Promise.all(Array.from({ length: 6 }, () => newMember(tenant)))
  const { id } = await tenant.newChannel()
  const base = `/${tenant.domainId}/channels/${id}`
  const answers = await Promise.all(users.map((user) => assign(tenant.call, base, 'channel', 'guest', [user])))
  expect(statusesOf(answers)).toEqual(users.map(() => 201))
  expect((await usersOf(tenant.call, `${base}/users`)).total).toBe(users.length + 1)
  const { rows } = await sql`SELECT 1 FROM roles WHERE name = 'guest'
    AND entity_key = (SELECT key FROM channels WHERE id = ${id})`.execute(api.database.db)
  expect(rows).toHaveLength(1)
})

test('the journal records who was assigned to what by which relation', async () => {
  const tenant = await newTenant(api)
  const user = await newMember(tenant)
  const { id } = await tenant.newChannel()
  await assign(tenant.call, `/${tenant.domainId}/channels/${id}`, 'channel', 'Guest', [user])
  const { rows } = await sql<{ attributes: unknown }>`
    SELECT attributes FROM journal WHERE operation = 'channel.role.add_members'
       AND domain_key = (SELECT key FROM domains WHERE id = ${tenant.domainId})`.execute(api.database.db)
  expect(rows).toMatchObject([{ attributes: { entity_id: id, name: 'guest', relation: 'guest', members: [user.id] } }])
})
