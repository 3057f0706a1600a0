// contract section 5 "DELETE /users/{id}", decision 46: a deleted user goes after 720 hours
import { afterEach, beforeEach, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase } from '../harness/database.ts'
import { until } from '../harness/until.ts'

let database: TestDatabase
beforeEach(async () => {
  database = await createTestDatabase()
})
afterEach(() => database[Symbol.asyncDispose]())

test('a round removes users after their grace period, and no others', async () => {
  const { db } = database.database
  await sql`INSERT INTO users (id, username, secret_hash, status, deleted_at)
    SELECT gen_random_uuid(), name, '', status, now() - make_interval(hours => hours)
      FROM (VALUES ('old', 'deleted', 721), ('young', 'deleted', 719), ('disabled', 'disabled', 9000), ('other', 'enabled', 9000))
        AS made (name, status, hours)`.execute(db)
  const names = async () =>
    (await sql<{ username: string }>`SELECT username FROM users WHERE username <> 'admin'`.execute(db)).rows
      .map((row) => row.username)
      .toSorted()
  await using api = await startTestApi({ database })
  await until(async () => !(await names()).includes('old'), 'the user whose grace is over goes')
  expect(await names()).toEqual(['disabled', 'other', 'young'])
  const { rows } = await sql`SELECT attributes FROM journal WHERE operation = 'user.remove'`.execute(db)
  expect(rows).toEqual([{ attributes: { id: expect.any(String) as string } }])
  const again = await api.anonymous('POST', '/users', { credentials: { identity: 'old', secret: 'correct horse' } })
  expect(again.status).toBe(201)
  await api.admin('DELETE', `/users/${again.json<{ id: string }>().id}`)
  const deleted = await sql<{ hours: number }>`SELECT extract(epoch FROM now() - deleted_at) / 3600 AS hours
    FROM users WHERE username = 'old'`.execute(db)
  expect(Number(deleted.rows[0]?.hours)).toBeLessThan(1)
})

test('a round removes more than one batch, and late tokens with it', async () => {
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
