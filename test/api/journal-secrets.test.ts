// contract section 10: never secrets, keys or token values, whatever the operation
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { Caller } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { mailedToken } from './mailbox.ts'
import { newTenant } from './support.ts'

const dataDir = mkdtempSync(join(tmpdir(), 'skein-secrets-'))
const api = useWorld(() => startTestApi({ environment: { SKEIN_DATA_DIR: dataDir } }))
const tenant = useWorld(() => newTenant(api))
afterAll(async () => {
  rmSync(dataDir, { recursive: true, force: true })
})

/** Fields whose values are secrets, in whatever body they stand. */
const SECRET_FIELDS =
  /^(secret|old_secret|new_secret|password|confirm_password|token|access_token|refresh_token|value)$/

/** Everything that was sent or answered as a secret. */
const secrets = new Set<string>()

function collect(value: unknown): void {
  if (typeof value !== 'object' || value === null) return
  for (const [name, item] of Object.entries(value)) {
    if (typeof item === 'string' && item !== '' && SECRET_FIELDS.test(name)) secrets.add(item)
    collect(item)
  }
}

/** Calls and remembers every secret that passes by; the call must succeed. */
function watched(call: Caller): (method: string, path: string, body?: unknown) => Promise<Record<string, unknown>> {
  return async (method, path, body) => {
    collect(body)
    const response = await call(method, path, body)
    expect(response.status, `${method} ${path}: ${response.text}`).toBeLessThan(300)
    if (response.text === '') return {}
    const answer = response.json()
    collect(answer)
    return answer
  }
}

async function journalText(): Promise<string> {
  const { rows } = await sql<{ row: string }>`SELECT to_jsonb(j)::text AS row FROM journal j`.execute(api.database.db)
  return rows.map(({ row }) => row).join('\n')
}

async function operations(): Promise<Set<string>> {
  const { rows } = await sql<{ operation: string }>`SELECT DISTINCT operation FROM journal`.execute(api.database.db)
  return new Set(rows.map(({ operation }) => operation))
}

/** A new user whose calls are recorded, including the login. */
async function newWatchedUser() {
  const user = await api.newUser()
  for (const secret of [user.secret, user.accessToken, user.refreshToken]) secrets.add(secret)
  return { ...user, email: `${user.username}@example.com`, act: watched(user.call) }
}

async function doUsers(): Promise<void> {
  const user = await newWatchedUser()
  const anonymous = watched(api.anonymous)
  await user.act('PATCH', `/users/${user.id}`, { metadata: { a: 1 }, secret: `stray-${newId()}` })
  await user.act('PATCH', `/users/${user.id}/tags`, { tags: ['a'] })
  await user.act('PATCH', `/users/${user.id}/picture`, { profile_picture: 'https://example.com/a.png' })
  await user.act('PATCH', `/users/${user.id}/username`, { username: `renamed-${newId().slice(0, 8)}` })
  await user.act('POST', '/users/send-verification')
  secrets.add(await mailedToken(dataDir, user.email))
  await anonymous('POST', '/password/reset-request', { email: user.email })
  const reset = await mailedToken(dataDir, user.email, 2)
  const chosen = `chosen-${newId()}`
  await anonymous('PUT', '/password/reset', { token: reset, password: chosen, confirm_password: chosen })
  const pair = await anonymous('POST', '/users/tokens/issue', { identity: user.email, secret: chosen })
  const refreshed = await watched(api.as(`Bearer ${String(pair['refresh_token'])}`))('POST', '/users/tokens/refresh')
  const again = watched(api.as(`Bearer ${String(refreshed['access_token'])}`))
  await again('PATCH', '/users/secret', { old_secret: chosen, new_secret: `next-${newId()}` })
  await watched(api.admin)('POST', `/users/${user.id}/disable`)
  await watched(api.admin)('POST', `/users/${user.id}/enable`)
  await watched(api.admin)('PATCH', `/users/${user.id}/role`, { role: 'admin' })
  await watched(api.admin)('PATCH', `/users/${user.id}/role`, { role: 'user' })
  await watched(api.admin)('DELETE', `/users/${user.id}`)
  const wrong = `wrong-${newId()}`
  secrets.add(wrong)
  await api.anonymous('POST', '/users/tokens/issue', { identity: tenant.user.username, secret: wrong })
}

async function doKeys(): Promise<void> {
  const user = await newWatchedUser()
  const key = await user.act('POST', '/keys', { type: 3, duration: 3600 })
  await user.act('DELETE', `/keys/${String(key['id'])}`)
  await watched(api.admin)('POST', '/keys/rotate')
  const pat = await user.act('POST', '/pats', { name: 'robot', duration: '24h' })
  const at = `/pats/${String(pat['id'])}`
  await user.act('PATCH', `${at}/name`, { name: 'renamed' })
  await user.act('PATCH', `${at}/description`, { description: 'for tests' })
  await user.act('PATCH', `${at}/scope/add`, {
    scopes: [{ entity_type: 'users', entity_id: '*', operation: 'read' }],
  })
  await user.act('PATCH', `${at}/secret/reset`, { duration: '48h' })
  await user.act('PATCH', `${at}/secret/revoke`)
  await user.act('DELETE', `${at}/scope`)
  await user.act('DELETE', at)
}

async function doDevices(): Promise<void> {
  const act = watched(tenant.call)
  const base = `/${tenant.domainId}`
  const client = await act('POST', `${base}/clients`, { name: 'a', credentials: { identity: 'a', secret: newId() } })
  await act('POST', `${base}/clients/bulk`, [{ credentials: { secret: newId() } }, {}])
  const at = `${base}/clients/${String(client['id'])}`
  await act('PATCH', at, { name: 'b', credentials: { secret: `stray-${newId()}` } })
  await act('PATCH', `${at}/tags`, { tags: ['x'] })
  await act('PATCH', `${at}/secret`, { secret: newId() })
  const group = await act('POST', `${base}/groups`, { name: 'g' })
  await act('POST', `${at}/parent`, { parent_group_id: group['id'] })
  await act('DELETE', `${at}/parent`)
  const channel = await act('POST', `${base}/channels`, { name: 'c', secret: `stray-${newId()}` })
  const pair = { client_ids: [client['id']], channel_ids: [channel['id']], types: ['publish'] }
  await act('POST', `${base}/channels/connect`, pair)
  await act('POST', `${base}/channels/disconnect`, pair)
  const role = await act('POST', `${at}/roles`, { role_name: 'r', optional_actions: ['read'] })
  await act('DELETE', `${at}/roles/${String(role['role_id'])}`)
  await act('POST', `${at}/disable`)
  await act('POST', `${at}/enable`)
  await act('DELETE', `${base}/channels/${String(channel['id'])}`)
  await act('DELETE', at)
  await act('DELETE', `${base}/groups/${String(group['id'])}`)
  const invitee = await newWatchedUser()
  await act('POST', '/invitations', { user_id: invitee.id, domain_id: tenant.domainId, relation: 'viewer' })
  await invitee.act('POST', '/invitations/accept', { domain_id: tenant.domainId })
  await act('PATCH', `/domains/${tenant.domainId}`, { name: 'renamed', secret: `stray-${newId()}` })
}

test('no record contains a secret, a password, a key or a token, after any operation', async () => {
  for (const secret of [tenant.user.secret, tenant.user.accessToken, tenant.user.refreshToken]) secrets.add(secret)
  await doUsers()
  await doKeys()
  await doDevices()
  const done = await operations()
  for (const operation of [
    'user.create',
    'user.update',
    'user.update_username',
    'user.reset_secret',
    'user.issue_token',
    'user.refresh_token',
    'user.refused_token',
    'api_key.create',
    'signing_key.rotate',
    'pat.create',
    'pat.reset_secret',
    'client.create',
    'client.update',
    'client.update_secret',
    'client.set_parent',
    'client.role.add',
    'channel.connect',
    'group.create',
    'invitation.send',
    'invitation.accept',
    'domain.update',
  ])
    expect([...done], operation).toContain(operation)
  expect(done.size).toBeGreaterThan(35)
  expect(secrets.size).toBeGreaterThan(30)
  const text = await journalText()
  for (const secret of secrets) expect(text.includes(secret), `a secret of ${secret.length} characters`).toBe(false)
  expect(text).not.toMatch(/argon2|"secret_(hash|mac|sealed)"|eyJ[A-Za-z0-9_-]{20}/)
})

test('every change has the values before and after, with the names of the entity', async () => {
  const { rows } = await sql<{ operation: string; attributes: Record<string, unknown> }>`
    SELECT operation, attributes FROM journal WHERE operation ~ '\.(update|enable|disable|update_[a-z_]+)$' AND operation !~ 'secret'`.execute(
    api.database.db,
  )
  expect(rows.length).toBeGreaterThan(8)
  for (const { operation, attributes } of rows) {
    const { before, after } = attributes as { before?: object; after?: object }
    expect(attributes['id'], operation).toBeDefined()
    expect(Object.keys(after ?? {}).length, operation).toBeGreaterThan(0)
    expect(Object.keys(before ?? {}).toSorted(), operation).toEqual(Object.keys(after ?? {}).toSorted())
  }
})
