// contract 1.1 and 1.2: lists of domains with their filters and the caller's role; 4.3: GET /users/{id}/domains
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import type { Caller, TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { grantRole } from './support.ts'

const api = useWorld(() => startTestApi())

type Domain = {
  id: string
  name: string
  role_id?: string
  role_name?: string
  actions?: string[]
  permission?: string
}
type Page = { total: number; offset: number; limit: number; domains: Domain[] }

async function newDomain(user: TestUser, fields: Record<string, unknown> = {}): Promise<string> {
  const created = await user.call('POST', '/domains', { name: 'plant', ...fields })
  expect(created.status).toBe(201)
  return created.json<{ id: string }>().id
}

const pageOf = async (call: Caller, path: string) => {
  const answer = await call('GET', path)
  expect(answer.status, answer.text).toBe(200)
  return answer.json<Page>()
}
const idsOf = async (call: Caller, path: string) => (await pageOf(call, path)).domains.map((domain) => domain.id)
const onDomain = (domainId: string) => ({ type: 'domain', domainId, id: domainId }) as const

test('each filter narrows the list, and only_total returns the count only', async () => {
  const user = await api.newUser()
  const north = await newDomain(user, { name: 'North 100%', tags: ['cold'], metadata: { site: { id: 7 }, k: 1 } })
  const south = await newDomain(user, { name: 'South', tags: ['warm'], metadata: { site: { id: 8 } } })
  const west = await newDomain(user, { name: 'West' })
  await user.call('POST', `/domains/${west}/disable`)

  expect(await idsOf(user.call, '/domains?name=NORTH')).toEqual([north])
  expect(await idsOf(user.call, '/domains?name=100%25')).toEqual([north])
  expect(await idsOf(user.call, '/domains?tag=warm')).toEqual([south])
  const metadata = encodeURIComponent(JSON.stringify({ site: { id: 7 } }))
  expect(await idsOf(user.call, `/domains?metadata=${metadata}`)).toEqual([north])
  expect(await idsOf(user.call, `/domains?id=${south}`)).toEqual([south])
  expect(await idsOf(user.call, '/domains?id=nothing')).toEqual([])
  expect(await idsOf(user.call, '/domains?status=disabled')).toEqual([west])
  expect(await idsOf(user.call, '/domains?status=all&order=created_at')).toEqual([north, south, west])
  expect(await idsOf(user.call, '/domains?status=all&order=name&dir=desc')).toEqual([west, south, north])
  expect(await pageOf(user.call, '/domains?status=all&order=created_at&offset=1&limit=1')).toMatchObject({
    total: 3,
    offset: 1,
    limit: 1,
    domains: [{ id: south }],
  })
  expect((await user.call('GET', '/domains?only_total=true')).json()).toEqual({ total: 2, domains: [] })
  for (const query of ['dir=up', 'status=gone', 'name=a&name=b', 'metadata=[]', 'offset=-1', 'only_total=perhaps'])
    expect((await user.call('GET', `/domains?${query}`)).status, query).toBe(400)
})

test('an item names the role of the caller, and the role filters apply to that role', async () => {
  const [owner, user] = [await api.newUser(), await api.newUser()]
  const own = await newDomain(user)
  const shared = await newDomain(owner)
  const hidden = await newDomain(owner)
  await grantRole(api, user.id, onDomain(shared), ['read', 'client_read'])

  const { domains } = await pageOf(user.call, '/domains?order=created_at')
  expect(domains.map((domain) => domain.id)).toEqual([own, shared])
  expect(domains[0]).toMatchObject({ role_name: 'admin', permission: 'administrator' })
  expect(domains[1]).toMatchObject({ actions: ['read', 'client_read'] })
  expect(domains[1]?.permission).toBe(domains[1]?.role_name)
  const [admin, member] = domains
  if (admin === undefined || member === undefined) throw new Error('both are listed')

  expect(await idsOf(user.call, '/domains?role_name=admin')).toEqual([own])
  expect(await idsOf(user.call, `/domains?role_name=${member.role_name}`)).toEqual([shared])
  expect(await idsOf(user.call, `/domains?role_id=${admin.role_id}`)).toEqual([own])
  expect(await idsOf(user.call, `/domains?role_id=${member.role_id}`)).toEqual([shared])
  expect(await idsOf(user.call, '/domains?role_id=domain_unknown')).toEqual([])
  expect(await idsOf(user.call, '/domains?actions=client_read,read&order=created_at')).toEqual([own, shared])
  expect(await idsOf(user.call, '/domains?actions=client_read,delete')).toEqual([own])
  expect((await user.call('GET', '/domains?actions=fly')).status).toBe(400)
  expect(await idsOf(user.call, `/domains?id=${hidden}`)).toEqual([])
  expect(await idsOf(api.admin, `/domains?id=${hidden}`)).toEqual([hidden])
  expect(await idsOf(api.admin, `/domains?id=${hidden}&role_name=admin`)).toEqual([])
})

test('roles=true shows every role of the caller in the domain', async () => {
  const user = await api.newUser()
  const id = await newDomain(user)
  await grantRole(api, user.id, onDomain(id), ['read'])
  expect((await user.call('GET', `/domains/${id}`)).json()).not.toHaveProperty('roles')
  const view = (await user.call('GET', `/domains/${id}?roles=true`)).json<{ member_id: string; roles: unknown[] }>()
  expect(view.member_id).toBe(user.id)
  expect(view.roles).toMatchObject([{ role_name: 'admin', access_type: 'direct' }, { actions: ['read'] }])
})

test('the user and the platform administrator list all domains of a user, other callers those that they administer', async () => {
  const [owner, user, stranger] = [await api.newUser(), await api.newUser(), await api.newUser()]
  const own = await newDomain(user)
  const shared = await newDomain(owner)
  await grantRole(api, user.id, onDomain(shared), ['read'])
  const path = `/users/${user.id}/domains?order=created_at`

  expect(await idsOf(user.call, path)).toEqual([own, shared])
  expect(await idsOf(api.admin, path)).toEqual([own, shared])
  const seen = await pageOf(owner.call, path)
  expect(seen).toMatchObject({ total: 1, domains: [{ id: shared, actions: ['read'] }] })
  expect(await idsOf(owner.call, `/domains?user=${user.id}`)).toEqual([shared])
  expect(await idsOf(stranger.call, `/domains?user=${user.id}`)).toEqual([])
  expect(await idsOf(api.admin, `/domains?user=${user.id}&order=created_at`)).toEqual([own, shared])

  const refused = await stranger.call('GET', path)
  const unknown = await stranger.call('GET', `/users/${newId()}/domains`)
  expect([refused.status, unknown.status, unknown.text]).toEqual([403, 403, refused.text])
  expect((await stranger.call('GET', `${path}&metadata=nonsense`)).status).toBe(400)
  expect((await api.admin('GET', `/users/${newId()}/domains`)).status).toBe(404)
  expect((await api.anonymous('GET', path)).status).toBe(401)
})
