/** Lists of clients in the order in which they were last seen, of whole domains and of callers who see a part (docs/guides/devices.md). */
import { beforeAll, expect, test } from 'vitest'
import { ZERO_TIME } from '#core/time.ts'
import type { Caller, TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { grantRole, newTenant } from './support.ts'

type Listed = { id: string; name: string; last_seen: string }
type Page = { total: number; clients: Listed[]; next?: string }

/** Clients of which three in five were seen, some of them at the same time. */
const CLIENTS = 500
const MOST_SORTED = 20_000

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))
let member: TestUser

/** Adds clients to the domain; two of five were never seen. */
const fill = (domain: string, count: number) =>
  api.database.pool.query(
    `WITH made AS (
       INSERT INTO clients (domain_key, id, name, secret_mac, secret_sealed, created_at)
       SELECT d.key, gen_random_uuid(), 'client ' || n, uuid_send(gen_random_uuid()), '', now() - make_interval(secs => n % 7)
         FROM domains d, generate_series(1, $2::int) n WHERE d.id = $1 RETURNING key, name)
     INSERT INTO client_telemetry (client_key, first_seen, last_seen, inbound_messages)
     SELECT key, now(), now() - make_interval(mins => (split_part(name, ' ', 2)::int * 37) % 90), 1 FROM made
      WHERE split_part(name, ' ', 2)::int % 5 < 3`,
    [domain, count],
  )

async function list(query: string, call: Caller = tenant.call, domain = tenant.domainId): Promise<Page> {
  const answer = await call('GET', `/${domain}/clients?secrets=false&${query}`)
  expect(answer.status, answer.text).toBe(200)
  return answer.json<Page>()
}

async function idsInOrder(dir: string, condition = 'true'): Promise<string[]> {
  const { rows } = await api.database.pool.query<{ id: string }>(
    `SELECT c.id FROM clients c JOIN domains d ON d.key = c.domain_key LEFT JOIN client_telemetry t ON t.client_key = c.key
      WHERE d.id = $1 AND ${condition}
      ORDER BY coalesce(t.last_seen, '-infinity') ${dir}, c.created_at ${dir}, c.id ${dir}`,
    [tenant.domainId],
  )
  return rows.map(({ id }) => id)
}

const idsOf = ({ clients }: Page) => clients.map(({ id }) => id)

beforeAll(async () => {
  await fill(tenant.domainId, CLIENTS)
  member = await api.newUser()
  await grantRole(api, member.id, { type: 'domain', domainId: tenant.domainId, id: tenant.domainId }, ['read'])
  // The member has a role on every fourth client alone.
  await api.database.pool.query(
    `INSERT INTO grants (user_key, entity_type, domain_key, entity_key)
     SELECT u.key, 'client', d.key, c.key FROM users u, domains d JOIN clients c ON c.domain_key = d.key
      WHERE u.id = $1 AND d.id = $2 AND split_part(c.name, ' ', 2)::int % 4 = 0`,
    [member.id, tenant.domainId],
  )
})

test.each(['asc', 'desc'])('all clients of a domain, %s, by offset and by cursor', async (dir) => {
  const wanted = await idsInOrder(dir)
  const [byOffset, byCursor]: [string[], string[]] = [[], []]
  let cursor = ''
  for (let offset = 0; offset < CLIENTS; offset += 100) {
    const page = await list(`order=last_seen&dir=${dir}&limit=100&offset=${offset}`)
    expect(page.total).toBe(CLIENTS)
    byOffset.push(...idsOf(page))
    const after = await list(`order=last_seen&dir=${dir}&limit=100${cursor}`)
    byCursor.push(...idsOf(after))
    cursor = `&cursor=${encodeURIComponent(after.next ?? '')}`
  }
  expect(byOffset).toEqual(wanted)
  expect(byCursor).toEqual(wanted)
})

test('clients that were never seen are the oldest', async () => {
  const [first, last] = [await list('order=last_seen&limit=1'), await list('order=last_seen&dir=desc&limit=1')]
  expect(first.clients[0]?.last_seen).toBe(ZERO_TIME)
  expect(last.clients[0]?.last_seen.slice(0, 4)).toBe(String(new Date().getFullYear()))
})

test('a filter and the access of the caller are kept', async () => {
  const named = await list('order=last_seen&dir=desc&limit=100&name=client 12')
  expect(idsOf(named)).toEqual(await idsInOrder('desc', "c.name LIKE '%client 12%'"))
  const seen = await list('order=last_seen&limit=100', member.call)
  const wanted = await idsInOrder('asc', "split_part(c.name, ' ', 2)::int % 4 = 0")
  expect(seen.total).toBe(wanted.length)
  expect(idsOf(seen)).toEqual(wanted.slice(0, 100))
  expect(await list('order=last_seen&only_total=true', member.call)).toEqual({ total: wanted.length, clients: [] })
})

test('a cursor of another order is refused', async () => {
  const { next = '' } = await list('order=created_at&limit=1')
  const answer = await tenant.call(
    'GET',
    `/${tenant.domainId}/clients?order=last_seen&cursor=${encodeURIComponent(next)}`,
  )
  expect(answer.status).toBe(400)
})

test('more clients than are sorted for a page are refused, until a filter selects fewer', async () => {
  const made = await tenant.call('POST', '/domains', { name: 'large' })
  const { id: large } = made.json<{ id: string }>()
  await fill(large, MOST_SORTED)
  expect((await list('order=last_seen&limit=1', tenant.call, large)).total).toBe(MOST_SORTED)
  await fill(large, 1)
  const refused = await tenant.call('GET', `/${large}/clients?order=last_seen`)
  expect(refused.status).toBe(400)
  expect(refused.json()).toMatchObject({
    details: [{ path: 'order', message: 'sorts at most 20,000 rows by last_seen: use filters that select fewer' }],
  })
  const few = await list('order=last_seen&dir=desc&name=client 1999', tenant.call, large)
  expect(few.total).toBe(11)
  expect((await list('order=last_seen&only_total=true', tenant.call, large)).total).toBe(MOST_SORTED + 1)
})
