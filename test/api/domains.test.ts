// specification section 2 "Domain"; contract sections 1.1 and 1.2, decisions 13, 23, 45
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'

const api = useWorld(() => startTestApi())

type Domain = {
  id: string
  name: string
  alias: string
  route: string
  status: string
  created_at: string
  updated_at: string
  permission?: string
  role_name?: string
  actions?: string[]
}

test('the creator of a domain administers it and finds it in their list', async () => {
  const user = await api.newUser()
  const created = await user.call('POST', '/domains', { name: 'plant one', alias: `plant-${newId().slice(0, 8)}` })
  expect(created.status).toBe(201)
  const domain = created.json<Domain>()
  expect(domain).toMatchObject({ name: 'plant one', status: 'enabled', updated_at: '0001-01-01T00:00:00Z' })
  expect(domain.alias).toBe(domain.route)
  expect(domain.created_at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/)

  const list = (await user.call('GET', '/domains')).json<{ total: number; domains: Domain[] }>()
  expect(list).toMatchObject({ total: 1, offset: 0, limit: 10 })
  expect(list.domains[0]).toMatchObject({ id: domain.id, permission: 'administrator', role_name: 'admin' })
  expect(list.domains[0]?.actions).toContain('client_create')
})

test('the alias of a domain defaults to one made from its name', async () => {
  const user = await api.newUser()
  const domain = (await user.call('POST', '/domains', { name: 'Würzburg Süd 7' })).json<Domain>()
  expect(domain.alias).toMatch(/^wu-rzburg-su-d-7-[a-z0-9]{6}$|^w[a-z0-9-]+$/)
})

test('a domain may be created disabled, and in no other state', async () => {
  const user = await api.newUser()
  const create = (status: string) => user.call('POST', '/domains', { name: 'later', status })
  const created = (await create('disabled')).json<{ id: string }>()
  expect(created).toMatchObject({ status: 'disabled' })
  expect((await user.call('POST', `/domains/${created.id}/enable`)).json()).toMatchObject({ status: 'enabled' })
  for (const status of ['freezed', 'deleted', 'all', '']) expect((await create(status)).status, status).toBe(400)
})

test('an alias is unique in any case, and never shadows the API', async () => {
  const user = await api.newUser()
  const alias = `a-${newId().slice(0, 8)}`
  expect((await user.call('POST', '/domains', { name: 'one', alias })).status).toBe(201)
  const again = await user.call('POST', '/domains', { name: 'two', alias: alias.toUpperCase() })
  expect(again.status).toBe(409)
  expect(again.json()).toMatchObject({ error: 'conflict' })
  // Decision 83 reserves words for paths to come, `ready` among those that are there.
  for (const word of 'users overview ready publish proplets jobs things stream search runs READY'.split(' '))
    expect((await user.call('POST', '/domains', { name: 'three', alias: word })).status, word).toBe(400)
  expect((await user.call('POST', '/domains', { name: 'four', alias: newId() })).status).toBe(400)
})

test('an unknown domain and one of another user are refused alike', async () => {
  const [owner, stranger] = [await api.newUser(), await api.newUser()]
  const { id } = (await owner.call('POST', '/domains', { name: 'mine' })).json<Domain>()
  const foreign = await stranger.call('GET', `/domains/${id}`)
  const unknown = await stranger.call('GET', `/domains/${newId()}`)
  const malformed = await stranger.call('GET', '/domains/not-an-id')
  expect(foreign.status).toBe(403)
  expect(unknown.text).toBe(foreign.text)
  expect(malformed.text).toBe(foreign.text)
})

test('a change keeps absent fields', async () => {
  const user = await api.newUser()
  const domain = (await user.call('POST', '/domains', { name: 'old', tags: ['a'], metadata: { k: 1 } })).json<Domain>()
  const updated = (await user.call('PATCH', `/domains/${domain.id}`, { name: 'new' })).json<Domain>()
  expect(updated).toMatchObject({ id: domain.id, name: 'new', tags: ['a'], metadata: { k: 1 }, alias: domain.alias })
  expect(updated.updated_at).not.toBe('0001-01-01T00:00:00Z')
})

test('PATCH alias changes the alias to a free and allowed value; route in a PATCH is ignored', async () => {
  const user = await api.newUser()
  const alias = `a-${newId().slice(0, 8)}`
  const taken = (await user.call('POST', '/domains', { name: 'one', alias: `t-${newId().slice(0, 8)}` })).json<Domain>()
  const domain = (await user.call('POST', '/domains', { name: 'two' })).json<Domain>()
  const path = `/domains/${domain.id}`
  expect((await user.call('PATCH', path, { alias })).json()).toMatchObject({ alias, route: alias, name: 'two' })
  expect((await user.call('PATCH', path, { route: 'other' })).json()).toMatchObject({ alias, route: alias })
  expect((await user.call('PATCH', path, { alias: taken.alias.toUpperCase() })).status).toBe(409)
  for (const bad of ['1st', 'a b', 'clients', newId(), 'x'.repeat(37), ''])
    expect((await user.call('PATCH', path, { alias: bad })).status, bad).toBe(400)
  expect((await user.call('PATCH', path, { alias: domain.id })).json()).toMatchObject({ alias: domain.id })
})

test('an id that is given on creation is kept, and unique', async () => {
  const user = await api.newUser()
  const id = newId()
  expect((await user.call('POST', '/domains', { name: 'one', id, route: id })).json()).toMatchObject({ id, alias: id })
  expect((await user.call('POST', '/domains', { name: 'two', id })).status).toBe(409)
  expect((await user.call('POST', '/domains', { name: 'three', id: 'three' })).status).toBe(400)
})

test('disabling closes the domain to everyone except its administrators, and repeating it changes nothing', async () => {
  const user = await api.newUser()
  const domain = (await user.call('POST', '/domains', { name: 'closing' })).json<Domain>()
  const disabled = (await user.call('POST', `/domains/${domain.id}/disable`)).json<Domain>()
  expect(disabled.status).toBe('disabled')
  const again = (await user.call('POST', `/domains/${domain.id}/disable`)).json<Domain>()
  expect(again.updated_at).toBe(disabled.updated_at)
  expect((await user.call('POST', `/domains/${domain.id}/enable`)).json<Domain>().status).toBe('enabled')
})

test('an error names the invalid input', async () => {
  const user = await api.newUser()
  const missing = await user.call('POST', '/domains', {})
  expect(missing.status).toBe(400)
  expect(missing.json()).toMatchObject({ error: 'malformed', details: [{ path: '/name', message: 'is required' }] })
  expect((await user.call('GET', '/domains?limit=101')).json()).toMatchObject({
    error: 'malformed',
    message: 'limit must be at most 100',
  })
  expect((await user.call('GET', '/domains?limit=0')).status).toBe(400)
  expect((await user.call('GET', '/domains?status=sleeping')).status).toBe(400)
  expect((await user.call('GET', '/domains?metadata=nonsense')).status).toBe(400)
  expect((await user.call('POST', '/domains', { name: 'x', metadata: [] })).status).toBe(400)
})
