// contract 2.4, decisions 31b and 45: entities found without their domain, by which role they are reached, and what is remembered
import { describe, expect, test } from 'vitest'
import { ACTIONS, AccessPolicy, findPageAccess, findProvidedAccess } from '#api/identity/index.ts'
import type { EntityFacts } from '#api/identity/index.ts'
import { newId } from '#core/ids.ts'
import type { TestApi, TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import type { EntityType } from './support.ts'
import { grantRole, newGroup, revokeRoles, setParent, newTenant } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

const on = (type: EntityType, id: string, own = tenant) => ({ type, domainId: own.domainId, id })

async function newMember(actions: readonly string[] = [], own = tenant): Promise<TestUser> {
  const user = await api.newUser()
  await grantRole(api, user.id, on('domain', own.domainId, own), actions)
  return user
}

const principalOf = (user: TestUser) =>
  api.api.identity.tokens.authenticate(user.accessToken, { address: '127.0.0.1', requestId: newId() })

const locate = async (user: TestUser, type: 'client' | 'channel' | 'group', id: string, domainId?: string) =>
  await api.api.identity.access.locate(await principalOf(user), domainId, type, id)

describe('an entity on a path without its domain', () => {
  test('is found in the domain in which the caller can read it', async () => {
    const { id } = await tenant.newClient()
    const member = await newMember(['client_read'])
    const { domain, entity } = await locate(member, 'client', id)
    expect(domain.domainId).toBe(tenant.domainId)
    expect(entity).toMatchObject({ type: 'client', id, parentGroupKey: null })
    expect((await locate(member, 'client', id, tenant.domainId)).entity).toEqual(entity)
  })

  test('is not found where the caller cannot read it, with one response for unknown and invalid ids', async () => {
    const { id } = await tenant.newClient()
    const member = await newMember(['client_update'])
    for (const wanted of [id, newId(), 'x', ''])
      await expect(locate(member, 'client', wanted)).rejects.toMatchObject({
        kind: 'not_found',
        message: 'entity not found',
      })
    await expect(locate(member, 'client', id, tenant.domainId)).rejects.toMatchObject({ kind: 'not_found' })
    await expect(locate(await api.newUser(), 'client', id, tenant.domainId)).rejects.toMatchObject({
      kind: 'forbidden',
    })
  })

  test('whose id the caller can read in two domains is a conflict that names the scoped path; one that exists once is found', async () => {
    const other = await newTenant(api)
    const id = newId()
    await tenant.newClient({ id })
    await other.newClient({ id })
    const member = await newMember(['client_read'])
    await grantRole(api, member.id, on('domain', other.domainId, other), [])
    // The user reads nothing in the other domain, so there is only one match.
    expect((await locate(member, 'client', id)).domain.domainId).toBe(tenant.domainId)
    await grantRole(api, member.id, on('client', id, other), ['read'])
    await expect(locate(member, 'client', id)).rejects.toMatchObject({
      kind: 'conflict',
      message: expect.stringContaining(`/<domain_id>/clients/${id}`) as string,
    })
    expect((await member.call('GET', `/clients/${id}/roles`)).status).toBe(409)
    expect((await locate(member, 'client', id, other.domainId)).domain.domainId).toBe(other.domainId)
    expect((await api.admin('GET', `/clients/${id}/roles`)).status).toBe(409)
  })

  test('is not found in a domain that is closed to the caller', async () => {
    const own = await newTenant(api)
    const { id } = await own.newChannel()
    const member = await newMember(['channel_read'], own)
    expect((await locate(member, 'channel', id)).entity.id).toBe(id)
    await own.call('POST', `/domains/${own.domainId}/disable`)
    await expect(locate(member, 'channel', id)).rejects.toMatchObject({ kind: 'not_found' })
    expect((await locate(own.user, 'channel', id)).entity.id).toBe(id)
  })
})

describe('the access fields of a list item', () => {
  test('name the strongest role: one of the entity, its parent, a group above or the domain', async () => {
    const top = await newGroup(api, tenant.domainId)
    const parent = await newGroup(api, tenant.domainId, top)
    const { id } = await tenant.newClient()
    await setParent(api, tenant.domainId, 'client', id, parent)
    const member = await newMember(['client_read'])
    const shown = async () => {
      const { domain, entity } = await locate(member, 'client', id)
      const { domainKey } = domain
      const unknown = { key: 2 ** 40, domainKey, parentGroupKey: null }
      const entities = [{ ...entity, domainKey }, unknown]
      return (await findProvidedAccess(api.database.db, [domain], 'client', entities)).get(entity.key)
    }
    expect(await shown()).toMatchObject({
      access_type: 'domain',
      access_provider_id: tenant.domainId,
      access_provider_role_actions: ['client_read'],
    })
    await grantRole(api, member.id, on('group', top), ['client_update', 'subgroup_client_update'])
    expect(await shown()).toMatchObject({ access_type: 'indirect_group', access_provider_id: top })
    // A role that says nothing about clients gives none.
    await grantRole(api, member.id, on('group', parent), ['read', 'subgroup_client_read'])
    expect(await shown()).toMatchObject({ access_type: 'indirect_group' })
    await grantRole(api, member.id, on('group', parent), 'admin')
    expect(await shown()).toMatchObject({
      access_type: 'direct_group',
      access_provider_id: parent,
      access_provider_role_name: 'admin',
    })
    await grantRole(api, member.id, on('client', id), [])
    expect(await shown()).toMatchObject({ access_type: 'direct_group' })
    await grantRole(api, member.id, on('client', id), ['delete'])
    const direct = await shown()
    expect(direct).toMatchObject({ access_type: 'direct', actions: ['delete'] })
    expect(direct).not.toHaveProperty('access_provider_id')
    await grantRole(api, member.id, on('client', id), 'admin')
    expect(await shown()).toMatchObject({ access_type: 'direct', role_name: 'admin' })
  })

  test('of a group are direct for its own roles and indirect_group for those above', async () => {
    const top = await newGroup(api, tenant.domainId)
    const below = await newGroup(api, tenant.domainId, top)
    const member = await newMember()
    await grantRole(api, member.id, on('group', top), ['read', 'subgroup_read'])
    const { domain, entity } = await locate(member, 'group', below)
    const own = (await locate(member, 'group', top)).entity
    const entities = [entity, own].map((group) => ({ ...group, domainKey: domain.domainKey }))
    const access = await findProvidedAccess(api.database.db, [domain], 'group', entities)
    expect(access.get(own.key)).toMatchObject({ access_type: 'direct' })
    expect(access.get(entity.key)).toMatchObject({ access_type: 'indirect_group', access_provider_id: top })
  })

  test('contain the permitted actions of each item, as the policy decides them for the single item by any path', async () => {
    const own = await newTenant(api)
    const top = await newGroup(api, own.domainId)
    const parent = await newGroup(api, own.domainId, top)
    const ids = await Promise.all([0, 1, 2, 3].map(async () => (await own.newClient()).id))
    const [inParent = '', inTop = '', alone = '', held = ''] = ids
    await setParent(api, own.domainId, 'client', inParent, parent)
    await setParent(api, own.domainId, 'client', inTop, top)
    const given: Record<
      string,
      { type: 'client' | 'group' | 'domain'; id: string; actions: readonly string[] | 'admin' }
    > = {
      'a role of the client': { type: 'client', id: held, actions: ['update'] },
      'the built-in role of the client': { type: 'client', id: alone, actions: 'admin' },
      'a role of its group': { type: 'group', id: parent, actions: ['client_update', 'client_delete'] },
      'a role of a group above': { type: 'group', id: top, actions: ['subgroup_client_update'] },
      'the built-in role of a group above': { type: 'group', id: top, actions: 'admin' },
      'a role of the domain': { type: 'domain', id: own.domainId, actions: ['client_update'] },
      'nothing else': { type: 'group', id: top, actions: ['update'] },
    }
    const updatable: Record<string, number> = {}
    for (const [path, { type, id, actions }] of Object.entries(given)) {
      const member = await newMember(['client_read'], own)
      await grantRole(api, member.id, on(type, id, own), actions)
      const found = await Promise.all(ids.map((client) => locate(member, 'client', client, own.domainId)))
      const { domain } = found[0] as (typeof found)[0]
      const entities = found.map(({ entity }) => ({ ...entity, domainKey: domain.domainKey }))
      const { may } = await findPageAccess(api.database.db, [domain], 'client', entities)
      for (const entity of entities) {
        const held = await domain.actionsOn(entity)
        for (const action of ACTIONS.client) expect(may(entity, action), `${action} by ${path}`).toBe(held.has(action))
      }
      updatable[path] = entities.filter((entity) => may(entity, 'update')).length
    }
    expect(updatable).toEqual({
      'a role of the client': 1,
      'the built-in role of the client': 1,
      'a role of its group': 1,
      'a role of a group above': 1,
      'the built-in role of a group above': 2,
      'a role of the domain': 4,
      'nothing else': 0,
    })
  })

  test('are absent for the platform administrator, who has no role', async () => {
    const { id } = await tenant.newClient()
    const listed = (await api.admin('GET', `/${tenant.domainId}/clients?id=${id}`)).json<{ clients: object[] }>()
    expect(listed.clients).toHaveLength(1)
    expect(listed.clients[0]).not.toHaveProperty('access_type')
  })
})

test(
  'cached access equals stored access after any change of roles, members, parents and hierarchy',
  { timeout: 180_000 },
  async () => {
    const own = await newTenant(api)
    let state = 20_261_121
    const random = (below: number) => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
      return (state >>> 8) % below
    }
    const pick = <T>(items: readonly T[]) => items[random(items.length)] as T
    const groups: string[] = []
    for (let index = 0; index < 6; index++)
      groups.push(await newGroup(api, own.domainId, index === 0 ? undefined : pick(groups)))
    const clients: string[] = []
    for (let index = 0; index < 6; index++) {
      clients.push((await own.newClient()).id)
      await setParent(api, own.domainId, 'client', clients[index] as string, pick(groups))
    }
    const member = await newMember([], own)
    const principal = await principalOf(member)
    const admin = await principalOf(own.user)
    const ACTIONS = {
      domain: ['client_read', 'client_update', 'group_read'],
      group: ['read', 'client_read', 'subgroup_client_read', 'subgroup_read', 'subgroup_update'],
      client: ['read', 'update'],
    }
    const targets = [
      on('domain', own.domainId, own),
      ...groups.map((id) => on('group', id, own)),
      ...clients.map((id) => on('client', id, own)),
    ]
    const grant = async () => {
      const target = pick(targets)
      await grantRole(api, member.id, target, [pick(ACTIONS[target.type as 'group'])])
    }
    const changes: (() => Promise<unknown>)[] = [
      grant,
      grant,
      grant,
      // The user stays a member of the domain.
      async () => await revokeRoles(api, member.id, pick(targets.slice(1))),
      async () => await setParent(api, own.domainId, 'client', pick(clients), pick(groups)),
      async () => {
        const [child, parent] = [pick(groups), pick(groups)]
        await own.call('DELETE', `/${own.domainId}/groups/${child}/parent`)
        await own.call('POST', `/${own.domainId}/groups/${child}/parent`, { parent_id: parent })
      },
    ]
    const decided = async (policy: Pick<TestApi['api']['identity']['access'], 'enter'>) => {
      const domain = await policy.enter(principal, own.domainId)
      const lines: string[] = []
      for (const type of ['client', 'group'] as const) {
        for (const id of type === 'client' ? clients : groups) {
          const { entity } = await api.api.identity.access.locate(admin, own.domainId, type, id)
          const held = [...(await domain.actionsOn(entity as EntityFacts))].toSorted()
          lines.push(`${type} ${id} ${held.join(' ')}`)
          for (const action of ['read', 'update']) {
            const isAllowed = await domain.requireOn(entity, action).then(
              () => true,
              () => false,
            )
            expect(isAllowed).toBe(held.includes('read') && held.includes(action))
          }
        }
      }
      return lines
    }
    let seen = 0
    for (let step = 0; step < 20; step++) {
      await pick(changes)()
      const remembered = await decided(api.api.identity.access)
      const stored = await decided(AccessPolicy.create({ database: api.database, isFresh: () => true }))
      expect(remembered, `step ${step}`).toEqual(stored)
      seen += stored.filter((line) => line.includes(' read')).length
    }
    expect(seen).toBeGreaterThan(20)
  },
)
