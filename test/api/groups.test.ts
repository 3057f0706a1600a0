// specification sections 2 "Group", 3, 4 "Groups" and 7; contract section 3, 2.3 to 2.5, decisions 2, 10, 11, 13, 31, 31b, 45, 46
import { beforeAll, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { faultsOf, groupsOf, journalOf, outline } from './groups-support.ts'
import type { Group, GroupPage, Groups } from './groups-support.ts'
import type { Tenant } from './support.ts'
import { grantRole, setParent, tenantOf, newTenant, UUID, ZERO_TIME } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))
let groups: Groups
beforeAll(async () => {
  groups = groupsOf(tenant)
})

/** A member of the domain who holds these actions of the domain and nothing else. */
async function newMember(domainId: string, actions: readonly string[] = []): Promise<Tenant> {
  const user = await api.newUser()
  await grantRole(api, user.id, { type: 'domain', domainId, id: domainId }, ['read', ...actions])
  return tenantOf(user, domainId)
}

const onGroup = (domainId: string, id: string) => ({ type: 'group', domainId, id }) as const

test('a group is created with what it says and found at its Location', async () => {
  const parent = await groups.make('plant')
  const body = {
    name: 'hall',
    description: 'north hall',
    parent_id: parent.id,
    tags: ['north'],
    metadata: { floor: 1 },
    status: 'disabled',
  }
  const created = await groups.call('POST', '', body)
  expect(created.status).toBe(201)
  const group = created.json<Group>()
  expect(created.headers['location']).toBe(`/groups/${group.id}`)
  expect(group).toMatchObject({
    ...body,
    domain_id: tenant.domainId,
    created_by: tenant.user.id,
    updated_at: ZERO_TIME,
    level: 2,
    path: `${parent.id}.${group.id}`,
  })
  expect(group).not.toHaveProperty('updated_by')
  for (const at of [`/${tenant.domainId}/groups/${group.id}`, `/groups/${group.id}`])
    expect((await tenant.call('GET', at)).json<Group>(), at).toMatchObject(group)
})

test('a group requires only a name; an id of the caller is ignored, and an empty parent means none', async () => {
  const id = newId()
  const group = await groups.make('alone', undefined, { id, parent_id: '', level: 7, path: 'x' })
  expect(group.id).toMatch(UUID)
  expect(group.id).not.toBe(id)
  expect(group).toMatchObject({ tags: [], metadata: {}, status: 'enabled', level: 1, path: group.id })
  for (const absent of ['parent_id', 'description', 'children']) expect(group).not.toHaveProperty(absent)
})

test.each([
  [{}, 'name'],
  [{ name: '' }, 'name'],
  [{ name: 'x'.repeat(1025) }, 'name'],
  [{ name: 'a', status: 'all' }, 'status'],
  [{ name: 'a', parent_id: 'nonsense' }, 'parent_id'],
  [{ name: 'a', tags: 'one' }, 'tags'],
  [{ name: 'a', metadata: [] }, 'metadata'],
  [{ name: 'a', description: 1 }, 'description'],
])('an error for %j names the invalid field', async (body, field) => {
  const refused = await groups.call('POST', '', body)
  expect(refused.status).toBe(400)
  expect(refused.json()).toMatchObject({ error: 'malformed', message: expect.stringContaining(field) as string })
})

test('a parent that is unknown, of another domain, unreadable or disabled is 422, the first three alike', async () => {
  const foreign = await groupsOf(await newTenant(api)).make('foreign')
  const secret = await groups.make('secret')
  const member = groupsOf(await newMember(tenant.domainId, ['group_create']))
  const unknown = newId()
  const answers = await Promise.all(
    [unknown, foreign.id, secret.id].map((id) => member.call('POST', '', { name: 'a', parent_id: id })),
  )
  expect(new Set(answers.map((answer) => answer.text.replace(/[0-9a-f-]{36}/, 'id'))).size).toBe(1)
  expect(answers[0]?.json()).toMatchObject({ error: 'unprocessable' })
  const closed = await groups.make('closed', undefined, { status: 'disabled' })
  expect((await groups.call('POST', '', { name: 'a', parent_id: closed.id })).status).toBe(422)
})

test('creating requires group_create without a parent, and subgroup_create or set_child on it with a parent', async () => {
  const parent = await groups.make('parent')
  const below = { name: 'a', parent_id: parent.id }
  for (const [domainActions, groupActions, root, child] of [
    [[], ['read'], 403, 403],
    [['group_create'], [], 201, 422],
    [['group_read'], [], 403, 403],
    [['group_read', 'group_create'], [], 201, 201],
    [['group_read', 'group_set_child'], [], 403, 201],
    [[], ['read', 'subgroup_create'], 403, 201],
    [[], ['read', 'set_child'], 403, 201],
    [[], ['subgroup_create'], 403, 422],
  ] as const) {
    const member = await newMember(tenant.domainId, domainActions)
    if (groupActions.length > 0) await grantRole(api, member.user.id, onGroup(tenant.domainId, parent.id), groupActions)
    const own = groupsOf(member)
    const statuses = [(await own.call('POST', '', { name: 'a' })).status, (await own.call('POST', '', below)).status]
    expect(statuses, JSON.stringify([domainActions, groupActions])).toEqual([root, child])
  }
})

test('the creator of a group administers it, whatever other rights the creator has in the domain', async () => {
  const member = groupsOf(await newMember(tenant.domainId, ['group_create']))
  const group = await member.make('mine')
  expect((await member.call('PUT', `/${group.id}`, { name: 'still mine' })).status).toBe(200)
  expect(await member.names('')).toEqual(['still mine'])
  expect((await member.call('DELETE', `/${group.id}`)).status).toBe(204)
})

test('without a domain in the path a group belongs to the only domain of the caller, or of the token', async () => {
  const own = await newTenant(api)
  const created = await own.call('POST', '/groups', { name: 'here' })
  expect(created.json<Group>()).toMatchObject({ domain_id: own.domainId, name: 'here' })
  const second = (await own.call('POST', '/domains', { name: 'second' })).json<{ id: string }>().id
  const unclear = await own.call('POST', '/groups', { name: 'where' })
  expect(unclear.status).toBe(400)
  expect(unclear.json()).toMatchObject({ message: expect.stringContaining('/<domain_id>/groups') as string })
  const { username: identity, secret } = own.user
  const bound = await api.anonymous('POST', '/users/tokens/issue', { identity, secret, domain_id: second })
  const inSecond = api.as(`Bearer ${bound.json<{ access_token: string }>().access_token}`)
  expect((await inSecond('POST', '/groups', { name: 'there' })).json<Group>()).toMatchObject({ domain_id: second })
})

test.each(['PUT', 'PATCH'])('%s changes the given fields, keeps the rest and records who did it', async (method) => {
  const group = await groups.make('before', undefined, { description: 'old', tags: ['a'], metadata: { a: 1 } })
  const changed = await groups.call(method, `/${group.id}`, { name: 'after', metadata: { b: 2 } })
  expect(changed.status).toBe(200)
  expect(changed.json<Group>()).toMatchObject({
    ...group,
    name: 'after',
    metadata: { b: 2 },
    updated_by: tenant.user.id,
    updated_at: expect.not.stringMatching(ZERO_TIME) as string,
  })
  const cleared = await tenant.call(method, `/groups/${group.id}`, { description: null })
  expect(cleared.json<Group>()).not.toHaveProperty('description')
  expect(cleared.json<Group>()).toMatchObject({ name: 'after', tags: ['a'] })
  for (const body of [{ name: '' }, { name: 'x'.repeat(1025) }, { metadata: [] }])
    expect((await groups.call(method, `/${group.id}`, body)).status).toBe(400)
})

test('the journal record of a change contains the values before and after', async () => {
  const own = await newTenant(api)
  const group = await groupsOf(own).make('old name')
  await groupsOf(own).call('PATCH', `/${group.id}`, { name: 'new name', tags: [] })
  const [create, update] = await journalOf(api, own.domainId, ['group.create', 'group.update'])
  expect(create?.attributes).toMatchObject({ id: group.id, name: 'old name', parent_id: null, status: 'enabled' })
  expect(update?.attributes).toEqual({ id: group.id, before: { name: 'old name' }, after: { name: 'new name' } })
})

test('tags are replaced, and cleared when they are missing', async () => {
  const group = await groups.make('tagged', undefined, { tags: ['a'] })
  const tags = async (body: unknown) => (await groups.call('PATCH', `/${group.id}/tags`, body)).json<Group>().tags
  expect(await tags({ tags: ['b', 'c'] })).toEqual(['b', 'c'])
  expect(await tags({})).toEqual([])
})

test('enabling and disabling answer the record from any state; repeating them changes nothing, nor do children change', async () => {
  const parent = await groups.make('parent')
  const below = await groups.make('child', parent)
  const post = async (verb: string) => (await groups.call('POST', `/${parent.id}/${verb}`)).json<Group>()
  expect((await post('enable')).updated_at).toBe(ZERO_TIME)
  const disabled = await post('disable')
  expect(disabled).toMatchObject({ status: 'disabled', updated_by: tenant.user.id })
  expect((await post('disable')).updated_at).toBe(disabled.updated_at)
  expect(await groups.view(below.id)).toMatchObject({ status: 'enabled', updated_at: ZERO_TIME })
  expect((await tenant.call('POST', `/groups/${parent.id}/enable`)).json<Group>().status).toBe('enabled')
})

test('a deleted group is gone, its children become roots with their own children, and its members have no parent', async () => {
  const own = await newTenant(api)
  const hall = groupsOf(own)
  const top = await hall.make('top')
  const gone = await hall.make('gone', top)
  const left = await hall.make('left', gone)
  await hall.make('right', gone)
  const deep = await hall.make('deep', left)
  const [client, channel] = [await own.newClient(), await own.newChannel()]
  await setParent(api, own.domainId, 'client', client.id, gone.id)
  await setParent(api, own.domainId, 'channel', channel.id, gone.id)
  const reader = await newMember(own.domainId)
  await grantRole(api, reader.user.id, onGroup(own.domainId, gone.id), ['read', 'subgroup_read', 'client_read'])
  expect(await groupsOf(reader).names('?order=name')).toEqual(['deep', 'gone', 'left', 'right'])

  const deleted = await hall.call('DELETE', `/${gone.id}`)
  expect([deleted.status, deleted.text]).toEqual([204, ''])
  for (const method of ['GET', 'DELETE']) expect((await hall.call(method, `/${gone.id}`)).status).toBe(404)
  expect(await faultsOf(api, own.domainId)).toEqual([])
  expect(await hall.view(left.id)).toMatchObject({ level: 1, path: left.id })
  expect(await hall.view(left.id)).not.toHaveProperty('parent_id')
  expect(await hall.view(deep.id)).toMatchObject({ level: 2, path: `${left.id}.${deep.id}`, parent_id: left.id })
  expect(await hall.names(`/${top.id}/children?end_level=-1`)).toEqual([])
  for (const at of [`clients/${client.id}`, `channels/${channel.id}`])
    expect((await own.call('GET', `/${own.domainId}/${at}`)).json()).not.toHaveProperty('parent_group_id')

  // Nothing of what its roles gave is left.
  expect(await groupsOf(reader).names('')).toEqual([])
  expect((await reader.call('GET', `/${own.domainId}/clients/${client.id}`)).status).toBe(404)
})

test('the deletion of a group names everything that it changes in the journal', async () => {
  const own = await newTenant(api)
  const hall = groupsOf(own)
  const gone = await hall.make('gone')
  const child = await hall.make('child', gone)
  const [client, other, channel] = [await own.newClient(), await own.newClient(), await own.newChannel()]
  for (const { id } of [client, other]) await setParent(api, own.domainId, 'client', id, gone.id)
  await setParent(api, own.domainId, 'channel', channel.id, gone.id)
  await hall.call('DELETE', `/${gone.id}`)
  const [removed] = await journalOf(api, own.domainId, ['group.remove'])
  expect(removed?.attributes).toMatchObject({ id: gone.id, name: 'gone', children_ids: [child.id] })
  expect(removed?.keys).toHaveLength(2)
  const [clients] = await journalOf(api, own.domainId, ['client.remove_parent'])
  expect(clients?.attributes).toEqual({ ids: [client.id, other.id], parent_group_id: gone.id })
  expect(clients?.keys).toHaveLength(2)
  const [channels] = await journalOf(api, own.domainId, ['channel.remove_parent'])
  expect(channels?.attributes).toEqual({ ids: [channel.id], parent_group_id: gone.id })
})

test('a deleted group leaves no role and no grant', async () => {
  const own = await newTenant(api)
  const group = await groupsOf(own).make('short-lived')
  const member = await newMember(own.domainId)
  await grantRole(api, member.user.id, onGroup(own.domainId, group.id), ['read'])
  const count = async () => {
    const { rows } = await sql<{ total: number }>`
      SELECT (SELECT count(*) FROM roles r WHERE r.domain_key = d.key AND r.entity_type = 'group')
           + (SELECT count(*) FROM grants g WHERE g.domain_key = d.key AND g.entity_type = 'group') AS total
        FROM domains d WHERE d.id = ${own.domainId}::uuid`.execute(api.database.db)
    return Number(rows[0]?.total)
  }
  expect(await count()).toBe(3)
  await groupsOf(own).call('DELETE', `/${group.id}`)
  expect(await count()).toBe(0)
})

test('each filter narrows the listing', async () => {
  const own = await newTenant(api)
  const hall = groupsOf(own)
  const north = await hall.make('north hall', undefined, { tags: ['a', 'b'], metadata: { floor: { no: 1 } } })
  await hall.make('south hall', undefined, { tags: ['a'], status: 'disabled' })
  await hall.make('office', north)
  const member = await newMember(own.domainId, ['group_create', 'group_read'])
  await groupsOf(member).make("member's")
  for (const [query, names] of [
    ['', ['north hall', 'office', "member's"]],
    ['status=disabled', ['south hall']],
    ['status=all&order=name', ["member's", 'north hall', 'office', 'south hall']],
    ['status=all&order=name&dir=desc', ['south hall', 'office', 'north hall', "member's"]],
    ['order=created_at&dir=desc&limit=1', ["member's"]],
    ['order=created_at&offset=1&limit=1', ['office']],
    ['status=all&name=HALL&order=name', ['north hall', 'south hall']],
    ['name=%25', []],
    ['status=all&tag=a&order=name', ['north hall', 'south hall']],
    ['status=all&tags=a,b', ['north hall']],
    [`metadata=${encodeURIComponent('{"floor":{"no":1}}')}`, ['north hall']],
    [`id=${north.id}`, ['north hall']],
    ['id=nonsense', []],
    [`parentID=${north.id}`, ['office']],
    [`parentID=${newId()}`, []],
    ['parentID=nonsense', []],
    [`ownerID=${member.user.id}`, ["member's"]],
    ['root_group=true&order=name', ["member's", 'north hall']],
  ] as const)
    expect(await hall.names(`?${query}`), query).toEqual(names)
  expect((await hall.call('GET', '?limit=1')).json<GroupPage>()).toMatchObject({ total: 3, offset: 0, limit: 1 })
  expect((await hall.call('GET', '?only_total=true&status=all')).json()).toEqual({ total: 4, groups: [] })
})

test('tree=true nests the groups of the page, upper levels first', async () => {
  const hall = groupsOf(await newTenant(api))
  const a = await hall.make('a')
  const ab = await hall.make('ab', a)
  await hall.make('abc', ab)
  await hall.make('ad', a)
  await hall.make('e')
  const tree = async (query: string) => (await hall.call('GET', `?tree=true&${query}`)).json<GroupPage>()
  expect(outline((await tree('order=name')).groups)).toEqual([['a', ['ab', ['abc']], ['ad']], ['e']])
  expect(outline((await tree('order=name&dir=desc')).groups)).toEqual([['e'], ['a', ['ad'], ['ab', ['abc']]]])
  const page = await tree('order=name&limit=3')
  expect(page).toMatchObject({ total: 5, limit: 3 })
  expect(outline(page.groups)).toEqual([['a', ['ab']], ['e']])
  expect(outline((await tree('order=name&limit=3&offset=3')).groups)).toEqual([['ad'], ['abc']])
  expect((await tree('name=abc')).groups.map(({ level, children }) => [level, children])).toEqual([[3, []]])
})

test.each([
  'limit=101',
  'limit=0',
  'offset=-1',
  'status=gone',
  'dir=sideways',
  'metadata=%7B',
  'tree=maybe',
  'root_group=2',
  'access_type=magic',
  'actions=fly',
  'name=a&name=b',
])('the query %s is malformed, in whatever domain', async (query) => {
  for (const at of [`/${tenant.domainId}/groups`, '/groups', `/${newId()}/groups`])
    expect((await tenant.call('GET', `${at}?${query}`)).json(), at).toMatchObject({ error: 'malformed' })
})

test('without a domain in the path the groups of every domain that the caller reaches are listed, and no others', async () => {
  const [one, other] = [await newTenant(api), await newTenant(api)]
  await groupsOf(await newTenant(api)).make('foreign')
  await grantRole(api, one.user.id, { type: 'domain', domainId: other.domainId, id: other.domainId }, ['group_read'])
  await groupsOf(one).make('mine')
  await groupsOf(other).make('shared')
  const page = (await one.call('GET', '/groups?order=name')).json<GroupPage>()
  expect(page.groups.map(({ name, access_type }) => [name, access_type])).toEqual([
    ['mine', 'direct'],
    ['shared', 'domain'],
  ])
})

test('a group of another domain, an unknown one and no id at all are the same 404; a foreign domain is 403', async () => {
  const foreign = await newTenant(api)
  const group = await groupsOf(foreign).make('foreign')
  for (const [method, suffix, body] of [
    ['GET', ''],
    ['PUT', '', { name: 'a' }],
    ['PATCH', '/tags', {}],
    ['POST', '/enable'],
    ['POST', '/disable'],
    ['DELETE', ''],
  ] as const) {
    const answers = await Promise.all(
      [group.id, newId(), 'nonsense'].flatMap((id) => [
        groups.call(method, `/${id}${suffix}`, body),
        tenant.call(method, `/groups/${id}${suffix}`, body),
      ]),
    )
    expect(new Set(answers.map((answer) => `${answer.status} ${answer.text}`)).size, method + suffix).toBe(1)
    expect(answers[0]?.status).toBe(404)
    expect((await tenant.call(method, `/${foreign.domainId}/groups/${group.id}${suffix}`, body)).status).toBe(403)
  }
})

test('each call requires its action on the group: without read it is 404, without the action 403', async () => {
  const group = await groups.make('guarded')
  for (const [method, suffix, action, body] of [
    ['GET', '', 'read'],
    ['PUT', '', 'update', { name: 'a' }],
    ['PATCH', '/tags', 'update', {}],
    ['POST', '/disable', 'update'],
    ['POST', '/enable', 'update'],
    ['DELETE', '', 'delete'],
  ] as const) {
    const statusWith = async (actions: readonly string[]) => {
      const member = await newMember(tenant.domainId)
      if (actions.length > 0) await grantRole(api, member.user.id, onGroup(tenant.domainId, group.id), actions)
      return (await groupsOf(member).call(method, `/${group.id}${suffix}`, body)).status
    }
    expect(await statusWith([]), suffix).toBe(404)
    if (action === 'read') continue
    expect(await statusWith([action]), suffix).toBe(404)
    expect(await statusWith(['read']), suffix).toBe(403)
    if (action !== 'delete') expect(await statusWith(['read', action]), suffix).toBe(200)
  }
})

test('roles=true shows the roles of the caller, those on the group first', async () => {
  const top = await groups.make('top')
  const seen = await groups.make('seen', top)
  const shown = async (caller: Groups) =>
    (await caller.call('GET', `/${seen.id}?roles=true`)).json<{ member_id: string; roles: Record<string, unknown>[] }>()
  const ofCreator = await shown(groups)
  expect(ofCreator.member_id).toBe(tenant.user.id)
  expect(ofCreator.roles.map(({ role_name, access_type }) => [role_name, access_type])).toEqual([
    ['admin', 'direct'],
    ['admin', 'indirect_group'],
    ['admin', 'domain'],
  ])
  expect(ofCreator.roles[1]).toMatchObject({ access_provider_id: top.id })
  const member = await newMember(tenant.domainId, ['group_read'])
  expect((await shown(groupsOf(member))).roles).toMatchObject([
    {
      access_type: 'domain',
      access_provider_id: tenant.domainId,
      actions: expect.arrayContaining(['group_read']) as string[],
    },
  ])
  expect((await groups.call('GET', `/${seen.id}`)).json()).not.toHaveProperty('roles')
})

test('listings can be filtered by a role, a kind of access and actions of the caller', async () => {
  const own = await newTenant(api)
  const hall = groupsOf(own)
  const [top, apart] = [await hall.make('top'), await hall.make('apart')]
  const below = await hall.make('below', top)
  await hall.make('deep', below)
  const member = await newMember(own.domainId, ['group_read'])
  await grantRole(api, member.user.id, onGroup(own.domainId, top.id), [
    'read',
    'update',
    'subgroup_read',
    'subgroup_delete',
  ])
  await grantRole(api, member.user.id, onGroup(own.domainId, apart.id), 'admin')
  const seen = groupsOf(member)
  const page = (await seen.call('GET', '?order=name')).json<GroupPage>().groups
  const [ofApart, , , ofTop] = page
  expect(page.map(({ name, access_type }) => [name, access_type])).toEqual([
    ['apart', 'direct'],
    ['below', 'indirect_group'],
    ['deep', 'indirect_group'],
    ['top', 'direct'],
  ])
  await hall.make('else')
  for (const [query, names] of [
    ['access_type=direct', ['apart', 'top']],
    ['access_type=indirect_group', ['below', 'deep']],
    ['access_type=domain', ['else']],
    ['access_type=direct_group', []],
    ['actions=read', ['apart', 'below', 'deep', 'else', 'top']],
    ['actions=read,delete', ['apart', 'below', 'deep']],
    ['actions=update', ['apart', 'top']],
    ['actions=client_read', ['apart']],
    ['role_name=admin', ['apart']],
    [`role_name=${ofTop?.role_name}`, ['top']],
    ['role_name=nobody', []],
    [`role_id=${ofApart?.role_id}`, ['apart']],
    [`role_id=${ofTop?.role_id}`, ['top']],
    ['role_id=group_unknown', []],
  ] as const)
    expect(await seen.names(`?order=name&${query}`), query).toEqual(names)
  expect((await seen.call('GET', '?access_type=direct')).json<GroupPage>().total).toBe(2)
})

test('the groups of another user are listed for that user and for administrators', async () => {
  const own = await newTenant(api)
  const hall = groupsOf(own)
  const [top] = [await hall.make('top'), await hall.make('hidden')]
  const member = await newMember(own.domainId)
  await grantRole(api, member.user.id, onGroup(own.domainId, top.id), ['read'])
  expect(await hall.names(`?user=${member.user.id}`)).toEqual(['top'])
  expect(await groupsOf(member).names(`?user=${member.user.id}`)).toEqual(['top'])
  expect(await groupsOf({ call: api.admin, domainId: own.domainId }).names(`?user=${member.user.id}`)).toEqual(['top'])
  for (const nobody of [newId(), 'nonsense', (await api.newUser()).id])
    expect(await hall.names(`?user=${nobody}`)).toEqual([])
  expect((await groupsOf(member).call('GET', `?user=${own.user.id}`)).status).toBe(403)
})

test('root_group=true shows the topmost visible groups, also below invisible ones', async () => {
  const own = await newTenant(api)
  const hall = groupsOf(own)
  const top = await hall.make('top')
  const middle = await hall.make('middle', top)
  const low = await hall.make('low', middle)
  const lowest = await hall.make('lowest', low)
  const member = await newMember(own.domainId)
  for (const { id } of [middle, lowest]) await grantRole(api, member.user.id, onGroup(own.domainId, id), ['read'])
  expect(await groupsOf(member).names('?order=name')).toEqual(['lowest', 'middle'])
  expect(await groupsOf(member).names('?root_group=true')).toEqual(['middle'])
  expect(await hall.names('?root_group=true')).toEqual(['top'])
})
