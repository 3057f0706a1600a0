// contract section 10, mechanisms section 2: records of the journal are delivered at least once and in order, to the users who can read them
import { afterAll, beforeAll, expect, test } from 'vitest'
import { listen } from '#http/index.ts'
import type { Listeners } from '#http/index.ts'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { TestApi, TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { createTestDatabase, silentLogger } from '../harness/database.ts'
import { openEvents } from '../harness/event-stream.ts'
import type { EventReader } from '../harness/event-stream.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import type { Tenant } from './support.ts'
import { grantRole, newGroup, newTenant, revokeRoles, setParent } from './support.ts'

/** No stream says that it is quiet. */
const NEVER_MS = 3_600_000

const api = useWorld(() => startTestApi({ eventHeartbeatMs: 100 }))
let listeners: Listeners
beforeAll(async () => {
  listeners = await serve(api)
})
afterAll(async () => {
  await listeners.stop(0)
})

async function serve(served: TestApi): Promise<Listeners> {
  const port = { port: 0, isOptional: false, setting: 'none' }
  return await listen(served.app, { host: '127.0.0.1', ports: [port], logger: silentLogger })
}

function follow(
  user: TestUser,
  domainId: string,
  { after, at = listeners }: { after?: string | undefined; at?: Listeners } = {},
): Promise<EventReader> {
  return openEvents(`http://127.0.0.1:${at.ports[0]}/${domainId}/events`, {
    authorization: `Bearer ${user.accessToken}`,
    ...(after === undefined ? {} : { 'last-event-id': after }),
  })
}

/** A user with these actions on the domain of the tenant. */
async function newMember(tenant: Tenant, actions: readonly string[]): Promise<TestUser> {
  const user = await api.newUser()
  await grantRole(api, user.id, { type: 'domain', domainId: tenant.domainId, id: tenant.domainId }, actions)
  return user
}

const idsOf = (reader: EventReader, operation: string) =>
  reader.events.filter(({ event }) => event === operation).map(({ data }) => String(data['id']))

test('a change arrives as an event with its operation, its time, the fields of the entity and who did it', async () => {
  const tenant = await newTenant(api)
  await using events = await follow(tenant.user, tenant.domainId)
  expect(events.status).toBe(200)
  expect(events.headers['content-type']).toBe('text/event-stream; charset=utf-8')
  expect(events.headers['cache-control']).toBe('no-store')
  const made = await tenant.call(
    'POST',
    `/${tenant.domainId}/clients`,
    { name: 'pump', tags: ['a'], metadata: { b: 1 } },
    { 'x-request-id': 'request-1' },
  )
  const { id } = made.json<{ id: string }>()
  const { data, id: position } = await events.next('client.create')
  expect(data).toMatchObject({
    operation: 'client.create',
    id,
    name: 'pump',
    tags: ['a'],
    metadata: { b: 1 },
    domain: tenant.domainId,
    user_id: tenant.user.id,
    token_type: 'access token',
    super_admin: false,
    request_id: 'request-1',
    event_id: position,
  })
  expect(Math.abs(Number(data['occurred_at']) / 1e6 - Date.now())).toBeLessThan(60_000)
  await tenant.call('PATCH', `/${tenant.domainId}/clients/${id}`, { name: 'north pump' })
  expect((await events.next('client.update')).data).toMatchObject({ id, name: 'north pump' })
})

test('events of another domain do not arrive, and a stranger is refused', async () => {
  const [mine, other] = [await newTenant(api), await newTenant(api)]
  await using events = await follow(mine.user, mine.domainId)
  await other.newClient()
  const own = await mine.newClient()
  await events.next('client.create')
  expect(idsOf(events, 'client.create')).toEqual([own.id])
  for (const domainId of [mine.domainId, newId(), 'no-id']) {
    await using refused = await follow(other.user, domainId)
    expect(refused.status, domainId).toBe(403)
  }
  await using bad = await follow(mine.user, mine.domainId, { after: 'nonsense' })
  expect(bad.status).toBe(400)
  await using anonymous = await openEvents(`http://127.0.0.1:${listeners.ports[0]}/${mine.domainId}/events`, {})
  expect(anonymous.status).toBe(401)
})

test('a browser, which sets no header, sends its token in the query, on no other path', async () => {
  const tenant = await newTenant(api)
  const query = `authorization=${encodeURIComponent(`Bearer ${tenant.user.accessToken}`)}`
  const at = `http://127.0.0.1:${listeners.ports[0]}/${tenant.domainId}`
  await using reader = await openEvents(`${at}/events?${query}`, {})
  await until(() => reader.lastId(), 'the position before the first event')
  const { id } = await tenant.newClient()
  await until(() => idsOf(reader, 'client.create').includes(id), 'the event')
  expect((await fetch(`${at}/events?authorization=Bearer`)).status).toBe(401)
  expect((await fetch(`${at}/clients?${query}`)).status).toBe(401)
})

test('a member receives only events for readable entities, and for bulks only the ids of those', async () => {
  const tenant = await newTenant(api)
  const { domainId } = tenant
  const group = await newGroup(api, domainId)
  const member = await newMember(tenant, ['read'])
  const reader = await newMember(tenant, ['read', 'client_read', 'channel_read', 'group_read'])
  await grantRole(api, member.id, { type: 'group', domainId, id: group }, ['read', 'client_read'])
  const [seen, hidden] = [await tenant.newClient(), await tenant.newClient()]
  await setParent(api, domainId, 'client', seen.id, group)
  await using events = await follow(member, domainId)
  await using all = await follow(reader, domainId)
  const channel = await tenant.newChannel()
  await tenant.call('PATCH', `/${domainId}/clients/${hidden.id}`, { name: 'hidden' })
  await tenant.call('POST', `/${domainId}/channels/connect`, {
    client_ids: [seen.id, hidden.id],
    channel_ids: [channel.id],
    types: ['publish'],
  })
  await tenant.call('PATCH', `/${domainId}/clients/${seen.id}`, { name: 'seen' })
  await tenant.call('DELETE', `/${domainId}/clients/${hidden.id}`)
  await tenant.call('DELETE', `/${domainId}/clients/${seen.id}`)
  await tenant.call('PATCH', `/domains/${domainId}`, { name: 'renamed' })
  await events.next('domain.update')
  await all.next('domain.update')
  expect(idsOf(events, 'client.update')).toEqual([seen.id])
  expect(idsOf(events, 'client.remove')).toEqual([seen.id])
  expect(events.events.some(({ event }) => event === 'channel.create')).toBe(false)
  expect((await events.next('channel.connect')).data).toMatchObject({ client_ids: [seen.id], channel_ids: [] })
  expect(JSON.stringify(events.events)).not.toContain(hidden.id)
  expect(JSON.stringify(events.events)).not.toContain(channel.id)
  expect(idsOf(all, 'client.update')).toEqual([hidden.id, seen.id])
})

test('changes of roles are sent to the callers who can see the members of the role', async () => {
  const tenant = await newTenant(api)
  const [plain, watcher] = [await newMember(tenant, ['read']), await newMember(tenant, ['read', 'view_role_users'])]
  await using one = await follow(plain, tenant.domainId)
  await using two = await follow(watcher, tenant.domainId)
  await newMember(tenant, ['read'])
  await tenant.call('PATCH', `/domains/${tenant.domainId}`, { name: 'renamed' })
  await one.next('domain.update')
  await two.next('domain.role.add_members')
  expect(one.events.filter(({ event }) => event.includes('.role.'))).toEqual([])
})

test('a client that connects again with Last-Event-ID misses nothing and sees everything in order', async () => {
  const tenant = await newTenant(api)
  const { domainId } = tenant
  const first = await follow(tenant.user, domainId)
  await until(() => first.lastId(), 'the position before the first event')
  first.close()
  const before = first.lastId()
  const made: string[] = []
  for (let index = 0; index < 30; index++) made.push((await tenant.newClient()).id)
  await using second = await follow(tenant.user, domainId, { after: before })
  await until(() => idsOf(second, 'client.create').length >= 10, 'a third')
  second.close()
  // A position may lie before what was committed a moment ago: the making of the domain can come first.
  const seen = second.events.filter(({ event }) => event === 'client.create').slice(0, 10)
  const more = Promise.all(Array.from({ length: 20 }, () => tenant.newClient()))
  await using third = await follow(tenant.user, domainId, { after: seen.at(-1)?.id })
  for (const { id } of await more) made.push(id)
  await until(() => idsOf(third, 'client.create').length >= made.length - 10, 'all of them')
  const got = [...seen.map(({ data }) => String(data['id'])), ...idsOf(third, 'client.create')]
  expect(got.toSorted()).toEqual(made.toSorted())
  expect(got.slice(0, 30)).toEqual(made.slice(0, 30))
})

test('events that are written while streams open and close reach each stream after its position, exactly once', async () => {
  const tenant = await newTenant(api)
  const { domainId } = tenant
  const start = await follow(tenant.user, domainId)
  await until(() => start.lastId(), 'a position')
  start.close()
  let isDone = false
  const writing = (async () => {
    const ids: string[] = []
    for (let index = 0; index < 60; index++) {
      const batch = await Promise.all([tenant.newClient(), tenant.newClient()])
      ids.push(...batch.map(({ id }) => id))
    }
    isDone = true
    return ids
  })()
  let after = start.lastId()
  const got: string[] = []
  while (!isDone || got.length < 120) {
    const reader = await follow(tenant.user, domainId, { after })
    // The first position may lie before the making of the domain.
    const made = () => idsOf(reader, 'client.create')
    await until(() => made().length > 3 || isDone, 'some events')
    if (isDone) await until(() => got.length + made().length >= 120, 'the rest')
    reader.close()
    got.push(...made())
    after = reader.lastId()
  }
  expect(got.toSorted()).toEqual((await writing).toSorted())
})

test('a stream ends when the token is revoked, the role is taken, the domain is closed or the user is disabled', async () => {
  const tenant = await newTenant(api)
  const { domainId } = tenant
  const domain = { type: 'domain', domainId, id: domainId } as const
  const endings: [string, string, (user: TestUser) => Promise<unknown>][] = [
    ['token', 'unauthenticated', (user) => api.as(`Bearer ${user.refreshToken}`)('POST', '/users/tokens/revoke')],
    ['role', 'forbidden', (user) => revokeRoles(api, user.id, domain)],
    ['user', 'unauthenticated', (user) => api.admin('POST', `/users/${user.id}/disable`)],
    ['domain', 'forbidden', () => tenant.call('POST', `/domains/${domainId}/disable`)],
  ]
  for (const [what, reason, end] of endings) {
    const user = await newMember(tenant, ['read', 'client_read'])
    await using events = await follow(user, domainId)
    await until(() => events.lastId(), 'the stream begins')
    await end(user)
    expect((await events.next('end')).data, what).toMatchObject({ reason })
    await until(() => events.isEnded(), 'the connection is closed')
    if (what === 'domain') continue
    const late = await tenant.newClient()
    expect(idsOf(events, 'client.create'), what).not.toContain(late.id)
  }
})

test('a token that expires ends its stream', async () => {
  await using database = await createTestDatabase()
  await using long = await startTestApi({ database })
  const { user, domainId } = await newTenant(long)
  await using short = await startTestApi({ database, environment: { SKEIN_ACCESS_TOKEN_TTL: '2s' } })
  const served = await serve(short)
  try {
    // Only the time from the login to the stream is limited; if it was not enough, the test starts again.
    await using events = await until(async () => {
      const login = await short.anonymous('POST', '/users/tokens/issue', {
        identity: user.username,
        secret: user.secret,
      })
      const accessToken = login.json<{ access_token: string }>().access_token
      const reader = await follow({ ...user, accessToken }, domainId, { at: served })
      if (reader.status === 200) return reader
      reader.close()
      return undefined
    }, 'a stream begins')
    expect((await events.next('end')).data).toMatchObject({ reason: 'unauthenticated' })
  } finally {
    await served.stop(0)
  }
})

test('a reader that does not read is disconnected with a last event, and continues from its position without a gap', async () => {
  const tenant = await newTenant(api)
  const { domainId } = tenant
  await using slow = await follow(tenant.user, domainId)
  await using quick = await follow(tenant.user, domainId)
  await until(() => slow.lastId() && quick.lastId(), 'the streams begin')
  slow.pause()
  // Records as large as a caller may make them, until the buffers of the system and ours are full.
  const metadata = { text: 'x'.repeat(20_000) }
  const client = await tenant.newClient()
  let written = 0
  await until(
    async () => {
      const changes = Array.from({ length: 50 }, (_, index) =>
        tenant.call('PATCH', `/${domainId}/clients/${client.id}`, { metadata: { ...metadata, index } }),
      )
      written += changes.length
      for (const { status } of await Promise.all(changes)) expect(status).toBe(200)
      return written >= 1200
    },
    'more records than a stream keeps',
    120_000,
  )
  // The log may come late, held up by older transactions: only now was the reader too slow for all of it.
  const updates = () => quick.events.filter(({ event }) => event === 'client.update').length
  await until(() => updates() >= written, 'everything was handed out', 120_000)
  slow.resume()
  await until(() => slow.isEnded(), 'it is cut off')
  const last = slow.events.at(-1)
  if (last?.event === 'end') expect(last.data).toMatchObject({ reason: 'slow_reader' })
  const seen = slow.events.filter(({ event }) => event === 'client.update').length
  expect(seen).toBeLessThan(written)
  await using again = await follow(tenant.user, domainId, { after: slow.lastId() })
  await until(() => again.events.length >= written - seen, 'the rest')
  expect(again.events.length).toBe(written - seen)
}, 300_000)

test('a quiet stream sends signs of life, and its position advances past events that it does not send', async () => {
  const [tenant, other] = [await newTenant(api), await newTenant(api)]
  await using events = await follow(tenant.user, tenant.domainId)
  const before = await until(() => events.lastId(), 'the stream begins')
  await other.newClient()
  await until(() => events.comments() > 1 && events.lastId() !== before, 'a later position')
  // A new stream may tell of what was committed a moment before it: of the domain, never of another one.
  expect(events.events.filter(({ data }) => data['domain'] !== tenant.domainId)).toEqual([])
  expect(idsOf(events, 'client.create')).toEqual([])
})

test('a position before the start of the journal is answered with a gap', async () => {
  const tenant = await newTenant(api)
  await using events = await follow(tenant.user, tenant.domainId)
  const start = await until(() => events.lastId(), 'a position')
  await sql`INSERT INTO consumers (name, xid, seq) VALUES ('removed from the journal', position_xid(), 1)
    ON CONFLICT ON CONSTRAINT consumers_pkey DO UPDATE SET xid = EXCLUDED.xid`.execute(api.database.db)
  await using late = await follow(tenant.user, tenant.domainId, { after: start })
  await late.next('gap')
  await tenant.newClient()
  await late.next('client.create')
  await sql`DELETE FROM consumers WHERE name = 'removed from the journal'`.execute(api.database.db)
})

test('the streams of one user are limited, and an abandoned stream is no longer counted, however quiet it is', async () => {
  const quiet = await startTestApi({ eventHeartbeatMs: NEVER_MS })
  const served = await serve(quiet)
  const tenant = await newTenant(quiet)
  const open: EventReader[] = []
  for (;;) {
    const reader = await follow(tenant.user, tenant.domainId, { at: served })
    if (reader.status !== 200) {
      expect(reader.status).toBe(429)
      expect(reader.headers['retry-after']).toBeDefined()
      break
    }
    open.push(reader)
    expect(open.length).toBeLessThanOrEqual(64)
  }
  expect(open.length).toBe(64)
  for (const reader of open) reader.close()
  await until(async () => {
    await using again = await follow(tenant.user, tenant.domainId, { at: served })
    return again.status === 200
  }, 'closed streams count no more')
  await Promise.all([quiet[Symbol.asyncDispose](), served.stop(0)])
})

test('a server that stops ends its streams at once', async () => {
  const other = await startTestApi()
  const served = await serve(other)
  const tenant = await newTenant(other)
  await using events = await follow(tenant.user, tenant.domainId, { at: served })
  await until(() => events.lastId(), 'the stream begins')
  const stopping = other[Symbol.asyncDispose]()
  expect((await events.next('end')).data).toMatchObject({ reason: 'stopping' })
  await Promise.all([stopping, served.stop(0)])
})

test('all readers of one domain receive each event', async () => {
  const tenant = await newTenant(api)
  const readers = await Promise.all(Array.from({ length: 60 }, () => follow(tenant.user, tenant.domainId)))
  const made = await Promise.all(Array.from({ length: 10 }, () => tenant.newClient()))
  for (const reader of readers) await until(() => idsOf(reader, 'client.create').length === made.length, 'all of them')
  for (const reader of readers) {
    expect(idsOf(reader, 'client.create').toSorted()).toEqual(made.map(({ id }) => id).toSorted())
    reader.close()
  }
})
