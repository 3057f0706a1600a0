/** Listings of whoever reaches little, much or everything show the same rows, whatever way they are found (contract 2.4, decision 58). */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { TestApi, TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'

/** More than is looked up by its keys. */
const CLIENTS = 2600
const DIRECT = 2300

let api: TestApi
let owner: TestUser
let domainId: string
const members: Record<'many' | 'few' | 'none', TestUser> = {} as never

type Listed = { id: string; name: string; status: string; created_at: string; updated_at: string }
type ListPage = { total: number; clients: Listed[] }

beforeAll(async () => {
  api = await startTestApi()
  owner = await api.newUser()
  const created = await owner.call('POST', '/domains', { name: 'plans', alias: 'plans' })
  domainId = created.json<{ id: string }>().id
  const clients = Array.from({ length: CLIENTS }, (_, index) => ({
    // Names in another order than their creation, some of them alike.
    name: `client ${(index * 7919) % 1300}`,
    status: index % 10 === 0 ? 'disabled' : 'enabled',
  }))
  expect((await owner.call('POST', `/${domainId}/clients/bulk`, clients)).status).toBe(200)
  for (const kind of ['many', 'few', 'none'] as const) {
    const user = await api.newUser()
    members[kind] = user
    const assigned = await owner.call('POST', `/domains/${domainId}/users/assign`, {
      relation: 'contributor',
      user_ids: [user.id],
    })
    expect(assigned.status).toBe(201)
    // A contributor reaches every client; here he is to reach what he holds roles on.
    await api.database.pool.query(`UPDATE roles SET actions = '{read}' WHERE name = 'contributor'`)
    await api.database.pool.query(
      `INSERT INTO grants (user_key, entity_type, domain_key, entity_key)
       SELECT u.key, 'client', d.key, c.key FROM users u, domains d,
              LATERAL (SELECT key FROM clients WHERE domain_key = d.key ORDER BY sha256(int8send(key)) LIMIT $3) c
        WHERE u.id = $1 AND d.id = $2`,
      [user.id, domainId, { many: DIRECT, few: 40, none: 0 }[kind]],
    )
  }
}, 120_000)
afterAll(() => api[Symbol.asyncDispose]())

/** What the user should be shown, straight from the tables. */
async function expected(user: TestUser): Promise<Listed[]> {
  const { rows } = await api.database.pool.query<Listed>(
    `SELECT c.id, c.name, c.status, c.created_at, coalesce(c.updated_at, c.created_at) AS updated_at
       FROM clients c JOIN grants g ON g.entity_key = c.key JOIN users u ON u.key = g.user_key WHERE u.id = $1
      ORDER BY c.created_at, c.id`,
    [user.id],
  )
  return rows
}

async function list(user: TestUser, query: string): Promise<ListPage> {
  const response = await user.call('GET', `/${domainId}/clients?${query}`)
  expect(response.status, response.text).toBe(200)
  return response.json<ListPage>()
}

describe.each(['many', 'few', 'none'] as const)('a member who reaches %s clients', (kind) => {
  test('is shown exactly those, in each order, from both ends and at any depth', async () => {
    const user = members[kind]
    const all = await expected(user)
    const text = (left: string, right: string) => (left < right ? -1 : left > right ? 1 : 0)
    const byCreation = (left: Listed, right: Listed) =>
      text(left.created_at, right.created_at) || text(left.id, right.id)
    const orders: Record<string, (left: Listed, right: Listed) => number> = {
      created_at: byCreation,
      updated_at: (left, right) => text(left.updated_at, right.updated_at) || byCreation(left, right),
      name: (left, right) => text(left.name, right.name) || byCreation(left, right),
    }
    for (const [order, compare] of Object.entries(orders)) {
      for (const status of ['all', 'enabled']) {
        const shown = all.filter((client) => status === 'all' || client.status === status).toSorted(compare)
        for (const dir of ['asc', 'desc']) {
          const wanted = (dir === 'asc' ? shown : shown.toReversed()).map(({ id }) => id)
          for (const offset of [0, Math.floor(shown.length / 2), Math.max(0, shown.length - 5)]) {
            const page = await list(user, `order=${order}&dir=${dir}&status=${status}&limit=20&offset=${offset}`)
            expect(page.total).toBe(shown.length)
            expect(page.clients.map(({ id }) => id)).toEqual(wanted.slice(offset, offset + 20))
          }
        }
      }
    }
  }, 60_000)

  test('sees a change in the total and the page at once', async () => {
    const user = members[kind]
    const [one] = await expected(user)
    const before = await list(user, 'limit=1&status=enabled')
    const id = one?.id ?? (await owner.call('POST', `/${domainId}/clients`, {})).json<{ id: string }>().id
    const verb = one?.status === 'enabled' ? 'disable' : 'enable'
    expect((await owner.call('POST', `/${domainId}/clients/${id}/${verb}`)).status).toBe(200)
    const after = await list(user, 'limit=1&status=enabled')
    expect(after.total - before.total).toBe(one === undefined ? 0 : verb === 'enable' ? 1 : -1)
  })
})

test('paging by creation visits every client that was there exactly once while others are created', async () => {
  const seen: string[] = []
  const before = (await list(owner, 'order=created_at&limit=1&status=all')).total
  for (let offset = 0; offset < before; offset += 100) {
    const page = await list(owner, `order=created_at&dir=asc&status=all&limit=100&offset=${offset}`)
    seen.push(...page.clients.map(({ id }) => id))
    expect((await owner.call('POST', `/${domainId}/clients`, { name: 'later' })).status).toBe(201)
  }
  expect(new Set(seen.slice(0, before)).size).toBe(before)
}, 60_000)
