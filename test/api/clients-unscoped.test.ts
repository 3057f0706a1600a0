// contract section 0 and 4, decisions 31, 31b, 40 and 45: paths of clients and channels that name no domain
import { describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import type { Channel, Client, Tenant } from './support.ts'
import { grantRole, newGroup, tenantOf, newTenant } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

type Entity = (Client | Channel) & { parent_group_id?: string }

/** A second domain of the tenant's user. */
async function secondDomain(of: Tenant): Promise<Tenant> {
  const created = await of.call('POST', '/domains', { name: 'second' })
  return tenantOf(of.user, created.json<{ id: string }>().id)
}

describe.each(['client', 'channel'] as const)('a %s without a domain in the path', (type) => {
  const collection = `/${type}s`
  const make = (of: Tenant, fields: Record<string, unknown> = {}): Promise<Entity> =>
    type === 'client' ? of.newClient(fields) : of.newChannel(fields)

  test('is the same entity under every path', async () => {
    const entity = await make(tenant, { name: 'pump' })
    const at = `${collection}/${entity.id}`
    const scoped = `/${tenant.domainId}${at}`
    expect((await tenant.call('GET', at)).json()).toEqual((await tenant.call('GET', scoped)).json())
    expect((await tenant.call('PATCH', at, { name: 'valve' })).json()).toMatchObject({ name: 'valve' })
    expect((await tenant.call('PATCH', `${at}/tags`, { tags: ['a'] })).json()).toMatchObject({ tags: ['a'] })
    expect((await tenant.call('POST', `${at}/disable`)).json()).toMatchObject({ status: 'disabled' })
    expect((await tenant.call('POST', `${at}/enable`)).json()).toMatchObject({ status: 'enabled' })
    const group = await newGroup(api, tenant.domainId)
    expect((await tenant.call('POST', `${at}/parent`, { parent_group_id: group })).status).toBe(200)
    expect((await tenant.call('GET', scoped)).json()).toMatchObject({
      name: 'valve',
      tags: ['a'],
      parent_group_id: group,
    })
    expect((await tenant.call('DELETE', `${at}/parent`)).status).toBe(204)
    expect((await tenant.call('DELETE', at)).status).toBe(type === 'client' ? 200 : 204)
    expect((await tenant.call('GET', scoped)).status).toBe(404)
  })

  test('is 404 for every caller who cannot read it, like an unknown one', async () => {
    const entity = await make(tenant)
    const stranger = await newTenant(api)
    const answers = await Promise.all(
      [entity.id, newId(), 'nonsense'].map((id) => stranger.call('GET', `${collection}/${id}`)),
    )
    expect(new Set(answers.map((answer) => `${answer.status} ${answer.text}`)).size).toBe(1)
    expect(answers[0]?.status).toBe(404)
    for (const [method, suffix, body] of [
      ['PATCH', '', {}],
      ['PATCH', '/tags', {}],
      ['POST', '/enable', undefined],
      ['POST', '/parent', { parent_group_id: newId() }],
      ['DELETE', '/parent', undefined],
      ['DELETE', '', undefined],
    ] as const)
      expect((await stranger.call(method, `${collection}/${entity.id}${suffix}`, body)).status, suffix).toBe(404)
    await grantRole(api, stranger.user.id, { type: 'domain', domainId: tenant.domainId, id: tenant.domainId }, [
      `${type}_read`,
    ])
    expect((await stranger.call('GET', `${collection}/${entity.id}`)).status).toBe(200)
    expect((await stranger.call('DELETE', `${collection}/${entity.id}`)).status).toBe(403)
  })

  test('whose id exists in two domains of the caller is 409 with the scoped path', async () => {
    const own = await newTenant(api)
    const other = await secondDomain(own)
    const foreign = await newTenant(api)
    const id = newId()
    await make(own, { id, name: 'first' })
    await make(foreign, { id, name: 'foreign' })
    expect((await own.call('GET', `${collection}/${id}`)).json()).toMatchObject({ name: 'first' })
    await make(other, { id, name: 'second' })
    const refused = await own.call('GET', `${collection}/${id}`)
    expect(refused.status).toBe(409)
    expect(refused.json()).toMatchObject({ message: expect.stringContaining('domain_id') as string })
    expect((await own.call('DELETE', `${collection}/${id}`)).status).toBe(409)
    const bound = await boundTo(own, other.domainId)
    expect((await bound('GET', `${collection}/${id}`)).json()).toMatchObject({ name: 'second' })
  })

  test('is created in the only domain of the caller, or in that of the token', async () => {
    const own = await newTenant(api)
    const created = await own.call('POST', collection, { name: 'pump' })
    expect(created.status).toBe(201)
    expect(created.headers['location']).toBe(`${collection}/${created.json<Entity>().id}`)
    expect(created.json<Entity>().domain_id).toBe(own.domainId)
    const bulk = await own.call('POST', `${collection}/bulk`, [{}, {}])
    expect(bulk.status).toBe(200)
    expect(bulk.json()).toMatchObject({ total: 2 })
    const other = await secondDomain(own)
    for (const [path, body] of [
      [collection, {}],
      [`${collection}/bulk`, [{}]],
    ] as const) {
      const refused = await own.call('POST', path, body)
      expect(refused.status).toBe(400)
      expect(refused.json()).toMatchObject({ message: expect.stringContaining(`/<domain_id>${collection}`) as string })
    }
    const bound = await boundTo(own, other.domainId)
    expect((await bound('POST', collection, {})).json<Entity>().domain_id).toBe(other.domainId)
    const nobody = await api.newUser()
    expect((await nobody.call('POST', collection, {})).status).toBe(400)
  })

  test('is created by a member only with the right to create', async () => {
    const reader = await api.newUser()
    await grantRole(api, reader.id, { type: 'domain', domainId: tenant.domainId, id: tenant.domainId }, [
      `${type}_read`,
    ])
    expect((await reader.call('POST', collection, {})).status).toBe(403)
  })
})

/** Calls with a token of the same user that works in one domain alone (decision 40). */
async function boundTo(of: Tenant, domainId: string) {
  const { username, secret } = of.user
  const issued = await api.anonymous('POST', '/users/tokens/issue', {
    identity: username,
    secret,
    domain_id: domainId,
  })
  return api.as(`Bearer ${issued.json<{ access_token: string }>().access_token}`)
}

test('a token of a domain that its user left creates nothing without a domain in the path, and the refusal names the token', async () => {
  const member = tenantOf(await api.newUser(), tenant.domainId)
  await grantRole(api, member.user.id, { type: 'domain', domainId: tenant.domainId, id: tenant.domainId }, ['read'])
  const bound = await boundTo(member, tenant.domainId)
  await sql`DELETE FROM grants WHERE user_key = (SELECT key FROM users WHERE id = ${member.user.id})`.execute(
    api.database.db,
  )
  for (const path of ['/clients', '/channels', '/groups']) {
    const refused = await bound('POST', path, { name: 'pump' })
    expect(refused.status, path).toBe(403)
    expect(refused.json()).toMatchObject({ message: expect.stringContaining('the domain of the token') as string })
  }
})

test('the secret of a client is changed on the path without a domain too', async () => {
  const client = await tenant.newClient()
  const secret = `changed-${newId()}`
  const changed = await tenant.call('PATCH', `/clients/${client.id}/secret`, { secret })
  expect(changed.json<Client>()).toMatchObject({ id: client.id, credentials: { secret } })
})

test('a channel is changed by PUT on the path without a domain too', async () => {
  const channel = await tenant.newChannel({ description: 'old' })
  const changed = await tenant.call('PUT', `/channels/${channel.id}`, { name: 'new' })
  expect(changed.json<Channel>()).toMatchObject({ name: 'new', description: 'old' })
})
