// specification section 4 "Groups" (parents, children); contract section 3, 2.4, 2.5, decisions 26, 45
import { beforeAll, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { chain, faultsOf, groupsOf, journalOf, outline } from './groups-support.ts'
import type { Group, GroupPage, Groups } from './groups-support.ts'
import type { Tenant } from './support.ts'
import { grantRole, tenantOf, newTenant, ZERO_TIME } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))
let groups: Groups
beforeAll(async () => {
  groups = groupsOf(tenant)
})

const HIDDEN = 'xxxx-xxxx-xxxx-xxxx'
type Hierarchy = { level: number; direction: number; groups: Group[] }

async function newMember(domainId: string): Promise<Tenant> {
  const user = await api.newUser()
  await grantRole(api, user.id, { type: 'domain', domainId, id: domainId }, ['read'])
  return tenantOf(user, domainId)
}

const grant = (member: Tenant, group: Group, actions: readonly string[] | 'admin') =>
  grantRole(api, member.user.id, { type: 'group', domainId: member.domainId, id: group.id }, actions)

/** A hierarchy of its own: `a` above `ab` above `abc` and `abd`, and `ax` beside `ab`. */
async function family(own: Groups) {
  const a = await own.make('a')
  const ab = await own.make('ab', a)
  const abc = await own.make('abc', ab)
  const abd = await own.make('abd', ab)
  const ax = await own.make('ax', a)
  return { a, ab, abc, abd, ax }
}

/** The names of all groups in a tree, in the order of the alphabet. */
const namesIn = (groups: readonly Group[]): string[] =>
  groups.flatMap(({ name, children }) => [name, ...namesIn(children ?? [])]).toSorted((a, b) => a.localeCompare(b))

const levelsOf = (page: { groups: Group[] }) => page.groups.map(({ name, level }) => [name, level])

test('the parents of a group are listed upwards from level -1, nested with tree=true', async () => {
  const { a, ab, abc } = await family(groups)
  for (const at of [`/${tenant.domainId}/groups/${abc.id}/parents`, `/groups/${abc.id}/parents`]) {
    const flat = (await tenant.call('GET', at)).json<GroupPage>()
    expect(flat).toMatchObject({ total: 2, offset: 0, limit: 10 })
    expect(levelsOf(flat)).toEqual([
      ['ab', -1],
      ['a', -2],
    ])
    const tree = (await tenant.call('GET', `${at}?tree=true`)).json<GroupPage>()
    expect(outline(tree.groups)).toEqual([['a', ['ab']]])
    expect(tree.groups[0]?.level).toBe(-2)
    expect(tree.groups[0]?.children?.[0]).toMatchObject({ level: -1, path: `${a.id}.${ab.id}`, parent_id: a.id })
  }
  expect(await groups.names(`/${abc.id}/parents?order=name`)).toEqual(['a', 'ab'])
  expect(await groups.names(`/${abc.id}/parents?name=ab`)).toEqual(['ab'])
  expect(await groups.names(`/${abc.id}/parents?limit=1&offset=1`)).toEqual(['a'])
  expect(await groups.names(`/${a.id}/parents`)).toEqual([])
})

test('the children of a group are listed with level 1 and their path; with tree=true everything below, nested', async () => {
  const { a, ab, abc } = await family(groups)
  for (const at of [`/${tenant.domainId}/groups/${a.id}/children`, `/groups/${a.id}/children`]) {
    const flat = (await tenant.call('GET', `${at}?order=name`)).json<GroupPage>()
    expect(flat).toMatchObject({ total: 2, offset: 0, limit: 10 })
    expect(levelsOf(flat)).toEqual([
      ['ab', 1],
      ['ax', 1],
    ])
    expect(flat.groups[0]?.path).toBe(`${a.id}.${ab.id}`)
    const tree = (await tenant.call('GET', `${at}?order=name&tree=true`)).json<GroupPage>()
    expect(tree.total).toBe(4)
    expect(outline(tree.groups)).toEqual([['ab', ['abc'], ['abd']], ['ax']])
    expect(tree.groups[0]?.children?.[0]).toMatchObject({ level: 2, path: `${a.id}.${ab.id}.${abc.id}` })
  }
  expect((await groups.call('GET', `/${a.id}/children?only_total=true&end_level=-1`)).json()).toEqual({
    total: 4,
    groups: [],
  })
})

test.each([
  ['', ['ab', 'ax']],
  ['start_level=1&end_level=0', ['ab', 'ax']],
  ['start_level=1&end_level=1', ['ab', 'ax']],
  ['start_level=2&end_level=0', ['abc', 'abd']],
  ['start_level=2&end_level=-1', ['abc', 'abd']],
  ['start_level=1&end_level=2', ['ab', 'abc', 'abd', 'ax']],
  ['end_level=-1', ['ab', 'abc', 'abd', 'ax']],
  ['start_level=0&end_level=-1', ['a', 'ab', 'abc', 'abd', 'ax']],
  ['start_level=0', ['a']],
  ['start_level=0&end_level=1', ['a', 'ab', 'ax']],
  ['start_level=3', []],
  ['end_level=-1&name=b&limit=2', ['ab', 'abc']],
])('children with %j are those of the given levels', async (query, names) => {
  const { a } = await family(groupsOf(await newTenant(api)))
  expect(
    (await api.admin('GET', `/groups/${a.id}/children?order=name&${query}`))
      .json<GroupPage>()
      .groups.map((group) => group.name),
  ).toEqual(names)
})

test('tree=true with end_level nests down to that level', async () => {
  const { a } = await family(groups)
  const tree = (await groups.call('GET', `/${a.id}/children?tree=true&end_level=1&order=name`)).json<GroupPage>()
  expect(outline(tree.groups)).toEqual([['ab'], ['ax']])
})

test.each([
  '/children?start_level=-1',
  '/children?start_level=21',
  '/children?end_level=-2',
  '/children?end_level=21',
  '/children?start_level=3&end_level=2',
  '/children?limit=101',
  '/children?metadata=%7B',
  '/parents?limit=0',
  '/parents?tree=perhaps',
  '/hierarchy?level=21',
  '/hierarchy?level=-1',
  '/hierarchy?dir=up',
  '/hierarchy?tree=2',
])('%s is malformed for any group', async (suffix) => {
  for (const id of [(await groups.make('a')).id, newId(), 'nonsense'])
    expect((await groups.call('GET', `/${id}${suffix}`)).json()).toMatchObject({ error: 'malformed' })
})

test('the hierarchy contains the group with everything below or above it, with levels from the root', async () => {
  const { a, ab, abc, abd } = await family(groups)
  const of = async (id: string, query: string) =>
    (await groups.call('GET', `/${id}/hierarchy?${query}`)).json<Hierarchy>()
  const down = await of(ab.id, '')
  expect(down).toMatchObject({ level: 0, direction: -1 })
  expect(levelsOf(down)[0]).toEqual(['ab', 2])
  expect(levelsOf(down).slice(1)).toEqual(
    expect.arrayContaining([
      ['abc', 3],
      ['abd', 3],
    ]),
  )
  expect(levelsOf(await of(abc.id, 'dir=1'))).toEqual([
    ['a', 1],
    ['ab', 2],
    ['abc', 3],
  ])
  expect(levelsOf(await of(abc.id, 'dir=1&level=1'))).toEqual([
    ['ab', 2],
    ['abc', 3],
  ])
  expect(namesIn((await of(a.id, 'dir=-1&level=1')).groups)).toEqual(['a', 'ab', 'ax'])
  expect(await of(a.id, 'level=20&dir=-7')).toMatchObject({ level: 20, direction: -7 })
  expect(outline((await of(abd.id, 'dir=1&tree=true')).groups)).toEqual([['a', ['ab', ['abd']]]])
  const tree = await of(a.id, 'tree=true')
  expect(tree.groups).toHaveLength(1)
  expect(namesIn(tree.groups)).toEqual(['a', 'ab', 'abc', 'abd', 'ax'])
})

test('the hierarchy shows only the level of an unreadable group', async () => {
  const own = await newTenant(api)
  const { a, abc } = await family(groupsOf(own))
  const member = await newMember(own.domainId)
  await grant(member, abc, ['read'])
  const up = (await groupsOf(member).call('GET', `/${abc.id}/hierarchy?dir=1`)).json<Hierarchy>()
  expect(up.groups.slice(0, 2)).toEqual([
    { id: HIDDEN, level: 1 },
    { id: HIDDEN, level: 2 },
  ])
  expect(up.groups[2]).toMatchObject({ id: abc.id, name: 'abc', level: 3 })
  const tree = (await groupsOf(member).call('GET', `/${abc.id}/hierarchy?dir=1&tree=true`)).json<Hierarchy>()
  expect(tree.groups).toMatchObject([
    { id: HIDDEN, level: 1, children: [{ id: HIDDEN, level: 2, children: [{ id: abc.id, children: [] }] }] },
  ])
  expect(tree.groups[0]).not.toHaveProperty('name')
  await grant(member, a, ['read'])
  const down = (await groupsOf(member).call('GET', `/${a.id}/hierarchy?tree=true`)).json<Hierarchy>()
  expect(JSON.stringify(down)).not.toContain('ax')
  expect(JSON.stringify(down).match(new RegExp(HIDDEN, 'g'))).toHaveLength(3)
  // The listings leave out what they may not show.
  expect(await groupsOf(member).names(`/${abc.id}/parents`)).toEqual(['a'])
  const children = (await groupsOf(member).call('GET', `/${a.id}/children?tree=true`)).json<GroupPage>()
  expect(children.total).toBe(1)
  expect(levelsOf(children)).toEqual([['abc', 2]])
})

test('a root gets a parent and loses it again with everything below it, and the group records who did it', async () => {
  const own = await newTenant(api)
  const hall = groupsOf(own)
  const top = await hall.make('top')
  const [left, leaf] = await chain(hall, 2, 'left')
  if (left === undefined || leaf === undefined) throw new Error('no chain')
  const put = await hall.call('POST', `/${left.id}/parent`, { parent_id: top.id })
  expect([put.status, put.text]).toEqual([200, ''])
  expect(await hall.view(left.id)).toMatchObject({
    parent_id: top.id,
    level: 2,
    path: `${top.id}.${left.id}`,
    updated_by: own.user.id,
    updated_at: expect.not.stringMatching(ZERO_TIME) as string,
  })
  expect(await hall.view(leaf.id)).toMatchObject({
    level: 3,
    path: `${top.id}.${left.id}.${leaf.id}`,
    updated_at: ZERO_TIME,
  })
  for (let twice = 0; twice < 2; twice++) {
    const removed = await own.call('DELETE', `/groups/${left.id}/parent`)
    expect([removed.status, removed.text]).toEqual([204, ''])
    expect(await hall.view(left.id)).not.toHaveProperty('parent_id')
    expect(await hall.view(leaf.id)).toMatchObject({ level: 2, path: `${left.id}.${leaf.id}` })
  }
  expect(await faultsOf(api, own.domainId)).toEqual([])
  const moves = await journalOf(api, own.domainId, ['group.add_parent_group', 'group.remove_parent_group'])
  expect(moves.map(({ operation, attributes, keys }) => [operation, attributes, keys.length])).toEqual([
    ['group.add_parent_group', { id: left.id, parent_id: top.id }, 2],
    ['group.remove_parent_group', { id: left.id, parent_id: top.id }, 2],
  ])
})

test('children are added to a group and removed, all of them or none', async () => {
  const own = await newTenant(api)
  const hall = groupsOf(own)
  const [top, other] = [await hall.make('top'), await hall.make('other')]
  const [one, two, three] = [await hall.make('1'), await hall.make('2'), await hall.make('3', other)]
  const change = async (method: string, children_ids: readonly string[]) =>
    (await hall.call(method, `/${top.id}/children`, { children_ids })).status
  const children = () => hall.names(`/${top.id}/children?order=name`)
  expect(await change('POST', [one.id, three.id])).toBe(409)
  expect(await change('POST', [one.id, newId()])).toBe(422)
  expect(await children()).toEqual([])
  const added = await hall.call('POST', `/${top.id}/children`, { children_ids: [one.id, two.id, one.id] })
  expect([added.status, added.text]).toEqual([200, ''])
  expect(await children()).toEqual(['1', '2'])
  expect(await change('POST', [two.id])).toBe(409)
  expect(await change('DELETE', [one.id, three.id])).toBe(409)
  expect(await children()).toEqual(['1', '2'])
  expect(await change('DELETE', [one.id])).toBe(204)
  // A root has no parent that it could keep.
  expect(await change('DELETE', [one.id])).toBe(204)
  expect(await children()).toEqual(['2'])
  expect(await change('POST', [one.id])).toBe(200)
  const all = await hall.call('DELETE', `/${top.id}/children/all`)
  expect([all.status, all.text]).toEqual([204, ''])
  expect(await children()).toEqual([])
  expect((await own.call('DELETE', `/groups/${top.id}/children/all`)).status).toBe(204)
  expect(await hall.names(`/${other.id}/children`)).toEqual(['3'])
  expect(await faultsOf(api, own.domainId)).toEqual([])
  const moves = await journalOf(api, own.domainId, [
    'group.add_children_groups',
    'group.remove_children_groups',
    'group.remove_all_children_groups',
  ])
  expect(
    moves.map(({ operation, attributes }) => [operation, (attributes['children_ids'] as string[]).length]),
  ).toEqual([
    ['group.add_children_groups', 2],
    ['group.remove_children_groups', 1],
    ['group.add_children_groups', 1],
    ['group.remove_all_children_groups', 2],
  ])
})

test('a malformed move is 400: an invalid UUID, an empty list, the group itself', async () => {
  const group = await groups.make('a')
  for (const [method, suffix, body] of [
    ['POST', '/parent', {}],
    ['POST', '/parent', { parent_id: 'nonsense' }],
    ['POST', '/parent', { parent_id: group.id }],
    ['POST', '/children', {}],
    ['POST', '/children', { children_ids: [] }],
    ['POST', '/children', { children_ids: ['nonsense'] }],
    ['POST', '/children', { children_ids: [newId(), group.id] }],
    ['POST', '/children', { children_ids: group.id }],
    ['DELETE', '/children', {}],
    ['DELETE', '/children', { children_ids: [] }],
    ['DELETE', '/children', undefined],
  ] as const) {
    const refused = await groups.call(method, `/${group.id}${suffix}`, body)
    expect(refused.json(), `${method} ${suffix} ${JSON.stringify(body)}`).toMatchObject({ error: 'malformed' })
  }
})

test('moving a group with a parent is 409; a cycle, an unknown or a disabled parent is 422', async () => {
  const { a, ab, abc, ax } = await family(groups)
  const closed = await groups.make('closed', undefined, { status: 'disabled' })
  const put = async (id: string, parentId: string) =>
    (await groups.call('POST', `/${id}/parent`, { parent_id: parentId })).status
  expect(await put(abc.id, ax.id)).toBe(409)
  expect(await put(abc.id, ab.id)).toBe(409)
  expect(await put(a.id, abc.id)).toBe(422)
  expect((await groups.call('POST', `/${abc.id}/children`, { children_ids: [a.id] })).status).toBe(422)
  const foreign = await groupsOf(await newTenant(api)).make('foreign')
  const root = await groups.make('root')
  const refusals = await Promise.all(
    [foreign.id, newId()].map((id) => groups.call('POST', `/${root.id}/parent`, { parent_id: id })),
  )
  expect(new Set(refusals.map((refusal) => refusal.text.replace(/[0-9a-f-]{36}/, 'id'))).size).toBe(1)
  expect(refusals[0]?.status).toBe(422)
  expect(await put(root.id, closed.id)).toBe(422)
  expect((await groups.call('POST', `/${closed.id}/children`, { children_ids: [root.id] })).status).toBe(422)
})

test('a hierarchy has at most 20 levels by any sequence of moves', async () => {
  const own = await newTenant(api)
  const hall = groupsOf(own)
  const deep = await chain(hall, 20)
  const [bottom, above] = [deep[19] as Group, deep[18] as Group]
  expect(bottom.level).toBe(20)
  expect((await hall.call('POST', '', { name: 'too deep', parent_id: bottom.id })).status).toBe(422)
  const [pair] = await chain(hall, 2, 'pair')
  const top = pair as Group
  expect((await hall.call('POST', `/${top.id}/parent`, { parent_id: above.id })).status).toBe(422)
  expect((await hall.call('POST', `/${above.id}/children`, { children_ids: [top.id] })).status).toBe(422)
  const root = await hall.make('root')
  expect((await hall.call('POST', `/${deep[0]?.id}/parent`, { parent_id: root.id })).status).toBe(422)
  expect((await hall.call('POST', `/${top.id}/parent`, { parent_id: deep[17]?.id })).status).toBe(200)
  expect(await faultsOf(api, own.domainId)).toEqual([])
  expect((await hall.call('GET', `/${bottom.id}/hierarchy?dir=1`)).json<Hierarchy>().groups).toHaveLength(20)
  expect(await hall.names(`/${deep[0]?.id}/children?start_level=19&order=name`)).toEqual(['level 20', 'pair 2'])
})

test.each([
  [['read', 'set_parent'], ['read', 'set_child'], 'allowed'],
  [['read'], ['read', 'set_child'], 'refused'],
  [['read', 'set_parent'], ['read'], 'refused'],
  [['read', 'set_child'], ['read', 'set_parent'], 'refused'],
] as const)('with %j on the moved group and %j on the parent every move is %s', async (onChild, onParent, outcome) => {
  const own = await newTenant(api)
  const hall = groupsOf(own)
  const [parent, root] = [await hall.make('parent'), await hall.make('root')]
  const [first, second] = [await hall.make('first', parent), await hall.make('second', parent)]
  const member = await newMember(own.domainId)
  await grant(member, parent, onParent)
  for (const group of [root, first, second]) await grant(member, group, onChild)
  for (const [method, suffix, body, success] of [
    ['POST', `/${root.id}/parent`, { parent_id: parent.id }, 200],
    ['DELETE', `/${first.id}/parent`, undefined, 204],
    ['POST', `/${parent.id}/children`, { children_ids: [first.id] }, 200],
    ['DELETE', `/${parent.id}/children`, { children_ids: [second.id] }, 204],
    ['DELETE', `/${parent.id}/children/all`, undefined, 204],
  ] as const) {
    const { status } = await groupsOf(member).call(method, suffix, body)
    expect(status, `${method} ${suffix}`).toBe(outcome === 'allowed' ? success : 403)
  }
})

test('the caller cannot move invisible groups: one in the path is 404, one in the body 422', async () => {
  const own = await newTenant(api)
  const hall = groupsOf(own)
  const [seen, hidden] = [await hall.make('seen'), await hall.make('hidden')]
  const member = await newMember(own.domainId)
  await grant(member, seen, 'admin')
  const call = async (method: string, suffix: string, body?: unknown) =>
    (await groupsOf(member).call(method, suffix, body)).status
  expect(await call('POST', `/${seen.id}/parent`, { parent_id: hidden.id })).toBe(422)
  expect(await call('POST', `/${seen.id}/children`, { children_ids: [hidden.id] })).toBe(422)
  expect(await call('DELETE', `/${seen.id}/children`, { children_ids: [hidden.id] })).toBe(422)
  for (const [method, suffix, body] of [
    ['GET', '/parents'],
    ['GET', '/children'],
    ['GET', '/hierarchy'],
    ['POST', '/parent', { parent_id: seen.id }],
    ['DELETE', '/parent'],
    ['POST', '/children', { children_ids: [seen.id] }],
    ['DELETE', '/children', { children_ids: [seen.id] }],
    ['DELETE', '/children/all'],
  ] as const) {
    expect(await call(method, `/${hidden.id}${suffix}`, body), suffix).toBe(404)
    expect((await member.call(method, `/groups/${hidden.id}${suffix}`, body)).status, suffix).toBe(404)
    expect((await member.call(method, `/${newId()}/groups/${hidden.id}${suffix}`, body)).status, suffix).toBe(403)
  }
})

test('removing all children is refused while the caller cannot move one of them, and the caller learns nothing of it', async () => {
  const own = await newTenant(api)
  const hall = groupsOf(own)
  const parent = await hall.make('parent')
  const hidden = await hall.make('hidden', parent)
  const member = await newMember(own.domainId)
  await grant(member, parent, ['read', 'set_child'])
  const refused = await groupsOf(member).call('DELETE', `/${parent.id}/children/all`)
  expect(refused.status).toBe(403)
  expect(refused.text).not.toContain(hidden.id)
  await grant(member, parent, ['subgroup_set_parent'])
  expect((await groupsOf(member).call('DELETE', `/${parent.id}/children/all`)).status).toBe(204)
})

test('a role above a group loses its effect on it at once when the group moves', async () => {
  const own = await newTenant(api)
  const hall = groupsOf(own)
  const top = await hall.make('top')
  const [middle, leaf] = await chain(hall, 2, 'below')
  if (middle === undefined || leaf === undefined) throw new Error('no chain')
  const member = await newMember(own.domainId)
  await grant(member, top, ['read', 'subgroup_read'])
  const seen = async () => (await groupsOf(member).call('GET', `/${leaf.id}`)).status
  expect(await seen()).toBe(404)
  await hall.call('POST', `/${middle.id}/parent`, { parent_id: top.id })
  expect(await seen()).toBe(200)
  expect(await groupsOf(member).names('?order=name')).toEqual(['below 1', 'below 2', 'top'])
  await hall.call('DELETE', `/${top.id}/children/all`)
  expect(await seen()).toBe(404)
  await hall.call('POST', `/${top.id}/children`, { children_ids: [middle.id] })
  expect(await seen()).toBe(200)
  await hall.call('DELETE', `/${middle.id}`)
  expect(await seen()).toBe(404)
})
