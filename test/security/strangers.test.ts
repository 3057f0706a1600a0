/** What users learn of each other: in listings, by filters, by explanations and in journals no more than is theirs to know. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi, TestUser } from '../harness/api.ts'

let api: TestApi
let owner: TestUser
let member: TestUser
let domain: string
beforeAll(async () => {
  api = await startTestApi({ trustProxy: ['127.0.0.1'] })
  ;[owner, member] = [await api.newUser(), await api.newUser()]
  domain = await newDomain(owner)
  await assign(owner, domain, member.id)
  const patched = await member.call('PATCH', `/users/${member.id}`, { metadata: { salary: 4711 } })
  expect(patched.status, patched.text).toBe(200)
  expect((await member.call('PATCH', `/users/${member.id}/tags`, { tags: ['unhappy'] })).status).toBe(200)
})
afterAll(async () => {
  await api[Symbol.asyncDispose]()
})

async function newDomain(user: TestUser): Promise<string> {
  const made = await user.call('POST', '/domains', { name: 'place', route: `s-${newId().slice(0, 8)}` })
  return made.json<{ id: string }>().id
}
async function assign(by: TestUser, to: string, userId: string): Promise<void> {
  const body = { relation: 'member', user_ids: [userId] }
  expect((await by.call('POST', `/domains/${to}/users/assign`, body)).status).toBe(201)
}

type Listed = { id: string }
const usersOf = async (user: TestUser, url: string) =>
  (await user.call('GET', url)).json<{ users?: Listed[] }>().users ?? []

describe('a co-member', () => {
  test.each([
    ['GET /users', () => '/users?limit=100'],
    ['GET /users?visibility=shared', () => '/users?limit=100&visibility=shared'],
    ['GET /domains/{id}/users', () => `/domains/${domain}/users?limit=100`],
  ])('appears in %s as in GET /users/{id}', async (_what, url) => {
    for (const [caller, other] of [
      [owner, member],
      [member, member],
      [owner, owner],
    ] as const) {
      const alone = (await caller.call('GET', `/users/${other.id}`)).json()
      const listed = (await usersOf(caller, url())).find(({ id }) => id === other.id)
      // Members without a right on the roles of the domain have no listing of it.
      if (listed !== undefined || caller === owner) expect(listed).toEqual(alone)
    }
    const [seen] = (await usersOf(owner, url())).filter(({ id }) => id === member.id)
    expect(Object.keys(seen ?? {}).toSorted()).toEqual(['credentials', 'first_name', 'id', 'last_name', 'name'])
  })

  test('cannot be found by a filter on hidden fields', async () => {
    const email = `${member.username}@example.com`
    const metadata = encodeURIComponent('{"salary":4711}')
    const filters = [`email=${email}`, `identity=${email}`, 'tag=unhappy', `metadata=${metadata}`]
    for (const path of ['/users', `/domains/${domain}/users`])
      for (const filter of filters) {
        expect(await usersOf(owner, `${path}?${filter}`), `${path}?${filter}`).toEqual([])
        const { total } = (await owner.call('GET', `${path}?${filter}&only_total=true`)).json<{ total: number }>()
        expect(total, `${path}?${filter}`).toBe(0)
      }
    for (const filter of filters)
      expect(
        (await usersOf(member, `/users?${filter}`)).map(({ id }) => id),
        filter,
      ).toEqual([member.id])
    for (const filter of [`username=${member.username}`, `identity=${member.username}`, `id=${member.id}`])
      expect(
        (await usersOf(owner, `/users?${filter}`)).map(({ id }) => id),
        filter,
      ).toEqual([member.id])
  })
})

describe('an explanation of access', () => {
  const explain = (user: TestUser, subject: string, at = domain) =>
    user.call('GET', `/${at}/access?subject=${subject}&entity=domain:${at}&action=read`)

  test('reveals nothing of users outside the domain, not even their existence', async () => {
    const [stranger, disabled] = [await api.newUser(), await api.newUser()]
    await api.admin('POST', `/users/${disabled.id}/disable`)
    const admin = (await api.admin('GET', '/users/profile')).json<Listed>()
    const answers = []
    for (const id of [newId(), stranger.id, disabled.id, admin.id]) answers.push(await explain(owner, id))
    for (const answer of answers) expect([answer.status, answer.text]).toEqual([404, answers[0]?.text])
    expect((await explain(owner, member.id)).json()).toMatchObject({ allowed: true })
  })

  test('tells the platform administrator everything', async () => {
    const stranger = await api.newUser()
    const url = `/${domain}/access?subject=${stranger.id}&entity=domain:${domain}&action=read`
    expect((await api.admin('GET', url)).json()).toMatchObject({ allowed: false, domain: { is_member: false } })
  })
})

test('the journal of a user shows the addresses of that user and not those of others', async () => {
  const [actor, subject] = [await api.newUser(), await api.newUser()]
  const from = (address: string) => ({ 'x-forwarded-for': address })
  const place = (
    await actor.call('POST', '/domains', { name: 'place', route: `j-${newId().slice(0, 8)}` }, from('198.51.100.1'))
  ).json<Listed>().id
  const body = { relation: 'member', user_ids: [subject.id] }
  await actor.call('POST', `/domains/${place}/users/assign`, body, from('198.51.100.2'))
  await api.admin('PATCH', `/users/${subject.id}/tags`, { tags: ['seen'] }, from('198.51.100.3'))
  await subject.call('PATCH', `/users/${subject.id}/tags`, { tags: ['own'] }, from('203.0.113.9'))
  const created = await actor.call(
    'POST',
    '/users',
    {
      first_name: 'New',
      last_name: 'One',
      email: `${newId()}@example.com`,
      credentials: { username: `n-${newId().slice(0, 13)}`, secret: '12345678' },
    },
    from('198.51.100.4'),
  )
  const url = (id: string) => `/journal/user/${id}?with_attributes=true&limit=100`
  const own = await subject.call('GET', url(subject.id))
  expect(own.status).toBe(200)
  expect(own.text).toContain('203.0.113.9')
  expect(own.text).toContain('user.update_tags')
  expect(own.text).not.toContain('198.51.100.')
  for (const { id } of [subject, created.json<Listed>()])
    expect((await api.admin('GET', url(id))).text).not.toContain('198.51.100.')
  expect((await actor.call('GET', url(actor.id))).text).toContain('198.51.100.1')
})
