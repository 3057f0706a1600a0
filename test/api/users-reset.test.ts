// contract section 5 "password/reset", section 6 "recovery", decision 55
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import type { TestApi, TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { until } from '../harness/until.ts'
import { mailedToken, readMails } from './mailbox.ts'
import { statusesOf } from './support.ts'

const PUBLIC_URL = 'https://skein.example.com/base'
const dataDir = mkdtempSync(join(tmpdir(), 'skein-reset-'))
let api: TestApi
beforeAll(async () => {
  api = await startTestApi({ environment: { SKEIN_DATA_DIR: dataDir, SKEIN_PUBLIC_URL: `${PUBLIC_URL}/` } })
})
afterAll(async () => {
  await api[Symbol.asyncDispose]()
  rmSync(dataDir, { recursive: true, force: true })
})

const emailOf = (user: TestUser) => `${user.username}@example.com`
const request = (email: unknown, headers: Record<string, string> = {}) =>
  api.anonymous('POST', '/password/reset-request', { email }, headers)
const both = (password: string) => ({ password, confirm_password: password })
const reset = (token: string, body: unknown) => api.as(`Bearer ${token}`)('PUT', '/password/reset', body)
const logIn = async (user: TestUser, secret: string) =>
  (await api.anonymous('POST', '/users/tokens/issue', { identity: user.username, secret })).status

async function tokenFor(user: TestUser, count = 1): Promise<string> {
  await request(emailOf(user))
  return await mailedToken(dataDir, emailOf(user), count)
}

test('the response does not depend on whether the email is known, and only a known email gets a mail', async () => {
  const user = await api.newUser()
  const [known, unknown] = [await request(emailOf(user).toUpperCase()), await request('nobody@example.com')]
  expect(known.status).toBe(201)
  expect(known.json<{ msg: string }>().msg).toEqual(expect.any(String))
  expect(unknown.status).toBe(201)
  expect(unknown.text).toBe(known.text)
  // The requests are worked off in order: a later one whose mail is there says that the unknown one was looked at.
  const last = await api.newUser()
  await tokenFor(last)
  await mailedToken(dataDir, emailOf(user))
  expect(readMails(dataDir, emailOf(user))).toHaveLength(1)
  expect(readMails(dataDir, 'nobody@example.com')).toEqual([])
})

test('the link is built from the settings, independent of the headers of the request', async () => {
  const user = await api.newUser()
  await request(emailOf(user), { referer: 'https://evil.example/reset', host: 'evil.example' })
  const token = await mailedToken(dataDir, emailOf(user))
  const [mail] = readMails(dataDir, emailOf(user))
  expect(mail?.text).toContain(`${PUBLIC_URL}/password/reset?token=${token}`)
  expect(mail?.text).not.toContain('evil')
  expect(mail?.text).not.toContain(user.username)
})

test('the file of the mail is readable by its owner only', async () => {
  const user = await api.newUser()
  await tokenFor(user)
  const file = readMails(dataDir, emailOf(user))[0]?.file ?? ''
  expect(statSync(file).mode & 0o777).toBe(0o600)
  expect(statSync(dirname(file)).mode & 0o777).toBe(0o700)
})

test.each([[undefined], [''], ['no address'], [7], ['a@example.com\nb@example.com']])(
  'a request for %j is refused as an invalid address',
  async (email) => {
    expect((await request(email)).status).toBe(400)
  },
)

test('the token sets a new password, every session ends, and the response is empty', async () => {
  const user = await api.newUser()
  const token = await tokenFor(user)
  const answer = await reset(token, both('a new password'))
  expect(answer.status).toBe(201)
  expect(answer.json()).toEqual({})
  expect(await logIn(user, user.secret)).toBe(401)
  expect(await logIn(user, 'a new password')).toBe(201)
  expect((await user.call('GET', '/users/profile')).status).toBe(401)
  expect((await api.as(`Bearer ${user.refreshToken}`)('POST', '/users/tokens/refresh')).status).toBe(401)
})

test('older clients send the token in the body, with or without the header', async () => {
  const [one, other] = [await api.newUser(), await api.newUser()]
  const [first, second] = [await tokenFor(one), await tokenFor(other)]
  const inBody = await api.anonymous('PUT', '/password/reset', { token: first, ...both('from the body') })
  expect(inBody.status).toBe(201)
  expect(await logIn(one, 'from the body')).toBe(201)
  expect((await reset(second, { token: second, ...both('from both') })).status).toBe(201)
  expect(await logIn(other, 'from both')).toBe(201)
})

test('a token works once, also for two concurrent requests', async () => {
  const user = await api.newUser()
  const token = await tokenFor(user)
  const answers = await Promise.all(['first new password', 'second new password'].map((p) => reset(token, both(p))))
  expect(statusesOf(answers)).toEqual([201, 401])
  expect((await reset(token, both('third new password'))).status).toBe(401)
})

test('an invalid new password is refused with the reason, and the token stays valid', async () => {
  const user = await api.newUser()
  const token = await tokenFor(user)
  for (const body of [
    { password: 'a new password', confirm_password: 'another password' },
    both('short'),
    { password: 'a new password' },
    { confirm_password: 'a new password' },
    {},
  ])
    expect((await reset(token, body)).status).toBe(400)
  expect((await reset(token, both('a new password'))).status).toBe(201)
})

test('any other token is refused before the body is validated', async () => {
  const user = await api.newUser()
  for (const token of ['nonsense', user.accessToken, user.refreshToken, 'x'.repeat(200)]) {
    expect((await reset(token, both('a new password'))).status).toBe(401)
    expect((await reset(token, { nonsense: true })).status).toBe(401)
  }
  expect((await api.as('Basic eDp5')('PUT', '/password/reset', both('a new password'))).status).toBe(401)
  expect((await api.anonymous('PUT', '/password/reset', both('a new password'))).status).toBe(401)
  expect((await api.anonymous('PUT', '/password/reset', { token: 'nonsense', ...both('new secret') })).status).toBe(401)
})

test('a recovery token has no other use', async () => {
  const user = await api.newUser()
  const token = await tokenFor(user)
  expect((await api.as(`Bearer ${token}`)('GET', '/users/profile')).status).toBe(401)
  expect((await api.as(`Bearer ${token}`)('POST', '/users/tokens/refresh')).status).toBe(401)
  expect((await api.anonymous('GET', `/verify-email?token=${token}`)).status).toBe(401)
})

test.each([
  [
    'a changed password',
    (user: TestUser) =>
      user.call('PATCH', '/users/secret', { old_secret: user.secret, new_secret: 'changed meanwhile' }),
  ],
  ['another email', (user: TestUser) => user.call('PATCH', `/users/${user.id}/email`, { email: `x-${emailOf(user)}` })],
  ['disabling', (user: TestUser) => api.admin('POST', `/users/${user.id}/disable`)],
  ['deletion', (user: TestUser) => api.admin('DELETE', `/users/${user.id}`)],
  [
    'another token that was used',
    async (user: TestUser) => await reset(await tokenFor(user, 2), both('with the other token')),
  ],
])('%s invalidates the token', async (_what, change) => {
  const user = await api.newUser()
  const token = await tokenFor(user)
  expect((await change(user)).status).toBeLessThan(300)
  expect((await reset(token, both('a new password'))).status).toBe(401)
})

test('disabling the user invalidates the token permanently, also after enabling', async () => {
  const user = await api.newUser()
  const token = await tokenFor(user)
  await api.admin('POST', `/users/${user.id}/disable`)
  await api.admin('POST', `/users/${user.id}/enable`)
  expect((await reset(token, both('a new password'))).status).toBe(401)
})

test('a token is valid for five minutes', async () => {
  const user = await api.newUser()
  const token = await tokenFor(user)
  const left = sql<{ seconds: number }>`SELECT extract(epoch FROM t.expires_at - t.created_at)::int AS seconds
    FROM mailed_tokens t JOIN users u ON u.key = t.user_key WHERE u.id = ${user.id}`
  expect((await left.execute(api.database.db)).rows).toEqual([{ seconds: 300 }])
  await sql`UPDATE mailed_tokens SET expires_at = now() - interval '1 second'
    WHERE user_key = (SELECT key FROM users WHERE id = ${user.id})`.execute(api.database.db)
  expect((await reset(token, both('a new password'))).status).toBe(401)
})

test('neither the database nor the journal contains a token', async () => {
  const user = await api.newUser()
  const token = await tokenFor(user)
  const { rows } = await sql<{
    hash: string
  }>`SELECT encode(token_hash, 'escape') || encode(token_hash, 'base64') AS hash
    FROM mailed_tokens`.execute(api.database.db)
  expect(JSON.stringify(rows)).not.toContain(token)
  const entries = await sql<{ operation: string; attributes: object }>`SELECT operation, attributes FROM journal
    WHERE attributes->>'id' = ${user.id}`.execute(api.database.db)
  expect(entries.rows.map((row) => row.operation)).toContain('user.send_password_reset')
  expect(JSON.stringify(entries.rows)).not.toContain(token)
})

test('three mails are sent in five minutes, and the response does not reveal that the fourth is missing', async () => {
  const user = await api.newUser()
  const answers = []
  for (let count = 0; count < 6; count++) answers.push(await request(emailOf(user)))
  expect(new Set(answers.map((answer) => `${answer.status} ${answer.text}`)).size).toBe(1)
  const last = await api.newUser()
  await tokenFor(last)
  await mailedToken(dataDir, emailOf(user), 3)
  expect(readMails(dataDir, emailOf(user))).toHaveLength(3)
})

test('a disabled user gets no mail', async () => {
  const user = await api.newUser()
  await api.admin('POST', `/users/${user.id}/disable`)
  expect((await request(emailOf(user))).status).toBe(201)
  const last = await api.newUser()
  await tokenFor(last)
  expect(readMails(dataDir, emailOf(user))).toEqual([])
})

test('the page of the link loads nothing, is not cached, and sends no referrer', async () => {
  const page = await api.anonymous('GET', '/password/reset?token=x')
  expect(page.status).toBe(200)
  expect(page.headers['content-type']).toBe('text/html; charset=utf-8')
  expect(page.headers['cache-control']).toBe('no-store')
  expect(page.headers['referrer-policy']).toBe('no-referrer')
  expect(page.headers['content-security-policy']).toMatch(/^default-src 'none'; .*frame-ancestors 'none'/)
  expect(page.text).not.toMatch(/(src|href)=/)
})

test('two hundred requests wait while none can be processed, and further ones are refused', async () => {
  const answers = await api.database.transaction(async (tx) => {
    await sql`LOCK TABLE users IN ACCESS EXCLUSIVE MODE`.execute(tx)
    return await Promise.all(Array.from({ length: 250 }, (_, index) => request(`flood-${index}@example.com`)))
  })
  // One is looked at already, and waits for the table.
  expect(answers.filter((answer) => answer.status === 201)).toHaveLength(201)
  const refused = answers.filter((answer) => answer.status !== 201)
  expect(new Set(refused.map((answer) => answer.status))).toEqual(new Set([429]))
  expect(refused[0]?.headers['retry-after']).toBe('10')
  const user = await api.newUser()
  await until(async () => (await request(emailOf(user))).status === 201, 'requests are taken again')
  await mailedToken(dataDir, emailOf(user))
})
