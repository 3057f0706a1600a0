// contract section 5 "DELETE /users/{id}", decision 46: a deleted user goes after 720 hours
import { sql } from 'kysely'
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { TestApi, TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase } from '../harness/database.ts'
import { until } from '../harness/until.ts'

let database: TestDatabase
beforeEach(async () => {
  database = await createTestDatabase()
})
afterEach(() => database[Symbol.asyncDispose]())

async function age(user: TestUser, hours: number): Promise<void> {
  await sql`UPDATE users SET deleted_at = deleted_at - make_interval(hours => ${hours}) WHERE id = ${user.id}`.execute(
    database.database.db,
  )
}

async function isThere(user: TestUser): Promise<boolean> {
  const { rows } = await sql`SELECT 1 FROM users WHERE id = ${user.id}`.execute(database.database.db)
  return rows.length > 0
}

const delete_ = (api: TestApi, user: TestUser) => api.admin('DELETE', `/users/${user.id}`)

test('a round removes those whose grace is over, and nobody else', async () => {
  const users: TestUser[] = []
  {
    await using api = await startTestApi({ database })
    for (let count = 0; count < 4; count++) users.push(await api.newUser())
    const [old, young, disabled] = users as [TestUser, TestUser, TestUser, TestUser]
    await delete_(api, old)
    await delete_(api, young)
    await api.admin('POST', `/users/${disabled.id}/disable`)
    await age(old, 721)
    await age(young, 719)
    await sql`UPDATE users SET deleted_at = now() - interval '1 year' WHERE id = ${disabled.id}`.execute(
      database.database.db,
    )
  }
  await using api = await startTestApi({ database })
  const [old, young, disabled, other] = users as [TestUser, TestUser, TestUser, TestUser]
  await until(async () => !(await isThere(old)), 'the user whose grace is over goes')
  expect(await Promise.all([young, disabled, other].map(isThere))).toEqual([true, true, true])
  const { rows } = await sql<{
    attributes: unknown
  }>`SELECT attributes FROM journal WHERE operation = 'user.remove'`.execute(database.database.db)
  expect(rows).toEqual([{ attributes: { id: old.id } }])
  const again = await api.anonymous('POST', '/users', {
    credentials: { identity: `${old.username}@example.com`, secret: 'correct horse' },
    name: 'Again',
  })
  expect(again.status).toBe(201)
})

test('more than one batch goes in one round, and late tokens with it', async () => {
  await sql`INSERT INTO users (id, username, secret_hash, status, deleted_at)
    SELECT gen_random_uuid(), 'gone-' || n, '', 'deleted', now() - interval '40 days' FROM generate_series(1, 250) n`.execute(
    database.database.db,
  )
  const count = async (of: 'users' | 'mailed_tokens') => {
    const { rows } = await sql<{ count: number }>`SELECT count(*) AS count FROM ${sql.table(of)}
      WHERE ${of === 'users' ? sql`status = 'deleted'` : sql`true`}`.execute(database.database.db)
    return rows[0]?.count
  }
  await sql`INSERT INTO users (id, username, secret_hash) VALUES (gen_random_uuid(), 'stays', '')`.execute(
    database.database.db,
  )
  await sql`INSERT INTO mailed_tokens (token_hash, user_key, purpose, email, expires_at)
    SELECT '\\x00', key, 'recovery', 'a@example.com', now() - interval '1 second' FROM users WHERE username = 'stays'`.execute(
    database.database.db,
  )
  await using first = await startTestApi({ database })
  await using second = await startTestApi({ database })
  await until(async () => (await count('users')) === 0, 'all of them go')
  await until(async () => (await count('mailed_tokens')) === 0, 'the late token goes')
  for (const api of [first, second]) expect((await api.admin('GET', '/users')).status).toBe(200)
})
