// contract section 6: API keys, signing keys and their rotation; decisions 40, 45, 47
import { createPublicKey, verify } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { Caller, TestApi } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { createTestDatabase } from '../harness/database.ts'
import { untilInForce } from '../harness/in-force.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { ZERO_TIME, newTenant } from './support.ts'

const api = useWorld(() => startTestApi())

type Issued = { id: string; value: string; issued_at: string; expires_at?: string }
type Pair = { access_token: string; refresh_token: string }
type Jwks = { keys: { kty: string; kid: string; alg: string; crv: string; x: string }[] }

const decode = (part: string | undefined) =>
  JSON.parse(Buffer.from(part ?? '', 'base64url').toString()) as Record<string, unknown>
const kidOf = (token: string) => decode(token.split('.')[0])['kid'] as string
const jwksOf = async (at: TestApi) => (await at.anonymous('GET', '/keys/.well-known/jwks.json')).json<Jwks>()

async function newKey(call: Caller, fields: Record<string, unknown> = {}): Promise<Issued> {
  const made = await call('POST', '/keys', { type: 3, ...fields })
  expect(made.status, made.text).toBe(201)
  return made.json<Issued>()
}

describe('an API key', () => {
  test('is created with its value, viewed without it, listed, and invalid after deletion', async () => {
    const { call, id: userId } = await api.newUser()
    const key = await newKey(call, { duration: 3600 })
    expect(Date.parse(key.expires_at ?? '') - Date.parse(key.issued_at)).toBe(3_600_000)
    expect(decode(key.value.split('.')[1])).toMatchObject({
      iss: 'skein',
      sub: userId,
      type: 3,
      role: 'user',
      jti: key.id,
    })
    const own = api.as(`Bearer ${key.value}`)
    expect((await own('GET', '/users/profile')).json()).toMatchObject({ id: userId })
    const viewed = await call('GET', `/keys/${key.id}`)
    expect(viewed.status).toBe(200)
    expect(viewed.json()).toMatchObject({
      id: key.id,
      issuer_id: userId,
      subject: userId,
      type: 3,
      issued_at: key.issued_at,
      expires_at: key.expires_at,
    })
    expect(viewed.json()).not.toHaveProperty('value')
    const listed = (await call('GET', '/keys')).json<{ total: number; keys: { id: string }[] }>()
    expect([listed.total, listed.keys.map((one) => one.id)]).toEqual([1, [key.id]])
    expect((await call('DELETE', `/keys/${key.id}`)).status).toBe(204)
    expect((await own('GET', '/users/profile')).status).toBe(401)
    expect((await call('GET', `/keys/${key.id}`)).status).toBe(404)
    expect((await call('DELETE', `/keys/${key.id}`)).status).toBe(404)
  })

  test('expires only if it was created with a duration', async () => {
    const { call } = await api.newUser()
    for (const fields of [{}, { duration: 0 }]) {
      const key = await newKey(call, fields)
      expect(key).not.toHaveProperty('expires_at')
      expect(decode(key.value.split('.')[1])).not.toHaveProperty('exp')
      expect((await api.as(`Bearer ${key.value}`)('GET', '/users/profile')).status).toBe(200)
    }
    const brief = await newKey(call, { duration: 1 })
    const use = async () => (await api.as(`Bearer ${brief.value}`)('GET', '/users/profile')).status
    await until(async () => (await use()) === 401, 'the key has ended')
  })

  test.each([
    ['no type', {}],
    ['an access token', { type: 0 }],
    ['a refresh token', { type: 1 }],
    ['a recovery token', { type: 2 }],
    ['a personal token', { type: 4 }],
    ['a type in words', { type: 'api' }],
    ['a negative duration', { type: 3, duration: -1 }],
    ['a duration in words', { type: 3, duration: '24h' }],
    ['a duration of ages', { type: 3, duration: 1e12 }],
  ])('asking for %s is 400', async (_what, body) => {
    const { call } = await api.newUser()
    expect((await call('POST', '/keys', body)).status).toBe(400)
  })

  test('of another user and an unknown one are the same 404; a request without a token is 401, a wrong content type 415', async () => {
    const [owner, stranger] = [await api.newUser(), await api.newUser()]
    const { id } = await newKey(owner.call)
    for (const method of ['GET', 'DELETE']) {
      const foreign = await stranger.call(method, `/keys/${id}`)
      expect(foreign.status).toBe(404)
      for (const other of [newId(), 'nonsense'])
        expect((await stranger.call(method, `/keys/${other}`)).text).toBe(foreign.text)
    }
    expect((await api.anonymous('POST', '/keys', { type: 3 })).status).toBe(401)
    expect((await owner.call('POST', '/keys', 'type=3', { 'content-type': 'text/plain' })).status).toBe(415)
    expect((await owner.call('GET', `/keys/${id}`)).status).toBe(200)
  })

  test('creates no other credentials, refreshes nothing, and has the rights of its user', async () => {
    const tenant = await newTenant(api)
    const { value, id } = await newKey(tenant.call)
    const call = api.as(`Bearer ${value}`)
    for (const [method, url, body] of [
      ['POST', '/keys', { type: 3 }],
      ['GET', '/keys', undefined],
      ['GET', `/keys/${id}`, undefined],
      ['DELETE', `/keys/${id}`, undefined],
      ['POST', '/pats', { name: 'x', duration: '1h' }],
      ['GET', '/users/tokens/refresh-tokens', undefined],
      ['DELETE', `/users/tokens/refresh-tokens/${newId()}`, undefined],
    ] as const)
      expect((await call(method, url, body)).status, `${method} ${url}`).toBe(403)
    for (const path of ['refresh', 'revoke']) expect((await call('POST', `/users/tokens/${path}`)).status).toBe(401)
    expect((await call('POST', `/${tenant.domainId}/clients`, {})).status).toBe(201)
  })

  test('made with a token that is bound to a domain works in that domain alone', async () => {
    const tenant = await newTenant(api)
    const other = (await tenant.call('POST', '/domains', { name: 'other' })).json<{ id: string }>().id
    const bound = await api.anonymous('POST', '/users/tokens/issue', {
      identity: tenant.user.username,
      secret: tenant.user.secret,
      domain_id: tenant.domainId,
    })
    const key = await newKey(api.as(`Bearer ${bound.json<Pair>().access_token}`))
    expect(decode(key.value.split('.')[1])).toMatchObject({ domain: tenant.domainId })
    const call = api.as(`Bearer ${key.value}`)
    expect((await call('GET', `/domains/${tenant.domainId}`)).status).toBe(200)
    expect((await call('GET', `/domains/${other}`)).status).toBe(403)
    expect((await call('POST', '/domains', { name: 'third' })).status).toBe(403)
    expect((await tenant.call('GET', `/keys/${key.id}`)).json()).toMatchObject({ domain_id: tenant.domainId })
    const whole = await newKey(tenant.call)
    const boundCall = api.as(`Bearer ${bound.json<Pair>().access_token}`)
    expect((await boundCall('GET', '/keys')).json()).toMatchObject({ total: 1, keys: [{ id: key.id }] })
    for (const method of ['GET', 'DELETE']) expect((await boundCall(method, `/keys/${whole.id}`)).status).toBe(404)
    expect((await boundCall('GET', '/users/tokens/refresh-tokens')).status).toBe(403)
    expect((await boundCall('DELETE', `/keys/${key.id}`)).status).toBe(204)
  })

  test('with another signature, another payload or no row is not a key', async () => {
    const { call } = await api.newUser()
    const [one, two] = [await newKey(call), await newKey(call)]
    const [header, payload, signature] = one.value.split('.')
    const raised = Buffer.from(JSON.stringify({ ...decode(payload), role: 'admin' })).toString('base64url')
    for (const text of [
      `${header}.${payload}.${two.value.split('.')[2]}`,
      `${header}.${raised}.${signature}`,
      `${header}.${payload}.`,
      `${header}.${payload}`,
    ])
      expect((await api.as(`Bearer ${text}`)('GET', '/users/profile')).status).toBe(401)
    await sql`DELETE FROM api_keys WHERE id = ${one.id}`.execute(api.database.db)
    expect((await api.as(`Bearer ${one.value}`)('GET', '/users/profile')).status).toBe(401)
  })

  test('is invalid while its user is disabled, and its value is neither in the journal nor in the table', async () => {
    const { call, id: userId } = await api.newUser()
    const key = await newKey(call)
    const own = api.as(`Bearer ${key.value}`)
    expect((await own('GET', '/users/profile')).status).toBe(200)
    expect((await api.admin('POST', `/users/${userId}/disable`)).status).toBe(200)
    expect((await own('GET', '/users/profile')).status).toBe(401)
    const { rows } = await sql<{
      text: string
    }>`SELECT to_jsonb(j)::text AS text FROM journal j WHERE actor_id = ${userId}
      UNION ALL SELECT to_jsonb(k)::text FROM api_keys k WHERE id = ${key.id}`.execute(api.database.db)
    const all = rows.map((row) => row.text).join('\n')
    expect(all).toContain('api_key.create')
    expect(all).not.toContain(key.value.split('.')[2])
    expect(all).not.toContain(key.value.split('.')[1])
  })

  test('records the time of its last use', async () => {
    const { call } = await api.newUser()
    const key = await newKey(call)
    expect((await call('GET', `/keys/${key.id}`)).json()).toMatchObject({ last_used_at: ZERO_TIME })
    await api.as(`Bearer ${key.value}`)('GET', '/users/profile')
    await until(
      async () => (await call('GET', `/keys/${key.id}`)).json<{ last_used_at: string }>().last_used_at !== ZERO_TIME,
      'the use is written',
    )
  })

  test('that is deleted on one node is invalid on every node within a second', async () => {
    await using database = await createTestDatabase()
    await using one = await startTestApi({ database, tailIntervalMs: 250 })
    await using other = await startTestApi({ database, tailIntervalMs: 250 })
    const { call } = await one.newUser()
    const key = await newKey(call)
    const there = async () => (await other.as(`Bearer ${key.value}`)('GET', '/users/profile')).status
    await until(async () => (await there()) === 200, 'usable there')
    await call('DELETE', `/keys/${key.id}`)
    await untilInForce(there, { from: 200, to: 401 }, 'dead there')
  })
})

describe('the key that signs', () => {
  const rotate = (at: TestApi) => at.admin('POST', '/keys/rotate')

  test('is replaced by the platform administrator without ending any login, and other nodes use the new one at once', async () => {
    await using database = await createTestDatabase()
    await using one = await startTestApi({ database, tailIntervalMs: 250 })
    await using other = await startTestApi({ database, tailIntervalMs: 250 })
    const user = await one.newUser()
    const apiKey = await newKey(user.call)
    const before = kidOf(user.accessToken)
    const rotated = await rotate(one)
    expect(rotated.status, rotated.text).toBe(201)
    const { kid } = rotated.json<{ kid: string }>()
    expect(kid).not.toBe(before)
    const login = { identity: user.username, secret: user.secret }
    const fresh = (await one.anonymous('POST', '/users/tokens/issue', login)).json<Pair>()
    expect(kidOf(fresh.access_token)).toBe(kid)
    // The other node has met neither the journal nor the key yet: it looks for what it does not know.
    for (const at of [one, other]) {
      for (const token of [user.accessToken, fresh.access_token, apiKey.value])
        expect((await at.as(`Bearer ${token}`)('GET', '/users/profile')).status).toBe(200)
    }
    await until(
      async () =>
        kidOf((await other.anonymous('POST', '/users/tokens/issue', login)).json<Pair>().access_token) === kid,
      'the other node signs with it',
    )
    const kids = (await jwksOf(other)).keys.map((key) => key.kid)
    expect(kids.toSorted()).toEqual([before, kid].toSorted())
    const refreshed = await other.as(`Bearer ${user.refreshToken}`)('POST', '/users/tokens/refresh')
    expect(refreshed.status).toBe(201)
    expect(kidOf(refreshed.json<Pair>().access_token)).toBe(kid)
  })

  test('signs tokens that verify with the published set, before and after', async () => {
    const verifies = async (token: string) => {
      const [header, payload, signature] = token.split('.')
      const jwk = (await jwksOf(api)).keys.find((key) => key.kid === kidOf(token))
      const key = createPublicKey({ key: jwk as never, format: 'jwk' })
      return verify(null, Buffer.from(`${header}.${payload}`), key, Buffer.from(signature ?? '', 'base64url'))
    }
    const user = await api.newUser()
    expect(await verifies(user.accessToken)).toBe(true)
    await rotate(api)
    expect(await verifies(user.accessToken)).toBe(true)
    expect(await verifies((await api.newUser()).accessToken)).toBe(true)
  })

  test('signs nothing after it is retired, and no private half is in the published set or the journal', async () => {
    await rotate(api)
    const { rows } = await sql<{
      is_retired: boolean
      bytes: number
    }>`SELECT retired_at IS NOT NULL AS is_retired, length(sealed_private_key) AS bytes FROM signing_keys`.execute(
      api.database.db,
    )
    expect(rows.filter((row) => !row.is_retired)).toHaveLength(1)
    for (const row of rows) expect(row.bytes === 0).toBe(row.is_retired)
    for (const key of (await jwksOf(api)).keys)
      expect(Object.keys(key).toSorted()).toEqual(['alg', 'crv', 'kid', 'kty', 'x'])
    const journal = await sql<{
      text: string
    }>`SELECT attributes::text AS text FROM journal WHERE operation = 'signing_key.rotate'`.execute(api.database.db)
    expect(journal.rows[0]?.text).not.toMatch(/PRIVATE|sealed/)
  })

  test('verifies until the last token that it signed has expired, and while it has an API key', async () => {
    await using database = await createTestDatabase()
    await using first = await startTestApi({ database })
    const user = await first.newUser()
    const apiKey = await newKey(user.call)
    await rotate(first)
    const old = kidOf(user.accessToken)
    // The moment of retirement is moved, not the clock.
    const retire = (hours: number) =>
      sql`UPDATE signing_keys SET retired_at = now() - make_interval(hours => ${hours}) WHERE kid = ${old}`.execute(
        database.database.db,
      )
    const kidsOfNewNode = async () => {
      await using node = await startTestApi({ database })
      return (await jwksOf(node)).keys.map((key) => key.kid)
    }
    await retire(23)
    expect(await kidsOfNewNode()).toContain(old)
    await retire(25)
    expect(await kidsOfNewNode()).toContain(old)
    await user.call('DELETE', `/keys/${apiKey.id}`)
    expect(await kidsOfNewNode()).not.toContain(old)
  })

  test('is replaced automatically once when it exceeds its lifetime, with any number of nodes', async () => {
    await using database = await createTestDatabase()
    await using first = await startTestApi({ database })
    const [before] = (await jwksOf(first)).keys.map((key) => key.kid)
    await sql`UPDATE signing_keys SET created_at = now() - interval '31 days'`.execute(database.database.db)
    const nodes = await Promise.all([startTestApi({ database }), startTestApi({ database })])
    const keys = await until(async () => {
      const kids = (await jwksOf(first)).keys.map((key) => key.kid)
      return kids.length > 1 && kids
    }, 'a new key')
    expect(keys).toHaveLength(2)
    expect(keys).toContain(before)
    for (const node of nodes) await node[Symbol.asyncDispose]()
  })

  test('is replaced by the platform administrator only', async () => {
    const { call } = await api.newUser()
    expect((await call('POST', '/keys/rotate')).status).toBe(403)
    expect((await api.anonymous('POST', '/keys/rotate')).status).toBe(401)
    const adminKey = await newKey(api.admin)
    expect((await api.as(`Bearer ${adminKey.value}`)('POST', '/keys/rotate')).status).toBe(403)
  })

  test('is one key after several concurrent rotations, each of which has its effect', async () => {
    const answers = await Promise.all(Array.from({ length: 4 }, () => rotate(api)))
    for (const answer of answers) expect(answer.status, answer.text).toBe(201)
    const { rows } = await sql`SELECT 1 FROM signing_keys WHERE retired_at IS NULL`.execute(api.database.db)
    expect(rows).toHaveLength(1)
    expect((await (await api.newUser()).call('GET', '/users/profile')).status).toBe(200)
  })

  test('rejects a token with an unknown key with 401 and without delay', async () => {
    const header = Buffer.from(JSON.stringify({ alg: 'EdDSA', kid: newId() })).toString('base64url')
    const [, payload, signature] = (await api.newUser()).accessToken.split('.')
    const answers = await Promise.all(
      Array.from({ length: 50 }, () => api.as(`Bearer ${header}.${payload}.${signature}`)('GET', '/users/profile')),
    )
    expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([401]))
  })
})
