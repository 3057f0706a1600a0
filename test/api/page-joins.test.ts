/** A page of a long list joins the users of its rows alone, with and without statistics. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Queryable } from '#core/database/index.ts'
import type { Statement } from '#core/sql.ts'
import { sql } from '#core/sql.ts'
import { listMembers } from '../../api/identity/roles/repository.ts'
import { listDashboards } from '../../api/views/dashboards/repository.ts'
import { createTestDatabase } from '../harness/database.ts'

const ROWS = 3000
const PAGE = { offset: 0, limit: 20 }
/** One more row shows whether others follow. */
const READ_USERS = PAGE.limit + 1

const { database, ...own } = await createTestDatabase()
const { db } = database
afterAll(() => own[Symbol.asyncDispose]())

let domainKey: number
let userKey: number

beforeAll(async () => {
  const { rows: domains } = await sql<{ key: number }>`INSERT INTO domains (id, name, route, status, created_at)
    VALUES (gen_random_uuid(), 'plans', 'plans', 'enabled', now()) RETURNING key`.execute(db)
  domainKey = domains[0]?.key as number
  const { rows: users } = await sql<{ key: number }>`INSERT INTO users (id, username, secret_hash)
    SELECT gen_random_uuid(), 'user ' || n, '' FROM generate_series(1, ${ROWS}) n RETURNING key`.execute(db)
  userKey = users[0]?.key as number
  await sql`INSERT INTO grants (user_key, entity_type, domain_key, entity_key)
    SELECT key, 'domain', ${domainKey}::bigint, ${domainKey}::bigint FROM users`.execute(db)
  await sql`INSERT INTO dashboards (id, domain_key, user_key, name, is_shared, content)
    SELECT gen_random_uuid(), ${domainKey}::bigint, key, username, true, '{}' FROM users`.execute(db)
})

/** How many rows of users the list reads. */
async function readUsers(list: (db: Queryable) => Promise<unknown>): Promise<number> {
  let plan = ''
  await list({
    async query<Row>({ text, values }: Statement) {
      const { rows } = await db.query<{ 'QUERY PLAN': string }>({ text: `EXPLAIN (ANALYZE) ${text}`, values })
      plan += rows.map((row) => row['QUERY PLAN']).join('\n')
      return { rows: [] as Row[] }
    },
  })
  const scans = [...plan.matchAll(/ on users u .*\(actual .*rows=([\d.]+) loops=(\d+)\)/g)]
  expect(scans, plan).not.toEqual([])
  return scans.reduce((sum, [, rows, loops]) => sum + Number(rows) * Number(loops), 0)
}

describe.each(['without statistics', 'with statistics'])('%s', (statistics) => {
  beforeAll(async () => {
    if (statistics === 'with statistics') await sql`ANALYZE users, grants, dashboards`.execute(db)
  })

  test('members of a role', async () => {
    const read = await readUsers((explaining) => listMembers(explaining, domainKey, 0, PAGE))
    expect(read).toBeLessThanOrEqual(READ_USERS)
  })

  test('dashboards of a domain', async () => {
    const read = await readUsers((explaining) => listDashboards(explaining, { domainKey, userKey }, PAGE))
    expect(read).toBeLessThanOrEqual(READ_USERS)
  })
})
