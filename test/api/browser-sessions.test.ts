// Sessions of browsers: a cookie that scripts cannot read, and access tokens of a few minutes
import { parseSetCookie } from 'cookie'
import { describe, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import type { TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { createTestDatabase } from '../harness/database.ts'
import { untilInForce } from '../harness/in-force.ts'
import { useWorld } from '../harness/world.ts'

const api = useWorld(() => startTestApi())

const PATH = '/console/session'
const OWN_PAGE = { host: 'skein.test', origin: 'http://skein.test', 'x-skein-console': '1' }
const HOUR_MS = 3_600_000

type Issued = { id: string; user_id: string; access_token: string; expires_in: number; expires_at: string }
type Credentials = { username: string; secret: string }

const post = (path: string, headers: Record<string, string>, at = api) => at.anonymous('POST', path, undefined, headers)
const renew = (cookie: string, at = api) => post(`${PATH}/token`, { ...OWN_PAGE, cookie }, at)
const profile = async (token: string, at = api) => (await at.as(`Bearer ${token}`)('GET', '/users/profile')).status

async function logIn(user: Credentials, at = api) {
  const answer = await at.anonymous(
    'POST',
    PATH,
    { identity: user.username, secret: user.secret },
    { ...OWN_PAGE, 'user-agent': 'browser/1' },
  )
  expect(answer.status).toBe(201)
  const setCookie = parseSetCookie(String(answer.headers['set-cookie']))
  return { issued: answer.json<Issued>(), setCookie, cookie: `${setCookie.name}=${setCookie.value}`, answer }
}

const shiftSession = (id: string, column: 'expires_at' | 'created_at', hours: number) =>
  sql`UPDATE sessions SET ${sql.ref(column)} = ${sql.ref(column)} + make_interval(hours => ${hours}) WHERE id = ${id}`.execute(
    api.database.db,
  )

describe('a login of a browser', () => {
  test('sets a cookie that scripts and other sites cannot read, and returns a short access token to the page', async () => {
    const user = await api.newUser()
    const { issued, setCookie, answer } = await logIn(user)
    expect(setCookie).toMatchObject({ name: 'skein-session', path: '/', httpOnly: true, sameSite: 'strict' })
    expect(setCookie.secure).toBeUndefined()
    expect(setCookie.maxAge).toBe(30 * 24 * 3600)
    expect(answer.text).not.toContain(setCookie.value)
    expect(issued.user_id).toBe(user.id)
    expect(issued.expires_in).toBe(300)
    expect(await profile(issued.access_token)).toBe(200)
    const { rows } =
      await sql`SELECT 1 FROM sessions WHERE cookie_hash = convert_to(${setCookie.value ?? ''}, 'UTF8')`.execute(
        api.database.db,
      )
    expect(rows).toEqual([])
  })

  test('has a secure cookie of this host alone where the public address is https', async () => {
    await using secure = await startTestApi({ environment: { SKEIN_PUBLIC_URL: 'https://skein.test' } })
    const { setCookie, cookie } = await logIn(await secure.newUser(), secure)
    expect(setCookie).toMatchObject({ name: '__Host-skein-session', path: '/', secure: true })
    expect(setCookie.domain).toBeUndefined()
    expect((await renew(cookie, secure)).status).toBe(200)
    expect((await renew(cookie.replace('__Host-', ''), secure)).status).toBe(401)
  })

  test('with wrong credentials is the same 401 as any other login, and sets no cookie', async () => {
    const user = await api.newUser()
    for (const body of [
      { identity: user.username, secret: 'wrong-password' },
      { identity: 'nobody-here', secret: user.secret },
    ]) {
      const answer = await api.anonymous('POST', PATH, body, OWN_PAGE)
      expect(answer.status).toBe(401)
      expect(answer.text).toContain('failed to perform authentication')
      expect(answer.headers['set-cookie']).toBeUndefined()
    }
  })

  test('with an incomplete body names the field', async () => {
    const bodies = [{}, { identity: 'x' }, { identity: 'x', secret: 3 }, { identity: '', secret: 'x' }]
    for (const body of bodies)
      expect((await api.anonymous('POST', PATH, body, OWN_PAGE)).status, JSON.stringify(body)).toBe(400)
  })

  test('is refused to pages of other origins, to programs without an origin and without the header', async () => {
    const user = await api.newUser()
    const { cookie } = await logIn(user)
    const { origin: _origin, ...withoutOrigin } = OWN_PAGE
    const { 'x-skein-console': _header, ...withoutHeader } = OWN_PAGE
    const others = [
      withoutOrigin,
      withoutHeader,
      { ...OWN_PAGE, 'x-skein-console': 'true' },
      { ...OWN_PAGE, origin: 'http://other.test' },
      { ...OWN_PAGE, origin: 'null' },
      { ...OWN_PAGE, origin: 'http://skein.test.other.test' },
    ]
    const body = { identity: user.username, secret: user.secret }
    for (const headers of others) {
      expect((await api.anonymous('POST', PATH, body, headers)).status, JSON.stringify(headers)).toBe(403)
      expect((await post(`${PATH}/token`, { ...headers, cookie })).status, JSON.stringify(headers)).toBe(403)
      const end = await api.anonymous('DELETE', PATH, undefined, { ...headers, cookie })
      expect(end.status, JSON.stringify(headers)).toBe(403)
    }
    expect((await renew(cookie)).status).toBe(200)
  })

  test('gives access to the routes of the session only: the cookie is no credential elsewhere', async () => {
    const { cookie } = await logIn(await api.newUser())
    for (const path of ['/users/profile', '/domains', '/users/tokens/refresh-tokens'])
      expect((await api.anonymous('GET', path, undefined, { ...OWN_PAGE, cookie })).status, path).toBe(401)
  })
})

describe('the session of a browser', () => {
  test('gives new tokens for the same cookie, again after a lost response', async () => {
    const { cookie, issued } = await logIn(await api.newUser())
    const answers = await Promise.all([renew(cookie), renew(cookie), renew(cookie)])
    for (const answer of answers) {
      expect(answer.status).toBe(200)
      expect(answer.headers['set-cookie']).toBeUndefined()
      expect(answer.json<Issued>()).toMatchObject({ id: issued.id, user_id: issued.user_id })
      expect(await profile(answer.json<Issued>().access_token)).toBe(200)
    }
  })

  test('is shown without extending it, and every other cookie is the same 401', async () => {
    const { cookie, issued } = await logIn(await api.newUser())
    const view = (header: string) => api.anonymous('GET', PATH, undefined, { cookie: header })
    await shiftSession(issued.id, 'expires_at', -1)
    const first = (await view(cookie)).json<Issued>()
    expect(first).toMatchObject({ id: issued.id, role: 'user' })
    expect((await view(cookie)).json<Issued>().expires_at).toBe(first.expires_at)
    const refused = await view('')
    expect(refused.status).toBe(401)
    const forged = [`skein-session=${'A'.repeat(43)}`, 'skein-session=', 'skein-session=%00', `x=${'y'.repeat(7000)}`]
    for (const other of forged) expect((await view(other)).text, other.slice(0, 60)).toBe(refused.text)
  })

  test('ends after 12 hours without use; a use extends it, up to 30 days after the login', async () => {
    const { cookie, issued } = await logIn(await api.newUser())
    expect(Date.parse(issued.expires_at) - Date.now()).toBeLessThanOrEqual(12 * HOUR_MS)
    await shiftSession(issued.id, 'expires_at', -11)
    const extended = (await renew(cookie)).json<Issued>()
    expect(Date.parse(extended.expires_at) - Date.now()).toBeGreaterThan(11 * HOUR_MS)
    await shiftSession(issued.id, 'created_at', -(30 * 24 - 1))
    const last = (await renew(cookie)).json<Issued>()
    expect(Date.parse(last.expires_at) - Date.now()).toBeLessThanOrEqual(HOUR_MS)
    await shiftSession(issued.id, 'expires_at', -2)
    expect((await renew(cookie)).status).toBe(401)
  })

  test('is in the list of logins, and can be ended there with its tokens', async () => {
    const user = await api.newUser()
    const { cookie, issued } = await logIn(user)
    const { refresh_tokens: listed } = (await user.call('GET', '/users/tokens/refresh-tokens')).json<{
      refresh_tokens: { id: string; kind: string; user_agent: string }[]
    }>()
    expect(listed.map(({ kind }) => kind).toSorted()).toEqual(['browser', 'token'])
    expect(listed).toContainEqual(expect.objectContaining({ id: issued.id, kind: 'browser', user_agent: 'browser/1' }))
    expect((await user.call('DELETE', `/users/tokens/refresh-tokens/${issued.id}`)).status).toBe(204)
    expect((await renew(cookie)).status).toBe(401)
    expect(await profile(issued.access_token)).toBe(401)
  })

  test('ends by logging out, which deletes the cookie; a second time is a 401', async () => {
    const { cookie, issued } = await logIn(await api.newUser())
    const end = () => api.anonymous('DELETE', PATH, undefined, { ...OWN_PAGE, cookie })
    const ended = await end()
    expect(ended.status).toBe(204)
    expect(parseSetCookie(String(ended.headers['set-cookie']))).toMatchObject({ value: '', maxAge: 0 })
    expect(await profile(issued.access_token)).toBe(401)
    expect((await end()).status).toBe(401)
  })

  test.each(['disabled', 'given another password'])('ends on every node when the user is %s', async (change) => {
    await using database = await createTestDatabase()
    await using one = await startTestApi({ database, tailIntervalMs: 250 })
    await using other = await startTestApi({ database, tailIntervalMs: 250 })
    const user: TestUser = await one.newUser()
    const { cookie, issued } = await logIn(user, one)
    expect(await profile(issued.access_token, other)).toBe(200)
    const changed =
      change === 'disabled'
        ? await one.admin('POST', `/users/${user.id}/disable`)
        : await user.call('PATCH', '/users/secret', { old_secret: user.secret, new_secret: 'another-password' })
    expect(changed.status).toBe(200)
    await untilInForce(() => profile(issued.access_token, other), { from: 200, to: 401 }, 'ended there')
    expect((await renew(cookie, other)).status).toBe(401)
  })
})
