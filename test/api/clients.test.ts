// specification sections 2 "Client", 3, 4 "Clients", 7 and 8; contract 4.1, decisions 10, 11, 13, 14, 31, 45, 46
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import type { Client, Page, Tenant } from './support.ts'
import { grantRole, publish, tenantOf, newTenant, UUID, ZERO_TIME } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

type ClientPage = Page<'clients', Client>
const path = (suffix = '') => `/${tenant.domainId}/clients${suffix}`
const create = (body: unknown) => tenant.call('POST', path(), body)
const createAll = (body: unknown) => tenant.call('POST', path('/bulk'), body)

test('a client is created with the given fields, shown with its secret, and found at its Location', async () => {
  const body = {
    id: newId(),
    name: 'pump',
    tags: ['north', 'hot'],
    credentials: { identity: 'pump-7', secret: `secret-${newId()}` },
    metadata: { floor: { no: 3 }, 'of two\nlines': true },
    status: 'disabled',
  }
  const created = await create(body)
  expect(created.status).toBe(201)
  expect(created.headers['location']).toBe(`/clients/${body.id}`)
  const client = created.json<Client>()
  expect(client).toMatchObject({ ...body, domain_id: tenant.domainId, owner: tenant.user.id, updated_at: ZERO_TIME })
  expect(client.created_at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/)
  const viewed = await tenant.call('GET', path(`/${body.id}`))
  expect(viewed.status).toBe(200)
  expect(viewed.json<Client>()).toEqual({
    ...client,
    credentials: { identity: 'pump-7', secret: '' },
    online: false,
    last_seen: ZERO_TIME,
  })
})

test('id and secret default to UUIDs, and the client is enabled', async () => {
  const client = (await create({ name: 'pump' })).json<Client>()
  expect(client.id).toMatch(UUID)
  expect(client.credentials.secret).toMatch(UUID)
  expect(client).toMatchObject({ status: 'enabled', tags: [], metadata: {} })
  expect((await create({})).status).toBe(201)
})

test('an external id or secret is unique in a domain, and may exist in another', async () => {
  const other = await newTenant(api)
  const [id, secret] = [newId(), `shared-${newId()}`]
  await tenant.newClient({ id, credentials: { secret } })
  const sameId = await create({ id })
  const sameSecret = await create({ credentials: { secret } })
  expect(sameId.status).toBe(409)
  expect(sameId.json()).toMatchObject({ error: 'conflict', message: expect.stringContaining('id') as string })
  expect(sameSecret.status).toBe(409)
  expect(sameSecret.text).not.toContain(secret)
  expect((await other.newClient({ id, credentials: { secret } })).id).toBe(id)
})

test.each([
  ['id', { id: 'pump' }],
  ['id', { id: newId().toUpperCase() }],
  ['name', { name: 'x'.repeat(1025) }],
  ['name', { name: 7 }],
  ['tags', { tags: 'north' }],
  ['tags.0', { tags: [7] }],
  ['metadata', { metadata: [] }],
  ['status', { status: 'all' }],
  ['credentials.secret', { credentials: { secret: '' } }],
  ['credentials.secret', { credentials: { secret: 'two words' } }],
  ['credentials.secret', { credentials: { secret: 'ä' } }],
  ['credentials.secret', { credentials: { secret: 'x'.repeat(251) } }],
  ['the body', []],
])('creating names %s as the invalid field', async (field, body) => {
  const refused = await create(body)
  expect(refused.status).toBe(400)
  expect(refused.json()).toMatchObject({ error: 'malformed', message: expect.stringContaining(field) as string })
})

test('a bulk returns every client with its secret, in the given order', async () => {
  const names = ['c', 'a', 'b']
  const created = await createAll(names.map((name) => ({ name })))
  expect(created.status).toBe(200)
  const { total, clients } = created.json<ClientPage>()
  expect(total).toBe(3)
  expect(clients.map((client) => client.name)).toEqual(names)
  expect(new Set(clients.map((client) => client.credentials.secret)).size).toBe(3)
})

test('the last item of a bulk in several steps is validated like the first', async () => {
  // More than one step, in the opposite of the order in which they are written.
  const items = Array.from({ length: 1200 }, () => ({ id: newId() })).toSorted((left, right) =>
    left.id < right.id ? 1 : -1,
  )
  const taken = await tenant.newClient({ id: 'ffffffff-ffff-4fff-bfff-ffffffffffff' })
  const refused = await createAll([{ id: taken.id }, ...items])
  expect(refused.status).toBe(409)
  expect((await tenant.call('GET', path(`/${items[0]?.id}`))).status).toBe(404)
  const { clients } = (await createAll(items)).json<ClientPage>()
  expect(clients.map(({ id }) => id)).toEqual(items.map(({ id }) => id))
  expect((await tenant.call('GET', path(`/${items.at(-1)?.id}`))).status).toBe(200)
})

test('a bulk is all or nothing', async () => {
  const taken = await tenant.newClient({ credentials: { secret: `taken-${newId()}` } })
  const total = async () =>
    (await tenant.call('GET', path('?status=all&only_total=true'))).json<{ total: number }>().total
  const before = await total()
  const id = newId()
  for (const [status, items] of [
    [409, [{}, { id: taken.id }]],
    [409, [{}, { credentials: { secret: taken.credentials.secret } }]],
    [409, [{ id }, {}, { id }]],
    [409, [{ credentials: { secret: 'same' } }, { credentials: { secret: 'same' } }]],
    [400, [{}, { name: 7 }]],
    [400, []],
    [400, {}],
  ] as const) {
    const refused = await createAll(items)
    expect(refused.status, JSON.stringify(items)).toBe(status)
  }
  expect(await total()).toBe(before)
  expect((await createAll([{}, {}, { id }, { id }])).json()).toMatchObject({
    message: 'item 3 repeats the id of item 2',
  })
  expect((await createAll([{}, {}, { id: taken.id }])).json()).toEqual({
    error: 'conflict',
    message: 'item 2 has the id of an existing entity of the domain',
    details: [{ path: '/2/id', message: 'has the id of an existing entity of the domain' }],
  })
  expect((await createAll([{ id }, { credentials: { secret: taken.credentials.secret } }])).json()).toMatchObject({
    message: 'item 1 has the credentials.secret of an existing entity of the domain',
    details: [{ path: '/1/credentials/secret' }],
  })
})

test('a call with too many items is too large, not malformed', async () => {
  const refused = await createAll(Array.from({ length: 10_001 }, () => ({})))
  expect(refused.status).toBe(413)
  expect(refused.json()).toMatchObject({ error: 'too_large', message: expect.stringContaining('10000') as string })
})

test('a change keeps absent fields and ignores unknown ones', async () => {
  const client = await tenant.newClient({ name: 'old', tags: ['a'], metadata: { k: 1 } })
  const updated = await tenant.call('PATCH', path(`/${client.id}`), {
    name: 'new',
    id: newId(),
    status: 'disabled',
    credentials: { secret: 'not this way' },
  })
  expect(updated.status).toBe(200)
  const after = updated.json<Client>()
  expect(after).toMatchObject({ id: client.id, name: 'new', tags: ['a'], metadata: { k: 1 }, status: 'enabled' })
  expect(after.updated_at).not.toBe(ZERO_TIME)
  expect(after.updated_by).toBe(tenant.user.id)
  const cleared = (await tenant.call('PATCH', path(`/${client.id}`), { metadata: {} })).json<Client>()
  expect(cleared).toMatchObject({ name: 'new', metadata: {} })
})

test('tags are replaced, and cleared when they are missing', async () => {
  const client = await tenant.newClient({ tags: ['a', 'b'] })
  const tags = async (body: unknown) =>
    (await tenant.call('PATCH', path(`/${client.id}/tags`), body)).json<Client>().tags
  expect(await tags({ tags: ['c'] })).toEqual(['c'])
  expect(await tags({})).toEqual([])
})

test('after a change of the secret the new one is valid at once and the old one is not', async () => {
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  await tenant.connect(client.id, channel.id)
  const send = (secret: string) => publish(api, { secret, domain: tenant.domainId, channel: channel.id })
  expect(await send(client.credentials.secret)).toBe(202)
  const secret = `changed-${newId()}`
  const changed = await tenant.call('PATCH', path(`/${client.id}/secret`), { secret })
  expect(changed.status).toBe(200)
  expect(changed.json<Client>()).toMatchObject({ id: client.id, status: 'secret updated', credentials: { secret } })
  expect(await send(client.credentials.secret)).toBe(401)
  expect(await send(secret)).toBe(202)
})

test('the new secret is required, may be in credentials, and must be free', async () => {
  const [client, other] = [await tenant.newClient(), await tenant.newClient()]
  const change = (body: unknown) => tenant.call('PATCH', path(`/${client.id}/secret`), body)
  expect((await change({ credentials: { secret: `inside-${newId()}` } })).status).toBe(200)
  expect((await change({})).json()).toMatchObject({ error: 'malformed', details: [{ path: '/secret' }] })
  expect((await change({ secret: other.credentials.secret })).status).toBe(409)
  expect((await change({ secret: 'white space' })).status).toBe(400)
})

test('enabling and disabling return the record from any state; repeating them changes nothing', async () => {
  const client = await tenant.newClient()
  const post = async (verb: string) => (await tenant.call('POST', path(`/${client.id}/${verb}`))).json<Client>()
  expect(await post('enable')).toMatchObject({ status: 'enabled', updated_at: ZERO_TIME })
  const disabled = await post('disable')
  expect(disabled).toMatchObject({ id: client.id, status: 'disabled', credentials: { secret: '' } })
  expect((await post('disable')).updated_at).toBe(disabled.updated_at)
  expect((await post('enable')).status).toBe('enabled')
})

test('a deleted client is gone with its connections, and a new client with its id inherits nothing', async () => {
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  await tenant.connect(client.id, channel.id)
  const deleted = await tenant.call('DELETE', path(`/${client.id}`))
  expect(deleted.status).toBe(200)
  expect(deleted.json()).toEqual({ message: expect.any(String) as string })
  expect((await tenant.call('GET', path(`/${client.id}`))).status).toBe(404)
  expect((await tenant.call('DELETE', path(`/${client.id}`))).status).toBe(404)
  const { secret } = client.credentials
  expect(await publish(api, { secret, domain: tenant.domainId, channel: channel.id })).toBe(401)
  await tenant.newClient({ id: client.id, credentials: { secret } })
  expect(await publish(api, { secret, domain: tenant.domainId, channel: channel.id })).toBe(403)
  expect((await tenant.call('GET', path(`?channel=${channel.id}`))).json<ClientPage>().total).toBe(0)
})

test('lists show secrets to callers who can change them, and to no others', async () => {
  const own = await newTenant(api)
  const client = await own.newClient()
  const reader = await api.newUser()
  await grantRole(api, reader.id, { type: 'domain', domainId: own.domainId, id: own.domainId }, ['client_read'])
  const secretSeenBy = async (call: Tenant['call']) =>
    (await call('GET', `/${own.domainId}/clients`)).json<ClientPage>().clients[0]?.credentials.secret
  expect(await secretSeenBy(own.call)).toBe(client.credentials.secret)
  expect(await secretSeenBy(reader.call)).toBe('')
  await grantRole(api, reader.id, { type: 'client', domainId: own.domainId, id: client.id }, ['update'])
  expect(await secretSeenBy(reader.call)).toBe(client.credentials.secret)
})

test('a listing has ten enabled clients by default, and each filter narrows it', async () => {
  const own = await newTenant(api)
  const list = async (query: string) => (await own.call('GET', `/${own.domainId}/clients?${query}`)).json<ClientPage>()
  const names = Array.from({ length: 12 }, (_, index) => `meter ${String(index).padStart(2, '0')}`)
  const made = (
    await own.call(
      'POST',
      `/${own.domainId}/clients/bulk`,
      names.map((name, index) => ({
        name,
        tags: index % 2 === 0 ? ['even', 'all'] : ['all'],
        metadata: { index, nested: { third: index % 3 === 0 } },
        status: index === 11 ? 'disabled' : 'enabled',
      })),
    )
  ).json<ClientPage>().clients
  const first = await list('')
  expect(first).toMatchObject({ total: 11, offset: 0, limit: 10 })
  expect(first.clients).toHaveLength(10)
  expect((await list('offset=10')).clients).toHaveLength(1)
  expect((await list('offset=999999')).clients).toEqual([])
  expect((await list('status=disabled')).clients.map((client) => client.name)).toEqual(['meter 11'])
  expect((await list('status=all&limit=1')).total).toBe(12)
  expect((await list('status=all&only_total=true')) as unknown).toEqual({ total: 12, clients: [] })
  expect((await list('name=METER%200')).total).toBe(10)
  expect((await list('name=%25')).total).toBe(0)
  expect((await list('tag=even')).total).toBe(6)
  expect((await list('tags=even,all')).total).toBe(6)
  expect((await list(`metadata=${encodeURIComponent('{"nested":{"third":true}}')}`)).total).toBe(4)
  expect((await list(`id=${made[3]?.id}`)).clients.map((client) => client.name)).toEqual(['meter 03'])
  expect((await list('id=nonsense')).total).toBe(0)
  expect((await list('order=name&dir=desc&limit=2')).clients.map((client) => client.name)).toEqual([
    'meter 10',
    'meter 09',
  ])
  const channel = await own.newChannel()
  await own.connect(made[4]?.id ?? '', channel.id, ['publish'])
  expect((await list(`channel=${channel.id}`)).clients.map((client) => client.name)).toEqual(['meter 04'])
  expect((await list(`channel=${channel.id}&connection_type=publish`)).total).toBe(1)
  expect((await list(`channel=${channel.id}&connection_type=subscribe`)).total).toBe(0)
  expect((await list(`channel=${newId()}`)).total).toBe(0)
})

test('pages by creation contain every client that existed at the start exactly once while others come and go', async () => {
  const own = await newTenant(api)
  const made = (
    await own.call(
      'POST',
      `/${own.domainId}/clients/bulk`,
      Array.from({ length: 25 }, () => ({})),
    )
  ).json<ClientPage>().clients
  const seen: string[] = []
  for (let offset = 0; offset < 25; offset += 5) {
    const page = await own.call('GET', `/${own.domainId}/clients?order=created_at&dir=asc&limit=5&offset=${offset}`)
    seen.push(...page.json<ClientPage>().clients.map((client) => client.id))
    await own.newClient()
  }
  expect(seen.toSorted()).toEqual(made.map((client) => client.id).toSorted())
})

test.each([
  'limit=101',
  'limit=0',
  'limit=-1',
  'limit=ten',
  'limit=',
  'limit=1.5',
  'offset=-1',
  'offset=1e99',
  'status=sleeping',
  'dir=up',
  'metadata=nonsense',
  'metadata=[]',
  'connection_type=both',
  'only_total=maybe',
  'limit=5&limit=6',
])('the query %s is malformed', async (query) => {
  const refused = await tenant.call('GET', path(`?${query}`))
  expect(refused.status).toBe(400)
  expect(refused.json()).toMatchObject({ error: 'malformed' })
})

test('without a domain in the path the clients of every domain of the caller are listed, and no others', async () => {
  const [one, other, foreign] = [await newTenant(api), await newTenant(api), await newTenant(api)]
  await grantRole(api, one.user.id, { type: 'domain', domainId: other.domainId, id: other.domainId }, ['client_read'])
  const [mine, shared] = [await one.newClient(), await other.newClient()]
  await foreign.newClient()
  const listed = (await one.call('GET', '/clients')).json<ClientPage>()
  expect(listed.total).toBe(2)
  expect(listed.clients.map((client) => client.id).toSorted()).toEqual([mine.id, shared.id].toSorted())
  const newcomer = await api.newUser()
  expect((await newcomer.call('GET', '/clients')).json()).toEqual({ total: 0, offset: 0, limit: 10, clients: [] })
})

test('a client of another domain, an unknown and an invalid id are the same 404; a foreign domain is 403', async () => {
  const foreign = await newTenant(api)
  const client = await foreign.newClient()
  const answers = await Promise.all(
    [client.id, newId(), 'nonsense', '00000000-0000-0000-0000-000000000000', client.id.toUpperCase()].map((id) =>
      tenant.call('GET', path(`/${id}`)),
    ),
  )
  expect(new Set(answers.map((answer) => `${answer.status} ${answer.text}`)).size).toBe(1)
  expect(answers[0]?.status).toBe(404)
  for (const [method, suffix, body] of [
    ['GET', '', undefined],
    ['POST', '', {}],
    ['GET', `/${client.id}`, undefined],
    ['DELETE', `/${client.id}`, undefined],
  ] as const) {
    const inForeign = await tenant.call(method, `/${foreign.domainId}/clients${suffix}`, body)
    const inUnknown = await tenant.call(method, `/${newId()}/clients${suffix}`, body)
    expect(inForeign.status).toBe(403)
    expect(inUnknown.text).toBe(inForeign.text)
  }
})

test('a domain that was refused as unknown is found as soon as it is created', async () => {
  const id = newId()
  expect((await tenant.call('GET', `/domains/${id}`)).status).toBe(403)
  expect((await tenant.call('POST', '/domains', { name: 'with an id', id })).status).toBe(201)
  expect((await tenantOf(tenant.user, id).newClient()).domain_id).toBe(id)
})
