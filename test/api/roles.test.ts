// contract section 2, decisions 4 to 8, 24, 33, 45: roles on all four entity types, on every path
import { beforeAll, describe, expect, test } from 'vitest'
import { ACTIONS } from '#api/identity/index.ts'
import { newId } from '#core/ids.ts'
import type { Caller, TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import type { EntityType } from './support.ts'
import { grantRole, newGroup, newTenant, ZERO_TIME } from './support.ts'

type Role = {
  id: string
  role_id: string
  name: string
  role_name: string
  entity_id: string
  actions: string[]
  optional_actions: string[]
  members: string[]
  optional_members: string[]
  created_by?: string
  created_at: string
  updated_by?: string
  updated_at: string
}

const TYPES = ['domain', 'group', 'channel', 'client'] as const

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

/** A member of the domain with these domain actions and nothing else. */
async function newMember(actions: readonly string[] = [], own = tenant): Promise<TestUser> {
  const user = await api.newUser()
  await grantRole(api, user.id, { type: 'domain', domainId: own.domainId, id: own.domainId }, actions)
  return user
}

async function newEntity(type: EntityType, own = tenant): Promise<string> {
  if (type === 'domain') return own.domainId
  if (type === 'client') return (await own.newClient()).id
  if (type === 'channel') return (await own.newChannel()).id
  return await newGroup(api, own.domainId)
}

/** The bases of contract 2.1; the first is the older one, with the domain where there is one. */
function basesOf(type: EntityType, id: string, domainId = tenant.domainId): string[] {
  const paths = type === 'domain' ? [`/domains/${id}`] : [`/${domainId}/${type}s/${id}`, `/${type}s/${id}`]
  return paths.flatMap((path) => [`${path}/roles`, `${path}/role`])
}

const baseOf = (type: EntityType, id: string) => basesOf(type, id)[0] as string

async function createRole(call: Caller, base: string, body: Record<string, unknown>): Promise<Role> {
  const created = await call('POST', base, body)
  expect(created.status, created.text).toBe(201)
  return created.json<Role>()
}

const adminOf = async (call: Caller, base: string) =>
  (await call('GET', `${base}?limit=1`)).json<{ roles: Role[] }>().roles[0] as Role

describe.each(TYPES)('roles of a %s', (type) => {
  let id: string
  let base: string
  let member: TestUser
  beforeAll(async () => {
    id = await newEntity(type)
    base = baseOf(type, id)
    member = await newMember()
  })
  const action = type === 'domain' ? 'client_read' : 'update'

  test('a role is created with actions and members, under the names of all product versions', async () => {
    const role = await createRole(tenant.call, base, {
      role_name: 'first',
      optional_actions: [action, 'read'],
      optional_members: [member.id],
    })
    expect(role.role_id).toMatch(new RegExp(`^${type}_[A-Za-z0-9_-]{22}$`))
    expect(role).toMatchObject({
      id: role.role_id,
      name: 'first',
      role_name: 'first',
      entity_id: id,
      members: [member.id],
      optional_members: [member.id],
      created_by: tenant.user.id,
      updated_at: ZERO_TIME,
    })
    expect(role.actions.toSorted()).toEqual([action, 'read'].toSorted())
    expect(role.optional_actions).toEqual(role.actions)
    expect(role.created_at).toMatch(/^\d{4}-\d\d-\d\dT.*\.\d{6}Z$/)
    const newer = await createRole(tenant.call, base, { name: 'second', actions: ['read'], members: [member.id] })
    expect(newer).toMatchObject({ role_name: 'second', actions: ['read'], members: [member.id] })
  })

  test('a name is required, at most 200 characters long, and taken once on an entity', async () => {
    expect((await tenant.call('POST', base, {})).status).toBe(400)
    expect((await tenant.call('POST', base, { role_name: '' })).status).toBe(400)
    expect((await tenant.call('POST', base, { role_name: 'x'.repeat(201) })).status).toBe(400)
    await createRole(tenant.call, base, { role_name: 'x'.repeat(200) })
    await createRole(tenant.call, base, { role_name: 'once' })
    for (const name of ['once', 'admin'])
      expect((await tenant.call('POST', base, { role_name: name })).json()).toMatchObject({ error: 'conflict' })
    await createRole(
      tenant.call,
      baseOf(type, type === 'domain' ? (await newTenant(api)).domainId : await newEntity(type)),
      {
        role_name: 'once',
      },
    ).catch((error: unknown) => {
      // Another domain is not this tenant's.
      if (type !== 'domain') throw error
    })
  })

  test('the Location of a new role leads to it', async () => {
    for (const path of basesOf(type, id)) {
      const made = await tenant.call('POST', path, { role_name: `at ${path}` })
      expect(made.status).toBe(201)
      const found = await tenant.call('GET', String(made.headers['location']))
      expect(found.json<Role>().role_id, path).toBe(made.json<Role>().role_id)
    }
  })

  test('an action that the type does not have is 400 naming it', async () => {
    const refused = await tenant.call('POST', base, { role_name: 'odd', optional_actions: ['read', 'fly'] })
    expect(refused.status).toBe(400)
    expect(refused.json()).toMatchObject({ message: expect.stringMatching(/fly.*read.*manage_role/) as string })
  })

  test('the list begins with the built-in role, which holds every action and whose member is the creator', async () => {
    const listed = (await tenant.call('GET', `${base}?offset=0&limit=100`)).json<{ total: number; roles: Role[] }>()
    expect(listed.total).toBe(listed.roles.length)
    const [admin] = listed.roles
    expect(admin).toMatchObject({ role_name: 'admin', entity_id: id, actions: [...ACTIONS[type]] })
    // Groups of these tests are made without a creator.
    if (type !== 'group') expect(admin?.members).toEqual([tenant.user.id])
    const paged: Role[] = []
    for (let offset = 0; offset < listed.total; offset += 2)
      paged.push(...(await tenant.call('GET', `${base}?offset=${offset}&limit=2`)).json<{ roles: Role[] }>().roles)
    expect(paged).toEqual(listed.roles)
    expect((await tenant.call('GET', `${base}/${admin?.id}`)).json()).toEqual(admin)
  })

  test('PUT renames and replaces the set of actions; what is absent stays', async () => {
    const { role_id: roleId } = await createRole(tenant.call, base, { role_name: 'before', optional_actions: ['read'] })
    const at = `${base}/${roleId}`
    expect((await tenant.call('PUT', at, {})).status).toBe(400)
    expect((await tenant.call('PUT', at, { actions: ['fly'] })).status).toBe(400)
    expect((await tenant.call('PUT', at, { role_name: 'once' })).status).toBe(409)
    const renamed = (await tenant.call('PUT', at, { name: 'after' })).json<Role>()
    expect(renamed).toMatchObject({ role_name: 'after', actions: ['read'], updated_by: tenant.user.id })
    expect(renamed.updated_at).not.toBe(ZERO_TIME)
    const replaced = (await tenant.call('PUT', at, { optional_actions: [action] })).json<Role>()
    expect(replaced).toMatchObject({ role_name: 'after', actions: [action] })
    expect((await tenant.call('GET', at)).json()).toEqual(replaced)
  })

  test('actions are added, listed, taken and cleared', async () => {
    const { role_id: roleId } = await createRole(tenant.call, base, { role_name: 'acting' })
    const at = `${base}/${roleId}/actions`
    expect((await tenant.call('POST', at, { actions: [] })).status).toBe(400)
    expect((await tenant.call('POST', at, { actions: ['fly'] })).status).toBe(400)
    const added = await tenant.call('POST', at, { actions: ['read', action, 'read'] })
    expect(added.status).toBe(200)
    expect(added.json()).toEqual({ actions: ['read', action, 'read'] })
    const held = async () => (await tenant.call('GET', `${base}/${roleId}`)).json<Role>().actions.toSorted()
    expect(await held()).toEqual(['read', action].toSorted())
    expect((await tenant.call('POST', `${at}/delete`, { actions: [] })).status).toBe(400)
    expect((await tenant.call('POST', `${at}/delete`, { actions: ['read'] })).status).toBe(204)
    expect(await held()).toEqual([action])
    expect((await tenant.call('POST', `${at}/delete-all`)).status).toBe(204)
    expect(await held()).toEqual([])
  })

  test('actions and members are accepted under the names of all product versions, and one of them is required', async () => {
    const { role_id: roleId } = await createRole(tenant.call, base, { role_name: 'both names' })
    const at = `${base}/${roleId}`
    const member = (await newMember()).id
    expect((await tenant.call('POST', `${at}/actions`, {})).json()).toMatchObject({ message: 'actions is required' })
    expect((await tenant.call('POST', `${at}/members`, {})).json()).toMatchObject({ message: 'members is required' })
    expect((await tenant.call('POST', `${at}/actions`, { optional_actions: ['read'] })).json()).toEqual({
      actions: ['read'],
    })
    expect((await tenant.call('POST', `${at}/members`, { optional_members: [member] })).json()).toEqual({
      members: [member],
    })
    expect((await tenant.call('GET', at)).json()).toMatchObject({ actions: ['read'], members: [member] })
    await tenant.call('POST', `${at}/actions/delete`, { optional_actions: ['read'] })
    await tenant.call('POST', `${at}/members/delete`, { optional_members: [member] })
    expect((await tenant.call('GET', at)).json()).toMatchObject({ actions: [], members: [] })
  })

  test('members are added, paged, taken and cleared', async () => {
    const { role_id: roleId } = await createRole(tenant.call, base, { role_name: 'peopled' })
    const at = `${base}/${roleId}/members`
    const others = [await newMember(), await newMember(), await newMember()].map((user) => user.id)
    expect((await tenant.call('POST', at, { members: [] })).status).toBe(400)
    const added = await tenant.call('POST', at, { members: others })
    expect(added.status, added.text).toBe(200)
    expect(added.json()).toEqual({ members: others })
    expect((await tenant.call('POST', at, { members: [others[0]] })).status).toBe(200)
    const page = (await tenant.call('GET', `${at}?offset=1&limit=1`)).json<{ total: number; members: string[] }>()
    expect(page).toMatchObject({ total: 3, offset: 1, limit: 1 })
    expect(page.members).toHaveLength(1)
    expect((await tenant.call('GET', `${at}?limit=101`)).status).toBe(400)
    expect((await tenant.call('GET', `${at}?limit=0`)).status).toBe(400)
    expect([200, 204]).toContain((await tenant.call('POST', `${at}/delete`, { members: [others[0]] })).status)
    const left = async () => (await tenant.call('GET', `${at}?limit=100`)).json<{ members: string[] }>().members
    expect((await left()).toSorted()).toEqual(others.slice(1).toSorted())
    expect((await tenant.call('POST', `${at}/delete-all`)).status).toBe(204)
    expect(await left()).toEqual([])
  })

  test('an unknown user, or on an entity a user outside the domain, is refused and no member is added', async () => {
    const { role_id: roleId } = await createRole(tenant.call, base, { role_name: `strict ${newId()}` })
    const outsider = await api.newUser()
    const known = await newMember()
    for (const stranger of type === 'domain' ? [newId()] : [newId(), outsider.id]) {
      const refused = await tenant.call('POST', `${base}/${roleId}/members`, { members: [known.id, stranger] })
      expect(refused.status).toBe(422)
      expect(refused.json()).toMatchObject({ message: expect.stringContaining(stranger) as string })
    }
    expect((await tenant.call('GET', `${base}/${roleId}`)).json()).toMatchObject({ members: [] })
  })

  test('a role is deleted with its memberships', async () => {
    const user = await newMember()
    const role = await createRole(tenant.call, base, {
      role_name: `short-lived ${newId()}`,
      optional_actions: ['read'],
      optional_members: [user.id],
    })
    const seen = async () => (await user.call('GET', base.replace(/\/roles$/, ''))).status
    if (type !== 'group') expect(await seen()).toBe(200)
    expect((await tenant.call('DELETE', `${base}/${role.id}`)).status).toBe(204)
    expect((await tenant.call('GET', `${base}/${role.id}`)).status).toBe(404)
    expect((await tenant.call('DELETE', `${base}/${role.id}`)).status).toBe(404)
    if (type !== 'group') expect(await seen()).toBe(type === 'domain' ? 403 : 404)
  })

  test('the built-in role cannot be renamed, emptied of actions or deleted', async () => {
    const admin = await adminOf(tenant.call, base)
    const refusals = [
      await tenant.call('PUT', `${base}/${admin.id}`, { role_name: 'x' }),
      await tenant.call('PUT', `${base}/${admin.id}`, { actions: ['read'] }),
      await tenant.call('DELETE', `${base}/${admin.id}`),
      await tenant.call('POST', `${base}/${admin.id}/actions`, { actions: ['read'] }),
      await tenant.call('POST', `${base}/${admin.id}/actions/delete`, { actions: ['read'] }),
      await tenant.call('POST', `${base}/${admin.id}/actions/delete-all`),
      await api.admin('DELETE', `${base}/${admin.id}`),
    ]
    expect(refusals.map((refusal) => refusal.status)).toEqual(refusals.map(() => 403))
  })

  test('its last member stays: one by one and all at once it is 409 naming the entity', async () => {
    const fresh = type === 'domain' ? await newTenant(api) : tenant
    const entityId = await newEntity(type, fresh)
    const at = basesOf(type, entityId, fresh.domainId)[0] as string
    if (type === 'group') await grantRole(api, fresh.user.id, { type, domainId: fresh.domainId, id: entityId }, 'admin')
    const admin = await adminOf(fresh.call, at)
    const members = `${at}/${admin.id}/members`
    for (const refused of [
      await fresh.call('POST', `${members}/delete`, { members: [fresh.user.id] }),
      await fresh.call('POST', `${members}/delete-all`),
      await fresh.call('DELETE', `${at}/members`, { member_ids: [fresh.user.id] }),
    ]) {
      expect(refused.status).toBe(409)
      expect(refused.json()).toMatchObject({ message: expect.stringContaining(entityId) as string })
    }
    const second = await newMember([], fresh)
    expect((await fresh.call('POST', members, { members: [second.id] })).status).toBe(200)
    expect((await fresh.call('POST', `${members}/delete-all`)).status).toBe(409)
    expect((await second.call('POST', `${members}/delete`, { members: [fresh.user.id] })).status).toBeLessThan(300)
    expect((await second.call('GET', `${at}/${admin.id}`)).json()).toMatchObject({ members: [second.id] })
  })

  test('every path answers alike, in the form of its product version', async () => {
    const { role_id: roleId } = await createRole(tenant.call, base, {
      role_name: `everywhere ${newId()}`,
      optional_actions: ['read'],
      optional_members: [member.id],
    })
    for (const at of basesOf(type, id)) {
      const isPrefixed = at.startsWith(`/${tenant.domainId}/`)
      const list = (await tenant.call('GET', at)).json<Role[] | { roles: Role[] }>()
      expect(Array.isArray(list), at).toBe(!isPrefixed)
      const page = (await tenant.call('GET', `${at}?limit=100`)).json<{ total: number; roles: Role[] }>()
      const roles = Array.isArray(list) ? list : list.roles
      expect(roles).toEqual(page.roles.slice(0, roles.length))
      if (!isPrefixed) expect(roles).toHaveLength(page.total)
      expect((await tenant.call('GET', `${at}/${roleId}`)).json()).toMatchObject({ role_id: roleId })
      const actions = (await tenant.call('GET', `${at}/${roleId}/actions`)).json()
      expect(actions).toEqual(isPrefixed ? { actions: ['read'] } : ['read'])
      const members = (await tenant.call('GET', `${at}/${roleId}/members`)).json()
      if (isPrefixed) expect(members).toEqual({ total: 1, offset: 0, limit: 10, members: [member.id] })
      else expect(members).toEqual([member.id])
      const removed = await tenant.call('POST', `${at}/${roleId}/members/delete`, { members: [newId()] })
      expect(removed.status).toBe(isPrefixed ? 204 : 200)
      if (!isPrefixed) expect(removed.json()).toEqual({ message: expect.any(String) as string })
      const available = at.replace(`/${id}/role`, '/role')
      expect((await member.call('GET', `${available}/available-actions`)).json()).toEqual({
        available_actions: [...ACTIONS[type]],
      })
    }
  })

  test('a stranger, an unknown entity and an unknown role are refused as decision 45 says', async () => {
    const outsider = await api.newUser()
    const nobody = await newMember()
    const unknown = `${type}_${'x'.repeat(22)}`
    for (const [method, suffix, body] of [
      ['POST', '', { role_name: 'x' }],
      ['GET', '', undefined],
      ['GET', '/members', undefined],
      ['DELETE', '/members', { member_ids: [newId()] }],
      ['GET', `/${unknown}`, undefined],
      ['PUT', `/${unknown}`, { role_name: 'x' }],
      ['DELETE', `/${unknown}`, undefined],
      ['POST', `/${unknown}/actions`, { actions: ['read'] }],
      ['GET', `/${unknown}/actions`, undefined],
      ['POST', `/${unknown}/actions/delete`, { actions: ['read'] }],
      ['POST', `/${unknown}/actions/delete-all`, undefined],
      ['POST', `/${unknown}/members`, { members: [member.id] }],
      ['GET', `/${unknown}/members`, undefined],
      ['POST', `/${unknown}/members/delete`, { members: [member.id] }],
      ['POST', `/${unknown}/members/delete-all`, undefined],
    ] as const) {
      const what = `${method} ${suffix}`
      expect((await api.anonymous(method, base + suffix, body)).status, what).toBe(401)
      const [scoped = '', , unscoped] = basesOf(type, id)
      expect((await outsider.call(method, scoped + suffix, body)).status, what).toBe(403)
      const hidden = await nobody.call(method, scoped + suffix, body)
      expect(hidden.status, what).toBe(type === 'domain' ? 403 : 404)
      if (type !== 'domain') {
        const [missing = ''] = basesOf(type, newId())
        expect((await nobody.call(method, missing + suffix, body)).text).toBe(hidden.text)
        expect((await outsider.call(method, (unscoped ?? '') + suffix, body)).text).toBe(hidden.text)
      }
      if (suffix.startsWith(`/${unknown}`))
        expect((await tenant.call(method, base + suffix, body)).status, what).toBe(404)
    }
  })
})
