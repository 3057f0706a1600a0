// specification sections 2 "Channel", 3, 4 "Channels", 7 and 8; contract 4.2, decisions 2, 10, 11, 13, 31, 45, 46, 54
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import type { Channel, Page } from './support.ts'
import { grantRole, publish, read, newTenant, UUID, ZERO_TIME } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

type ChannelPage = Page<'channels', Channel>
const path = (suffix = '') => `/${tenant.domainId}/channels${suffix}`
const create = (body: unknown) => tenant.call('POST', path(), body)

test('an empty route is no route, at the creation, in a file and in a change', async () => {
  const made = await create({ name: 'without', route: '' })
  expect(made.status).toBe(201)
  expect(made.json<Channel>()).not.toHaveProperty('route')
  const imported = await tenant.call('POST', path('/import'), [{ name: 'imported', route: '' }])
  expect([imported.status, imported.json<{ total: number }>().total]).toEqual([201, 1])
  const routed = (await create({ route: `hall-${newId().slice(0, 8)}` })).json<Channel>()
  const cleared = await tenant.call('PATCH', path(`/${routed.id}`), { route: '' })
  expect(cleared.status).toBe(200)
  expect(cleared.json<Channel>()).not.toHaveProperty('route')
})

test('a channel is created with the given fields and found at its Location', async () => {
  const body = {
    id: newId(),
    name: 'hall',
    description: 'north hall',
    route: `hall-${newId().slice(0, 8)}`,
    tags: ['north'],
    metadata: { floor: 1 },
    status: 'disabled',
    retention_days: 30,
  }
  const created = await create(body)
  expect(created.status).toBe(201)
  expect(created.headers['location']).toBe(`/channels/${body.id}`)
  const channel = created.json<Channel>()
  expect(channel).toMatchObject({
    ...body,
    domain_id: tenant.domainId,
    owner_id: tenant.user.id,
    updated_at: ZERO_TIME,
  })
  expect(channel).not.toHaveProperty('updated_by')
  expect((await tenant.call('GET', path(`/${body.id}`))).json<Channel>()).toEqual(channel)
})

test('the id defaults to a UUID', async () => {
  const channel = (await create({})).json<Channel>()
  expect(channel.id).toMatch(UUID)
  expect(channel).toMatchObject({ name: '', status: 'enabled', tags: [], metadata: {} })
  expect(channel).not.toHaveProperty('route')
})

test('an external id and a route, in any case, are unique in a domain and may exist in another', async () => {
  const other = await newTenant(api)
  const [id, route] = [newId(), `route-${newId().slice(0, 8)}`]
  await tenant.newChannel({ id, route })
  expect((await create({ id })).json()).toMatchObject({ error: 'conflict' })
  const sameRoute = await create({ route: route.toUpperCase() })
  expect(sameRoute.status).toBe(409)
  expect(sameRoute.json()).toMatchObject({ message: expect.stringContaining('route') as string })
  expect(await other.newChannel({ id, route })).toMatchObject({ id, route })
})

test.each([
  ['id', { id: 'hall' }],
  ['route', { route: '1hall' }],
  ['route', { route: newId() }],
  ['route', { route: 'a b' }],
  ['route', { route: `a${'b'.repeat(36)}` }],
  ['description', { description: 7 }],
  ['status', { status: 'all' }],
  ['retention_days', { retention_days: 0 }],
  ['metadata', { metadata: [] }],
])('creating names %s as the invalid field, before it checks rights', async (field, body) => {
  const refused = await create(body)
  expect(refused.status).toBe(400)
  expect(refused.json()).toMatchObject({ error: 'malformed', message: expect.stringContaining(field) as string })
  expect((await tenant.call('POST', `/${newId()}/channels`, body)).status).toBe(400)
})

test('a bulk returns every channel in the given order, and is all or nothing', async () => {
  const createAll = (body: unknown) => tenant.call('POST', path('/bulk'), body)
  const created = await createAll([{ name: 'b' }, { name: 'a' }])
  expect(created.status).toBe(200)
  expect(created.json<ChannelPage>()).toMatchObject({ total: 2, channels: [{ name: 'b' }, { name: 'a' }] })
  const total = async () =>
    (await tenant.call('GET', path('?status=all&only_total=true'))).json<{ total: number }>().total
  const taken = created.json<ChannelPage>().channels[0]?.id
  expect((await createAll([{}, { id: taken }])).json()).toMatchObject({
    error: 'conflict',
    details: [{ path: '/1/id' }],
  })
  await tenant.newChannel({ route: 'stored' })
  const before = await total()
  expect((await createAll([{}, {}, { route: 'Stored' }])).json()).toMatchObject({ details: [{ path: '/2/route' }] })
  expect((await createAll([{ route: 'Twice' }, { route: 'twice' }])).json()).toMatchObject({
    error: 'conflict',
    message: 'item 1 repeats the route of item 0',
  })
  expect((await createAll([{}, { route: '1' }])).status).toBe(400)
  expect((await createAll([])).status).toBe(400)
  expect((await createAll(Array.from({ length: 10_001 }, () => ({})))).status).toBe(413)
  expect(await total()).toBe(before)
})

test.each(['PUT', 'PATCH'])('%s changes the given fields, keeps the rest and records who did it', async (method) => {
  const channel = await tenant.newChannel({ name: 'old', description: 'stays', metadata: { k: 1 }, tags: ['a'] })
  const answer = await tenant.call(method, path(`/${channel.id}`), { name: 'new', status: 'disabled', id: newId() })
  expect(answer.status).toBe(200)
  expect(answer.json<Channel>()).toMatchObject({
    id: channel.id,
    name: 'new',
    description: 'stays',
    metadata: { k: 1 },
    tags: ['a'],
    status: 'enabled',
    updated_by: tenant.user.id,
  })
  expect(answer.json<Channel>().updated_at).not.toBe(ZERO_TIME)
  const cleared = await tenant.call(method, path(`/${channel.id}`), { description: null, retention_days: null })
  expect(cleared.json<Channel>()).not.toHaveProperty('description')
})

test('tags are replaced, and cleared when they are missing', async () => {
  const channel = await tenant.newChannel({ tags: ['a'] })
  const tags = async (body: unknown) =>
    (await tenant.call('PATCH', path(`/${channel.id}/tags`), body)).json<Channel>().tags
  expect(await tags({ tags: ['b', 'c'] })).toEqual(['b', 'c'])
  expect(await tags({})).toEqual([])
})

test('a disabled channel neither accepts nor delivers messages; enabling it restores both, and repeating changes nothing', async () => {
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  await tenant.connect(client.id, channel.id)
  const at = { secret: client.credentials.secret, domain: tenant.domainId, channel: channel.id }
  const post = async (verb: string) => (await tenant.call('POST', path(`/${channel.id}/${verb}`))).json<Channel>()
  expect([await publish(api, at), await read(api, at)]).toEqual([202, 200])
  const disabled = await post('disable')
  expect(disabled.status).toBe('disabled')
  expect([await publish(api, at), await read(api, at)]).toEqual([403, 403])
  expect((await post('disable')).updated_at).toBe(disabled.updated_at)
  expect((await post('enable')).status).toBe('enabled')
  expect([await publish(api, at), await read(api, at)]).toEqual([202, 200])
})

test('a deleted channel is gone with its connections; a new one with its id has none', async () => {
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  await tenant.connect(client.id, channel.id)
  const deleted = await tenant.call('DELETE', path(`/${channel.id}`))
  expect(deleted.status).toBe(204)
  expect(deleted.text).toBe('')
  expect((await tenant.call('DELETE', path(`/${channel.id}`))).status).toBe(404)
  const at = { secret: client.credentials.secret, domain: tenant.domainId, channel: channel.id }
  expect(await publish(api, at)).toBe(403)
  await tenant.newChannel({ id: channel.id })
  expect(await publish(api, at)).toBe(403)
  expect((await tenant.call('GET', path(`?client=${client.id}`))).json<ChannelPage>().total).toBe(0)
})

test('each filter narrows the listing, the connected client included', async () => {
  const own = await newTenant(api)
  const list = async (query: string) =>
    (await own.call('GET', `/${own.domainId}/channels?${query}`)).json<ChannelPage>()
  const first = await own.newChannel({ name: 'north hall', tags: ['a', 'b'], metadata: { floor: { no: 1 } } })
  const second = await own.newChannel({ name: 'south hall', tags: ['a'], status: 'disabled' })
  const client = await own.newClient()
  await own.connect(client.id, first.id, ['subscribe'])
  const ids = async (query: string) => (await list(query)).channels.map((channel) => channel.id)
  expect(await ids('')).toEqual([first.id])
  expect(await ids('status=disabled')).toEqual([second.id])
  expect(await ids('status=all&order=name&dir=desc')).toEqual([second.id, first.id])
  expect(await ids('status=all&name=NORTH')).toEqual([first.id])
  expect(await ids('status=all&tags=a,b')).toEqual([first.id])
  expect(await ids(`metadata=${encodeURIComponent('{"floor":{"no":1}}')}`)).toEqual([first.id])
  expect(await ids(`client=${client.id}`)).toEqual([first.id])
  expect(await ids(`client=${client.id}&connection_type=publish`)).toEqual([])
  expect(await ids(`group=`)).toEqual([first.id])
  expect((await list('limit=1&status=all')).total).toBe(2)
})

test.each(['limit=101', 'limit=0', 'offset=-1', 'status=gone', 'dir=sideways', 'metadata=%7B'])(
  'the query %s is malformed',
  async (query) => {
    expect((await tenant.call('GET', path(`?${query}`))).json()).toMatchObject({ error: 'malformed' })
    expect((await tenant.call('GET', `/channels?${query}`)).status).toBe(400)
    expect((await tenant.call('GET', `/${newId()}/channels?${query}`)).status).toBe(400)
  },
)

test('without a domain in the path the channels of every domain of the caller are listed', async () => {
  const [one, other] = [await newTenant(api), await newTenant(api)]
  await grantRole(api, one.user.id, { type: 'domain', domainId: other.domainId, id: other.domainId }, ['channel_read'])
  const [mine, shared] = [await one.newChannel(), await other.newChannel()]
  const listed = (await one.call('GET', '/channels')).json<ChannelPage>()
  expect(listed.channels.map((channel) => channel.id).toSorted()).toEqual([mine.id, shared.id].toSorted())
})

test('a channel of another domain, an unknown and an invalid id are the same 404; a foreign domain is 403', async () => {
  const foreign = await newTenant(api)
  const channel = await foreign.newChannel()
  const answers = await Promise.all([channel.id, newId(), 'nonsense'].map((id) => tenant.call('GET', path(`/${id}`))))
  expect(new Set(answers.map((answer) => `${answer.status} ${answer.text}`)).size).toBe(1)
  expect(answers[0]?.status).toBe(404)
  expect((await tenant.call('GET', `/${foreign.domainId}/channels/${channel.id}`)).status).toBe(403)
})
