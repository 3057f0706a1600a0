// contract section 6: the list of sessions and their end; decisions 40, 41, 47
import { describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { startTestApi } from '../harness/api.ts'
import { createTestDatabase } from '../harness/database.ts'
import { untilInForce } from '../harness/in-force.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { newTenant, statusesOf } from './support.ts'

const api = useWorld(() => startTestApi())

type Pair = { access_token: string; refresh_token: string }
type Session = {
  id: string
  address: string
  user_agent: string
  domain_id?: string
  created_at: string
  last_used_at: string
  expires_at: string
  current: boolean
}
type Sessions = { total: number; offset: number; limit: number; refresh_tokens: Session[] }

const LIST = '/users/tokens/refresh-tokens'
const sessionsOf = async (token: string, query = '') =>
  (await api.as(`Bearer ${token}`)('GET', `${LIST}${query}`)).json<Sessions>()
const refresh = (token: string) => api.as(`Bearer ${token}`)('POST', '/users/tokens/refresh')
const profile = async (token: string, at = api) => (await at.as(`Bearer ${token}`)('GET', '/users/profile')).status

async function logIn(user: { username: string; secret: string }, userAgent: string, domainId?: string): Promise<Pair> {
  const body = {
    identity: user.username,
    secret: user.secret,
    ...(domainId === undefined ? {} : { domain_id: domainId }),
  }
  return (await api.anonymous('POST', '/users/tokens/issue', body, { 'user-agent': userAgent })).json<Pair>()
}

describe('the sessions of a user', () => {
  test('are listed with address, program and times, the newest first, and the current one is marked', async () => {
    const user = await api.newUser()
    const browser = await logIn(user, 'browser/1')
    const { total, refresh_tokens: sessions } = await sessionsOf(browser.access_token)
    expect(total).toBe(2)
    expect(sessions.map((session) => session.current)).toEqual([true, false])
    expect(sessions[0]).toMatchObject({ address: '127.0.0.1', user_agent: 'browser/1' })
    const lifetimeMs = Date.parse(sessions[0]?.expires_at ?? '') - Date.parse(sessions[0]?.created_at ?? '')
    expect(lifetimeMs).toBe(24 * 3_600_000)
    expect((await sessionsOf(user.accessToken)).refresh_tokens.map((session) => session.current)).toEqual([false, true])
  })

  test('are paged, and belong to the caller only', async () => {
    const [user, other] = [await api.newUser(), await api.newUser()]
    await logIn(user, 'two')
    await logIn(user, 'three')
    expect(await sessionsOf(user.accessToken, '?limit=1&offset=1')).toMatchObject({
      total: 3,
      offset: 1,
      limit: 1,
      refresh_tokens: [{ user_agent: 'two' }],
    })
    expect((await sessionsOf(other.accessToken)).total).toBe(1)
    for (const query of ['?limit=0', '?limit=101', '?offset=x'])
      expect((await user.call('GET', `${LIST}${query}`)).status, query).toBe(400)
    expect((await api.anonymous('GET', LIST)).status).toBe(401)
  })

  test('contain neither tokens nor what creates one, and a long user agent is truncated', async () => {
    const user = await api.newUser()
    await logIn(user, 'x'.repeat(5000))
    const text = (await user.call('GET', LIST)).text
    expect(text).not.toContain(user.refreshToken)
    expect(text).not.toContain(user.accessToken)
    expect(text.length).toBeLessThan(2000)
  })

  test('stay one session over refreshes, and leave the list at their end', async () => {
    const user = await api.newUser()
    const before = await sessionsOf(user.accessToken)
    const next = (await refresh(user.refreshToken)).json<Pair>()
    const after = await sessionsOf(next.access_token)
    expect(after.refresh_tokens.map((session) => session.id)).toEqual(
      before.refresh_tokens.map((session) => session.id),
    )
    const other = await logIn(user, 'other')
    await api.as(`Bearer ${next.refresh_token}`)('POST', '/users/tokens/revoke')
    expect((await sessionsOf(other.access_token)).refresh_tokens.map((session) => session.user_agent)).toEqual([
      'other',
    ])
  })

  test('are ended by their id, at once and with all their tokens; any other id is the same 404', async () => {
    const [user, stranger] = [await api.newUser(), await api.newUser()]
    const lost = await logIn(user, 'lost laptop')
    const [{ id }] = (await sessionsOf(user.accessToken)).refresh_tokens as [Session]
    const foreign = await stranger.call('DELETE', `${LIST}/${id}`)
    expect(foreign.status).toBe(404)
    for (const unknown of [newId(), 'nonsense'])
      expect((await stranger.call('DELETE', `${LIST}/${unknown}`)).text).toBe(foreign.text)
    expect(await profile(lost.access_token)).toBe(200)
    expect((await user.call('DELETE', `${LIST}/${id}`)).status).toBe(204)
    expect(await profile(lost.access_token)).toBe(401)
    expect((await refresh(lost.refresh_token)).status).toBe(401)
    expect((await user.call('DELETE', `${LIST}/${id}`)).status).toBe(404)
    expect(await profile(user.accessToken)).toBe(200)
  })

  test('show when they were last used, without a write per request', async () => {
    const user = await api.newUser()
    await sql`UPDATE sessions SET last_used_at = now() - interval '1 hour' WHERE user_key = (SELECT key FROM users WHERE id = ${user.id})`.execute(
      api.database.db,
    )
    await Promise.all(Array.from({ length: 20 }, () => user.call('GET', '/users/profile')))
    await until(async () => {
      const [session] = (await sessionsOf(user.accessToken)).refresh_tokens
      return Date.parse(session?.last_used_at ?? '') > Date.now() - 60_000
    }, 'the use is written')
  })

  test('have their last use written when the process stops', async () => {
    await using database = await createTestDatabase()
    const node = await startTestApi({ database })
    const user = await node.newUser()
    await sql`UPDATE sessions SET last_used_at = now() - interval '1 hour'`.execute(database.database.db)
    await node.as(`Bearer ${user.accessToken}`)('GET', '/users/profile')
    await node[Symbol.asyncDispose]()
    const { rows } = await sql`SELECT 1 FROM sessions WHERE last_used_at > now() - interval '1 minute'`.execute(
      database.database.db,
    )
    expect(rows).toHaveLength(1)
  })
})

describe('a refresh token', () => {
  test('with a lost response cannot be used again: its session ends and the user logs in again', async () => {
    const user = await api.newUser()
    const lost = (await refresh(user.refreshToken)).json<Pair>()
    expect((await refresh(user.refreshToken)).status).toBe(401)
    expect((await refresh(lost.refresh_token)).status).toBe(401)
    expect(await profile(lost.access_token)).toBe(401)
    expect(await profile((await logIn(user, 'again')).access_token)).toBe(200)
  })

  test('that two requests use returns one pair, and the second use ends the session', async () => {
    const user = await api.newUser()
    const answers = await Promise.all([refresh(user.refreshToken), refresh(user.refreshToken)])
    expect(statusesOf(answers)).toEqual([201, 401])
    const pair = answers.find((answer) => answer.status === 201)?.json<Pair>() as Pair
    expect(await profile(pair.access_token)).toBe(401)
    expect((await refresh(pair.refresh_token)).status).toBe(401)
  })

  test('that is used again is recorded in the journal, without the token', async () => {
    const user = await api.newUser()
    await refresh(user.refreshToken)
    await refresh(user.refreshToken)
    const { rows } = await sql<{ text: string }>`SELECT to_jsonb(j)::text AS text FROM journal j
       WHERE operation = 'user.refresh_token_reused' AND attributes ->> 'id' = ${user.id}`.execute(api.database.db)
    expect(rows).toHaveLength(1)
    expect(rows[0]?.text).not.toContain(user.refreshToken.split('.')[2])
  })

  test('that is revoked on one node is invalid on every node within a second', async () => {
    await using database = await createTestDatabase()
    await using one = await startTestApi({ database, tailIntervalMs: 250 })
    await using other = await startTestApi({ database, tailIntervalMs: 250 })
    const user = await one.newUser()
    expect(await profile(user.accessToken, other)).toBe(200)
    expect((await one.as(`Bearer ${user.refreshToken}`)('POST', '/users/tokens/revoke')).status).toBe(204)
    await untilInForce(() => profile(user.accessToken, other), { from: 200, to: 401 }, 'ended there')
    expect((await other.as(`Bearer ${user.refreshToken}`)('POST', '/users/tokens/refresh')).status).toBe(401)
  })
})

test('a token that is bound to a domain creates no other domain and rotates no keys', async () => {
  const tenant = await newTenant(api)
  const bound = api.as(`Bearer ${(await logIn(tenant.user, 'bound', tenant.domainId)).access_token}`)
  const before = (await tenant.call('GET', '/domains')).json<{ total: number }>().total
  expect((await bound('POST', '/domains', { name: 'second' })).status).toBe(403)
  expect((await bound('POST', '/domains', {})).status).toBe(400)
  expect((await tenant.call('GET', '/domains')).json<{ total: number }>().total).toBe(before)
  expect((await bound('GET', '/users/profile')).status).toBe(200)
  expect((await bound('POST', `/${tenant.domainId}/clients`, {})).status).toBe(201)
  expect((await bound('POST', '/domains', { name: 'second' }, { 'content-type': 'text/plain' })).status).toBe(415)
})

test('each kind of token is accepted in its own place only', async () => {
  const user = await api.newUser()
  const key = (await user.call('POST', '/keys', { type: 3 })).json<{ value: string }>().value
  const pat = (await user.call('POST', '/pats', { name: 'x', duration: '1h' })).json<{ secret: string }>().secret
  const places = {
    profile: (token: string) => api.as(`Bearer ${token}`)('GET', '/users/profile'),
    refresh: (token: string) => api.as(`Bearer ${token}`)('POST', '/users/tokens/refresh'),
    revoke: (token: string) => api.as(`Bearer ${token}`)('POST', '/users/tokens/revoke'),
    publish: (token: string) => api.as(`Bearer ${token}`)('POST', `/m/${newId()}/c/${newId()}`, '[]'),
    deviceSecret: (token: string) => api.as(`Client ${token}`)('POST', `/m/${newId()}/c/${newId()}`, '[]'),
  }
  const statuses: Record<string, Record<string, number>> = {}
  const tokens = { access: user.accessToken, apiKey: key, pat, refresh: user.refreshToken, nonsense: 'nonsense' }
  for (const [kind, token] of Object.entries(tokens)) {
    statuses[kind] = {}
    for (const [place, ask] of Object.entries(places)) {
      if (kind === 'refresh' && place !== 'profile' && place !== 'publish' && place !== 'deviceSecret') continue
      statuses[kind][place] = (await ask(token)).status
    }
  }
  expect(statuses).toEqual({
    access: { profile: 200, refresh: 401, revoke: 401, publish: 403, deviceSecret: 401 },
    apiKey: { profile: 200, refresh: 401, revoke: 401, publish: 403, deviceSecret: 401 },
    pat: { profile: 403, refresh: 401, revoke: 401, publish: 403, deviceSecret: 401 },
    refresh: { profile: 401, publish: 401, deviceSecret: 401 },
    nonsense: { profile: 401, refresh: 401, revoke: 401, publish: 401, deviceSecret: 401 },
  })
  expect((await places.refresh(user.refreshToken)).status).toBe(201)
})
