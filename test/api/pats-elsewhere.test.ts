// contract section 6: scopes on groups, roles, domains and the paths without a domain; section 2.5
import { describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import type { Caller } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { newTenant } from './support.ts'
import type { Tenant } from './support.ts'

const api = useWorld(() => startTestApi())

type Named = readonly [type: string, operation: string, id?: string]

/** Requests with a token that has these scopes in the tenant's domain. */
async function robot(tenant: Tenant, scopes: readonly Named[]): Promise<Caller> {
  const made = await tenant.call('POST', '/pats', { name: 'robot', duration: '1h' })
  const { id, secret } = made.json<{ id: string; secret: string }>()
  const added = await tenant.call('PATCH', `/pats/${id}/scope/add`, {
    scopes: scopes.map(([entity_type, operation, entity_id = '*']) => ({
      optional_domain_id: tenant.domainId,
      entity_type,
      entity_id,
      operation,
    })),
  })
  expect(added.status, added.text).toBe(200)
  return api.as(`Bearer ${secret}`)
}

async function newGroup(tenant: Tenant, fields: Record<string, unknown> = {}): Promise<string> {
  const made = await tenant.call('POST', `/${tenant.domainId}/groups`, { name: 'floor', ...fields })
  expect(made.status, made.text).toBe(201)
  return made.json<{ id: string }>().id
}

describe('clients', () => {
  test('are listed with the secrets of those in a scope to update', async () => {
    const tenant = await newTenant(api)
    const [one, other] = [await tenant.newClient(), await tenant.newClient()]
    const [first, second] = [one.credentials.secret, other.credentials.secret]
    const secretsSeenBy = async (call: Caller) => {
      const listed = await call('GET', `/${tenant.domainId}/clients?order=created_at`)
      expect(listed.status, listed.text).toBe(200)
      return listed.json<{ clients: (typeof one)[] }>().clients.map(({ credentials }) => credentials.secret)
    }
    const scopes = [['clients', 'list']] as const
    expect(await secretsSeenBy(await robot(tenant, scopes))).toEqual(['', ''])
    expect(await secretsSeenBy(await robot(tenant, [...scopes, ['clients', 'update', other.id]]))).toEqual(['', second])
    expect(await secretsSeenBy(await robot(tenant, [...scopes, ['clients', 'update']]))).toEqual([first, second])
  })
})

describe('groups', () => {
  test('are created, viewed, listed, changed and deleted only with the operation of that name', async () => {
    const tenant = await newTenant(api)
    const base = `/${tenant.domainId}/groups`
    const calls: Record<string, (call: Caller, id: string) => ReturnType<Caller>> = {
      create: (call) => call('POST', base, { name: 'made by a robot' }),
      read: (call, id) => call('GET', `${base}/${id}`),
      list: (call) => call('GET', base),
      update: (call, id) => call('PUT', `${base}/${id}`, { name: 'renamed' }),
      delete: (call, id) => call('DELETE', `${base}/${id}`),
    }
    for (const granted of Object.keys(calls)) {
      const call = await robot(tenant, [['groups', granted]])
      for (const [asked, ask] of Object.entries(calls)) {
        const answer = await ask(call, await newGroup(tenant))
        if (asked === granted) expect(answer.status, `${granted}: ${answer.text}`).toBeLessThan(300)
        else expect(answer.status, `${asked} with ${granted}: ${answer.text}`).toBe(403)
      }
    }
  })

  test('are listed as the scopes name them, and a hierarchy hides the others', async () => {
    const tenant = await newTenant(api)
    const root = await newGroup(tenant)
    const [seen, hidden] = [await newGroup(tenant, { parent_id: root }), await newGroup(tenant, { parent_id: root })]
    const call = await robot(tenant, [
      ['groups', 'list', root],
      ['groups', 'read', root],
      ['groups', 'list', seen],
    ])
    const listed = (await call('GET', `/${tenant.domainId}/groups`)).json<{ groups: { id: string }[] }>()
    expect(new Set(listed.groups.map((group) => group.id))).toEqual(new Set([root, seen]))
    const hierarchy = await call('GET', `/${tenant.domainId}/groups/${root}/hierarchy?level=2&dir=-1`)
    expect(hierarchy.status, hierarchy.text).toBe(200)
    expect(hierarchy.text).toContain(seen)
    expect(hierarchy.text).not.toContain(hidden)
  })

  test('require update on both for adding a client', async () => {
    const tenant = await newTenant(api)
    const [group, client] = [await newGroup(tenant), await tenant.newClient()]
    const put = (call: Caller) =>
      call('POST', `/${tenant.domainId}/clients/${client.id}/parent`, { parent_group_id: group })
    expect((await put(await robot(tenant, [['clients', 'update', client.id]]))).status).toBe(403)
    expect((await put(await robot(tenant, [['groups', 'update', group]]))).status).toBe(403)
    const both = await put(
      await robot(tenant, [
        ['clients', 'update', client.id],
        ['groups', 'update', group],
      ]),
    )
    expect(both.status, both.text).toBe(200)
  })
})

describe('roles', () => {
  test('are managed with share, members are removed with unshare, and no right beyond the token is granted', async () => {
    const tenant = await newTenant(api)
    const client = await tenant.newClient()
    const member = await api.newUser()
    const roles = `/${tenant.domainId}/clients/${client.id}/roles`
    await tenant.call('POST', `/domains/${tenant.domainId}/roles`, {
      role_name: 'visitors',
      optional_members: [member.id],
    })
    const reader = await robot(tenant, [['clients', 'read', client.id]])
    const role = { role_name: 'readers', optional_actions: ['read'] }
    expect((await reader('POST', roles, role)).status).toBe(403)
    const sharer = await robot(tenant, [
      ['clients', 'share', client.id],
      ['clients', 'read', client.id],
    ])
    const made = await sharer('POST', roles, role)
    expect(made.status, made.text).toBe(201)
    expect((await sharer('POST', roles, { role_name: 'editors', optional_actions: ['update'] })).status).toBe(403)
    const members = `${roles}/${made.json<{ id: string }>().id}/members`
    const added = await sharer('POST', members, { members: [member.id] })
    expect(added.status, added.text).toBe(200)
    const removal = { members: [member.id] }
    expect((await sharer('POST', `${members}/delete`, removal)).status).toBe(403)
    const unsharer = await robot(tenant, [['clients', 'unshare', client.id]])
    expect((await unsharer('POST', `${members}/delete`, removal)).status).toBe(204)
  })
})

describe('domains', () => {
  test('are viewed and changed with scopes, and never created, frozen or left to others without them', async () => {
    const tenant = await newTenant(api)
    const { domainId } = tenant
    const reader = await robot(tenant, [['domains', 'read', domainId]])
    expect((await reader('GET', `/domains/${domainId}`)).status).toBe(200)
    expect((await reader('PATCH', `/domains/${domainId}`, { name: 'renamed' })).status).toBe(403)
    const editor = await robot(tenant, [['domains', 'update', domainId]])
    expect((await editor('PATCH', `/domains/${domainId}`, { name: 'renamed' })).status).toBe(200)
    expect((await editor('GET', `/domains/${domainId}`)).status).toBe(403)
    expect((await editor('DELETE', `/domains/${domainId}`)).status).toBe(403)
    expect((await editor('POST', '/domains', { name: 'another' })).status).toBe(403)
    const invitation = { invitee_user_id: newId(), role_id: 'domain_x' }
    expect((await editor('POST', `/domains/${domainId}/invitations`, invitation)).status).toBe(403)
    for (const url of ['/invitations', `/journal/user/${tenant.user.id}`])
      expect((await editor('GET', url)).status).toBe(403)
  })

  test('are created with a scope to create any', async () => {
    const tenant = await newTenant(api)
    const { id, secret } = (await tenant.call('POST', '/pats', { name: 'founder', duration: '1h' })).json<{
      id: string
      secret: string
    }>()
    const scope = { entity_type: 'domains', entity_id: '*', operation: 'create' }
    await tenant.call('PATCH', `/pats/${id}/scope/add`, { scopes: [scope] })
    const made = await api.as(`Bearer ${secret}`)('POST', '/domains', { name: 'founded by a robot' })
    expect(made.status, made.text).toBe(201)
  })
})

test('paths without a domain require the same scopes', async () => {
  const tenant = await newTenant(api)
  const [client, other] = [await tenant.newClient(), await tenant.newClient()]
  const call = await robot(tenant, [
    ['clients', 'update', client.id],
    ['clients', 'read', other.id],
  ])
  const rename = (id: string) => call('PATCH', `/clients/${id}`, { name: 'renamed' })
  for (const [id, status] of [
    [client.id, 200],
    [other.id, 403],
  ] as const) {
    const answer = await rename(id)
    // Where the older shape of a path is not served there is nothing to allow.
    if (answer.status !== 404 && answer.status !== 405) expect(answer.status, answer.text).toBe(status)
  }
  expect((await call('GET', '/clients')).status).toBe(403)
})
