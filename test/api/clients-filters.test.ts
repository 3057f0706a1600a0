// specification section 4 (queries of the listings); contract 2.4, 4.1 to 4.3, decisions 14, 29 and 51
import { describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import type { Caller } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import type { Tenant } from './support.ts'
import { grantRole, newGroup, newTenant, setParent, tenantOf } from './support.ts'

const api = useWorld(() => startTestApi())

type Item = {
  id: string
  name: string
  access_type?: string
  role_id?: string
  role_name?: string
  actions?: string[]
  access_provider_id?: string
  access_provider_role_name?: string
}

describe.each(['client', 'channel'] as const)('a listing of %ss', (type) => {
  const make = (of: Tenant, name: string): Promise<Item> =>
    type === 'client' ? of.newClient({ name }) : of.newChannel({ name })

  async function list(call: Caller, domainId: string, query: string): Promise<Item[]> {
    const answer = await call('GET', `/${domainId}/${type}s?limit=100&order=name&${query}`)
    expect(answer.status, answer.text).toBe(200)
    return answer.json<Record<string, Item[]>>()[`${type}s`] ?? []
  }

  /** A member who reaches one entity in each way, named after it, and a fifth one in none. */
  async function newMember() {
    const tenant = await newTenant(api)
    const { domainId } = tenant
    const top = await newGroup(api, domainId)
    const group = await newGroup(api, domainId, top)
    const [direct, inGroup, below, plain] = [
      await make(tenant, 'direct'),
      await make(tenant, 'direct_group'),
      await make(tenant, 'indirect_group'),
      await make(tenant, 'domain'),
    ]
    await setParent(api, domainId, type, inGroup.id, group)
    const deepest = await newGroup(api, domainId, group)
    await setParent(api, domainId, type, below.id, deepest)
    const member = tenantOf(await api.newUser(), domainId)
    const grant = (what: 'domain' | 'group' | 'client' | 'channel', id: string, actions: string[]) =>
      grantRole(api, member.user.id, { type: what, domainId, id }, actions)
    await grant('domain', domainId, [])
    await grant(type, direct.id, ['read', 'update'])
    await grant('group', group, [`${type}_read`, `${type}_delete`, `subgroup_${type}_read`])
    return { tenant, member, domainId, top, group, direct, inGroup, below, plain, grant }
  }

  test('shows for each item the role that gives access, and filters by it', async () => {
    const { member, domainId, group, direct, grant } = await newMember()
    const names = async (query: string) => (await list(member.call, domainId, query)).map((item) => item.name)
    expect(await names('')).toEqual(['direct', 'direct_group', 'indirect_group'])
    await grant('domain', domainId, [`${type}_read`])
    const items = await list(member.call, domainId, '')
    expect(items.map((item) => item.access_type)).toEqual(['direct', 'direct_group', 'domain', 'indirect_group'])
    expect(items[0]).toMatchObject({ id: direct.id, actions: ['read', 'update'] })
    expect(items[0]).not.toHaveProperty('access_provider_id')
    expect(items[1]).toMatchObject({ access_provider_id: group })
    expect(items[2]).toMatchObject({ access_provider_id: domainId })
    for (const kind of ['direct', 'direct_group', 'indirect_group', 'domain'])
      expect(await names(`access_type=${kind}`), kind).toEqual([kind])
    expect((await member.call('GET', `/${domainId}/${type}s?access_type=magic`)).status).toBe(400)
  })

  test('filters by the actions and the role of the caller', async () => {
    const { tenant, member, domainId, direct } = await newMember()
    const names = async (query: string, call = member.call) =>
      (await list(call, domainId, query)).map((item) => item.name)
    expect(await names('actions=read')).toEqual(['direct', 'direct_group', 'indirect_group'])
    expect(await names('actions=update')).toEqual(['direct'])
    expect(await names('actions=read,delete')).toEqual(['direct_group'])
    expect(await names('actions=update,delete')).toEqual([])
    expect((await member.call('GET', `/${domainId}/${type}s?actions=fly`)).json()).toMatchObject({
      error: 'malformed',
      details: [{ path: 'actions' }],
    })
    const [shown] = await list(member.call, domainId, `id=${direct.id}`)
    expect(await names(`role_id=${shown?.role_id}`)).toEqual(['direct'])
    expect(await names(`role_name=${shown?.role_name}`)).toEqual(['direct'])
    expect(await names('role_name=admin')).toEqual([])
    expect(await names(`role_id=${type}_0000000000000000000000`)).toEqual([])
    const [own] = await list(tenant.call, domainId, `id=${direct.id}`)
    expect(own).toMatchObject({ access_type: 'direct', role_name: 'admin' })
    expect(await names(`role_id=${own?.role_id}`, tenant.call)).toEqual(['direct'])
    expect(await names('role_name=admin', tenant.call)).toHaveLength(4)
  })

  test('shows the entities of a user to that user and to administrators, and returns 403 to others', async () => {
    const { tenant, member, domainId } = await newMember()
    const reached = ['direct', 'direct_group', 'indirect_group']
    const paths = [
      `/${domainId}/${type}s?user=${member.user.id}`,
      `/${domainId}/users/${member.user.id}/${type}s?order=name`,
      `/users/${member.user.id}/${type}s?order=name`,
    ]
    for (const call of [tenant.call, member.call, api.admin]) {
      for (const path of paths) {
        const listed = (await call('GET', path)).json<Record<string, Item[]>>()[`${type}s`] ?? []
        expect(listed.map((item) => item.name).toSorted(), path).toEqual(reached)
      }
    }
    for (const path of paths) {
      const ofAnother = path.replace(member.user.id, tenant.user.id)
      expect((await member.call('GET', ofAnother)).status, ofAnother).toBe(403)
    }
    for (const id of [newId(), 'nobody']) expect(await list(tenant.call, domainId, `user=${id}`)).toEqual([])
    const stranger = await newTenant(api)
    expect(await list(tenant.call, domainId, `user=${stranger.user.id}`)).toEqual([])
  })

  test('without a domain shows the entities of another user in the domains that the caller administers', async () => {
    const { tenant, member, domainId, direct } = await newMember()
    const elsewhere = await newTenant(api)
    const hidden = await make(elsewhere, 'hidden')
    for (const { id } of [member.user, tenant.user])
      await grantRole(api, id, { type: 'domain', domainId: elsewhere.domainId, id: elsewhere.domainId }, [
        `${type}_read`,
      ])
    const listed = await tenant.call('GET', `/users/${member.user.id}/${type}s?order=name`)
    const items = listed.json<Record<string, (Item & { domain_id: string })[]>>()[`${type}s`] ?? []
    expect(items.map((item) => item.id)).toContain(direct.id)
    expect(items.map((item) => item.id)).not.toContain(hidden.id)
    expect(new Set(items.map((item) => item.domain_id))).toEqual(new Set([domainId]))
  })

  test('accepts the names of the specification: parentID, ownerID and visibility', async () => {
    const { tenant, member, domainId, group, grant } = await newMember()
    await grant('domain', domainId, [`${type}_read`, `${type}_create`])
    const names = async (query: string) => (await list(member.call, domainId, query)).map((item) => item.name)
    expect(await names(`parentID=${group}`)).toEqual(['direct_group'])
    const [owned] = [await make(member, 'owned')]
    expect(await names(`ownerID=${member.user.id}`)).toEqual(['owned'])
    expect(await names(`ownerID=${tenant.user.id}`)).toHaveLength(4)
    expect(await names('ownerID=nobody')).toEqual([])
    expect(await names('visibility=mine')).toEqual([owned?.name])
    expect(await names('visibility=shared')).toHaveLength(4)
    expect(await names('visibility=all')).toHaveLength(5)
    expect((await member.call('GET', `/${domainId}/${type}s?visibility=none`)).status).toBe(400)
  })

  test('and a view show the roles of the caller with roles=true, and only then', async () => {
    const { tenant, member, domainId, direct, inGroup, group } = await newMember()
    const view = (id: string, query: string, call = member.call) => call('GET', `/${domainId}/${type}s/${id}${query}`)
    expect((await view(direct.id, '')).json()).not.toHaveProperty('roles')
    expect((await view(direct.id, '?roles=true')).json()).toMatchObject({
      member_id: member.user.id,
      roles: [{ actions: ['read', 'update'], access_type: 'direct' }],
    })
    expect((await view(inGroup.id, '?roles=true')).json()).toMatchObject({
      roles: [{ access_type: 'direct_group', access_provider_id: group }],
    })
    const own = (await view(direct.id, '?roles=true', tenant.call)).json<{ roles: { role_name: string }[] }>()
    expect(own.roles[0]?.role_name).toBe('admin')
    expect((await view(direct.id, '?roles=perhaps')).status).toBe(400)
  })
})
