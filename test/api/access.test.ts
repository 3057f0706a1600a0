// contract sections 2.3 to 2.5, decision 45; mechanisms section 4: what a member may do, item by item and in listings
import { describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import type { EntityType, Page } from './support.ts'
import { grantRole, newGroup, revokeRoles, setParent, newTenant } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

const on = (type: EntityType, id: string) => ({ type, domainId: tenant.domainId, id })
const domain = () => on('domain', tenant.domainId)

/** A member of the domain with these domain actions and nothing else. */
async function newMember(actions: readonly string[] = []) {
  const user = await api.newUser()
  await grantRole(api, user.id, domain(), actions)
  return user
}

describe('an entity', () => {
  test('without read is the same 404 as an unknown one, whatever other actions the caller has on it', async () => {
    const { id } = await tenant.newClient()
    const member = await newMember(['client_update', 'client_delete'])
    for (const [method, suffix, body] of [
      ['GET', '', undefined],
      ['PATCH', '', { name: 'x' }],
      ['PATCH', '/tags', { tags: [] }],
      ['PATCH', '/secret', { secret: newId() }],
      ['POST', '/enable', undefined],
      ['POST', '/disable', undefined],
      ['DELETE', '', undefined],
    ] as const) {
      const hidden = await member.call(method, `/${tenant.domainId}/clients/${id}${suffix}`, body)
      const unknown = await member.call(method, `/${tenant.domainId}/clients/${newId()}${suffix}`, body)
      expect(hidden.status, `${method} ${suffix}`).toBe(404)
      expect(unknown.text).toBe(hidden.text)
    }
  })

  test('that the caller may read but not change is 403 with the missing action', async () => {
    const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
    const reader = await newMember(['client_read', 'channel_read'])
    for (const [method, path, action] of [
      ['PATCH', `clients/${client.id}`, 'update'],
      ['POST', `clients/${client.id}/disable`, 'update'],
      ['DELETE', `clients/${client.id}`, 'delete'],
      ['PUT', `channels/${channel.id}`, 'update'],
      ['DELETE', `channels/${channel.id}`, 'delete'],
    ] as const) {
      const body = method === 'PATCH' || method === 'PUT' ? { name: 'x' } : undefined
      const refused = await reader.call(method, `/${tenant.domainId}/${path}`, body)
      expect(refused.status).toBe(403)
      expect(refused.json()).toMatchObject({ error: 'forbidden', message: expect.stringContaining(action) as string })
    }
    expect((await reader.call('GET', `/${tenant.domainId}/clients/${client.id}`)).status).toBe(200)
  })
})

test('creating requires client_create or channel_create in the domain, for one and for many', async () => {
  const member = await newMember(['client_create', 'read'])
  expect((await member.call('POST', `/${tenant.domainId}/clients`, {})).status).toBe(201)
  expect((await member.call('POST', `/${tenant.domainId}/clients/bulk`, [{}])).status).toBe(200)
  expect((await member.call('POST', `/${tenant.domainId}/channels`, {})).status).toBe(403)
  expect((await member.call('POST', `/${tenant.domainId}/channels/bulk`, [{}])).status).toBe(403)
})

test('the creator of an entity has its built-in role, with every action on it and none on others', async () => {
  const member = await newMember(['client_create'])
  const own = (await member.call('POST', `/${tenant.domainId}/clients`, {})).json<{ id: string }>()
  const other = await tenant.newClient()
  expect((await member.call('PATCH', `/${tenant.domainId}/clients/${own.id}`, { name: 'mine' })).status).toBe(200)
  expect((await member.call('GET', `/${tenant.domainId}/clients/${other.id}`)).status).toBe(404)
  expect((await member.call('DELETE', `/${tenant.domainId}/clients/${own.id}`)).status).toBe(200)
})

test('changing, enabling and disabling a domain each require their own action', async () => {
  const at = (suffix = '') => `/domains/${tenant.domainId}${suffix}`
  const reader = await newMember(['read'])
  expect((await reader.call('GET', at())).status).toBe(200)
  expect((await reader.call('PATCH', at(), { name: 'x' })).status).toBe(403)
  expect((await reader.call('POST', at('/disable'))).status).toBe(403)
  expect((await reader.call('POST', at('/enable'))).status).toBe(403)
  const editor = await newMember(['read', 'update'])
  expect((await editor.call('PATCH', at(), { name: 'plant' })).status).toBe(200)
  const switcher = await newMember(['enable'])
  expect((await switcher.call('POST', at('/enable'))).status).toBe(200)
})

test('a role on an entity has no effect without membership of its domain', async () => {
  const client = await tenant.newClient()
  const user = await api.newUser()
  await grantRole(api, user.id, on('client', client.id), 'admin')
  expect((await user.call('GET', `/${tenant.domainId}/clients/${client.id}`)).status).toBe(403)
  expect((await user.call('GET', '/clients')).json()).toMatchObject({ total: 0 })
  await grantRole(api, user.id, domain(), [])
  expect((await user.call('GET', `/${tenant.domainId}/clients/${client.id}`)).status).toBe(200)
})

test('the platform administrator passes every check', async () => {
  const client = await tenant.newClient()
  expect((await api.admin('GET', `/${tenant.domainId}/clients/${client.id}`)).status).toBe(200)
  expect((await api.admin('PATCH', `/${tenant.domainId}/clients/${client.id}`, { name: 'x' })).status).toBe(200)
  expect((await api.admin('GET', `/${newId()}/clients`)).status).toBe(403)
})

test('a group role applies to its own members by client_ and channel_, below it by subgroup_, and not above it', async () => {
  const [top, middle, bottom] = await (async () => {
    const first = await newGroup(api, tenant.domainId)
    const second = await newGroup(api, tenant.domainId, first)
    return [first, second, await newGroup(api, tenant.domainId, second)] as const
  })()
  const inGroup = async (groupId: string) => {
    const { id } = await tenant.newClient()
    await setParent(api, tenant.domainId, 'client', id, groupId)
    return id
  }
  const [above, here, below] = [await inGroup(top), await inGroup(middle), await inGroup(bottom)]
  const outside = (await tenant.newClient()).id
  const seenBy = async (actions: readonly string[]) => {
    const member = await newMember()
    await grantRole(api, member.id, on('group', middle), actions)
    const listed = (await member.call('GET', `/${tenant.domainId}/clients?limit=100`)).json<
      Page<'clients', { id: string }>
    >()
    for (const id of [above, here, below, outside]) {
      const { status } = await member.call('GET', `/${tenant.domainId}/clients/${id}`)
      expect(status === 200).toBe(listed.clients.some((client) => client.id === id))
    }
    return listed.clients.map((client) => client.id)
  }
  expect(await seenBy(['client_read'])).toEqual([here])
  expect(await seenBy(['subgroup_client_read'])).toEqual([below])
  expect((await seenBy(['client_read', 'subgroup_client_read'])).toSorted()).toEqual([here, below].toSorted())
  expect(await seenBy(['read', 'subgroup_read', 'channel_read'])).toEqual([])
})

test('a revoked role loses its effect at once, and a granted role takes effect at once', async () => {
  const client = await tenant.newClient()
  const member = await newMember()
  const view = async () => (await member.call('GET', `/${tenant.domainId}/clients/${client.id}`)).status
  expect(await view()).toBe(404)
  await grantRole(api, member.id, on('client', client.id), ['read'])
  expect(await view()).toBe(200)
  await revokeRoles(api, member.id, on('client', client.id))
  expect(await view()).toBe(404)
  await revokeRoles(api, member.id, domain())
  expect(await view()).toBe(403)
})

describe('listings', () => {
  /** A sequence of numbers that a seed repeats (mulberry32), so that a failure can be looked at again. */
  function randomFrom(seed: number): (below: number) => number {
    let state = seed
    return (below) => {
      state = (state + 0x6d2b79f5) | 0
      let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
      mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
      return ((mixed ^ (mixed >>> 14)) >>> 0) % below
    }
  }

  const ACTIONS: Record<EntityType, readonly string[]> = {
    domain: ['client_read', 'channel_read', 'client_update', 'read'],
    group: ['client_read', 'channel_read', 'subgroup_client_read', 'subgroup_channel_read', 'read', 'subgroup_read'],
    client: ['read', 'update'],
    channel: ['read', 'publish'],
  }

  test('contain exactly the entities that can be read one by one, for any roles in any tree of groups', async () => {
    const own = await newTenant(api)
    const random = randomFrom(20_261_121)
    const pick = <T>(items: readonly T[]) => items[random(items.length)] as T
    const groups: string[] = []
    for (let index = 0; index < 8; index++)
      groups.push(await newGroup(api, own.domainId, index === 0 || random(4) === 0 ? undefined : pick(groups)))
    const made = { client: [] as string[], channel: [] as string[] }
    for (let index = 0; index < 12; index++) {
      made.client.push((await own.newClient()).id)
      made.channel.push((await own.newChannel()).id)
      for (const type of ['client', 'channel'] as const)
        if (random(5) > 0) await setParent(api, own.domainId, type, made[type].at(-1) ?? '', pick(groups))
    }
    const targets: { type: EntityType; id: string }[] = [
      { type: 'domain', id: own.domainId },
      ...groups.map((id) => ({ type: 'group' as const, id })),
      ...made.client.map((id) => ({ type: 'client' as const, id })),
      ...made.channel.map((id) => ({ type: 'channel' as const, id })),
    ]
    for (let round = 0; round < 12; round++) {
      const user = await api.newUser()
      await grantRole(api, user.id, { type: 'domain', domainId: own.domainId, id: own.domainId }, [])
      const roles: string[] = []
      for (let count = random(5); count >= 0; count--) {
        // Domain roles that show everything would hide what the others do.
        const target = round % 4 === 0 ? pick(targets) : pick(targets.slice(1))
        const actions =
          random(6) === 0 && target.type !== 'domain'
            ? ('admin' as const)
            : [pick(ACTIONS[target.type]), pick(ACTIONS[target.type])]
        roles.push(`${target.type} ${String(actions)}`)
        await grantRole(api, user.id, { ...target, domainId: own.domainId }, actions)
      }
      for (const type of ['client', 'channel'] as const) {
        const list = (await user.call('GET', `/${own.domainId}/${type}s?limit=100`)).json<
          Record<string, { id: string }[]>
        >()
        const listed = list[`${type}s`]?.map((item) => item.id).toSorted()
        const seen: string[] = []
        for (const id of made[type]) {
          const { status } = await user.call('GET', `/${own.domainId}/${type}s/${id}`)
          if (status === 200) seen.push(id)
          else expect(status).toBe(404)
        }
        expect(listed, `round ${round}, ${type}s, ${roles.join('; ')}`).toEqual(seen.toSorted())
        expect((list as unknown as { total: number }).total).toBe(seen.length)
      }
    }
  })
})
