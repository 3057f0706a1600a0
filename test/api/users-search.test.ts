// specification section 4 "Users": search and memberships; contract section 5, sections 0 and 2.4, decisions 29, 40, 51
import { describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import type { TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { grantRole, newGroup, newTenant } from './support.ts'

const api = useWorld(() => startTestApi())

type Found = { id: string; username?: string; email?: string; credentials: { username?: string } }
type FoundPage = { total: number; offset: number; limit: number; users: Found[] }

async function aUser(fields: Record<string, unknown> = {}): Promise<{ id: string; mark: string }> {
  const mark = newId().slice(0, 8)
  const created = await api.admin('POST', '/users', {
    first_name: `Ada ${mark}`,
    last_name: `Byron_${mark}`,
    email: `ada-${mark}@example.com`,
    credentials: { username: `ada-${mark}`, secret: 'correct horse' },
    metadata: { salary: 1 },
    ...fields,
  })
  return { id: created.json<{ id: string }>().id, mark }
}

describe('search', () => {
  test('any user finds others by part of a name, of the username or the email, in any case, and by id', async () => {
    const user = await api.newUser()
    const { id, mark } = await aUser()
    for (const query of [
      `username=DA-${mark}`,
      `name=ada-${mark}`,
      `name=Byron_${mark}`,
      `email=${mark}@EXAMPLE`,
      `first_name=ada%20${mark}`,
      `last_name=Byron_${mark}`,
      `id=${id}`,
      `username=ada-${mark}&first_name=ada`,
    ]) {
      const found = await user.call('GET', `/users/search?${query}`)
      expect(found.status, query).toBe(200)
      expect(found.json<FoundPage>(), query).toMatchObject({ total: 1, offset: 0, limit: 10, users: [{ id }] })
    }
    for (const query of [
      `last_name=Byron%25${mark}`,
      `name=${mark}@example`,
      `username=${mark}&first_name=Eve`,
      `id=${newId()}`,
      'id=x',
    ])
      expect((await user.call('GET', `/users/search?${query}`)).json<FoundPage>().users, query).toEqual([])
  })

  test('an item consists of id, username, email and names', async () => {
    const { id, mark } = await aUser()
    const user = await api.newUser()
    const found = (await user.call('GET', `/users/search?username=${mark}`)).json<FoundPage>()
    expect(found.users).toEqual([
      {
        id,
        username: `ada-${mark}`,
        email: `ada-${mark}@example.com`,
        first_name: `Ada ${mark}`,
        last_name: `Byron_${mark}`,
        credentials: { username: `ada-${mark}` },
      },
    ])
  })

  test('platform administrators, disabled and deleted users are not found', async () => {
    const [admin, disabled, deleted] = [await aUser({ role: 'admin' }), await aUser(), await aUser()]
    await api.admin('POST', `/users/${disabled.id}/disable`)
    await api.admin('DELETE', `/users/${deleted.id}`)
    const user = await api.newUser()
    for (const { mark, id } of [admin, disabled, deleted]) {
      expect((await user.call('GET', `/users/search?username=${mark}`)).json<FoundPage>().total).toBe(0)
      expect((await api.admin('GET', `/users/search?id=${id}`)).json<FoundPage>().total).toBe(0)
    }
  })

  test.each([
    '',
    '?limit=10',
    '?username=ab',
    '?name=ab',
    '?username=',
    '?email=ab',
    '?first_name=ab&last_name=abc',
    '?username=abc&limit=0',
    '?username=abc&limit=101',
    '?username=abc&offset=-1',
    '?username=abc&dir=up',
    '?username=abc&username=abd',
    '?unknown=abc',
  ])('%s is refused', async (query) => {
    const user = await api.newUser()
    expect((await user.call('GET', `/users/search${query}`)).status).toBe(400)
  })

  test('a search requires a login', async () => {
    expect((await api.anonymous('GET', '/users/search?username=abc')).status).toBe(401)
  })

  test('pages contain every user once, in both directions', async () => {
    const mark = newId().slice(0, 8)
    const ids: string[] = []
    for (let count = 0; count < 5; count++)
      ids.push((await aUser({ credentials: { username: `${mark}-${count}`, secret: 'correct horse' } })).id)
    const user = await api.newUser()
    const visit = async (dir: string) => {
      const seen: string[] = []
      for (let offset = 0; offset < 5; offset += 2) {
        const page = await user.call(
          'GET',
          `/users/search?username=${mark}&order=created_at&dir=${dir}&limit=2&offset=${offset}`,
        )
        expect(page.json<FoundPage>()).toMatchObject({ total: 5, offset, limit: 2 })
        seen.push(...page.json<FoundPage>().users.map((found) => found.id))
      }
      return seen
    }
    expect(await visit('asc')).toEqual(ids)
    expect(await visit('desc')).toEqual(ids.toReversed())
  })
})

describe('list', () => {
  test.each([
    'limit=0',
    'limit=101',
    'limit=ten',
    'offset=-1',
    'dir=up',
    'status=gone',
    'visibility=none',
    'metadata=[1]',
    'metadata=x',
    'only_total=maybe',
    'name=a&name=b',
  ])('%s is refused', async (query) => {
    expect((await api.admin('GET', `/users?${query}`)).status).toBe(400)
  })

  test('an empty list is a page as well, with the limits of the request', async () => {
    const user = await api.newUser()
    expect((await user.call('GET', '/users?visibility=mine&limit=100&offset=3')).json()).toEqual({
      total: 0,
      offset: 3,
      limit: 100,
      users: [],
    })
  })

  test('a token that is bound to a domain lists the users of that domain', async () => {
    const { user, domainId } = await newTenant(api)
    const member = await api.newUser()
    await grantRole(api, member.id, { type: 'domain', domainId, id: domainId }, ['read'])
    const other = await user.call('POST', '/domains', { name: 'other' })
    const elsewhere = await api.newUser()
    const { id: otherId } = other.json<{ id: string }>()
    await grantRole(api, elsewhere.id, { type: 'domain', domainId: otherId, id: otherId }, ['read'])
    const login = { identity: user.username, secret: user.secret, domain_id: domainId }
    const { access_token: token } = (await api.anonymous('POST', '/users/tokens/issue', login)).json<{
      access_token: string
    }>()
    const ids = async (call: TestUser['call']) =>
      (await call('GET', '/users?visibility=shared&order=created_at')).json<FoundPage>().users.map((one) => one.id)
    expect(await ids(api.as(`Bearer ${token}`))).toEqual([user.id, member.id])
    expect(await ids(user.call)).toEqual([user.id, member.id, elsewhere.id])
  })
})

describe('memberships', () => {
  type MembershipPage = {
    total: number
    offset: number
    limit: number
    memberships: { id: string; name: string; children?: { id: string }[] }[]
  }
  const of = (id: string, query = '') => `/users/${id}/memberships${query}`

  /** A domain with two groups, one below the other, and a member of both. */
  async function aMember() {
    const tenant = await newTenant(api)
    const { domainId } = tenant
    const parent = await newGroup(api, domainId)
    const child = await newGroup(api, domainId, parent)
    const member = await api.newUser()
    for (const id of [parent, child])
      await grantRole(api, member.id, { type: 'group', domainId, id }, ['read', 'membership'])
    return { ...tenant, parent, child, member }
  }
  const idsOf = (page: MembershipPage) => page.memberships.map((group) => group.id).toSorted()

  test('users see the groups in which they have a role', async () => {
    const { member, parent, child } = await aMember()
    const page = await member.call('GET', of(member.id))
    expect(page.status).toBe(200)
    expect(page.json<MembershipPage>()).toMatchObject({ total: 2, offset: 0, limit: 10 })
    expect(idsOf(page.json<MembershipPage>())).toEqual([parent, child].toSorted())
    expect(
      (await member.call('GET', of(member.id, '?limit=1&offset=1'))).json<MembershipPage>().memberships,
    ).toHaveLength(1)
  })

  test('the owner of a user and the platform administrator see them all', async () => {
    const { domainId, parent } = await aMember()
    const owner = await api.newUser()
    const owned = (
      await owner.call('POST', '/users', {
        name: 'Owned',
        credentials: { identity: `owned-${newId().slice(0, 8)}`, secret: 'correct horse' },
      })
    ).json<{ id: string }>()
    await grantRole(api, owned.id, { type: 'group', domainId, id: parent }, ['read'])
    expect(idsOf((await owner.call('GET', of(owned.id))).json<MembershipPage>())).toEqual([parent])
    expect(idsOf((await api.admin('GET', of(owned.id))).json<MembershipPage>())).toEqual([parent])
  })

  test('other callers see the groups on which they have membership, which older clients call c_list', async () => {
    const { domainId, member, parent, child } = await aMember()
    const colleague = await api.newUser()
    await grantRole(api, colleague.id, { type: 'domain', domainId, id: domainId }, ['read'])
    await grantRole(api, colleague.id, { type: 'group', domainId, id: parent }, ['read', 'membership'])
    expect(idsOf((await colleague.call('GET', of(member.id))).json<MembershipPage>())).toEqual([parent])
    expect((await colleague.call('GET', of(member.id, `?parentID=${parent}`))).json<MembershipPage>()).toMatchObject({
      total: 0,
      memberships: [],
    })
    await grantRole(api, colleague.id, { type: 'group', domainId, id: parent }, ['subgroup_membership'])
    expect(idsOf((await colleague.call('GET', of(member.id))).json<MembershipPage>())).toEqual(
      [parent, child].toSorted(),
    )
  })

  test('a caller without such a group in common is refused; a group without the action is left out', async () => {
    const { domainId, member, parent } = await aMember()
    const [stranger, reader] = [await api.newUser(), await api.newUser()]
    await grantRole(api, reader.id, { type: 'domain', domainId, id: domainId }, ['read'])
    await grantRole(api, reader.id, { type: 'group', domainId, id: parent }, ['read'])
    expect((await stranger.call('GET', of(member.id))).status).toBe(403)
    expect((await reader.call('GET', of(member.id))).status).toBe(403)
    expect((await stranger.call('GET', of(newId()))).status).toBe(404)
    expect((await stranger.call('GET', of('x'))).status).toBe(404)
    expect((await api.anonymous('GET', of(member.id))).status).toBe(401)
    expect((await stranger.call('GET', of(member.id, '?limit=101'))).status).toBe(400)
  })

  test('the filters of groups narrow the list, and tree=true nests it', async () => {
    const { member, parent, child, user } = await aMember()
    expect(idsOf((await member.call('GET', of(member.id, `?parentID=${parent}`))).json<MembershipPage>())).toEqual([
      child,
    ])
    expect(idsOf((await member.call('GET', of(member.id, '?name=nothing'))).json<MembershipPage>())).toEqual([])
    expect(idsOf((await member.call('GET', of(member.id, '?status=disabled'))).json<MembershipPage>())).toEqual([])
    expect(idsOf((await member.call('GET', of(member.id, `?ownerID=${user.id}`))).json<MembershipPage>())).toEqual([])
    const tree = (await member.call('GET', of(member.id, '?tree=true'))).json<MembershipPage>()
    expect(tree).toMatchObject({ total: 2, memberships: [{ id: parent, children: [{ id: child }] }] })
    expect((await member.call('GET', of(member.id, '?only_total=true'))).json()).toEqual({ total: 2, memberships: [] })
  })

  test('groups of a disabled domain are not shown', async () => {
    const { member, call, domainId } = await aMember()
    await call('POST', `/domains/${domainId}/disable`)
    expect((await member.call('GET', of(member.id))).json<MembershipPage>().total).toBe(0)
  })
})
