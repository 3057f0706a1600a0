// contract section 5 "Users"; specification sections 2 and 4 "Users"; decisions 1, 10, 11, 13, 28, 29, 50, 51
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Person, Requests } from './requests.ts'
import { A_STRING, A_TIME, A_UUID, NEVER, having, holding, page, startRequests } from './requests.ts'

let requests: Requests
let ann: Person
let bob: Person
beforeAll(async () => {
  requests = await startRequests()
  ann = await requests.person()
  bob = await requests.person()
})
afterAll(() => requests[Symbol.asyncDispose]())

const JANE = {
  first_name: 'Jane',
  last_name: 'Doe',
  email: 'jane@example.com',
  tags: ['ops'],
  credentials: { username: 'jane', secret: 'correct horse' },
  metadata: { shift: 'night' },
  profile_picture: 'https://example.com/jane.png',
}

describe('POST /users', () => {
  test('first_name, last_name and credentials.username: the answer holds no secret', async () => {
    const made = await requests.nobody('POST /users -> 201', {
      sends: JANE,
      gives: {
        id: A_UUID,
        first_name: 'Jane',
        last_name: 'Doe',
        email: 'jane@example.com',
        credentials: { username: 'jane', identity: 'jane@example.com' },
        tags: ['ops'],
        metadata: { shift: 'night' },
        profile_picture: 'https://example.com/jane.png',
        role: 'user',
        status: 'enabled',
        created_at: A_TIME,
        updated_at: NEVER,
      },
      headers: { location: expect.stringMatching(/^\/users\/[-0-9a-f]{36}$/) },
    })
    expect(JSON.stringify(made)).not.toContain('correct horse')
  })

  test('name and credentials.identity', async () => {
    await ann('POST /users -> 201', {
      sends: { name: 'Old Joe', credentials: { identity: 'joe@example.com', secret: 'correct horse' } },
      gives: { name: 'Old Joe', credentials: { identity: 'joe@example.com' }, owner: ann.id },
    })
  })

  test('what is refused', async () => {
    const other = {
      ...JANE,
      first_name: 'J',
      last_name: 'D',
      email: 'j@example.com',
      credentials: { username: 'j', secret: '12345678' },
    }
    for (const wrong of [
      { ...other, email: 'nowhere' },
      { ...other, first_name: undefined },
      { ...other, credentials: { username: 'j' } },
      { ...other, credentials: { username: 'j', secret: 'short' } },
      { ...other, credentials: { username: 'a@b.example', secret: '12345678' } },
      { ...other, credentials: { username: 'a__b', secret: '12345678' } },
    ])
      await requests.nobody('POST /users -> 400', { sends: wrong, gives: { error: 'malformed' } })
    await requests.nobody('POST /users -> 409', { sends: { ...other, email: 'jane@example.com' } })
    await requests.nobody('POST /users -> 409', {
      sends: { ...other, credentials: { username: 'jane', secret: '12345678' } },
    })
    await requests.nobody('POST /users -> 409', {
      sends: { ...other, first_name: 'Jane' },
      gives: { message: expect.stringContaining('SKEIN_USERS_UNIQUE_NAMES') },
    })
    await ann('POST /users -> 403', { sends: { ...other, role: 'admin' } })
  })
})

describe('tokens', () => {
  const pair = { access_token: A_STRING, refresh_token: A_STRING, access_type: 'Bearer' }

  test('POST /users/tokens/issue: every form of the body, username or email', async () => {
    for (const sends of [
      { identity: ann.username, secret: ann.secret },
      { identity: ann.email, secret: ann.secret },
      { username: ann.username, password: ann.secret },
      { username: ann.email, secret: ann.secret },
    ])
      await requests.nobody('POST /users/tokens/issue -> 201', { sends, gives: pair })
    await requests.nobody('POST /users/tokens/issue -> 400', { sends: { identity: ann.username } })
    await requests.nobody('POST /users/tokens/issue -> 401', {
      sends: { identity: ann.username, secret: 'another one' },
    })
    await requests.nobody('POST /users/tokens/issue -> 401', {
      sends: { identity: 'nobody-here', secret: 'another one' },
    })
  })

  test('POST /users/tokens/refresh rotates; the access token does not refresh; /revoke ends the session', async () => {
    const { refresh_token: first } = await requests.nobody<typeof pair>('POST /users/tokens/issue -> 201', {
      sends: { identity: bob.username, secret: bob.secret },
    })
    const next = await requests.bearer(first)<typeof pair>('POST /users/tokens/refresh -> 201', { gives: pair })
    await requests.bearer(next.access_token)('POST /users/tokens/refresh -> 401')
    await requests.bearer(next.refresh_token)('GET /users/profile -> 401')
    await bob('GET /users/tokens/refresh-tokens -> 200', { gives: { total: 2 } })
    await requests.bearer(next.refresh_token)('POST /users/tokens/revoke -> 204', { gives: '' })
    await requests.bearer(next.refresh_token)('POST /users/tokens/refresh -> 401')
    // Used twice: the whole family ends (decision 41).
    const other = await requests.nobody<typeof pair>('POST /users/tokens/issue -> 201', {
      sends: { identity: bob.username, secret: bob.secret },
    })
    const after = await requests.bearer(other.refresh_token)<typeof pair>('POST /users/tokens/refresh -> 201')
    await requests.bearer(other.refresh_token)('POST /users/tokens/refresh -> 401')
    await requests.bearer(after.refresh_token)('POST /users/tokens/refresh -> 401')
  })

  test('a token bound to a domain works in that domain alone (decision 40)', async () => {
    const { id: here } = await ann('POST /domains -> 201', { sends: { name: 'here' } })
    const { id: there } = await ann('POST /domains -> 201', { sends: { name: 'there' } })
    const login = { identity: ann.username, secret: ann.secret }
    const { access_token: bound } = await requests.nobody<typeof pair>('POST /users/tokens/issue -> 201', {
      sends: { ...login, domain_id: here },
    })
    await requests.bearer(bound)(`GET /${here}/clients -> 200`)
    await requests.bearer(bound)(`GET /${there}/clients -> 403`)
    await requests.nobody('POST /users/tokens/issue -> 403', {
      sends: { identity: bob.username, secret: bob.secret, domain_id: here },
    })
  })
})

describe('one user', () => {
  test('GET /users/profile and /users/{id}: of others only who they are', async () => {
    await ann('GET /users/profile -> 200', { gives: { id: ann.id, email: ann.email, role: 'user' } })
    await ann(`GET /users/${ann.id} -> 200`, { gives: { id: ann.id, email: ann.email } })
    const seen = await bob<Record<string, unknown>>(`GET /users/${ann.id} -> 200`, {
      gives: { id: ann.id, credentials: { username: ann.username } },
    })
    expect(seen['email']).toBeUndefined()
    await requests.root(`GET /users/${ann.id} -> 200`, { gives: { email: ann.email } })
  })

  test('PATCH /users/{id}, tags, picture, email, username, role', async () => {
    const me = await requests.person()
    await me(`PATCH /users/${me.id} -> 200`, {
      sends: { first_name: `A ${me.username}`, metadata: { a: 1 } },
      gives: { first_name: `A ${me.username}`, metadata: { a: 1 }, updated_at: A_TIME },
    })
    await me(`PATCH /users/${me.id}/tags -> 200`, { sends: { tags: ['x'] }, gives: { tags: ['x'] } })
    const picture = 'https://example.com/me.png'
    await me(`PATCH /users/${me.id}/picture -> 200`, {
      sends: { profile_picture: picture },
      gives: { profile_picture: picture },
    })
    await me(`PATCH /users/${me.id}/email -> 200`, {
      sends: { email: `new-${me.email}` },
      gives: { email: `new-${me.email}` },
    })
    await me(`PATCH /users/${me.id}/email -> 409`, { sends: { email: ann.email } })
    await me(`PATCH /users/${me.id}/email -> 400`, { sends: { email: 'nowhere' } })
    await me(`PATCH /users/${me.id}/username -> 200`, {
      sends: { username: `${me.username}-2` },
      gives: { credentials: { username: `${me.username}-2` } },
    })
    await me(`PATCH /users/${me.id}/username -> 409`, { sends: { username: ann.username } })
    await me(`PATCH /users/${me.id}/role -> 403`, { sends: { role: 'admin' } })
    await requests.root(`PATCH /users/${me.id}/role -> 200`, { sends: { role: 'admin' }, gives: { role: 'admin' } })
    await requests.root(`PATCH /users/${me.id}/role -> 400`, { sends: { role: 'king' } })
    await bob(`PATCH /users/${ann.id} -> 403`, { sends: { first_name: 'Mallory' } })
  })

  test('PATCH /users/secret', async () => {
    const me = await requests.person()
    await me('PATCH /users/secret -> 401', { sends: { old_secret: 'not this one', new_secret: 'a new secret' } })
    await me('PATCH /users/secret -> 400', { sends: { old_secret: me.secret, new_secret: 'short' } })
    await me('PATCH /users/secret -> 200', {
      sends: { old_secret: me.secret, new_secret: 'a new secret' },
      gives: { id: me.id },
    })
    await requests.nobody('POST /users/tokens/issue -> 201', {
      sends: { identity: me.username, secret: 'a new secret' },
    })
  })

  test('POST /users/{id}/disable and /enable; DELETE /users/{id}', async () => {
    const me = await requests.person()
    await bob(`POST /users/${me.id}/disable -> 403`)
    await me(`POST /users/${me.id}/disable -> 200`, { gives: { id: me.id, status: 'disabled' } })
    await requests.nobody('POST /users/tokens/issue -> 401', { sends: { identity: me.username, secret: me.secret } })
    await requests.root(`POST /users/${me.id}/disable -> 200`, { gives: { status: 'disabled' } })
    await requests.root(`POST /users/${me.id}/enable -> 200`, { gives: { status: 'enabled' } })
    await requests.root(`DELETE /users/${me.id} -> 200`, { gives: { message: A_STRING } })
    await requests.nobody('POST /users/tokens/issue -> 401', { sends: { identity: me.username, secret: me.secret } })
  })
})

test('GET /users: every filter, and visibility', async () => {
  for (const filter of [`username=${ann.username}`, `identity=${ann.username}`, `id=${ann.id}`])
    await requests.root(`GET /users?${filter} -> 200`, { gives: page('users', [having({ id: ann.id })]) })
  await requests.root('GET /users?first_name=Jane&tag=ops&status=enabled -> 200', { gives: { total: 1 } })
  await requests.root(`GET /users?metadata=${encodeURIComponent('{"shift":"night"}')} -> 200`, { gives: { total: 1 } })
  await requests.root('GET /users?limit=1&offset=1&order=username&dir=desc -> 200', {
    gives: { limit: 1, offset: 1, users: [having({})] },
  })
  await requests.root('GET /users?only_total=true -> 200', { gives: { total: expect.any(Number) } })
  await ann('GET /users?visibility=mine -> 200', { gives: page('users', [having({ name: 'Old Joe' })]) })
  await ann('GET /users?visibility=shared -> 200', { gives: { users: expect.any(Array) } })
  for (const query of ['limit=101', 'dir=up', 'status=big', 'visibility=none', 'metadata={'])
    await ann(`GET /users?${query} -> 400`)
})

test('GET /users/search', async () => {
  await ann(`GET /users/search?username=${bob.username} -> 200`, {
    gives: page('users', [having({ id: bob.id, credentials: having({ username: bob.username }) })]),
  })
  await ann('GET /users/search -> 400')
  await ann('GET /users/search?username=us -> 400')
  await ann('GET /users/search?username=admin -> 200', { gives: { total: 0, users: [] } })
})

test('GET /users/{id}/memberships: by the user, or by a member of the same group', async () => {
  const { id: d } = await bob('POST /domains -> 201', { sends: { name: 'plant' } })
  const { id: group } = await bob(`POST /${d}/groups -> 201`, { sends: { name: 'hall' } })
  await bob(`GET /users/${bob.id}/memberships -> 200`, { gives: { memberships: holding(having({ id: group })) } })
  await ann(`GET /users/${bob.id}/memberships -> 403`)
})

test('POST /password/reset-request and PUT /password/reset', async () => {
  for (const email of [ann.email, 'unknown@example.com'])
    await requests.nobody('POST /password/reset-request -> 201', { sends: { email }, gives: { msg: A_STRING } })
  await requests.nobody('PUT /password/reset -> 401', {
    sends: { token: 'x', password: '12345678', confirm_password: '12345678' },
  })
  await requests.bearer('x')('PUT /password/reset -> 401', {
    sends: { password: '12345678', confirm_password: '12345678' },
  })
})
