// contract section 10, issue of the whole API: who did what, when, from where, before and after; for whom it concerns
import { expect, test } from 'vitest'
import { journalOfDomain, removeOldRecords, startJournalCounts } from '#api/identity/journal/index.ts'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { silentLogger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import type { Page } from './support.ts'
import { grantRole, newGroup, setParent, newTenant } from './support.ts'

type Item = {
  id: string
  operation: string
  occurred_at: string
  domain?: string
  attributes?: Record<string, unknown>
  metadata?: Record<string, unknown>
}
type JournalPage = Page<'journals', Item>

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

async function journalOf(user: Pick<TestUser, 'call'>, path: string): Promise<JournalPage> {
  const response = await user.call('GET', path)
  expect(response.status, `${path}: ${response.text}`).toBe(200)
  return response.json<JournalPage>()
}

/** Waits until every record that there is has been counted, in all and by its day. */
async function countEverything(): Promise<void> {
  for (const kind of ['totals', 'days'] as const) {
    const counts = startJournalCounts({ database: api.database, logger: silentLogger }, kind)
    await until(async () => {
      counts.wake()
      const { rows } = await sql`SELECT FROM journal j WHERE (j.xid, j.seq) >
        (SELECT xid, seq FROM consumers WHERE name = ${`journal.${kind}`}) LIMIT 1`.execute(api.database.db)
      return rows.length === 0
    }, 'the records are counted')
    await counts.stop()
  }
}

const operationsOf = ({ journals }: JournalPage) => journals.map(({ operation }) => operation)
const at = (type: string, id: string, query = '') => `/${tenant.domainId}/journal/${type}/${id}${query}`

test('the journal of an entity shows its own records, newest first', async () => {
  const [client, other, channel] = [await tenant.newClient(), await tenant.newClient(), await tenant.newChannel()]
  const { call, domainId } = tenant
  await call('PATCH', `/${domainId}/clients/${client.id}`, { name: 'x', metadata: { a: 1 } })
  await tenant.connect(client.id, channel.id)
  await call('POST', `/${domainId}/clients/${client.id}/disable`)
  await call('PATCH', `/${domainId}/clients/${other.id}`, { name: 'y' })
  const page = await journalOf(tenant.user, at('client', client.id))
  expect(page).toMatchObject({ total: 4, offset: 0, limit: 10 })
  expect(operationsOf(page)).toEqual(['client.disable', 'channel.connect', 'client.update', 'client.create'])
  expect(operationsOf(await journalOf(tenant.user, at('channel', channel.id)))).toEqual([
    'channel.connect',
    'channel.create',
  ])
  for (const item of page.journals) {
    expect(item.domain).toBe(domainId)
    expect(item.occurred_at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/)
    expect(item.attributes).toBeUndefined()
    expect(item.metadata).toBeUndefined()
  }
})

test('attributes and metadata are shown on request: who, from where, before and after', async () => {
  const { call, domainId, user } = tenant
  const client = await tenant.newClient({ name: 'pump', metadata: { site: 'north' } })
  await call('PATCH', `/${domainId}/clients/${client.id}`, { name: 'new' }, { 'x-request-id': 'request-7' })
  const path = at('client', client.id, '?with_attributes=true&with_metadata=true')
  const [updated, created] = (await journalOf(user, path)).journals
  expect(updated?.attributes).toMatchObject({
    id: client.id,
    before: { name: 'pump' },
    after: { name: 'new' },
    user_id: user.id,
    token_type: 'access token',
    super_admin: false,
    request_id: 'request-7',
    address: '127.0.0.1',
  })
  expect(created).toMatchObject({ attributes: { id: client.id, name: 'pump' }, metadata: { site: 'north' } })
  expect(created?.attributes).not.toHaveProperty('metadata')
  const plain = await journalOf(user, at('client', client.id, '?with_attributes=true'))
  expect(plain.journals.every(({ metadata }) => metadata === undefined)).toBe(true)
})

test('operation, from, to, dir, offset and limit narrow and turn the listing', async () => {
  const { call, domainId, user } = tenant
  const client = await tenant.newClient()
  for (let index = 0; index < 12; index++)
    await call('PATCH', `/${domainId}/clients/${client.id}`, { name: `name ${index}` })
  await call('POST', `/${domainId}/clients/${client.id}/disable`)
  const list = (query: string) => journalOf(user, at('client', client.id, query))
  const everything = await list('?limit=100')
  expect(everything.total).toBe(14)
  expect((await list('')).journals).toEqual(everything.journals.slice(0, 10))
  expect((await list('?offset=3&limit=4')).journals).toEqual(everything.journals.slice(3, 7))
  // The last pages are read from the other end.
  expect((await list('?offset=9&limit=4')).journals).toEqual(everything.journals.slice(9, 13))
  expect((await list('?offset=12&limit=10')).journals).toEqual(everything.journals.slice(12))
  expect(await list('?offset=14')).toMatchObject({ total: 14, journals: [] })
  expect((await list('?dir=asc&limit=100')).journals).toEqual(everything.journals.toReversed())
  expect((await list('?dir=asc&offset=11&limit=2')).journals).toEqual(everything.journals.toReversed().slice(11, 13))
  expect(await list('?operation=client.update&limit=1')).toMatchObject({ total: 12 })
  expect(operationsOf(await list('?operation=client.change_status'))).toEqual(['client.disable'])
  expect(await list('?operation=user.create')).toMatchObject({ total: 0, journals: [] })

  const middle = everything.journals[5] as Item
  const micros =
    BigInt(Date.parse(`${middle.occurred_at.slice(0, 23)}Z`)) * 1000n + BigInt(middle.occurred_at.slice(23, 26))
  const seconds = `${micros / 1_000_000n}.${String(micros % 1_000_000n).padStart(6, '0')}`
  for (const moment of [seconds, `${micros}000`]) {
    expect((await list(`?from=${moment}&limit=100`)).journals, moment).toEqual(everything.journals.slice(0, 6))
    expect((await list(`?to=${moment}&limit=100`)).journals, moment).toEqual(everything.journals.slice(5))
    expect((await list(`?from=${moment}&to=${moment}`)).journals, moment).toEqual([middle])
  }
  expect((await list('?from=0&to=9999999999')).total).toBe(14)
  expect((await list('?from=9999999999999')).total).toBe(0)
  for (const wrong of [
    'dir=up',
    'from=x',
    'to=-1',
    'from=2&to=1',
    'limit=0',
    'limit=101',
    'offset=-1',
    'with_metadata=maybe',
  ])
    expect((await user.call('GET', at('client', client.id, `?${wrong}`))).status, wrong).toBe(400)
})

test('a caller who cannot read an entity gets the response for a missing one, and a stranger is refused', async () => {
  const client = await tenant.newClient()
  const [stranger, member, reader] = [await api.newUser(), await api.newUser(), await api.newUser()]
  const domain = { type: 'domain', domainId: tenant.domainId, id: tenant.domainId } as const
  await grantRole(api, member.id, domain, ['read'])
  await grantRole(api, reader.id, domain, ['read'])
  await grantRole(api, reader.id, { type: 'client', domainId: tenant.domainId, id: client.id }, ['read'])
  expect((await api.anonymous('GET', at('client', client.id))).status).toBe(401)
  expect((await stranger.call('GET', at('client', client.id))).status).toBe(403)
  expect((await member.call('GET', at('client', client.id))).status).toBe(404)
  expect((await member.call('GET', at('client', newId()))).status).toBe(404)
  expect((await tenant.call('GET', at('client', 'no-id'))).status).toBe(404)
  expect((await tenant.call('GET', at('user', tenant.user.id))).status).toBe(400)
  const seen = await journalOf(reader, at('client', client.id, '?with_attributes=true'))
  // Holders of roles are shown to callers who can see them, and origins of calls to administrators.
  expect(operationsOf(seen)).toEqual(['client.create'])
  expect(seen.journals[0]?.attributes).not.toHaveProperty('address')
  expect(operationsOf(await journalOf(tenant.user, at('client', client.id)))).toContain('client.role.add_members')
})

test('a bulk is one record, which the journal of each of its entities shows', async () => {
  const { call, domainId, user } = tenant
  const bulk = (
    await call(
      'POST',
      `/${domainId}/clients/bulk`,
      Array.from({ length: 150 }, () => ({})),
    )
  ).json<Page<'clients', { id: string }>>()
  const [first, last] = [bulk.clients[0]?.id ?? '', bulk.clients.at(-1)?.id ?? '']
  for (const id of [first, last]) {
    const page = await journalOf(user, at('client', id, '?with_attributes=true'))
    expect(page.total).toBe(1)
    expect(page.journals[0]?.attributes).toMatchObject({ id })
    expect(page.journals[0]?.attributes).not.toHaveProperty('ids')
  }
  const all = await journalOf(user, at('domain', domainId, '?with_attributes=true&operation=client.create&limit=1'))
  expect(all.journals[0]?.attributes).toMatchObject({ ids_total: 150 })
  expect(all.journals[0]?.attributes?.['ids']).toHaveLength(100)
})

test('the journal of a deleted entity stays readable to administrators by its id, and a new one of that id inherits nothing for others', async () => {
  const { call, domainId, user } = tenant
  const id = newId()
  await tenant.newClient({ id, name: 'first' })
  await call('DELETE', `/${domainId}/clients/${id}`)
  expect(operationsOf(await journalOf(user, at('client', id)))).toEqual(['client.remove', 'client.create'])
  const member = await api.newUser()
  await grantRole(api, member.id, { type: 'domain', domainId, id: domainId }, ['read', 'client_read'])
  expect((await member.call('GET', at('client', id))).status).toBe(404)
  await tenant.newClient({ id, name: 'second' })
  expect(operationsOf(await journalOf(member, at('client', id)))).toEqual(['client.create'])
  expect(operationsOf(await journalOf(user, at('client', id)))).toEqual([
    'client.create',
    'client.remove',
    'client.create',
  ])
  const group = await newGroup(api, domainId)
  expect((await call('DELETE', `/${domainId}/groups/${group}`)).status).toBe(204)
  expect(operationsOf(await journalOf(user, at('group', group)))).toContain('group.remove')
})

test('the journal of a domain shows the records about entities that the caller can read', async () => {
  const own = await newTenant(api)
  const { domainId } = own
  const [client] = [await own.newClient(), await own.newChannel()]
  const [reader, member] = [await api.newUser(), await api.newUser()]
  await grantRole(api, reader.id, { type: 'domain', domainId, id: domainId }, ['read', 'client_read'])
  await grantRole(api, member.id, { type: 'domain', domainId, id: domainId }, ['update'])
  const path = `/${domainId}/journal/domain/${domainId}`
  const all = await journalOf(own.user, path)
  expect(operationsOf(all)).toEqual(
    expect.arrayContaining(['domain.create', 'client.create', 'channel.create', 'domain.role.add_members']),
  )
  const some = await journalOf(reader, path)
  expect(new Set(operationsOf(some))).toEqual(new Set(['domain.create', 'client.create']))
  expect(some.total).toBe(2)
  expect((await member.call('GET', path)).status).toBe(403)
  expect((await own.call('GET', `/${domainId}/journal/domain/${newId()}`)).status).toBe(404)
  expect((await own.call('GET', `/${domainId}/journal/domain/${client.id}`)).status).toBe(404)
  expect((await tenant.call('GET', path)).status).toBe(403)
})

test('a group shows its own records, not those of its members', async () => {
  const { domainId, user } = tenant
  const group = await newGroup(api, domainId)
  const client = await tenant.newClient()
  await setParent(api, domainId, 'client', client.id, group)
  expect(operationsOf(await journalOf(user, at('group', group)))).toEqual(['group.create'])
  expect(operationsOf(await journalOf(user, at('client', client.id)))).toEqual(['client.set_parent', 'client.create'])
})

test('a user sees their own actions and the changes of their account; so does the platform administrator, and no one else', async () => {
  const own = await newTenant(api)
  const client = await own.newClient()
  await api.anonymous('POST', '/users/tokens/issue', { identity: own.user.username, secret: 'wrong password' })
  const path = `/journal/user/${own.user.id}`
  const page = await journalOf(own.user, `${path}?with_attributes=true`)
  expect(operationsOf(page)).toEqual([
    'user.refused_token',
    'client.create',
    'domain.create',
    'user.issue_token',
    'user.create',
  ])
  expect(page.journals[1]?.attributes).toMatchObject({ id: client.id, user_id: own.user.id })
  expect(page.journals[0]?.attributes?.['address']).toBe('127.0.0.1')
  expect((await api.admin('GET', path)).json<JournalPage>().total).toBe(5)
  expect((await tenant.call('GET', path)).status).toBe(403)
  expect((await tenant.call('GET', `/journal/user/${newId()}`)).status).toBe(403)
  expect((await api.admin('GET', `/journal/user/${newId()}`)).status).toBe(404)
  expect((await api.admin('GET', '/journal/user/no-id')).status).toBe(404)
  expect((await api.anonymous('GET', path)).status).toBe(401)
})

test('totals are exact before they are counted, while they are, and after records were removed', async () => {
  const own = await newTenant(api)
  const path = `/${own.domainId}/journal/domain/${own.domainId}`
  const user = `/journal/user/${own.user.id}`
  for (let index = 0; index < 5; index++) await own.newClient()
  const count = async () => [
    (await journalOf(own.user, path)).total,
    (await journalOf(own.user, `${path}?operation=client.create`)).total,
    (await journalOf(own.user, user)).total,
  ]
  const uncounted = await count()
  expect(uncounted.slice(0, 2)).toEqual([6, 5])
  await countEverything()
  expect(await count()).toEqual(uncounted)
  await own.newClient()
  expect(await count()).toEqual(uncounted.map((total) => total + 1))
  expect((await journalOf(own.user, path)).journals).toHaveLength(7)
})

test('a token that is bound to a domain shows what its user did in that domain', async () => {
  const own = await newTenant(api)
  await own.newClient()
  const issued = await api.anonymous('POST', '/users/tokens/issue', {
    identity: own.user.username,
    secret: own.user.secret,
    domain_id: own.domainId,
  })
  const bound = { call: api.as(`Bearer ${issued.json<{ access_token: string }>().access_token}`) }
  const page = await journalOf(bound, `/journal/user/${own.user.id}`)
  expect(operationsOf(page)).toEqual(['client.create', 'domain.create'])
})

test('records older than the setting are removed in bounded steps, but none that a consumer has not read', async () => {
  const own = await newTenant(api)
  const client = await own.newClient()
  await own.call('PATCH', `/${own.domainId}/clients/${client.id}`, { name: 'x' })
  const path = `/${own.domainId}/journal/client/${client.id}`
  const age = () =>
    sql`UPDATE journal SET occurred_at = occurred_at - interval '40 days'
        WHERE domain_key = (SELECT key FROM domains WHERE id = ${own.domainId}::uuid)`.execute(api.database.db)
  await age()
  await sql`UPDATE journal_subjects s SET occurred_at = j.occurred_at FROM journal j WHERE j.xid = s.xid AND j.seq = s.seq`.execute(
    api.database.db,
  )
  await sql`INSERT INTO consumers (name, xid, seq) VALUES ('journal.slow', '1', 1)`.execute(api.database.db)
  await removeOldRecords(api.database, 30)
  expect((await journalOf(own.user, path)).total).toBe(2)
  await sql`DELETE FROM consumers WHERE name = 'journal.slow'`.execute(api.database.db)
  await countEverything()
  await removeOldRecords(api.database, 50)
  expect((await journalOf(own.user, path)).total).toBe(2)
  await removeOldRecords(api.database, 30)
  expect((await journalOf(own.user, path)).total).toBe(0)
  expect((await journalOf(own.user, `/${own.domainId}/journal/domain/${own.domainId}`)).total).toBe(0)
  const later = await own.newClient()
  expect(operationsOf(await journalOf(own.user, `/${own.domainId}/journal/client/${later.id}`))).toEqual([
    'client.create',
  ])
  const { rows } = await sql<{ orphans: number }>`SELECT count(*) AS orphans FROM journal_subjects s
    WHERE NOT EXISTS (SELECT FROM journal j WHERE j.xid = s.xid AND j.seq = s.seq)`.execute(api.database.db)
  expect(rows[0]?.orphans).toBe(0)
})

test('the records of a removed domain are removed too, in parts, after every consumer has read them', async () => {
  const own = await newTenant(api)
  for (let index = 0; index < 5; index++) await own.newClient()
  const { rows } = await sql<{ key: number }>`SELECT key FROM domains WHERE id = ${own.domainId}::uuid`.execute(
    api.database.db,
  )
  const key = rows[0]?.key ?? 0
  await countEverything()
  const [removePart] = journalOfDomain(api.database, key)
  const removed: number[] = []
  for (;;) {
    const count = (await removePart?.(4)) ?? 0
    removed.push(count)
    if (count < 4) break
  }
  expect(removed).toEqual([4, 2])
  expect((await journalOf(own.user, `/${own.domainId}/journal/domain/${own.domainId}`)).total).toBe(0)
  const mine = await journalOf(own.user, `/journal/user/${own.user.id}`)
  expect(operationsOf(mine)).toEqual(['user.issue_token', 'user.create'])
  expect(mine.total).toBe(2)
})

test('pages far behind the first are the same before their days are counted, while they are, and after records were removed', async () => {
  const RECORDS = 9000
  const own = await newTenant(api)
  const paths = [`/${own.domainId}/journal/domain/${own.domainId}`, `/journal/user/${own.user.id}`]
  /** Two of three are updates; twelve days, of which the last is not over. */
  const happen = (records: number) =>
    sql`INSERT INTO journal (occurred_at, operation, domain_key, actor_kind, actor_key, entity_keys)
      SELECT now() - n * interval '2 minutes', CASE WHEN n % 3 = 0 THEN 'client.create' ELSE 'client.update' END, d.key, 'user', u.key,
             CASE WHEN n % 2 = 0 THEN ARRAY[u.key, d.key] ELSE '{}' END
        FROM generate_series(1, ${records}::int) n, domains d, users u
       WHERE d.id = ${own.domainId} AND u.id = ${own.user.id} ORDER BY n DESC`.execute(api.database.db)
  const showsAll = async () => {
    const { rows } = await sql<{ id: string; operation: string }>`
      SELECT j.xid || '-' || j.seq AS id, j.operation FROM journal j JOIN domains d ON d.key = j.domain_key
       WHERE d.id = ${own.domainId} ORDER BY j.occurred_at DESC, j.xid DESC, j.seq DESC`.execute(api.database.db)
    for (const path of paths) {
      for (const operation of ['', 'client.update']) {
        const all = rows.filter((row) => operation === '' || row.operation === operation).map(({ id }) => id)
        for (const dir of ['desc', 'asc']) {
          for (const part of [0.45, 0.5, 0.55]) {
            const offset = Math.floor(all.length * part)
            const { total, journals } = await journalOf(
              own.user,
              `${path}?operation=${operation}&dir=${dir}&offset=${offset}&limit=100`,
            )
            // What the user did outside of the domain is newer than what far pages show.
            const from = dir === 'asc' ? offset : offset - (total - all.length)
            const wanted = (dir === 'asc' ? all.toReversed() : all).slice(from, from + 100)
            expect(journals.map(({ id }) => id)).toEqual(wanted)
          }
        }
      }
    }
  }
  await happen(RECORDS)
  await showsAll()
  await countEverything()
  await showsAll()
  await happen(10)
  await showsAll()
  await countEverything()
  expect((await removeOldRecords(api.database, 8)).removed).toBeGreaterThan(RECORDS / 4)
  await showsAll()
  const daysOf = async (table: ReturnType<typeof sql>) =>
    (await sql`SELECT DISTINCT day::text FROM ${table} ORDER BY day`.execute(api.database.db)).rows
  const left = sql`(SELECT (occurred_at AT TIME ZONE 'UTC')::date AS day, d.id FROM journal j JOIN domains d ON d.key = j.domain_key) j WHERE id = ${own.domainId}`
  const counted = sql`journal_days WHERE scope_key = (SELECT key FROM domains WHERE id = ${own.domainId})`
  expect(await daysOf(counted)).toEqual(await daysOf(left))
}, 60_000)

test('old records are removed by their keys when statistics say that the journal is nearly empty', async () => {
  const SUBJECTS = 400_000
  const RECORDS = 5000
  await using other = await startTestApi()
  const own = await newTenant(other)
  const { db } = other.database
  const happen = () =>
    sql`INSERT INTO journal (occurred_at, operation, domain_key, actor_kind, actor_key, entity_keys)
      SELECT now() - interval '400 days', 'client.update', d.key, 'user', u.key, ARRAY[d.key]
        FROM generate_series(1, ${RECORDS}::int), domains d, users u WHERE d.id = ${own.domainId} AND u.id = ${own.user.id}`.execute(
      db,
    )
  await happen()
  await sql`DELETE FROM journal`.execute(db)
  await sql`DELETE FROM journal_subjects`.execute(db)
  await sql`ANALYZE journal, journal_subjects`.execute(db)
  // Enough other records that a scan of them for each removed record exceeds the deadline of a statement.
  await sql`INSERT INTO journal_subjects (entity_key, occurred_at, xid, seq, operation)
    SELECT 1000000000 + n, now(), '5', n, 'client.update' FROM generate_series(1, ${SUBJECTS}::int) n`.execute(db)
  await happen()
  // Records go when every consumer has read them.
  const removed = await until(async () => {
    const batch = await removeOldRecords(other.database, 300)
    return batch.removed > 0 && batch
  }, 'the consumers have read the records')
  expect(removed).toEqual({ removed: RECORDS, isFull: true })
  const { rows } = await sql<{ total: number }>`SELECT count(*) AS total FROM journal_subjects`.execute(db)
  expect(rows[0]?.total).toBe(SUBJECTS)
}, 90_000)

test('records of sessions are left out on request, however many there are, with totals of the others', async () => {
  const own = await newTenant(api)
  const client = await own.newClient()
  for (const name of ['a', 'b', 'c']) await own.call('PATCH', `/${own.domainId}/clients/${client.id}`, { name })
  await sql`INSERT INTO journal (occurred_at, operation, domain_key, actor_kind, actor_key, entity_keys)
    SELECT now() + n * interval '1 millisecond', CASE WHEN n % 2 = 0 THEN 'mqtt.connect' ELSE 'mqtt.disconnect' END, d.key, 'user', u.key, ARRAY[c.key]
      FROM generate_series(1, 3000) n, domains d, users u, clients c
     WHERE d.id = ${own.domainId} AND u.id = ${own.user.id} AND c.id = ${client.id}`.execute(api.database.db)
  const path = `/${own.domainId}/journal/domain/${own.domainId}`
  const all = await journalOf(own.user, `${path}?limit=100`)
  expect(new Set(operationsOf(all))).toEqual(new Set(['mqtt.connect', 'mqtt.disconnect']))
  const changes = await journalOf(own.user, `${path}?limit=100&sessions=false&with_attributes=true`)
  expect(changes.total).toBe(all.total - 3000)
  expect(changes.journals).toHaveLength(changes.total)
  expect(operationsOf(changes).slice(0, 4)).toEqual([
    'client.update',
    'client.update',
    'client.update',
    'client.create',
  ])
  expect(changes.journals[0]?.attributes).toMatchObject({ after: { name: 'c' } })
  // Pages, a cursor and other orders select the same records.
  const second = await journalOf(own.user, `${path}?limit=2&offset=2&sessions=false`)
  expect(second).toMatchObject({ total: changes.total, offset: 2, limit: 2 })
  expect(second.journals.map(({ id }) => id)).toEqual(changes.journals.slice(2, 4).map(({ id }) => id))
  const { next } = (await own.user.call('GET', `${path}?limit=2&sessions=false`)).json<{ next: string }>()
  const third = await journalOf(own.user, `${path}?limit=2&sessions=false&cursor=${next}`)
  expect(third.journals.map(({ id }) => id)).toEqual(changes.journals.slice(2, 4).map(({ id }) => id))
  const oldest = await journalOf(own.user, `${path}?limit=100&sessions=false&dir=asc`)
  expect(oldest.journals.map(({ id }) => id)).toEqual(changes.journals.map(({ id }) => id).toReversed())
  const ofClient = await journalOf(own.user, `/${own.domainId}/journal/client/${client.id}?limit=100&sessions=false`)
  expect(operationsOf(ofClient)).toEqual(['client.update', 'client.update', 'client.update', 'client.create'])
})
