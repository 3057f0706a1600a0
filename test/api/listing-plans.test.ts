/** Callers with access to few, many or all entities see the same rows with every query plan (contract 2.4, decision 58). */
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { contains } from '#api/identity/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { connectedTo, deviceFilters } from '../../api/devices/connectable/filters.ts'
import { accessibleRows } from '../../api/identity/access/reachable.ts'
import { shownRows } from '../../api/identity/listing/index.ts'
import { ListingStatements } from '../../api/identity/listing/statements.ts'
import type { PageQuery } from '../../api/identity/listing/statements.ts'
import { ROOT } from '../architecture/source-imports.ts'
import type { TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'

/** More rows than are sorted for a page of a caller with access to so many. */
const SORTED_ACCESSIBLE = 30_000
/** More than is looked up by its keys. */
const CLIENTS = 2600
const DIRECT = 2300

const api = useWorld(() => startTestApi())
let owner: TestUser
let domainId: string
const members: Record<'many' | 'few' | 'none', TestUser> = {} as never

type Listed = { id: string; name: string; status: string; created_at: string; updated_at: string }
type ListPage = { total: number; clients: Listed[] }

beforeAll(async () => {
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
    // A contributor has access to every client; here, only to those on which they hold roles.
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

/** What the user should be shown, straight from the tables. */
async function expected(user: TestUser): Promise<Listed[]> {
  const { rows } = await api.database.pool.query<Listed>(
    `SELECT c.id, c.name, c.status, c.created_at, coalesce(c.updated_at, c.created_at) AS updated_at
       FROM clients c JOIN grants g ON g.entity_key = c.key JOIN users u ON u.key = g.user_key JOIN domains d ON d.key = c.domain_key
      WHERE u.id = $1 AND d.id = $2 ORDER BY c.created_at, c.id`,
    [user.id, domainId],
  )
  return rows
}

async function list(user: TestUser, query: string): Promise<ListPage> {
  const response = await user.call('GET', `/${domainId}/clients?${query}`)
  expect(response.status, response.text).toBe(200)
  return response.json<ListPage>()
}

describe.each(['many', 'few', 'none'] as const)('a member who reaches %s clients', (kind) => {
  test('gets exactly those, in each order, from both ends and at any depth', async () => {
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
      for (const status of ['all', 'enabled', 'disabled']) {
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

  test('has the same list when an administrator requests it, also with filters on the records', async () => {
    const user = members[kind]
    const all = await expected(user)
    for (const status of ['all', 'enabled', 'disabled'])
      for (const name of ['', 'client 7']) {
        const wanted = all.filter(
          (client) => (status === 'all' || client.status === status) && client.name.includes(name),
        )
        for (const offset of [0, 150, Math.floor(wanted.length / 2)])
          for (const caller of [owner, user]) {
            const query = `user=${user.id}&status=${status}&name=${encodeURIComponent(name)}&order=created_at&limit=20&offset=${offset}`
            const page = await list(caller, query)
            expect(page.total, query).toBe(wanted.length)
            expect(page.clients.map(({ id }) => id)).toEqual(wanted.map(({ id }) => id).slice(offset, offset + 20))
          }
      }
  }, 60_000)

  test('gets them together with the entities of a domain of their own', async () => {
    const user = members[kind]
    const alias = `own-${kind}`
    const own = (await user.call('POST', '/domains', { name: alias, alias })).json<{ id: string }>().id
    const made = Array.from({ length: 30 }, (_, index) => ({ name: `client ${index} of his own` }))
    expect((await user.call('POST', `/${own}/clients/bulk`, made)).status).toBe(200)
    const { rows } = await api.database.pool.query<Listed>(
      'SELECT c.id, c.name, c.status FROM clients c JOIN domains d ON d.key = c.domain_key WHERE d.id = $1 ORDER BY c.created_at, c.id',
      [own],
    )
    const all = [...(await expected(user)), ...rows]
    // More than once: what is found while nobody waits is shown later.
    for (const name of ['', 'client', 'client 1', 'own'])
      for (const status of ['all', 'enabled'])
        for (const offset of [0, 0, 190, 210, 1000]) {
          const wanted = all
            .filter((client) => client.name.includes(name) && (status === 'all' || client.status === status))
            .map(({ id }) => id)
          const query = `status=${status}&name=${encodeURIComponent(name)}&order=created_at&limit=20&offset=${offset}`
          const page = (await user.call('GET', `/clients?${query}`)).json<ListPage>()
          expect(page.total, query).toBe(wanted.length)
          expect(page.clients.map(({ id }) => id)).toEqual(wanted.slice(offset, offset + 20))
        }
    expect((await user.call('POST', `/domains/${own}/disable`)).status).toBe(200)
  }, 60_000)

  test('gets a change in the total and the page at once', async () => {
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

describe('a member with roles on more groups than travel with a statement', () => {
  const GROUPS = 400
  const inGroups: string[] = []
  let member: TestUser

  beforeAll(async () => {
    member = await api.newUser()
    const assigned = await owner.call('POST', `/domains/${domainId}/users/assign`, {
      relation: 'contributor',
      user_ids: [member.id],
    })
    expect(assigned.status).toBe(201)
    const { pool } = api.database
    const {
      rows: [domain],
    } = await pool.query<{ key: number }>('SELECT key FROM domains WHERE id = $1', [domainId])
    // Every group has a child; the member administers all but a few of the upper ones.
    await pool.query(
      `WITH upper AS (INSERT INTO groups (domain_key, id, name) SELECT $1, gen_random_uuid(), 'upper ' || n FROM generate_series(1, $2) n RETURNING key),
            lower AS (INSERT INTO groups (domain_key, id, name, parent_key) SELECT $1, gen_random_uuid(), 'lower', key FROM upper RETURNING key, parent_key)
       INSERT INTO group_closure (ancestor_key, descendant_key, depth)
       SELECT key, key, 0 FROM upper UNION ALL SELECT key, key, 0 FROM lower UNION ALL SELECT parent_key, key, 1 FROM lower`,
      [domain?.key, GROUPS],
    )
    await pool.query(
      `INSERT INTO grants (user_key, entity_type, domain_key, entity_key)
       SELECT u.key, 'group', $2, g.key FROM users u, groups g WHERE u.id = $1 AND g.domain_key = $2 AND g.name LIKE 'upper %' AND g.name NOT LIKE '%7'`,
      [member.id, domain?.key],
    )
    // Every tenth client lies in a group: half of them in an upper one, half in a lower one.
    const { rows } = await pool.query<{ id: string; is_reached: boolean }>(
      `WITH placed AS (SELECT key, (row_number() OVER (ORDER BY key)) AS place FROM clients WHERE domain_key = $1 AND name <> 'later'),
            listed AS (SELECT g.key, coalesce(p.name, g.name) NOT LIKE '%7' AS is_reached, row_number() OVER (ORDER BY g.key) - 1 AS place
                         FROM groups g LEFT JOIN groups p ON p.key = g.parent_key WHERE g.domain_key = $1)
       UPDATE clients c SET parent_group_key = listed.key FROM placed JOIN listed ON listed.place = (placed.place * 7) % ($2 * 2)
        WHERE c.key = placed.key AND placed.place % 10 = 0 RETURNING c.id, listed.is_reached`,
      [domain?.key, GROUPS],
    )
    inGroups.push(...rows.filter((row) => row.is_reached).map((row) => row.id))
    // What was remembered of the domain goes with any change in it.
    expect((await owner.call('POST', `/${domainId}/groups`, { name: 'another' })).status).toBe(201)
  }, 60_000)

  test('gets their entities and those below them, with secrets, and nothing else', async () => {
    const found: string[] = []
    const { total } = await list(member, 'status=all&only_total=true')
    expect(total).toBe(inGroups.length)
    for (let offset = 0; offset < total; offset += 100) {
      const page = await list(member, `status=all&order=created_at&limit=100&offset=${offset}`)
      found.push(...page.clients.map(({ id }) => id))
      for (const client of page.clients)
        expect(client).toMatchObject({ credentials: { secret: expect.stringMatching(/./) } })
    }
    expect(found.toSorted()).toEqual(inGroups.toSorted())
  })

  test('gets them in the listing of groups', async () => {
    const page = async (query: string) =>
      (await member.call('GET', `/${domainId}/groups?${query}`)).json<{ total: number; groups: { name: string }[] }>()
    const administered = GROUPS - GROUPS / 10
    expect(await page('limit=1')).toMatchObject({ total: administered * 2 })
    expect(await page('limit=1&name=upper')).toMatchObject({ total: administered })
    expect((await page('limit=100&name=7')).groups.every(({ name }) => !name.endsWith('7'))).toBe(true)
    expect(await page('limit=1&root_group=true')).toMatchObject({ total: administered })
  })

  test('has the rights of the group on each entity, and loses them with the role', async () => {
    const [reached] = inGroups
    expect((await member.call('GET', `/${domainId}/clients/${reached}`)).status).toBe(200)
    expect((await member.call('POST', `/${domainId}/clients/${reached}/disable`)).status).toBe(200)
    const removed = await owner.call('DELETE', `/domains/${domainId}/roles/members`, { member_ids: [member.id] })
    expect(removed.status).toBe(204)
    expect((await member.call('GET', `/${domainId}/clients?limit=1`)).status).toBe(403)
  })
})

describe('pages of a listing above the limit for a single sort', () => {
  /** More than are sorted once, and than are walked before an anchor is sought. */
  const MANY = 45_000
  const ORDERS = { created_at: 'h.created_at, h.id', name: 'left(h.name, 256), h.created_at, h.id' } as const
  let manyId: string

  /** Names of all lengths, every thousandth longer than what names are sorted by, and some alike up to there. */
  async function fillMany(domain: string, channels: number): Promise<void> {
    await api.database.pool.query(
      `INSERT INTO channels (domain_key, id, name, created_at)
       SELECT d.key, gen_random_uuid(), CASE WHEN n % 1000 = 7 THEN repeat('channel', 50) || n ELSE 'channel ' || n END,
              now() - make_interval(secs => n % 1000) FROM domains d, generate_series(1, $2::int) n WHERE d.id = $1`,
      [domain, channels],
    )
  }

  async function idsInOrder(domains: readonly string[], order: keyof typeof ORDERS): Promise<string[]> {
    const { rows } = await api.database.pool.query<{ id: string }>(
      `SELECT h.id FROM channels h JOIN domains d ON d.key = h.domain_key WHERE d.id = ANY ($1::uuid[]) ORDER BY ${ORDERS[order]}`,
      [domains],
    )
    return rows.map(({ id }) => id)
  }

  beforeAll(async () => {
    const created = await owner.call('POST', '/domains', { name: 'many', alias: 'many' })
    manyId = created.json<{ id: string }>().id
    await fillMany(manyId, MANY)
  }, 60_000)

  test.each([
    ['created_at', 'asc'],
    ['created_at', 'desc'],
    ['name', 'asc'],
    ['name', 'desc'],
  ] as const)('are the same on every request, by %s %s', async (order, dir) => {
    const wanted = await idsInOrder([manyId], order)
    const all = dir === 'asc' ? wanted : wanted.toReversed()
    // A far page has rows sought to begin from, which the later ones use as soon as they are found.
    for (const offset of [22_000, 23_456, 21_999, 22_000, 0, 190, 300, 2500, MANY - 50, MANY - 15, MANY - 5])
      for (let round = 0; round < 3; round++) {
        const answer = await owner.call(
          'GET',
          `/${manyId}/channels?order=${order}&dir=${dir}&limit=20&offset=${offset}`,
        )
        const page = answer.json<{ total: number; channels: { id: string }[] }>()
        expect(page.total).toBe(MANY)
        expect(page.channels.map(({ id }) => id)).toEqual(all.slice(offset, offset + 20))
      }
  })

  test('by name are found in an index with all fields of the conditions', async () => {
    const plan = await api.database.transaction(async (tx) => {
      // Of a few rows PostgreSQL rather sorts, and which way it takes is left to what it happens to know of the table.
      for (const way of ['sort', 'incremental_sort', 'seqscan', 'bitmapscan', 'indexscan'])
        await sql.raw(`SET LOCAL enable_${way} = off`).execute(tx)
      return await sql<{ 'QUERY PLAN': string }>`
        EXPLAIN SELECT key FROM channels h WHERE char_length(h.name) <= 256 AND h.domain_key = 1 AND h.status = 'enabled'
         ORDER BY h.name, h.created_at, h.id LIMIT 20`.execute(tx)
    })
    const lines = plan.rows.map((row) => row['QUERY PLAN']).join('\n')
    expect(lines).toContain('Index Only Scan using channels_page_short_name')
  })

  test('of several domains are one listing in one order', async () => {
    const created = await owner.call('POST', '/domains', { name: 'beside', alias: 'beside' })
    const besideId = created.json<{ id: string }>().id
    await fillMany(besideId, 400)
    // What was remembered of the domain goes with any change in it.
    const last = await owner.call('POST', `/${besideId}/channels`, { name: 'zzz' })
    expect(last.status).toBe(201)
    const wanted = await idsInOrder([manyId, besideId], 'name')
    for (const offset of [200, 22_000, 22_345, 22_000, 45_300, 40_000])
      for (let round = 0; round < 3; round++) {
        const page = (await owner.call('GET', `/channels?order=name&limit=100&offset=${offset}`)).json<{
          total: number
          channels: { id: string }[]
        }>()
        expect(page.total).toBe(MANY + 401)
        expect(page.channels.map(({ id }) => id)).toEqual(wanted.slice(offset, offset + 100))
      }
    const clients = (await owner.call('GET', '/clients?order=created_at&status=all&limit=100')).json<ListPage>()
    expect(clients.total).toBe((await list(owner, 'status=all&only_total=true')).total + (await elsewhere()))
    const times = clients.clients.map((client) => client.created_at)
    expect(times).toEqual(times.toSorted())
  })

  describe('a member who reaches more of them than is listed by keys', () => {
    const GROUPS = 300
    let member: TestUser
    /** By the access that the member has, in the order of their creation. */
    let reached: { id: string; status: string; access: string }[] = []

    beforeAll(async () => {
      member = await api.newUser()
      const { pool } = api.database
      // Nine of ten channels lie in groups, some of those below another; every tenth upper group is not the member's.
      await pool.query(
        `WITH d AS (SELECT key FROM domains WHERE id = $1),
              upper AS (INSERT INTO groups (domain_key, id, name) SELECT d.key, gen_random_uuid(), 'upper ' || n FROM d, generate_series(1, $2::int) n RETURNING key, name),
              lower AS (INSERT INTO groups (domain_key, id, name, parent_key) SELECT d.key, gen_random_uuid(), 'lower', upper.key FROM d, upper WHERE right(upper.name, 1) IN ('1', '7') RETURNING key, parent_key)
         INSERT INTO group_closure (ancestor_key, descendant_key, depth)
         SELECT key, key, 0 FROM upper UNION ALL SELECT key, key, 0 FROM lower UNION ALL SELECT parent_key, key, 1 FROM lower`,
        [manyId, GROUPS],
      )
      await pool.query(
        `WITH d AS (SELECT key FROM domains WHERE id = $1),
              g AS (SELECT array_agg(g.key ORDER BY g.key) AS keys FROM groups g, d WHERE g.domain_key = d.key),
              placed AS (SELECT h.key, row_number() OVER (ORDER BY h.key) AS n FROM channels h, d WHERE h.domain_key = d.key)
         UPDATE channels h SET parent_group_key = CASE WHEN n % 10 > 0 THEN g.keys[1 + n % cardinality(g.keys)] END,
                status = CASE WHEN n % 7 = 0 THEN 'disabled' ELSE 'enabled' END FROM placed, g WHERE h.key = placed.key`,
        [manyId],
      )
      await pool.query(
        `WITH d AS (SELECT key FROM domains WHERE id = $1), u AS (SELECT key FROM users WHERE id = $2)
         INSERT INTO grants (user_key, entity_type, domain_key, entity_key, role_key)
         SELECT u.key, 'domain', d.key, d.key, (SELECT r.key FROM roles r WHERE r.name = 'contributor' LIMIT 1) FROM u, d
         UNION ALL SELECT u.key, 'group', d.key, g.key, 0 FROM u, d, groups g WHERE g.domain_key = d.key AND g.name LIKE 'upper %' AND g.name NOT LIKE '%7'
         UNION ALL SELECT u.key, 'channel', d.key, h.key, 0 FROM u, d, channels h WHERE h.domain_key = d.key AND h.key % 500 = 0`,
        [manyId, member.id],
      )
      expect((await owner.call('POST', `/${manyId}/groups`, { name: 'another' })).status).toBe(201)
      const { rows } = await pool.query<{ id: string; status: string; access: string | null }>(
        `SELECT h.id, h.status, CASE WHEN h.key % 500 = 0 THEN 'direct'
                WHEN g.name LIKE 'upper %' AND g.name NOT LIKE '%7' THEN 'direct_group'
                WHEN g.name = 'lower' AND above.name NOT LIKE '%7' THEN 'indirect_group' END AS access
           FROM channels h JOIN domains d ON d.key = h.domain_key LEFT JOIN groups g ON g.key = h.parent_group_key
                LEFT JOIN groups above ON above.key = g.parent_key WHERE d.id = $1 ORDER BY h.created_at, h.id`,
        [manyId],
      )
      reached = rows.flatMap(({ access, ...row }) => (access === null ? [] : [{ ...row, access }]))
      expect(reached.filter(({ access }) => access === 'indirect_group').length).toBeGreaterThan(1000)
      expect(reached.length).toBeGreaterThan(SORTED_ACCESSIBLE)
    }, 60_000)

    const page = async (path: string) => {
      const answer = await member.call('GET', path)
      expect(answer.status, answer.text).toBe(200)
      return answer.json<{ total: number; channels: { id: string }[] }>()
    }

    test('gets their number, by status and by kind of access', async () => {
      for (const status of ['all', 'enabled', 'disabled'])
        for (const access of [undefined, 'direct', 'direct_group', 'indirect_group', 'domain']) {
          const wanted = reached.filter(
            (channel) =>
              (status === 'all' || channel.status === status) && (access === undefined || channel.access === access),
          )
          const query = access === undefined ? '' : `&access_type=${access}`
          const { total } = await page(`/${manyId}/channels?only_total=true&status=${status}${query}`)
          expect([status, access, total]).toEqual([status, access, wanted.length])
        }
      const named = await page(`/${manyId}/channels?only_total=true&status=all&name=ch&actions=publish,read`)
      expect(named.total).toBe(reached.length)
    })

    test('gets the same pages on every request', async () => {
      const wanted = reached.filter(({ status }) => status === 'enabled').map(({ id }) => id)
      for (const offset of [0, 10, 190, 300, 20_000])
        for (let round = 0; round < 4; round++) {
          const { channels } = await page(`/${manyId}/channels?order=created_at&limit=50&offset=${offset}`)
          expect(channels.map(({ id }) => id)).toEqual(wanted.slice(offset, offset + 50))
        }
      const [first] = wanted
      // What was found while nobody waited goes with any change.
      expect((await owner.call('POST', `/${manyId}/channels/${first}/disable`)).status).toBe(200)
      const { channels } = await page(`/${manyId}/channels?order=created_at&limit=50`)
      expect(channels.map(({ id }) => id)).toEqual(wanted.slice(1, 51))
      expect((await owner.call('POST', `/${manyId}/channels/${first}/enable`)).status).toBe(200)
    })

    test('gets the same pages by letters of their names', async () => {
      const { rows } = await api.database.pool.query<{ id: string; name: string; domain_key: number }>(
        `SELECT h.id, h.name, h.domain_key FROM channels h JOIN domains d ON d.key = h.domain_key WHERE d.id = $1 AND h.status = 'enabled'
          ORDER BY left(h.name, 256), h.created_at, h.id`,
        [manyId],
      )
      const isReached = new Set(reached.map(({ id }) => id))
      const names = rows.filter(({ id }) => isReached.has(id))
      for (const letters of ['77', '9', 'ch', '8 '])
        for (const dir of ['asc', 'desc']) {
          const found = names.filter(({ name }) => name.includes(letters)).map(({ id }) => id)
          const wanted = dir === 'asc' ? found : found.toReversed()
          for (const offset of [0, 150, 0, 300, 5000]) {
            const query = `name=${encodeURIComponent(letters)}&order=name&dir=${dir}&limit=50&offset=${offset}`
            const { total, channels } = await page(`/${manyId}/channels?${query}`)
            expect(total).toBe(wanted.length)
            expect(channels?.map(({ id }) => id) ?? []).toEqual(wanted.slice(offset, offset + 50))
          }
        }
    })

    test('gets them together with those of domains in which they have few or none', async () => {
      const few = (await member.call('POST', '/domains', { name: 'few', alias: 'few' })).json<{ id: string }>().id
      const none = (await owner.call('POST', '/domains', { name: 'none', alias: 'none' })).json<{ id: string }>().id
      const assigned = { relation: 'member', user_ids: [member.id] }
      expect((await owner.call('POST', `/domains/${none}/users/assign`, assigned)).status).toBe(201)
      await api.database.pool.query(
        `UPDATE roles SET actions = '{read}' WHERE domain_key = (SELECT key FROM domains WHERE id = $1)`,
        [none],
      )
      expect((await owner.call('POST', `/${none}/channels`, { name: 'unseen' })).status).toBe(201)
      const made = await member.call('POST', `/${few}/channels`, { name: 'mine' })
      expect(made.status).toBe(201)
      const wanted = [...reached.map(({ id }) => id), made.json<{ id: string }>().id].toReversed()
      for (const offset of [0, 20, 250])
        for (let round = 0; round < 3; round++) {
          const { total, channels } = await page(
            `/channels?order=created_at&dir=desc&status=all&limit=20&offset=${offset}`,
          )
          expect(total).toBe(wanted.length)
          expect(channels.map(({ id }) => id)).toEqual(wanted.slice(offset, offset + 20))
        }
      const mine = await page('/channels?name=mine&order=name')
      expect(mine.total).toBe(1)
    })
  })

  /** Clients of the other domains of the owner. */
  async function elsewhere(): Promise<number> {
    const { rows } = await api.database.pool.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM clients c JOIN domains d ON d.key = c.domain_key
        WHERE d.id <> $1 AND d.key IN (SELECT g.domain_key FROM grants g JOIN users u ON u.key = g.user_key WHERE u.id = $2)`,
      [domainId, owner.id],
    )
    return rows[0]?.count ?? 0
  }
})

test('rows behind all others are found', async () => {
  const created = await owner.call('POST', '/domains', { name: 'behind', alias: 'behind' })
  const behindId = created.json<{ id: string }>().id
  const member = await api.newUser()
  const { pool } = api.database
  await pool.query(
    `WITH d AS (SELECT key FROM domains WHERE id = $1), made AS (
       INSERT INTO channels (domain_key, id, name, created_at)
       SELECT d.key, gen_random_uuid(), 'channel ' || n, now() - make_interval(secs => 10000 - n) FROM d, generate_series(1, 7000) n RETURNING key, name),
     member AS (INSERT INTO grants (user_key, entity_type, domain_key, entity_key, role_key)
       SELECT u.key, 'domain', d.key, d.key, (SELECT r.key FROM roles r WHERE r.name = 'contributor' LIMIT 1) FROM users u, d WHERE u.id = $2)
     INSERT INTO grants (user_key, entity_type, domain_key, entity_key)
     SELECT u.key, 'channel', d.key, made.key FROM users u, d, made WHERE u.id = $2 AND split_part(made.name, ' ', 2)::int > 4500`,
    [behindId, member.id],
  )
  for (let round = 0; round < 2; round++) {
    const answer = await member.call('GET', `/${behindId}/channels?order=created_at&limit=3`)
    expect(answer.json()).toMatchObject({
      total: 2500,
      channels: [{ name: 'channel 4501' }, { name: 'channel 4502' }, { name: 'channel 4503' }],
    })
  }
})

test('names are ordered by their first 256 characters, and then by creation', async () => {
  const created = await owner.call('POST', '/domains', { name: 'long names', alias: 'long-names' })
  const longId = created.json<{ id: string }>().id
  const name = 'n'.repeat(256)
  for (const rest of ['b', 'a', ''])
    expect((await owner.call('POST', `/${longId}/clients`, { name: name + rest })).status).toBe(201)
  expect((await owner.call('POST', `/${longId}/clients`, { name: 'm'.repeat(300) })).status).toBe(201)
  const page = (await owner.call('GET', `/${longId}/clients?order=name`)).json<ListPage>()
  expect(page.clients.map((client) => client.name.slice(255))).toEqual(['m'.repeat(45), 'nb', 'na', 'n'])
})

test('a text of one or two letters is searched like any other, in lower and upper case', async () => {
  const names = [
    'K',
    'k',
    '\u212a',
    'I',
    'i',
    '\u0130',
    '\u0131',
    'ab',
    'aB',
    'xABx',
    'a_',
    'a%',
    'a\\',
    'é',
    'É',
    'Kiste',
    '7a',
    '',
  ]
  const texts = [
    'k',
    'K',
    'i',
    'I',
    'ki',
    'KI',
    'ab',
    'AB',
    '_',
    '%',
    '\\',
    'a%',
    'A_',
    'é',
    'É',
    '7',
    '7A',
    'z',
    '',
    'abc',
  ]
  for (const text of texts) {
    const like = `%${text.replaceAll(/[\\%_]/g, (sign) => `\\${sign}`)}%`
    const { rows } = await sql<{ name: string; is_found: boolean; is_wanted: boolean }>`
      SELECT n.name, ${contains('n.name', text)} AS is_found, n.name ILIKE ${like} AS is_wanted FROM unnest(${names}::text[]) n (name)`.execute(
      api.database.db,
    )
    for (const { name, is_found, is_wanted } of rows) expect([text, name, is_found]).toEqual([text, name, is_wanted])
  }
})

test('accessible entities are found from the grants, by an index on the group', async () => {
  const { rows } = await api.database.pool.query<{ 'QUERY PLAN': string }>(
    `EXPLAIN SELECT e.key FROM (SELECT unnest('{1,2}'::bigint[]) AS key OFFSET 0) above CROSS JOIN LATERAL (
       SELECT e.key FROM clients e WHERE e.parent_group_key = above.key OFFSET 0) e`,
  )
  expect(rows.map((row) => row['QUERY PLAN']).join('\n')).toContain('clients_parent_group')
})

describe('the plans of docs/query-plans.md', () => {
  /** The block of the heading, as the indexes and tables that it names, in its order. */
  function documented(heading: string): string[] {
    const document = readFileSync(join(ROOT, 'docs/query-plans.md'), 'utf8')
    const block = document.split(`### ${heading}\n`)[1]?.split('```')[1] ?? ''
    return [...block.matchAll(/Scan (?:using|on) (\w+_\w+)/g)].map(([, name]) => name as string)
  }

  /** The plan where the statement has no other index than those in question: in a table of few rows, any index would do. */
  async function explained(statement: Sql<unknown>, without: readonly string[] = []): Promise<string> {
    const undone = new Error('nothing of it is kept')
    let plan = ''
    await api.database
      .transaction(async (tx) => {
        // Which way is the cheapest for a few rows is not what is documented.
        for (const way of ['seqscan', 'sort', 'incremental_sort', 'hashjoin', 'mergejoin'])
          await sql.raw(`SET LOCAL enable_${way} = off`).execute(tx)
        for (const index of without) await sql.raw(`DROP INDEX ${index}`).execute(tx)
        if (without.length > 0)
          await sql
            .raw('ALTER TABLE clients DROP CONSTRAINT clients_secret_key, DROP CONSTRAINT clients_id_key CASCADE')
            .execute(tx)
        const { rows } = await sql<{ 'QUERY PLAN': string }>`EXPLAIN ${statement}`.execute(tx)
        plan = rows.map((row) => row['QUERY PLAN']).join('\n')
        throw undone
      })
      .catch((error: unknown) => {
        if (error !== undone) throw error
      })
    return plan
  }

  async function listedFor(user: TestUser, conditions: readonly Sql<boolean>[], asked: Partial<PageQuery> = {}) {
    const { access } = api.api.identity
    const principal = await api.api.identity.tokens.authenticate(user.accessToken, {
      address: '127.0.0.1',
      requestId: '',
    })
    const domain = await access.enter(principal, domainId)
    const on = { type: 'client', alias: 'c' } as const
    const shown = await shownRows(api.database.db, [domain], on, { actions: [], query: {} }, () => [])
    const rows = await Promise.all(
      shown.map(async (one) => ({ rows: one, accessible: one.accessible.isWhole ? undefined : 100_000 })),
    )
    const query = { order: 'updated_at', status: 'enabled', offset: 0, limit: 10, ...asked }
    const filters = { conditions, isIndexed: conditions.length > 0 }
    return { statements: new ListingStatements({ ...on, shown, filters }, rows, query), domain }
  }

  const OTHER_INDEXES = [
    'created_by',
    'page',
    'page_any_status',
    'page_created',
    'page_long_name',
    'page_short_name',
  ].map((name) => `clients_${name}`)

  test.each([
    ['The page of a domain that is shown whole', async () => (await listedFor(owner, [])).statements.inOrder()],
    ['The page of a part', async () => (await listedFor(members.many, [])).statements.walk(1000, 'row')],
    [
      'The page after a cursor',
      async () => {
        const cursor = ['1790000000000000', '1790000000000000', randomUUID()]
        return (await listedFor(owner, [], { cursor })).statements.inOrder()
      },
    ],
    [
      'A part of a name',
      async () => (await listedFor(owner, [contains('c.name', 'client 77')])).statements.sorted(20_000),
    ],
  ] as const)('%s', async (heading, statement) => {
    const names = documented(heading)
    expect(names.length).toBeGreaterThan(0)
    const plan = await explained(await statement(), heading === 'A part of a name' ? OTHER_INDEXES : [])
    for (const name of names) expect(plan).toContain(name)
    // The index begins at the place, and does not skip the rows before it.
    if (heading === 'The page after a cursor') expect(plan).toMatch(/Index Cond: .*ROW\(/)
  })

  test.each([
    ['tag', 'clients_tags', deviceFilters({ tag: 'roof' }, 'c', [])],
    ['tags', 'clients_tags', deviceFilters({ tags: 'roof,north' }, 'c', [])],
    ['metadata', 'clients_metadata', deviceFilters({ metadata: '{"floor":7}' }, 'c', [])],
    ['channel', 'connections_channel', deviceFilters({}, 'c', [connectedTo('c', 'client', randomUUID(), undefined)])],
    ['group', 'clients_parent_group', deviceFilters({ group: randomUUID() }, 'c', [])],
  ] as const)('the filter `%s` begins with %s', async (filter, index, { conditions, isIndexed }) => {
    expect(isIndexed).toBe(true)
    const sentences = readFileSync(join(ROOT, 'docs/query-plans.md'), 'utf8').split(/[.,]\s/)
    expect(sentences.some((text) => text.includes(`\`${filter}\``) && text.includes(`\`${index}\``))).toBe(true)
    const { statements } = await listedFor(owner, conditions)
    expect(await explained(statements.sorted(20_000), OTHER_INDEXES)).toContain(index)
  })

  test('What is accessible', async () => {
    const names = documented('What is accessible')
    expect(names.length).toBeGreaterThan(1)
    const rows = accessibleRows(
      {
        serial: 0,
        userKey: 1,
        domainKey: 1,
        domainStatus: 'enabled',
        isMember: true,
        isDomainAdmin: false,
        domainActions: new Set(),
        groupActions: new Map([[1, new Set(['client_read', 'subgroup_client_read'])]]),
        dependsOn: [],
      },
      'client',
      'read',
      ['key', 'status'],
    )
    const plan = await explained(sql`SELECT status, count(*) FROM ${rows} accessible GROUP BY status`)
    for (const name of names) expect(plan).toContain(name)
  })
})
