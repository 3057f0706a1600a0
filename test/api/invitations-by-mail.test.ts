// decision 103 of the contract: people without an account are invited by mail
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { TestApi } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { createTestDatabase } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { readMails } from './mailbox.ts'
import { newMember, newTenant, statusesOf } from './support.ts'
import type { Tenant } from './support.ts'

const PUBLIC_URL = 'https://skein.example.com/base'
const PASSWORD = 'correct horse'
const dataDir = mkdtempSync(join(tmpdir(), 'skein-invited-'))
const environment = { SKEIN_DATA_DIR: dataDir, SKEIN_PUBLIC_URL: `${PUBLIC_URL}/` }
let database: Awaited<ReturnType<typeof createTestDatabase>>
let api: TestApi
/** On the same database, where nobody registers without an invitation. */
let closed: TestApi
beforeAll(async () => {
  database = await createTestDatabase()
  api = await startTestApi({ database, environment })
  closed = await startTestApi({
    database,
    environment: { ...environment, SKEIN_ALLOW_SELF_REGISTER: 'false' },
  })
})
afterAll(async () => {
  await closed[Symbol.asyncDispose]()
  await api[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
  rmSync(dataDir, { recursive: true, force: true })
})

type Page = {
  invitations: { invitee_user_id: string; role_name: string; domain_id: string }[]
  mailed: { email: string; role_name: string; relation?: string; invited_by: string }[]
}

const newAddress = () => `${newId().slice(0, 8)}@example.com`
const path = (tenant: Tenant) => `/domains/${tenant.domainId}/invitations`
const invite = async (tenant: Tenant, email: string, more: object = { relation: 'viewer' }) =>
  await tenant.call('POST', path(tenant), { email, ...more })
const listed = async (tenant: Tenant) => (await tenant.call('GET', path(tenant))).json<Page>()

const LINK = /^https:\/\/skein\.example\.com\/base\/console\/sign-up#(\S+)\r?$/m
async function tokenOf(email: string, count = 1): Promise<string> {
  const mail = await until(() => readMails(dataDir, email)[count - 1], `mail ${count} to ${email}`)
  const fragment = new URLSearchParams(LINK.exec(mail.text)?.[1] ?? '')
  expect(fragment.get('email')).toBe(email)
  return fragment.get('invitation') ?? ''
}
const register = async (token: string, email: string, more: object = {}) =>
  await closed.as(`Invitation ${token}`)('POST', '/users', {
    first_name: `Ada ${newId().slice(0, 8)}`,
    last_name: `Lovelace ${newId().slice(0, 8)}`,
    email,
    credentials: { username: `ada-${newId().slice(0, 8)}`, secret: PASSWORD },
    ...more,
  })
async function logIn(email: string) {
  const issued = await api.anonymous('POST', '/users/tokens/issue', { identity: email, secret: PASSWORD })
  return api.as(`Bearer ${issued.json<{ access_token: string }>().access_token}`)
}

test('an invited address registers with its link although self-registration is off, is verified, and accepts', async () => {
  const tenant = await newTenant(api)
  const email = newAddress()
  expect((await invite(tenant, email.toUpperCase())).status).toBe(201)
  expect(await listed(tenant)).toMatchObject({
    invitations: [],
    mailed: [{ email, role_name: 'viewer', relation: 'viewer', invited_by: tenant.user.id }],
  })
  const token = await tokenOf(email)
  expect((await register('wrong', email)).status).toBe(401)
  expect((await closed.anonymous('POST', '/users', { email })).status).toBe(401)
  const made = await register(token, email)
  expect(made.status, made.text).toBe(201)
  const user = made.json<{ id: string; verified_at: string; role: string }>()
  expect(user).toMatchObject({ role: 'user' })
  expect(Date.parse(user.verified_at)).toBeGreaterThan(Date.parse('2020-01-01'))
  const found = await listed(tenant)
  expect(found.mailed).toEqual([])
  expect(found.invitations).toMatchObject([{ invitee_user_id: user.id, role_name: 'viewer' }])
  const call = await logIn(email)
  expect((await call('GET', `/domains/${tenant.domainId}`)).status).toBe(403)
  expect((await call('POST', '/invitations/accept', { domain_id: tenant.domainId })).status).toBe(204)
  expect((await call('GET', `/domains/${tenant.domainId}`)).status).toBe(200)
  // The link is used.
  expect((await register(token, email)).status).toBe(401)
})

test('a link is for its address, and never for an administrator of the platform', async () => {
  const tenant = await newTenant(api)
  const email = newAddress()
  await invite(tenant, email)
  const token = await tokenOf(email)
  const refused = await register(token, newAddress())
  expect(refused.status).toBe(400)
  expect(refused.json()).toMatchObject({ details: [{ path: '/email', message: 'must be the invited address' }] })
  expect((await register(token, email, { role: 'admin' })).status).toBe(401)
  // A refusal does not use it.
  expect((await register(token, email)).status).toBe(201)
})

test('an address is invited once; resend makes a new link, and a withdrawn or expired link is invalid', async () => {
  const tenant = await newTenant(api)
  const email = newAddress()
  await invite(tenant, email)
  const expired = await tokenOf(email)
  await sql`UPDATE mailed_invitations SET expires_at = now() WHERE email = ${email}`.execute(api.database.db)
  expect((await register(expired, email)).status).toBe(401)
  expect((await listed(tenant)).mailed).toEqual([])
  // An expired one is no obstacle.
  expect((await invite(tenant, email)).status).toBe(201)
  for (let refused = 0; refused < 5; refused++)
    expect((await invite(tenant, email)).json()).toMatchObject({ details: [{ path: '/email' }] })
  expect((await invite(tenant, email, { relation: 'editor', resend: true })).status).toBe(201)
  const [second, third] = [await tokenOf(email, 2), await tokenOf(email, 3)]
  expect((await register(second, email)).status).toBe(401)
  expect((await listed(tenant)).mailed).toMatchObject([{ email, role_name: 'editor' }])
  const withdraw = () => tenant.call('DELETE', path(tenant), { email })
  expect(statusesOf([await withdraw(), await withdraw()])).toEqual([204, 404])
  expect((await register(third, email)).status).toBe(401)
  // Three mails in five minutes, from whatever domain.
  expect((await invite(tenant, email)).status).toBe(429)
  expect((await invite(await newTenant(api), email)).status).toBe(429)
})

test('the address of an account invites its user, without a mail', async () => {
  const tenant = await newTenant(api)
  const user = await api.newUser()
  const email = `${user.username}@example.com`
  expect((await invite(tenant, email)).status).toBe(201)
  const { invitations, mailed } = await listed(tenant)
  expect(invitations).toMatchObject([{ invitee_user_id: user.id, role_name: 'viewer' }])
  expect(mailed).toEqual([])
  expect(readMails(dataDir, email)).toEqual([])
})

test('only administrators invite and withdraw, and a body names one invitee and one role', async () => {
  const tenant = await newTenant(api)
  const member = await newMember(api, tenant, ['read', 'view_role_users', 'add_role_users', 'remove_role_users'])
  const email = newAddress()
  expect((await invite(member, email)).status).toBe(403)
  await invite(tenant, email)
  expect((await member.call('DELETE', path(tenant), { email })).status).toBe(403)
  for (const body of [
    {},
    { email },
    { email: 'no address', relation: 'viewer' },
    { email, invitee_user_id: newId(), relation: 'viewer' },
    { email, relation: 'viewer', role_id: 'domain_x' },
    { email, relation: 'king' },
  ])
    expect((await tenant.call('POST', path(tenant), body)).status, JSON.stringify(body)).toBe(400)
  expect((await tenant.call('DELETE', path(tenant), {})).status).toBe(400)
})

test('a domain invites at most a hundred addresses at a time', async () => {
  const tenant = await newTenant(api)
  await sql`INSERT INTO mailed_invitations (domain_key, email, token_hash, invited_by, role_key, expires_at)
    SELECT d.key, 'full' || n || '@example.com', sha256(convert_to(d.id::text || n, 'UTF8')), ${newId()}, 0, now() + interval '1 hour'
      FROM domains d, generate_series(1, 100) n WHERE d.id = ${tenant.domainId}`.execute(api.database.db)
  expect((await invite(tenant, newAddress())).status).toBe(429)
  // One that waits is sent again.
  expect((await invite(tenant, 'full7@example.com', { relation: 'viewer', resend: true })).status).toBe(201)
})
