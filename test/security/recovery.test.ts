/** After a password reset nothing that was made in the account before signs in any more (contract decision 72). */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { mailedToken } from '../api/mailbox.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi, TestUser } from '../harness/api.ts'
import { until } from '../harness/until.ts'

const dataDir = mkdtempSync(join(tmpdir(), 'skein-recovery-'))
let api: TestApi
beforeAll(async () => {
  api = await startTestApi({ environment: { SKEIN_DATA_DIR: dataDir } })
})
afterAll(async () => {
  await api[Symbol.asyncDispose]()
  rmSync(dataDir, { recursive: true, force: true })
})

async function recover(user: TestUser): Promise<void> {
  const email = `${user.username}@example.com`
  await api.anonymous('POST', '/password/reset-request', { email })
  const token = await mailedToken(dataDir, email)
  const body = { password: 'a new password', confirm_password: 'a new password' }
  expect((await api.as(`Bearer ${token}`)('PUT', '/password/reset', body)).status).toBe(201)
}

async function credentialsOf(user: TestUser): Promise<Record<string, string>> {
  const key = await user.call('POST', '/keys', { type: 3, duration: 3600 })
  const pat = await user.call('POST', '/pats', { name: 'kept', duration: '24h' })
  const { id, secret } = pat.json<{ id: string; secret: string }>()
  const scope = { entity_type: 'users', operation: 'read', entity_id: '*' }
  expect((await user.call('PATCH', `/pats/${id}/scope/add`, { scopes: [scope] })).status).toBeLessThan(300)
  return { session: user.accessToken, 'API key': key.json<{ value: string }>().value, 'personal token': secret }
}

test('a reset ends sessions, API keys and personal tokens', async () => {
  const user = await api.newUser()
  const bystander = await api.newUser()
  const [credentials, others] = [await credentialsOf(user), await credentialsOf(bystander)]
  for (const [what, token] of Object.entries({ ...credentials, ...others }))
    expect((await api.as(`Bearer ${token}`)('GET', '/users/profile')).status, what).toBe(200)
  await recover(user)
  for (const [what, token] of Object.entries(credentials))
    expect((await api.as(`Bearer ${token}`)('GET', '/users/profile')).status, what).toBe(401)
  for (const [what, token] of Object.entries(others))
    expect((await api.as(`Bearer ${token}`)('GET', '/users/profile')).status, `another's ${what}`).toBe(200)
})

test.each([
  ['an API key', (user: TestUser) => user.call('POST', '/keys', { type: 3, duration: 3600 })],
  ['a personal token', (user: TestUser) => user.call('POST', '/pats', { name: 'late', duration: '24h' })],
  [
    'a new secret of a personal token',
    async (user: TestUser, pat: string) => await user.call('PATCH', `/pats/${pat}/secret/reset`, { duration: '24h' }),
  ],
])('%s that is created while the sessions end is refused', async (_what, make) => {
  const user = await api.newUser()
  const pat = (await user.call('POST', '/pats', { name: 'before', duration: '24h' })).json<{ id: string }>().id
  let making: ReturnType<TestUser['call']> | undefined
  await api.database.transaction(async (tx) => {
    await sql`SELECT 1 FROM users WHERE id = ${user.id} FOR NO KEY UPDATE`.execute(tx)
    await sql`UPDATE sessions SET revoked_at = now() WHERE user_key = (SELECT key FROM users WHERE id = ${user.id})`.execute(
      tx,
    )
    making = make(user, pat)
    await until(async () => {
      const { rows } = await sql<{ count: number }>`
        SELECT count(*)::int AS count FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'`.execute(api.infrastructure.database.db)
      return rows[0] !== undefined && rows[0].count > 0
    }, 'the call waits for the user')
  })
  expect((await making)?.status).toBe(401)
})
