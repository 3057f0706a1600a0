// contract section 5 "U18": proof of an email address, and SKEIN_REQUIRE_VERIFIED_EMAIL
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { TestApi, TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { mailedToken, readMails } from './mailbox.ts'

const emailOf = (user: TestUser) => `${user.username}@example.com`

describe('where the settings do not require a verified email', () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'skein-verify-'))
  let api: TestApi
  beforeAll(async () => {
    api = await startTestApi({ environment: { SKEIN_DATA_DIR: dataDir } })
  })
  afterAll(async () => {
    await api[Symbol.asyncDispose]()
    rmSync(dataDir, { recursive: true, force: true })
  })
  const verify = async (token: string) => await api.anonymous('GET', `/verify-email?token=${token}`)
  const verifiedAt = async (user: TestUser) =>
    (await user.call('GET', '/users/profile')).json<{ verified_at?: string }>().verified_at

  test('verification is optional', async () => {
    const user = await api.newUser()
    expect(await verifiedAt(user)).toBeUndefined()
    expect((await user.call('GET', '/users')).status).toBe(200)
    expect(readMails(dataDir, emailOf(user))).toEqual([])
    const sent = await user.call('POST', '/users/send-verification')
    expect(sent.status).toBe(200)
    expect(sent.json<{ message: string }>().message).toEqual(expect.any(String))
    const token = await mailedToken(dataDir, emailOf(user))
    expect((await verify(token)).status).toBe(200)
    const own = await user.call('GET', `/journal/user/${user.id}?with_attributes=true&limit=2`)
    expect(own.json<{ journals: object[] }>().journals).toMatchObject([
      { operation: 'user.verify_email', attributes: { address: '127.0.0.1' } },
      { operation: 'user.send_verification', attributes: { user_id: user.id, address: '127.0.0.1' } },
    ])
    expect(await verifiedAt(user)).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/)
  })

  test('the link may be followed again, without effect', async () => {
    const user = await api.newUser()
    await user.call('POST', '/users/send-verification')
    const token = await mailedToken(dataDir, emailOf(user))
    await verify(token)
    const first = await verifiedAt(user)
    expect((await verify(token)).status).toBe(200)
    expect(await verifiedAt(user)).toBe(first)
    expect((await user.call('POST', '/users/send-verification')).status).toBe(200)
    expect(readMails(dataDir, emailOf(user))).toHaveLength(1)
  })

  test('a changed email is unverified again, and the link to the previous one verifies nothing', async () => {
    const user = await api.newUser()
    await user.call('POST', '/users/send-verification')
    const token = await mailedToken(dataDir, emailOf(user))
    await verify(token)
    await user.call('PATCH', `/users/${user.id}/email`, { email: emailOf(user).toUpperCase() })
    expect(await verifiedAt(user)).toBeDefined()
    await user.call('PATCH', `/users/${user.id}/email`, { email: `new-${emailOf(user)}` })
    expect(await verifiedAt(user)).toBeUndefined()
    expect((await verify(token)).status).toBe(401)
    await user.call('PATCH', `/users/${user.id}/email`, { email: emailOf(user) })
    expect((await verify(token)).status).toBe(401)
  })

  test('a token that is wrong, expired or of a deleted user is refused, and a missing one too', async () => {
    const user = await api.newUser()
    await user.call('POST', '/users/send-verification')
    const token = await mailedToken(dataDir, emailOf(user))
    expect((await api.anonymous('GET', '/verify-email')).status).toBe(400)
    expect((await api.anonymous('GET', '/verify-email?token=')).status).toBe(400)
    for (const wrong of ['nonsense', user.accessToken, `${token}x`]) expect((await verify(wrong)).status).toBe(401)
    await sql`UPDATE mailed_tokens SET expires_at = now() WHERE user_key = (SELECT key FROM users WHERE id = ${user.id})`.execute(
      api.database.db,
    )
    expect((await verify(token)).status).toBe(401)
    const other = await api.newUser()
    await other.call('POST', '/users/send-verification')
    const deleted = await mailedToken(dataDir, emailOf(other))
    await api.admin('DELETE', `/users/${other.id}`)
    expect((await verify(deleted)).status).toBe(401)
  })

  test('a verification token sets no password', async () => {
    const user = await api.newUser()
    await user.call('POST', '/users/send-verification')
    const token = await mailedToken(dataDir, emailOf(user))
    const body = { password: 'a new password', confirm_password: 'a new password' }
    expect((await api.as(`Bearer ${token}`)('PUT', '/password/reset', body)).status).toBe(401)
  })

  test('at most three links are sent in five minutes, and sending requires a login and an address', async () => {
    const user = await api.newUser()
    for (let count = 0; count < 3; count++)
      expect((await user.call('POST', '/users/send-verification')).status).toBe(200)
    const refused = await user.call('POST', '/users/send-verification')
    expect(refused.status).toBe(429)
    expect(refused.headers['retry-after']).toBe('300')
    expect((await api.anonymous('POST', '/users/send-verification')).status).toBe(401)
    const credentials = { identity: `no-mail-${newId().slice(0, 8)}`, secret: 'correct horse' }
    await api.anonymous('POST', '/users', { credentials })
    const { access_token: token } = (await api.anonymous('POST', '/users/tokens/issue', credentials)).json<{
      access_token: string
    }>()
    expect((await api.as(`Bearer ${token}`)('POST', '/users/send-verification')).status).toBe(422)
  })
})

describe('where SKEIN_REQUIRE_VERIFIED_EMAIL is true', () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'skein-verified-'))
  let api: TestApi
  beforeAll(async () => {
    api = await startTestApi({ environment: { SKEIN_DATA_DIR: dataDir, SKEIN_REQUIRE_VERIFIED_EMAIL: 'true' } })
  })
  afterAll(async () => {
    await api[Symbol.asyncDispose]()
    rmSync(dataDir, { recursive: true, force: true })
  })

  test('the first administrator is not locked out', async () => {
    expect((await api.admin('GET', '/users')).status).toBe(200)
  })

  test('registering sends the link, and following it gives full access at once', async () => {
    const user = await api.newUser()
    const refused = await user.call('GET', '/domains')
    expect(refused.status).toBe(403)
    expect(refused.json()).toMatchObject({ error: 'forbidden', message: expect.stringContaining('verified') as string })
    const token = await mailedToken(dataDir, emailOf(user))
    expect((await api.anonymous('GET', `/verify-email?token=${token}`)).status).toBe(200)
    expect((await user.call('GET', '/domains')).status).toBe(200)
  })

  test('unverified users can view their profile, refresh, change their address and request the link, and nothing else', async () => {
    const user = await api.newUser()
    expect((await user.call('GET', '/users/profile')).status).toBe(200)
    expect((await user.call('POST', '/users/send-verification')).status).toBe(200)
    const refreshed = await api.as(`Bearer ${user.refreshToken}`)('POST', '/users/tokens/refresh')
    expect(refreshed.status).toBe(201)
    for (const [method, path, body] of [
      ['GET', '/users', undefined],
      ['GET', `/users/${user.id}`, undefined],
      ['GET', '/users/search?username=abc', undefined],
      ['PATCH', `/users/${user.id}`, { metadata: {} }],
      ['PATCH', `/users/${user.id}/username`, { username: 'other' }],
      ['PATCH', '/users/secret', { old_secret: user.secret, new_secret: 'another password' }],
      ['POST', '/users', { credentials: { identity: 'owned', secret: 'correct horse' } }],
      ['POST', '/domains', { name: 'plant' }],
      ['GET', `/m/${newId()}/c/${newId()}`, undefined],
      ['POST', `/m/${newId()}/c/${newId()}`, [{ n: 'x', v: 1 }]],
    ] as const)
      expect((await user.call(method, path, body)).status, `${method} ${path}`).toBe(403)
    const email = `corrected-${emailOf(user)}`
    expect((await user.call('PATCH', `/users/${user.id}/email`, { email })).status).toBe(200)
    const token = await mailedToken(dataDir, email)
    await api.anonymous('GET', `/verify-email?token=${token}`)
    expect((await user.call('GET', '/users')).status).toBe(200)
  })

  test('verified users who change their address must verify again', async () => {
    const user = await api.newUser()
    await api.anonymous('GET', `/verify-email?token=${await mailedToken(dataDir, emailOf(user))}`)
    expect((await user.call('GET', '/users')).status).toBe(200)
    await user.call('PATCH', `/users/${user.id}/email`, { email: `again-${emailOf(user)}` })
    expect((await user.call('GET', '/users')).status).toBe(403)
    expect(readMails(dataDir, `again-${emailOf(user)}`).length).toBeLessThanOrEqual(1)
    await api.anonymous('GET', `/verify-email?token=${await mailedToken(dataDir, `again-${emailOf(user)}`)}`)
    expect((await user.call('GET', '/users')).status).toBe(200)
  })

  test('users without an address set one first', async () => {
    const credentials = { identity: `no-mail-${newId().slice(0, 8)}`, secret: 'correct horse' }
    const { id } = (await api.anonymous('POST', '/users', { credentials })).json<{ id: string }>()
    const { access_token: token } = (await api.anonymous('POST', '/users/tokens/issue', credentials)).json<{
      access_token: string
    }>()
    const call = api.as(`Bearer ${token}`)
    expect((await call('GET', '/users')).status).toBe(403)
    const email = `${credentials.identity}@example.com`
    expect((await call('PATCH', `/users/${id}/email`, { email })).status).toBe(200)
    await api.anonymous('GET', `/verify-email?token=${await mailedToken(dataDir, email)}`)
    expect((await call('GET', '/users')).status).toBe(200)
  })
})
