// Dashboards and preferences: what a program with a screen keeps for its user in a domain
import { describe, expect, test } from 'vitest'
import { ACTIONS } from '#api/identity/index.ts'
import { newId } from '#core/ids.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { newMember, newTenant, statusesOf } from './support.ts'
import type { Tenant } from './support.ts'

const api = useWorld(() => startTestApi())

type Shown = { id: string; name: string; shared: boolean; own: boolean; content: unknown; updated_at: string }
type Listed = { total: number; dashboards: Shown[] }

const pathOf = (tenant: Tenant, id = '') => `/${tenant.domainId}/dashboards${id === '' ? '' : `/${id}`}`
const make = async (tenant: Tenant, body: object) => (await tenant.call('POST', pathOf(tenant), body)).json<Shown>()
const list = async (tenant: Tenant, query = '') =>
  (await tenant.call('GET', `${pathOf(tenant)}${query}`)).json<Listed>()

describe('a dashboard', () => {
  test('is created, listed without its content, viewed, changed and deleted by its owner', async () => {
    const tenant = await newTenant(api)
    const content = { panels: [{ series: 'temperature', from: 9_007_199_254_740_991 }] }
    const created = await tenant.call('POST', pathOf(tenant), { name: 'Boiler', content })
    expect(created.status).toBe(201)
    const { id } = created.json<Shown>()
    expect(created.headers['location']).toBe(pathOf(tenant, id))
    expect(created.json()).toMatchObject({ name: 'Boiler', shared: false, own: true, content })
    const page = await list(tenant)
    expect(page.total).toBe(1)
    expect(page.dashboards[0]).not.toHaveProperty('content')
    const changed = await tenant.call('PATCH', pathOf(tenant, id), { name: 'Boilers' })
    expect(changed.json()).toMatchObject({ name: 'Boilers', content })
    expect((await tenant.call('PATCH', pathOf(tenant, id), { content: {} })).json()).toMatchObject({ content: {} })
    expect((await tenant.call('DELETE', pathOf(tenant, id))).status).toBe(204)
    expect((await tenant.call('GET', pathOf(tenant, id))).status).toBe(404)
  })

  test('is visible to other members of the domain only while it is shared, and changed by its owner only', async () => {
    const owner = await newTenant(api)
    const member = await newMember(api, owner, ACTIONS.domain)
    const { id } = await make(owner, { name: 'Plant' })
    const hidden = await member.call('GET', pathOf(owner, id))
    expect(hidden.status).toBe(404)
    expect((await member.call('GET', pathOf(owner, newId()))).text).toBe(hidden.text)
    for (const method of ['PATCH', 'DELETE'])
      expect((await member.call(method, pathOf(owner, id), { name: 'x' })).status, method).toBe(404)
    expect((await list(member)).total).toBe(0)

    await owner.call('PATCH', pathOf(owner, id), { shared: true })
    expect((await member.call('GET', pathOf(owner, id))).json()).toMatchObject({ own: false, owner_id: owner.user.id })
    await make(member, { name: 'Zone' })
    expect((await list(member)).dashboards.map(({ name }) => name)).toEqual(['Zone', 'Plant'])
    for (const method of ['PATCH', 'DELETE'])
      expect((await member.call(method, pathOf(owner, id), { name: 'x' })).status, method).toBe(403)

    const shared = await make(member, { name: 'Shared by a member', shared: true })
    const own = await make(member, { name: 'Not shared' })
    expect((await owner.call('PATCH', pathOf(owner, shared.id), { name: 'x' })).status).toBe(403)
    expect(
      statusesOf([
        await owner.call('DELETE', pathOf(owner, shared.id)),
        await owner.call('DELETE', pathOf(owner, own.id)),
      ]),
    ).toEqual([204, 404])
  })

  test('of another domain returns the same 403 as any other path of that domain', async () => {
    const [tenant, stranger] = [await newTenant(api), await newTenant(api)]
    const { id } = await make(tenant, { name: 'Plant', shared: true })
    expect((await stranger.call('GET', pathOf(tenant, id))).status).toBe(403)
    expect((await stranger.call('GET', pathOf(stranger, id))).status).toBe(404)
  })

  test('with a wrong field, or too large, is refused with the reason', async () => {
    const tenant = await newTenant(api)
    const bodies = [{}, { name: '' }, { name: 3 }, { name: 'x', content: [] }, { name: 'x', shared: 'yes' }]
    for (const body of bodies)
      expect((await tenant.call('POST', pathOf(tenant), body)).status, JSON.stringify(body)).toBe(400)
    const large = await tenant.call('POST', pathOf(tenant), { name: 'x', content: { text: 'ä'.repeat(131_072) } })
    expect(large.status).toBe(413)
    expect(large.text).toContain('content must be at most 262144 bytes of JSON')
    const { id } = await make(tenant, { name: 'x' })
    expect((await tenant.call('PATCH', pathOf(tenant, id), {})).status).toBe(400)
  })

  test('is one of at most a hundred, also with concurrent requests', async () => {
    const tenant = await newTenant(api)
    for (let made = 0; made < 98; made += 14)
      await Promise.all(Array.from({ length: 14 }, () => make(tenant, { name: 'many' })))
    const last = await Promise.all(
      Array.from({ length: 5 }, () => tenant.call('POST', pathOf(tenant), { name: 'last' })),
    )
    expect(statusesOf(last)).toEqual([201, 201, 409, 409, 409])
    expect((await list(tenant, '?limit=100')).total).toBe(100)
  })
})

describe('preferences', () => {
  test('are empty at first, replaced as a whole, and separate for each user and domain', async () => {
    const tenant = await newTenant(api)
    const member = await newMember(api, tenant, ['read'])
    const path = `/${tenant.domainId}/preferences`
    expect((await tenant.call('GET', path)).json()).toEqual({ preferences: {}, updated_at: '0001-01-01T00:00:00Z' })
    const stored = await tenant.call('PUT', path, { preferences: { theme: 'dark', columns: ['name'] } })
    expect(stored.json()).toMatchObject({ preferences: { theme: 'dark', columns: ['name'] } })
    await tenant.call('PUT', path, { preferences: { theme: 'light' } })
    expect((await tenant.call('GET', path)).json()).toMatchObject({ preferences: { theme: 'light' } })
    expect((await member.call('GET', path)).json()).toMatchObject({ preferences: {} })
    expect((await tenant.call('PUT', path, { preferences: { text: 'x'.repeat(65_536) } })).status).toBe(413)
    expect((await tenant.call('PUT', path, { preferences: 'dark' })).status).toBe(400)
    expect((await (await newTenant(api)).call('GET', path)).status).toBe(403)
  })

  test('require a scope of a personal access token for dashboards, and a login or API key for preferences', async () => {
    const tenant = await newTenant(api)
    const tokenWith = async (...scopes: (readonly [string, string])[]) => {
      const made = await tenant.call('POST', '/pats', { name: 'robot', duration: '1h' })
      const pat = made.json<{ id: string; secret: string }>()
      const added = await tenant.call('PATCH', `/pats/${pat.id}/scope/add`, {
        scopes: scopes.map(([entity_type, operation]) => ({
          entity_type,
          operation,
          domain_id: tenant.domainId,
          entity_id: '*',
        })),
      })
      expect(added.status, added.text).toBeLessThan(300)
      return api.as(`Bearer ${pat.secret}`)
    }
    const { id } = (await tenant.call('POST', pathOf(tenant), { name: 'mine' })).json<{ id: string }>()
    const one = `${pathOf(tenant)}/${id}`
    const calls = {
      list: ['GET', pathOf(tenant), undefined, 200],
      read: ['GET', one, undefined, 200],
      create: ['POST', pathOf(tenant), { name: 'x' }, 201],
      update: ['PATCH', one, { name: 'y' }, 200],
      delete: ['DELETE', one, undefined, 204],
    } as const
    const operations = Object.keys(calls)
    const others = await tokenWith(['domains', 'read'], ['clients', 'read'])
    const all = await tokenWith(...operations.map((operation) => ['dashboards', operation] as const))
    for (const [operation, [method, path, body, status]] of Object.entries(calls)) {
      expect((await others(method, path, body)).status, operation).toBe(403)
      const rest = operations.filter((other) => other !== operation)
      const without = await tokenWith(...rest.map((other) => ['dashboards', other] as const))
      expect((await without(method, path, body)).status, operation).toBe(403)
      expect((await all(method, path, body)).status, operation).toBe(status)
    }
    expect((await all('GET', pathOf(await newTenant(api)))).status).toBe(403)
    for (const token of [others, all]) {
      expect((await token('GET', `/${tenant.domainId}/preferences`)).status).toBe(403)
      expect((await token('PUT', `/${tenant.domainId}/preferences`, { preferences: {} })).status).toBe(403)
    }
  })
})
