// specification sections 2 "User" and 4 "Users"; contract section 5, decisions 13, 28, 29, 50, 51, Last admin of 2.4
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { UUID, ZERO_TIME, grantRole, newTenant, statusesOf } from './support.ts'

const api = useWorld(() => startTestApi())

type User = {
  id: string
  first_name?: string
  last_name?: string
  name?: string
  email?: string
  credentials: { username?: string; identity?: string; secret?: string }
  tags: string[]
  metadata: Record<string, unknown>
  profile_picture?: string
  status: string
  owner?: string
  role: string
  created_at: string
  updated_at: string
}
type UserPage = { total: number; offset: number; limit: number; users: User[] }

type NewUser = { credentials: Record<string, unknown> } & Record<string, unknown>

/** A registration with everything that the specification shows. */
function aUser(fields: Record<string, unknown> = {}): NewUser {
  const mark = newId().slice(0, 8)
  return {
    first_name: `Jane ${mark}`,
    last_name: `Doe ${mark}`,
    email: `jane-${mark}@example.com`,
    credentials: { username: `jane-${mark}`, secret: 'correct horse' },
    ...fields,
  }
}

test('registering returns the user without the secret, and its location', async () => {
  const body = aUser({
    tags: ['operator'],
    metadata: { shift: 2 },
    profile_picture: 'https://example.com/jane.png',
    status: 'enabled',
  })
  const created = await api.anonymous('POST', '/users', body)
  expect(created.status).toBe(201)
  const user = created.json<User>()
  expect(user.id).toMatch(UUID)
  expect(created.headers['location']).toBe(`/users/${user.id}`)
  expect(created.headers['access-control-expose-headers']).toBe('Location')
  expect(user).toMatchObject({
    first_name: body['first_name'],
    last_name: body['last_name'],
    email: body['email'],
    credentials: { username: body.credentials['username'], identity: body['email'] },
    tags: ['operator'],
    metadata: { shift: 2 },
    profile_picture: 'https://example.com/jane.png',
    status: 'enabled',
    role: 'user',
    updated_at: ZERO_TIME,
  })
  expect(user.owner).toBeUndefined()
  expect(user.created_at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/)
  expect(created.text).not.toContain('correct horse')
  expect(created.text).not.toContain('argon2')
})

test('a user created with a token is owned by the user of the token, who may see, disable and enable it', async () => {
  const owner = await api.newUser()
  const owned = (await owner.call('POST', '/users', aUser())).json<User>()
  expect(owned.owner).toBe(owner.id)
  expect((await owner.call('GET', `/users/${owned.id}`)).json<User>().email).toBe(owned.email)
  expect((await owner.call('GET', '/users?visibility=mine')).json<UserPage>()).toMatchObject({
    total: 1,
    users: [{ id: owned.id }],
  })
  expect((await owner.call('POST', `/users/${owned.id}/disable`)).json<User>().status).toBe('disabled')
  expect((await owner.call('POST', `/users/${owned.id}/enable`)).json<User>().status).toBe('enabled')
  expect((await owner.call('PATCH', `/users/${owned.id}`, { first_name: 'Mine' })).status).toBe(403)
})

test('first name, last name, email and username are each unique, email and username in any case', async () => {
  const taken = aUser()
  expect((await api.anonymous('POST', '/users', taken)).status).toBe(201)
  for (const [what, body] of [
    ['email', aUser({ email: String(taken['email']).toUpperCase() })],
    [
      'username',
      aUser({
        credentials: { username: String(taken.credentials['username']).toUpperCase(), secret: 'correct horse' },
      }),
    ],
    ['first', aUser({ first_name: taken['first_name'] })],
    ['last', aUser({ last_name: taken['last_name'] })],
  ] as const) {
    const refused = await api.anonymous('POST', '/users', body)
    expect(refused.status, what).toBe(409)
    expect(refused.json()).toMatchObject({ error: 'conflict', message: expect.stringContaining(what) as string })
  }
})

test('the error for taken names contains the setting that disables the rule', async () => {
  const taken = aUser()
  await api.anonymous('POST', '/users', taken)
  const refused = await api.anonymous('POST', '/users', aUser({ first_name: taken['first_name'] }))
  expect(refused.text).toContain('SKEIN_USERS_UNIQUE_NAMES')
})

test('a name is free again after its user changed it', async () => {
  const user = await api.newUser()
  const before = (await user.call('GET', '/users/profile')).json<User>()
  await user.call('PATCH', `/users/${user.id}`, { first_name: `New ${newId()}` })
  expect((await api.anonymous('POST', '/users', aUser({ first_name: before.first_name }))).status).toBe(201)
})

test.each([
  ['first_name', { first_name: undefined }],
  ['last_name', { last_name: '' }],
  ['email', { email: undefined }],
  ['credentials.username', { credentials: { secret: 'correct horse' } }],
  ['credentials.secret', { credentials: { username: 'someone' } }],
  ['credentials', { credentials: undefined }],
  ['email', { email: 'not an email' }],
  ['email', { email: 'a@b..example' }],
  ['username', { credentials: { username: 'no spaces', secret: 'correct horse' } }],
  ['username', { credentials: { username: 'two__marks', secret: 'correct horse' } }],
  ['username', { credentials: { username: 'x'.repeat(33), secret: 'correct horse' } }],
  ['username', { credentials: { username: 'me@example.com', secret: 'correct horse' } }],
  ['secret', { credentials: { username: 'short', secret: '1234567' } }],
  ['status', { status: 'deleted' }],
  ['tags', { tags: 'one' }],
  ['metadata', { metadata: ['no object'] }],
  ['first_name', { first_name: 'x'.repeat(1025) }],
])('registering names %s as the invalid field', async (field, fields) => {
  const refused = await api.anonymous('POST', '/users', aUser(fields))
  expect(refused.status).toBe(400)
  expect(refused.json()).toMatchObject({ error: 'malformed', message: expect.stringContaining(field) as string })
})

test('the legacy shape keeps the name, and its identity is the email or the username', async () => {
  const mark = newId().slice(0, 8)
  const byEmail = await api.anonymous('POST', '/users', {
    name: 'Older Jane',
    credentials: { identity: `older-${mark}@example.com`, secret: 'correct horse' },
  })
  expect(byEmail.status).toBe(201)
  expect(byEmail.json<User>()).toMatchObject({
    name: 'Older Jane',
    email: `older-${mark}@example.com`,
    credentials: { identity: `older-${mark}@example.com` },
  })
  expect(byEmail.json<User>().first_name).toBeUndefined()
  const byUsername = await api.anonymous('POST', '/users', {
    name: 'Older Jane',
    credentials: { identity: `older-${mark}`, secret: 'correct horse' },
  })
  expect(byUsername.status).toBe(201)
  expect(byUsername.json<User>().credentials).toEqual({ username: `older-${mark}`, identity: `older-${mark}` })
})

test('only the platform administrator grants a role', async () => {
  const user = await api.newUser()
  expect((await api.anonymous('POST', '/users', aUser({ role: 'admin' }))).status).toBe(401)
  expect((await user.call('POST', '/users', aUser({ role: 'admin' }))).status).toBe(403)
  const created = await api.admin('POST', '/users', aUser({ role: 'admin' }))
  expect(created.json<User>().role).toBe('admin')
})

test('the profile is that of the user of the token', async () => {
  const user = await api.newUser()
  const profile = await user.call('GET', '/users/profile')
  expect(profile.status).toBe(200)
  expect(profile.json<User>()).toMatchObject({ id: user.id, credentials: { username: user.username } })
})

test('a stranger sees id, names and username only; the platform administrator sees everything', async () => {
  const [user, stranger] = [await api.newUser(), await api.newUser()]
  const seen = (await stranger.call('GET', `/users/${user.id}`)).json<User>()
  expect(Object.keys(seen).toSorted()).toEqual(['credentials', 'first_name', 'id', 'last_name', 'name'])
  expect(seen.credentials).toEqual({ username: user.username })
  expect((await api.admin('GET', `/users/${user.id}`)).json<User>().email).toBe(`${user.username}@example.com`)
})

test('an unknown user is 404, also for an invalid id', async () => {
  const user = await api.newUser()
  for (const id of [newId(), 'nobody', user.id.toUpperCase()])
    expect((await user.call('GET', `/users/${id}`)).status).toBe(404)
})

test('users change their own names and metadata; absent fields stay, and unknown fields are ignored', async () => {
  const user = await api.newUser()
  const before = (await user.call('GET', '/users/profile')).json<User>()
  const answer = await user.call('PATCH', `/users/${user.id}`, {
    first_name: `Renamed ${newId()}`,
    metadata: { a: 1 },
    email: 'other@example.com',
    role: 'admin',
  })
  expect(answer.status).toBe(200)
  const after = answer.json<User>()
  expect(after).toMatchObject({ last_name: before.last_name, metadata: { a: 1 }, email: before.email, role: 'user' })
  expect(after.updated_at).not.toBe(ZERO_TIME)
  expect((await user.call('PATCH', `/users/${user.id}`, { first_name: '' })).status).toBe(400)
})

test('only the user and the platform administrator change a user', async () => {
  const [user, stranger] = [await api.newUser(), await api.newUser()]
  expect((await stranger.call('PATCH', `/users/${user.id}`, { metadata: {} })).status).toBe(403)
  expect((await stranger.call('POST', `/users/${user.id}/disable`)).status).toBe(403)
  expect((await api.admin('PATCH', `/users/${user.id}`, { metadata: { by: 'admin' } })).json<User>().metadata).toEqual({
    by: 'admin',
  })
})

test('enabling and disabling return the user, from any state, and repeating them changes nothing', async () => {
  const user = await api.newUser()
  const same = (await api.admin('POST', `/users/${user.id}/enable`)).json<User>()
  expect(same).toMatchObject({ status: 'enabled', updated_at: ZERO_TIME })
  const disabled = (await api.admin('POST', `/users/${user.id}/disable`)).json<User>()
  expect(disabled.status).toBe('disabled')
  const again = await api.admin('POST', `/users/${user.id}/disable`)
  expect(again.status).toBe(200)
  expect(again.json<User>().updated_at).toBe(disabled.updated_at)
})

test('a disabled user is signed out, cannot sign in, and gets no session back after being enabled', async () => {
  const user = await api.newUser()
  await api.admin('POST', `/users/${user.id}/disable`)
  const login = { identity: user.username, secret: user.secret }
  expect((await user.call('GET', '/users/profile')).status).toBe(401)
  expect((await api.anonymous('POST', '/users/tokens/issue', login)).status).toBe(401)
  expect((await api.as(`Bearer ${user.refreshToken}`)('POST', '/users/tokens/refresh')).status).toBe(401)
  await api.admin('POST', `/users/${user.id}/enable`)
  expect((await user.call('GET', '/users/profile')).status).toBe(401)
  expect((await api.anonymous('POST', '/users/tokens/issue', login)).status).toBe(201)
})

test('the only administrator of a domain is not disabled until there is another one', async () => {
  const { user, domainId } = await newTenant(api)
  const refused = await api.admin('POST', `/users/${user.id}/disable`)
  expect(refused.status).toBe(409)
  expect(refused.json()).toMatchObject({ error: 'invalid_state', message: expect.stringContaining(domainId) as string })
  const other = await api.newUser()
  await grantRole(api, other.id, { type: 'domain', domainId, id: domainId }, 'admin')
  expect((await api.admin('POST', `/users/${user.id}/disable`)).status).toBe(200)
})

test('with force=true the platform administrator replaces the last administrator', async () => {
  const { user, domainId } = await newTenant(api)
  expect((await user.call('POST', `/users/${user.id}/disable?force=true`)).status).toBe(409)
  expect((await api.admin('POST', `/users/${user.id}/disable?force=true`)).status).toBe(200)
  const listed = (await api.admin('GET', `/domains?id=${domainId}`)).json<{ domains: { role_name: string }[] }>()
  expect(listed.domains[0]?.role_name).toBe('admin')
})

test('one of two administrators who leave a domain at the same moment stays', async () => {
  const { user, domainId } = await newTenant(api)
  const other = await api.newUser()
  await grantRole(api, other.id, { type: 'domain', domainId, id: domainId }, 'admin')
  const answers = await Promise.all([user, other].map(({ call, id }) => call('POST', `/users/${id}/disable`)))
  expect(statusesOf(answers)).toEqual([200, 409])
})

test('the only administrator of the platform is not disabled', async () => {
  await using lone = await startTestApi()
  const { id } = (await lone.admin('GET', '/users/profile')).json<User>()
  const refused = await lone.admin('POST', `/users/${id}/disable`)
  expect(refused.status).toBe(409)
  expect(refused.json()).toMatchObject({ error: 'invalid_state' })
})

test('changing the password requires the old one, returns the user and ends the other sessions of the user', async () => {
  const user = await api.newUser()
  const other = (
    await api.anonymous('POST', '/users/tokens/issue', { identity: user.username, secret: user.secret })
  ).json<{ access_token: string }>()
  const change = (old: string, next: string) =>
    user.call('PATCH', '/users/secret', { old_secret: old, new_secret: next })
  expect((await change('wrong password', 'a new password')).status).toBe(401)
  expect((await change(user.secret, 'short')).json()).toMatchObject({
    error: 'malformed',
    message: expect.stringMatching(/^new_secret is too weak/) as string,
  })
  const changed = await change(user.secret, 'a new password')
  expect(changed.status).toBe(200)
  expect(changed.json<User>().id).toBe(user.id)
  expect(changed.text).not.toContain('a new password')
  expect((await user.call('GET', '/users/profile')).status).toBe(200)
  expect((await api.as(`Bearer ${other.access_token}`)('GET', '/users/profile')).status).toBe(401)
  const login = (secret: string) => api.anonymous('POST', '/users/tokens/issue', { identity: user.username, secret })
  expect((await login(user.secret)).status).toBe(401)
  expect((await login('a new password')).status).toBe(201)
})

test('one of two concurrent password changes with the same old password succeeds', async () => {
  const user = await api.newUser()
  const answers = await Promise.all(
    ['first new password', 'second new password'].map((secret) =>
      user.call('PATCH', '/users/secret', { old_secret: user.secret, new_secret: secret }),
    ),
  )
  expect(statusesOf(answers)).toEqual([200, 401])
})

test('users list themselves, users that they own and users in their domains; the platform administrator lists all', async () => {
  const { user, domainId } = await newTenant(api)
  const [member, stranger] = [await api.newUser(), await api.newUser()]
  await grantRole(api, member.id, { type: 'domain', domainId, id: domainId }, ['read'])
  const owned = (await user.call('POST', '/users', aUser())).json<User>()
  const idsOf = async (query: string) =>
    (await user.call('GET', `/users?${query}`))
      .json<UserPage>()
      .users.map((one) => one.id)
      .toSorted()
  expect(await idsOf('')).toEqual([user.id, member.id, owned.id].toSorted())
  expect(await idsOf('visibility=mine')).toEqual([owned.id])
  expect(await idsOf('visibility=shared')).toEqual([user.id, member.id].toSorted())
  expect((await api.admin('GET', `/users?id=${stranger.id}`)).json<UserPage>().total).toBe(1)
  expect((await user.call('GET', `/users?id=${stranger.id}`)).json<UserPage>().total).toBe(0)
})

test('a closed domain shows its users to no one, a disabled one to its administrators only', async () => {
  const { user, domainId } = await newTenant(api)
  const member = await api.newUser()
  await grantRole(api, member.id, { type: 'domain', domainId, id: domainId }, ['read'])
  const seen = async (caller: typeof user, other: typeof user) =>
    (await caller.call('GET', `/users?id=${other.id}`)).json<UserPage>().total
  const both = async () => [await seen(user, member), await seen(member, user)]
  expect(await both()).toEqual([1, 1])
  await user.call('POST', `/domains/${domainId}/disable`)
  expect(await both()).toEqual([1, 0])
  await api.admin('POST', `/domains/${domainId}/freeze`)
  expect(await both()).toEqual([0, 0])
  await api.admin('POST', `/domains/${domainId}/enable`)
  await user.call('DELETE', `/domains/${domainId}`)
  expect(await both()).toEqual([0, 0])
})

test('each filter narrows the listing, and wildcards in filters are ordinary characters', async () => {
  const mark = newId().slice(0, 8)
  const fields = {
    first_name: `Ada_${mark}`,
    last_name: `Byron ${mark}`,
    tags: ['math'],
    metadata: { team: { no: 7, mark } },
  }
  const user = (await api.admin('POST', '/users', aUser(fields))).json<User>()
  const found = async (query: string) =>
    (await api.admin('GET', `/users?limit=100&${query}`)).json<UserPage>().users.map((one) => one.id)
  const metadata = encodeURIComponent(JSON.stringify({ team: { mark } }))
  for (const query of [
    `first_name=ada_${mark}`,
    `last_name=BYRON%20${mark}`,
    `name=da_${mark}`,
    `email=${user.email}`,
    `identity=${user.credentials.username}`,
    `username=${user.credentials.username}`,
    `tag=math&name=${mark}`,
    `id=${user.id}`,
    `metadata=${metadata}`,
    `status=enabled&name=${mark}`,
  ])
    expect(await found(query), query).toEqual([user.id])
  for (const query of [
    `first_name=ada%25${mark}`,
    `name=Ada-${mark}`,
    `status=disabled&name=${mark}`,
    `tag=mat&name=${mark}`,
  ])
    expect(await found(query), query).toEqual([])
  expect((await api.admin('GET', `/users?name=${mark}&only_total=true`)).json()).toEqual({ total: 1, users: [] })
})

test('disabled self-registration is refused before the body is validated', async () => {
  await using closed = await startTestApi({ environment: { SKEIN_ALLOW_SELF_REGISTER: 'false' } })
  expect((await closed.anonymous('POST', '/users', aUser())).status).toBe(401)
  expect((await closed.anonymous('POST', '/users', { nonsense: true })).status).toBe(401)
  const made = await closed.admin('POST', '/users', aUser())
  expect(made.status).toBe(201)
  const { username } = made.json<User>().credentials
  const { access_token: token } = (
    await closed.anonymous('POST', '/users/tokens/issue', { identity: username, secret: 'correct horse' })
  ).json<{ access_token: string }>()
  expect((await closed.as(`Bearer ${token}`)('POST', '/users', aUser())).status).toBe(403)
})

test('a wrong token creates no user without an owner', async () => {
  const forged = `${(await api.newUser()).accessToken.slice(0, -4)}AAAA`
  expect((await api.as(`Bearer ${forged}`)('POST', '/users', aUser())).status).toBe(401)
  expect((await api.as(`Bearer ${forged}`)('POST', '/users', { nonsense: true })).status).toBe(401)
})

test('without the rule of unique names two users may share a first and last name', async () => {
  await using lax = await startTestApi({ environment: { SKEIN_USERS_UNIQUE_NAMES: 'false' } })
  const names = { first_name: 'Jane', last_name: 'Doe' }
  expect((await lax.anonymous('POST', '/users', aUser(names))).status).toBe(201)
  expect((await lax.anonymous('POST', '/users', aUser(names))).status).toBe(201)
})
