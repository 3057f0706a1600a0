// specification section 4 "Users"; contract section 5, decisions 10, 40, 46, 51, Last admin of 2.4
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { createTestDatabase } from '../harness/database.ts'
import { untilInForce } from '../harness/in-force.ts'
import { useWorld } from '../harness/world.ts'
import { ZERO_TIME, grantRole, newTenant, statusesOf } from './support.ts'

const api = useWorld(() => startTestApi())

type User = {
  id: string
  name?: string
  email?: string
  credentials: { username?: string; identity?: string }
  tags: string[]
  profile_picture?: string
  role: string
  status: string
  updated_at: string
  updated_by?: string
}

const mark = () => newId().slice(0, 8)
const profile = async (user: TestUser) => (await user.call('GET', '/users/profile')).json<User>()

/** What the journal says of the latest change of a user. */
async function latestEntry(userId: string): Promise<{ operation: string; attributes: Record<string, unknown> }> {
  const { rows } = await sql<{ operation: string; attributes: Record<string, unknown> }>`
    SELECT operation, attributes FROM journal WHERE attributes->>'id' = ${userId} ORDER BY xid DESC, seq DESC LIMIT 1`.execute(
    api.database.db,
  )
  return rows[0] as { operation: string; attributes: Record<string, unknown> }
}

test.each([
  ['tags', { tags: ['operator', 'night'] }, { tags: ['operator', 'night'] }],
  ['tags', {}, { tags: [] }],
  ['picture', { profile_picture: 'https://example.com/me.png' }, { profile_picture: 'https://example.com/me.png' }],
  ['username', { username: 'Ada_L-1' }, { credentials: { username: 'Ada_L-1' } }],
  ['email', { email: 'ada@lovelace.example' }, { email: 'ada@lovelace.example' }],
])('PATCH %s with %j returns the changed user', async (field, body, expected) => {
  const user = await api.newUser()
  const changed = await user.call('PATCH', `/users/${user.id}/${field}`, body)
  expect(changed.status).toBe(200)
  expect(changed.json()).toMatchObject({ id: user.id, ...expected, updated_by: user.id })
  expect(changed.json<User>().updated_at).not.toBe(ZERO_TIME)
  expect(await profile(user)).toMatchObject(expected)
})

test.each([
  ['tags', { tags: 'one' }],
  ['tags', { tags: [1] }],
  ['tags', { tags: Array.from({ length: 101 }, () => 'x') }],
  ['picture', {}],
  ['picture', { profile_picture: 'javascript:alert(1)' }],
  ['picture', { profile_picture: 'me.png' }],
  ['email', {}],
  ['email', { email: '' }],
  ['email', { email: 'no address' }],
  ['email', { email: 'a@example.com\r\nBcc: b@example.com' }],
  ['email', { email: 'a@example.com,b@example.com' }],
  ['email', { email: `${'x'.repeat(65)}@example.com` }],
  ['username', {}],
  ['username', { username: '' }],
  ['username', { username: '-first' }],
  ['username', { username: 'two--marks' }],
  ['username', { username: 'x'.repeat(33) }],
  ['username', { username: 'me@example.com' }],
  ['role', {}],
  ['role', { role: 'king' }],
])('PATCH %s refuses %j and changes nothing', async (field, body) => {
  const user = await api.newUser()
  const before = await profile(user)
  const refused = await api.admin('PATCH', `/users/${user.id}/${field}`, body)
  expect(refused.status).toBe(400)
  expect(refused.json()).toMatchObject({ error: 'malformed' })
  expect(await profile(user)).toEqual(before)
})

test("an email and a username of another user are refused, in any case; one's own are accepted", async () => {
  const [user, other] = [await api.newUser(), await api.newUser()]
  const email = `${other.username}@example.com`
  for (const [field, body] of [
    ['email', { email: email.toUpperCase() }],
    ['username', { username: other.username.toUpperCase() }],
  ] as const) {
    const refused = await user.call('PATCH', `/users/${user.id}/${field}`, body)
    expect(refused.status).toBe(409)
    expect(refused.json()).toMatchObject({ error: 'conflict', message: expect.stringContaining(field) as string })
    expect((await other.call('PATCH', `/users/${other.id}/${field}`, body)).status).toBe(200)
  }
})

test('exactly one of ten concurrent registrations with one email succeeds', async () => {
  const email = `${mark()}@example.com`
  const answers = await Promise.all(
    Array.from({ length: 10 }, () =>
      api.anonymous('POST', '/users', {
        first_name: `First ${mark()}`,
        last_name: `Last ${mark()}`,
        email,
        credentials: { username: `u-${mark()}`, secret: 'correct horse' },
      }),
    ),
  )
  expect(statusesOf(answers)).toEqual([201, ...Array.from({ length: 9 }, () => 409)])
  expect((await api.admin('GET', `/users?email=${email}`)).json()).toMatchObject({ total: 1 })
})

test('exactly one of ten users who request one username at once gets it', async () => {
  const users = await Promise.all(Array.from({ length: 10 }, () => api.newUser()))
  const username = `wanted-${mark()}`
  const answers = await Promise.all(users.map((user) => user.call('PATCH', `/users/${user.id}/username`, { username })))
  expect(statusesOf(answers)).toEqual([200, ...Array.from({ length: 9 }, () => 409)])
})

test('the new email and username sign in, and the old ones do not', async () => {
  const user = await api.newUser()
  const next = `next-${mark()}`
  await user.call('PATCH', `/users/${user.id}/email`, { email: `${next}@example.com` })
  await user.call('PATCH', `/users/${user.id}/username`, { username: next })
  const logIn = async (identity: string) =>
    (await api.anonymous('POST', '/users/tokens/issue', { identity, secret: user.secret })).status
  expect(await logIn(next)).toBe(201)
  expect(await logIn(`${next}@example.com`)).toBe(201)
  expect(await logIn(user.username)).toBe(401)
  expect(await logIn(`${user.username}@example.com`)).toBe(401)
})

test('neither a stranger nor the owner changes the email, username, picture, tags, role or names, or deletes the user', async () => {
  const [owner, stranger] = [await api.newUser(), await api.newUser()]
  const owned = (
    await owner.call('POST', '/users', {
      name: 'Owned',
      credentials: { identity: `owned-${mark()}@example.com`, secret: 'correct horse' },
    })
  ).json<User>()
  for (const { call } of [owner, stranger]) {
    for (const [field, body] of [
      ['/email', { email: 'taken-over@example.com' }],
      ['/username', { username: 'taken-over' }],
      ['/picture', { profile_picture: '' }],
      ['/tags', { tags: [] }],
      ['/role', { role: 'user' }],
      ['', { name: 'Mine' }],
    ] as const)
      expect((await call('PATCH', `/users/${owned.id}${field}`, body)).status, field).toBe(403)
    expect((await call('DELETE', `/users/${owned.id}`)).status).toBe(403)
  }
  expect((await stranger.call('POST', `/users/${owned.id}/disable`)).status).toBe(403)
  expect((await owner.call('POST', `/users/${owned.id}/disable`)).status).toBe(200)
})

test('the owner of a user cannot disable that user once they are a platform administrator', async () => {
  const owner = await api.newUser()
  const credentials = { identity: `raised-${mark()}`, secret: 'correct horse' }
  const { id } = (await owner.call('POST', '/users', { credentials })).json<User>()
  await api.admin('PATCH', `/users/${id}/role`, { role: 'admin' })
  expect((await owner.call('POST', `/users/${id}/disable`)).status).toBe(403)
})

test('changing an unknown user is 404, and the body is validated first', async () => {
  for (const [field, good] of [
    ['tags', { tags: [] }],
    ['picture', { profile_picture: '' }],
    ['email', { email: `${mark()}@example.com` }],
    ['username', { username: `u-${mark()}` }],
    ['role', { role: 'user' }],
  ] as const) {
    expect((await api.admin('PATCH', `/users/${newId()}/${field}`, good)).status, field).toBe(404)
    expect((await api.admin('PATCH', `/users/${newId()}/${field}`, { [Object.keys(good)[0] ?? '']: 7 })).status).toBe(
      400,
    )
    expect(
      (await api.anonymous('PATCH', `/users/${newId()}/${field}`, 'x', { 'content-type': 'text/csv' })).status,
    ).toBe(401)
    expect((await api.admin('PATCH', `/users/${newId()}/${field}`, 'x', { 'content-type': 'text/csv' })).status).toBe(
      415,
    )
  }
})

test('the platform administrator grants and revokes the role, with effect on existing sessions at once', async () => {
  const user = await api.newUser()
  expect((await user.call('PATCH', `/users/${user.id}/role`, { role: 'admin' })).status).toBe(403)
  const raised = await api.admin('PATCH', `/users/${user.id}/role`, { role: 'admin' })
  expect(raised.status).toBe(200)
  expect(raised.json<User>().role).toBe('admin')
  const other = await api.newUser()
  expect((await user.call('POST', `/users/${other.id}/disable`)).status).toBe(200)
  const lowered = await api.admin('PATCH', `/users/${user.id}/role`, { role: 'user' })
  expect(lowered.json<User>().role).toBe('user')
  expect((await user.call('POST', `/users/${other.id}/enable`)).status).toBe(403)
})

test('the only administrator of the platform keeps the role and the account', async () => {
  await using lone = await startTestApi()
  const { id } = (await lone.admin('GET', '/users/profile')).json<User>()
  for (const refused of [
    await lone.admin('PATCH', `/users/${id}/role`, { role: 'user' }),
    await lone.admin('DELETE', `/users/${id}`),
    await lone.admin('DELETE', `/users/${id}?force=true`),
  ]) {
    expect(refused.status).toBe(409)
    expect(refused.json()).toMatchObject({ error: 'invalid_state' })
  }
  const second = await lone.newUser()
  await lone.admin('PATCH', `/users/${second.id}/role`, { role: 'admin' })
  const answers = await Promise.all([
    lone.admin('PATCH', `/users/${id}/role`, { role: 'user' }),
    second.call('PATCH', `/users/${second.id}/role`, { role: 'user' }),
  ])
  expect(statusesOf(answers)).toEqual([200, 409])
})

test('the older field name is changed and cleared like any other', async () => {
  const user = await api.newUser()
  expect((await user.call('PATCH', `/users/${user.id}`, { name: 'Countess' })).json<User>().name).toBe('Countess')
  expect((await user.call('PATCH', `/users/${user.id}`, { name: '' })).json<User>().name).toMatch(/^First .* Last /)
})

test('the journal records the values before and after a change, and never a password', async () => {
  const user = await api.newUser()
  await user.call('PATCH', `/users/${user.id}/tags`, { tags: ['a'] })
  expect(await latestEntry(user.id)).toEqual({
    operation: 'user.update_tags',
    attributes: { id: user.id, before: { tags: [] }, after: { tags: ['a'] } },
  })
  await user.call('PATCH', '/users/secret', { old_secret: user.secret, new_secret: 'another password' })
  expect(await latestEntry(user.id)).toEqual({
    operation: 'user.reset_secret',
    attributes: { id: user.id, before: {}, after: {} },
  })
})

test('a caller with a stolen session cannot guess the password in it', async () => {
  const user = await api.newUser()
  const change = async (oldSecret: string) =>
    await user.call('PATCH', '/users/secret', { old_secret: oldSecret, new_secret: 'another password' })
  for (let count = 0; count < 10; count++) expect((await change(`guess ${count}`)).status).toBe(401)
  const refused = await change(user.secret)
  expect(refused.status).toBe(429)
  expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0)
})

test('a token that is bound to a domain changes no account', async () => {
  const { user, domainId } = await newTenant(api)
  const login = { identity: user.username, secret: user.secret, domain_id: domainId }
  const { access_token: token } = (await api.anonymous('POST', '/users/tokens/issue', login)).json<{
    access_token: string
  }>()
  const bound = api.as(`Bearer ${token}`)
  expect((await bound('GET', '/users/profile')).status).toBe(200)
  expect((await bound('PATCH', `/users/${user.id}/email`, { email: `${mark()}@example.com` })).status).toBe(403)
  expect((await bound('PATCH', `/users/${user.id}`, { metadata: {} })).status).toBe(403)
  expect((await bound('DELETE', `/users/${user.id}`)).status).toBe(403)
})

test('deleting answers a message and ends logins, tokens and roles at once', async () => {
  const { user: admin, domainId } = await newTenant(api)
  const user = await api.newUser()
  await grantRole(api, user.id, { type: 'domain', domainId, id: domainId }, ['read'])
  expect((await user.call('GET', `/domains/${domainId}`)).status).toBe(200)
  const deleted = await user.call('DELETE', `/users/${user.id}`)
  expect(deleted.status).toBe(200)
  expect(deleted.json<{ message: string }>().message).toEqual(expect.any(String))
  expect((await user.call('GET', '/users/profile')).status).toBe(401)
  expect((await api.as(`Bearer ${user.refreshToken}`)('POST', '/users/tokens/refresh')).status).toBe(401)
  for (const identity of [user.username, `${user.username}@example.com`])
    expect((await api.anonymous('POST', '/users/tokens/issue', { identity, secret: user.secret })).status).toBe(401)
  expect((await admin.call('GET', '/users?visibility=shared')).text).not.toContain(user.id)
  const { rows } = await sql<{
    count: number
  }>`SELECT count(*) AS count FROM grants g JOIN users u ON u.key = g.user_key
    WHERE u.id = ${user.id}`.execute(api.database.db)
  expect(rows[0]?.count).toBe(0)
})

test.each(['disabled', 'deleted'])('the API keys and personal access tokens of a %s user end at once', async (what) => {
  const user = await api.newUser()
  const key = (await user.call('POST', '/keys', { type: 3 })).json<{ value: string }>()
  const pat = (await user.call('POST', '/pats', { name: 'mine', duration: '24h' })).json<{
    id: string
    secret: string
  }>()
  const scopes = [{ entity_type: 'users', entity_id: '*', operation: 'read' }]
  await user.call('PATCH', `/pats/${pat.id}/scope/add`, { scopes })
  const ask = async (token: string) => (await api.as(`Bearer ${token}`)('GET', '/users/profile')).status
  expect(await Promise.all([key.value, pat.secret].map(ask))).toEqual([200, 200])
  if (what === 'deleted') await api.admin('DELETE', `/users/${user.id}`)
  else await api.admin('POST', `/users/${user.id}/disable`)
  expect(await Promise.all([key.value, pat.secret].map(ask))).toEqual([401, 401])
})

test('a deleted user is invisible except to a platform administrator who lists deleted users, and cannot be restored', async () => {
  const user = await api.newUser()
  await api.admin('DELETE', `/users/${user.id}`)
  for (const refused of [
    await api.admin('GET', `/users/${user.id}`),
    await api.admin('POST', `/users/${user.id}/enable`),
    await api.admin('PATCH', `/users/${user.id}`, { metadata: {} }),
    await api.admin('DELETE', `/users/${user.id}`),
    await (await api.newUser()).call('GET', `/users/${user.id}`),
  ])
    expect(refused.status).toBe(404)
  const listed = async (status: string) =>
    (await api.admin('GET', `/users?id=${user.id}&status=${status}`)).json<{ total: number; users: User[] }>()
  expect(await listed('deleted')).toMatchObject({ total: 1, users: [{ id: user.id, status: 'deleted' }] })
  expect(await listed('all')).toMatchObject({ total: 1 })
  expect(await listed('enabled')).toMatchObject({ total: 0 })
  expect(await listed('disabled')).toMatchObject({ total: 0 })
  expect((await api.admin('GET', `/users?id=${user.id}&status=gone`)).status).toBe(400)
})

test('the email of a deleted user stays reserved until the record is removed', async () => {
  const user = await api.newUser()
  await api.admin('DELETE', `/users/${user.id}`)
  const again = await api.anonymous('POST', '/users', {
    first_name: mark(),
    last_name: mark(),
    email: `${user.username}@example.com`,
    credentials: { username: `u-${mark()}`, secret: 'correct horse' },
  })
  expect(again.status).toBe(409)
})

test('the only administrator of a domain is not deleted, unless the platform administrator replaces them', async () => {
  const { user, domainId } = await newTenant(api)
  for (const refused of [
    await user.call('DELETE', `/users/${user.id}`),
    await user.call('DELETE', `/users/${user.id}?force=true`),
    await api.admin('DELETE', `/users/${user.id}`),
  ]) {
    expect(refused.status).toBe(409)
    expect(refused.json()).toMatchObject({
      error: 'invalid_state',
      message: expect.stringContaining(domainId) as string,
    })
  }
  expect((await user.call('GET', '/users/profile')).status).toBe(200)
  expect((await api.admin('DELETE', `/users/${user.id}?force=true`)).status).toBe(200)
  const listed = (await api.admin('GET', `/domains?id=${domainId}`)).json<{ domains: { role_name: string }[] }>()
  expect(listed.domains[0]?.role_name).toBe('admin')
})

test('exactly one of ten concurrent deletions succeeds', async () => {
  const user = await api.newUser()
  const answers = await Promise.all(Array.from({ length: 10 }, () => api.admin('DELETE', `/users/${user.id}`)))
  expect(statusesOf(answers)).toEqual([200, ...Array.from({ length: 9 }, () => 404)])
})

test('another node learns of a deletion within a second', async () => {
  await using database = await createTestDatabase()
  await using here = await startTestApi({ database })
  await using other = await startTestApi({ database })
  const user = await here.newUser()
  const there = async () => (await other.as(`Bearer ${user.accessToken}`)('GET', '/users/profile')).status
  expect(await there()).toBe(200)
  await here.admin('DELETE', `/users/${user.id}`)
  await untilInForce(there, { from: 200, to: 401 }, 'the other node refuses')
})
