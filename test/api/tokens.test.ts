// specification sections 4 "Users" and 5; contract section 6, decisions 1, 35, 40, 41, 42, 47
import { createPublicKey, verify } from 'node:crypto'
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { startTestApi } from '../harness/api.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { grantRole, newTenant, revokeRoles, statusesOf } from './support.ts'

const api = useWorld(() => startTestApi())

type Pair = { access_token: string; refresh_token: string; access_type: string }

const refresh = (token: string, body?: unknown) => api.as(`Bearer ${token}`)('POST', '/users/tokens/refresh', body)
const profile = async (token: string) => (await api.as(`Bearer ${token}`)('GET', '/users/profile')).status
const decode = (part: string | undefined) =>
  JSON.parse(Buffer.from(part ?? '', 'base64url').toString()) as Record<string, unknown>

test('a token is issued for username or email, with the field names of every product version and mixtures of them', async () => {
  const user = await api.newUser()
  const email = `${user.username}@example.com`
  for (const body of [
    { identity: user.username, secret: user.secret },
    { identity: email, secret: user.secret },
    { username: user.username, password: user.secret },
    { username: email, password: user.secret },
    { identity: email, password: user.secret },
    { username: user.username, secret: user.secret },
    { username: user.username.toUpperCase(), password: user.secret },
  ]) {
    const issued = await api.anonymous('POST', '/users/tokens/issue', body)
    expect(issued.status, JSON.stringify(Object.keys(body))).toBe(201)
    expect(issued.json<Pair>()).toMatchObject({ access_type: 'Bearer' })
    expect(await profile(issued.json<Pair>().access_token)).toBe(200)
  }
})

test('an unknown user and a wrong password are refused alike, and a missing field is named', async () => {
  const user = await api.newUser()
  const issue = (body: unknown) => api.anonymous('POST', '/users/tokens/issue', body)
  const wrong = await issue({ identity: user.username, secret: 'wrong password' })
  const unknown = await issue({ identity: `nobody-${newId()}`, secret: 'wrong password' })
  expect(wrong.status).toBe(401)
  expect(unknown.text).toBe(wrong.text)
  expect((await issue({ secret: 'x' })).json()).toMatchObject({ error: 'malformed', details: [{ path: '/identity' }] })
  expect((await issue({ identity: 'x' })).json()).toMatchObject({ error: 'malformed', details: [{ path: '/secret' }] })
  expect((await issue({ identity: 'x', secret: '' })).status).toBe(400)
  expect((await issue({ identity: 7, secret: 'x' })).status).toBe(400)
})

test('tokens are EdDSA JWTs that verify with the published keys and contain the claims of the contract', async () => {
  const user = await api.newUser()
  const [header, payload, signature] = user.accessToken.split('.')
  const { kid, alg } = decode(header)
  expect(alg).toBe('EdDSA')
  const { keys } = (await api.anonymous('GET', '/keys/.well-known/jwks.json')).json<{
    keys: { kid: string; kty: string; crv: string; x: string; alg: string }[]
  }>()
  const jwk = keys.find((key) => key.kid === kid)
  expect(jwk).toMatchObject({ kty: 'OKP', crv: 'Ed25519', alg: 'EdDSA' })
  const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: jwk?.x ?? '' }, format: 'jwk' })
  expect(verify(null, Buffer.from(`${header}.${payload}`), key, Buffer.from(signature ?? '', 'base64url'))).toBe(true)
  const claims = decode(payload)
  expect(claims).toMatchObject({ sub: user.id, type: 0, role: 'user' })
  expect(claims).not.toHaveProperty('domain')
  expect((claims['exp'] as number) - (claims['iat'] as number)).toBe(3600)
  expect(decode(user.refreshToken.split('.')[1])).toMatchObject({ type: 1, sub: user.id })
})

test('anything but a valid access token is 401 with the error body', async () => {
  const user = await api.newUser()
  const [header, payload, signature] = user.accessToken.split('.') as [string, string, string]
  const forged = Buffer.from(JSON.stringify({ ...decode(payload), role: 'admin' })).toString('base64url')
  const unsigned = Buffer.from(JSON.stringify({ alg: 'none', typ: 'JWT' })).toString('base64url')
  for (const authorization of [
    '',
    'Bearer ',
    'Bearer nonsense',
    `Token ${user.accessToken}`,
    user.accessToken,
    `Bearer ${user.refreshToken}`,
    `Bearer ${header}.${forged}.${signature}`,
    `Bearer ${unsigned}.${payload}.`,
    `Bearer ${header}.${payload}`,
    `Bearer ${user.accessToken}.x`,
    `Bearer ${'a'.repeat(5000)}`,
  ]) {
    const refused = await api.as(authorization)('GET', '/users/profile')
    expect(refused.status, authorization.slice(0, 40)).toBe(401)
    expect(refused.json()).toMatchObject({ error: 'unauthenticated' })
    expect(refused.headers['content-type']).toMatch(/^application\/json/)
  }
  expect((await api.anonymous('GET', '/users/profile')).status).toBe(401)
})

test('a token expires at the end of its lifetime', async () => {
  await using brief = await startTestApi({ environment: { SKEIN_ACCESS_TOKEN_TTL: '1s' } })
  const user = await brief.newUser()
  const claims = decode(user.accessToken.split('.')[1])
  expect((claims['exp'] as number) - (claims['iat'] as number)).toBe(1)
  await until(async () => (await user.call('GET', '/users/profile')).status === 401, 'the token has ended')
})

test('a refresh token returns a new pair once; a second use revokes its whole family', async () => {
  const user = await api.newUser()
  const second = (await refresh(user.refreshToken)).json<Pair>()
  expect(second.access_type).toBe('Bearer')
  expect(await profile(second.access_token)).toBe(200)
  const third = (await refresh(second.refresh_token)).json<Pair>()
  const reused = await refresh(user.refreshToken)
  expect(reused.status).toBe(401)
  expect(reused.json()).toMatchObject({ error: 'unauthenticated' })
  expect((await refresh(third.refresh_token)).status).toBe(401)
  for (const token of [user.accessToken, second.access_token, third.access_token])
    expect(await profile(token)).toBe(401)
})

test('another login of the same user survives the revocation of a family', async () => {
  const user = await api.newUser()
  const other = (
    await api.anonymous('POST', '/users/tokens/issue', { identity: user.username, secret: user.secret })
  ).json<Pair>()
  await refresh(user.refreshToken)
  await refresh(user.refreshToken)
  expect(await profile(other.access_token)).toBe(200)
  expect((await refresh(other.refresh_token)).status).toBe(201)
})

test('exactly one of several concurrent refreshes with one token succeeds', async () => {
  const user = await api.newUser()
  const answers = await Promise.all(Array.from({ length: 6 }, () => refresh(user.refreshToken)))
  expect(statusesOf(answers)).toEqual([201, 401, 401, 401, 401, 401])
})

test('concurrent refreshes that bind to a domain do not block each other', async () => {
  const { user, domainId } = await newTenant(api)
  const logins = await Promise.all(
    Array.from({ length: 16 }, () =>
      api.anonymous('POST', '/users/tokens/issue', { identity: user.username, secret: user.secret }),
    ),
  )
  const answers = await Promise.all(
    logins.map((login) => refresh(login.json<Pair>().refresh_token, { domain_id: domainId })),
  )
  expect(answers.map((answer) => answer.status)).toEqual(Array.from({ length: 16 }, () => 201))
})

test('an access token is not a refresh token, and 401 takes precedence over an invalid body', async () => {
  const user = await api.newUser()
  expect((await refresh(user.accessToken)).status).toBe(401)
  expect((await refresh('nonsense', { domain_id: 7 })).status).toBe(401)
  expect((await api.anonymous('POST', '/users/tokens/refresh')).status).toBe(401)
  expect((await refresh(user.refreshToken, { domain_id: 7 })).status).toBe(400)
})

test('a refresh requires no body, with any content type', async () => {
  const user = await api.newUser()
  let token = user.refreshToken
  for (const headers of [{ 'content-type': 'application/json' }, {}] as Record<string, string>[]) {
    const answer = await api.as(`Bearer ${token}`)('POST', '/users/tokens/refresh', '', headers)
    expect(answer.status, JSON.stringify(headers)).toBe(201)
    token = answer.json<Pair>().refresh_token
  }
})

test('revoking ends the session with its access tokens at once', async () => {
  const user = await api.newUser()
  const revoke = () => api.as(`Bearer ${user.refreshToken}`)('POST', '/users/tokens/revoke')
  expect((await revoke()).status).toBe(204)
  expect(await profile(user.accessToken)).toBe(401)
  expect((await refresh(user.refreshToken)).status).toBe(401)
  expect((await api.as(`Bearer ${user.accessToken}`)('POST', '/users/tokens/revoke')).status).toBe(401)
})

test('a token that is bound to a domain is valid in that domain only', async () => {
  const [one, other] = [await newTenant(api), await newTenant(api)]
  await grantRole(api, one.user.id, { type: 'domain', domainId: other.domainId, id: other.domainId }, ['read'])
  const bound = (
    await api.anonymous('POST', '/users/tokens/issue', {
      identity: one.user.username,
      secret: one.user.secret,
      domain_id: one.domainId,
    })
  ).json<Pair>()
  expect(decode(bound.access_token.split('.')[1])).toMatchObject({ domain: one.domainId })
  const call = api.as(`Bearer ${bound.access_token}`)
  expect((await call('GET', `/domains/${one.domainId}`)).status).toBe(200)
  expect((await one.call('GET', `/domains/${other.domainId}`)).status).toBe(200)
  expect((await call('GET', `/domains/${other.domainId}`)).status).toBe(403)
  const listed = (await call('GET', '/domains')).json<{ domains: { id: string }[] }>()
  expect(listed.domains.map((domain) => domain.id)).toEqual([one.domainId])
  const again = (await refresh(bound.refresh_token)).json<Pair>()
  expect(decode(again.access_token.split('.')[1])).toMatchObject({ domain: one.domainId })
})

test('a refresh into another domain does not extend earlier tokens', async () => {
  const [one, other] = [await newTenant(api), await newTenant(api)]
  await grantRole(api, one.user.id, { type: 'domain', domainId: other.domainId, id: other.domainId }, ['read'])
  const reach = async (token: string) => {
    const call = api.as(`Bearer ${token}`)
    return (await Promise.all([one, other].map(({ domainId }) => call('GET', `/domains/${domainId}`)))).map(
      ({ status }) => status,
    )
  }
  const first = (await refresh(one.user.refreshToken, { domain_id: one.domainId })).json<Pair>()
  const second = (await refresh(first.refresh_token, { domain_id: other.domainId })).json<Pair>()
  expect(await reach(one.user.accessToken)).toEqual([200, 200])
  expect(await reach(first.access_token)).toEqual([200, 403])
  expect(await reach(second.access_token)).toEqual([403, 200])
})

test('binding a token requires an existing domain with the user as a member', async () => {
  const [user, { domainId }] = [await api.newUser(), await newTenant(api)]
  for (const id of [domainId, newId(), 'nonsense']) {
    const refused = await api.anonymous('POST', '/users/tokens/issue', {
      identity: user.username,
      secret: user.secret,
      domain_id: id,
    })
    expect(refused.status, id).toBe(403)
  }
  const refused = await refresh(user.refreshToken, { domain_id: domainId })
  expect(refused.status).toBe(403)
  expect((await refresh(user.refreshToken)).status).toBe(201)
})

test('a member who is removed from the domain loses the rights of their bound token', async () => {
  const { domainId } = await newTenant(api)
  const member = await api.newUser()
  const on = { type: 'domain', domainId, id: domainId } as const
  await grantRole(api, member.id, on, ['read'])
  const bound = (await refresh(member.refreshToken, { domain_id: domainId })).json<Pair>()
  const view = () => api.as(`Bearer ${bound.access_token}`)('GET', `/domains/${domainId}`)
  expect((await view()).status).toBe(200)
  await revokeRoles(api, member.id, on)
  expect((await view()).status).toBe(403)
})

test("the platform administrator's bound token administers nothing beyond its domain", async () => {
  const user = await api.newUser()
  const domain = (await api.admin('POST', '/domains', { name: 'of the admin' })).json<{ id: string }>()
  const bound = (
    await api.anonymous('POST', '/users/tokens/issue', {
      identity: 'admin',
      secret: 'the-first-admin',
      domain_id: domain.id,
    })
  ).json<Pair>()
  expect((await api.as(`Bearer ${bound.access_token}`)('POST', `/users/${user.id}/disable`)).status).toBe(403)
  expect((await api.as(`Bearer ${bound.access_token}`)('GET', `/domains/${domain.id}`)).status).toBe(200)
})
