// contract sections 1.2, 7.1 and 8, decisions 31b, 31c, 45, 47: who may send and read, from memory and across nodes
import { afterAll, beforeAll, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { TestApi } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase } from '../harness/database.ts'
import { untilInForce } from '../harness/in-force.ts'
import { until } from '../harness/until.ts'
import type { Channel, Client, Tenant } from './support.ts'
import { grantRole, newTenant, publish, read, revokeRoles } from './support.ts'

/** Two nodes over one database, each with its own memory; nothing but the journal tells one what the other did. */
let database: TestDatabase
let api: TestApi
let second: TestApi
let tenant: Tenant
beforeAll(async () => {
  database = await createTestDatabase()
  api = await startTestApi({ database })
  second = await startTestApi({ database })
  tenant = await newTenant(api)
})
afterAll(async () => {
  await second[Symbol.asyncDispose]()
  await api[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

type Pair = { client: Client; channel: Channel; at: { secret: string; domain: string; channel: string } }

async function newPair(owner = tenant, fields: { client?: object; channel?: object } = {}): Promise<Pair> {
  const [client, channel] = [await owner.newClient({ ...fields.client }), await owner.newChannel({ ...fields.channel })]
  await owner.connect(client.id, channel.id)
  return { client, channel, at: { secret: client.credentials.secret, domain: owner.domainId, channel: channel.id } }
}

const MESSAGE = JSON.stringify([{ n: 'voltage', v: 1 }])
const SENML = { 'content-type': 'application/senml+json' }

test('a connected client sends and reads; an absent, wrong or foreign secret is 401', async () => {
  const { at } = await newPair()
  const foreign = await newPair(await newTenant(api))
  expect([await publish(api, at), await read(api, at)]).toEqual([202, 200])
  for (const secret of ['wrong-secret-that-is-long', foreign.at.secret, ' ', 'x'.repeat(300)])
    expect([await publish(api, { ...at, secret }), await read(api, { ...at, secret })]).toEqual([401, 401])
  const none = await api.anonymous('POST', `/http/m/${at.domain}/c/${at.channel}`, MESSAGE, SENML)
  expect(none.status).toBe(401)
  expect(none.json()).toMatchObject({ error: 'unauthenticated' })
})

test('an unknown, a foreign, an unconnected and a disabled channel are the same 403', async () => {
  const { at } = await newPair()
  const foreign = await newPair(await newTenant(api))
  const unconnected = await tenant.newChannel()
  const disabled = await newPair()
  await tenant.call('POST', `/${tenant.domainId}/channels/${disabled.channel.id}/disable`)
  const send = (secret: string, channel: string) =>
    api.as(`Client ${secret}`)('POST', `/http/m/${tenant.domainId}/c/${channel}`, MESSAGE, SENML)
  const answers = await Promise.all([
    ...[newId(), foreign.channel.id, unconnected.id, 'no-such-route'].map((channel) => send(at.secret, channel)),
    send(disabled.at.secret, disabled.channel.id),
  ])
  expect(new Set(answers.map((answer) => `${answer.status} ${answer.text}`)).size).toBe(1)
  expect(answers[0]?.status).toBe(403)
})

test('a connection of one type allows that type only', async () => {
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  await tenant.connect(client.id, channel.id, ['subscribe'])
  const at = { secret: client.credentials.secret, domain: tenant.domainId, channel: channel.id }
  expect([await publish(api, at), await read(api, at)]).toEqual([403, 200])
})

test('domain and channel may be given by alias and route in any case', async () => {
  const alias = `plant-${newId().slice(0, 8)}`
  const domain = (await tenant.call('PATCH', `/domains/${tenant.domainId}`, { alias })).json<{ route: string }>()
  expect(domain.route).toBe(alias)
  const route = `hall-${newId().slice(0, 8)}`
  const { at } = await newPair(tenant, { channel: { route } })
  expect(await publish(api, { ...at, domain: alias })).toBe(202)
  expect(await publish(api, { ...at, domain: alias.toUpperCase(), channel: route.toUpperCase() })).toBe(202)
  expect(await publish(api, { ...at, channel: `${route}x` })).toBe(403)
})

test('an alias that moves to another domain moves its messages at once', async () => {
  const [one, other] = [await newTenant(api), await newTenant(api)]
  const alias = `moving-${newId().slice(0, 8)}`
  const channelId = newId()
  const [first, next] = [
    await newPair(one, { channel: { id: channelId } }),
    await newPair(other, { channel: { id: channelId } }),
  ]
  const named = (pair: Pair) => publish(api, { ...pair.at, domain: alias })
  await one.call('PATCH', `/domains/${one.domainId}`, { alias })
  expect([await named(first), await named(next)]).toEqual([202, 401])
  await one.call('PATCH', `/domains/${one.domainId}`, { alias: `${alias}-x` })
  await other.call('PATCH', `/domains/${other.domainId}`, { alias })
  expect([await named(first), await named(next)]).toEqual([401, 202])
})

test('Basic credentials name the client; an id that does not match the secret is 401', async () => {
  const { client, at } = await newPair()
  const basic = (id: string, secret: string) =>
    api.as(`Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`)(
      'POST',
      `/http/m/${at.domain}/c/${at.channel}`,
      MESSAGE,
      SENML,
    )
  expect((await basic(client.id, at.secret)).status).toBe(202)
  expect((await basic('', at.secret)).status).toBe(202)
  for (const id of [newId(), 'nonsense', client.id.toUpperCase()]) expect((await basic(id, at.secret)).status).toBe(401)
})

test('a disabled client is 401, on every node within a second, and is accepted when it is enabled again', async () => {
  const { client, at } = await newPair()
  const post = (verb: string) => tenant.call('POST', `/${tenant.domainId}/clients/${client.id}/${verb}`)
  expect([await publish(api, at), await publish(second, at)]).toEqual([202, 202])
  await post('disable')
  expect(await publish(api, at)).toBe(401)
  await untilInForce(() => publish(second, at), { from: 202, to: 401 }, 'the second node refuses')
  await post('enable')
  expect(await publish(api, at)).toBe(202)
  await untilInForce(() => publish(second, at), { from: 401, to: 202 }, 'the second node lets through')
})

test.each<[string, number, (pair: Pair) => Promise<unknown>]>([
  [
    'a connection is taken',
    403,
    ({ client, channel }) =>
      tenant.call('POST', `/${tenant.domainId}/channels/disconnect`, {
        client_ids: [client.id],
        channel_ids: [channel.id],
      }),
  ],
  ['a client is deleted', 401, ({ client }) => tenant.call('DELETE', `/${tenant.domainId}/clients/${client.id}`)],
  ['a channel is deleted', 403, ({ channel }) => tenant.call('DELETE', `/${tenant.domainId}/channels/${channel.id}`)],
  [
    'a channel is disabled',
    403,
    ({ channel }) => tenant.call('POST', `/${tenant.domainId}/channels/${channel.id}/disable`),
  ],
  [
    'a secret is replaced',
    401,
    ({ client }) => tenant.call('PATCH', `/${tenant.domainId}/clients/${client.id}/secret`, { secret: newId() }),
  ],
])('when %s, every node refuses within a second', async (_what, status, revoke) => {
  const pair = await newPair()
  expect([await publish(api, pair.at), await publish(second, pair.at)]).toEqual([202, 202])
  await revoke(pair)
  expect(await publish(api, pair.at)).toBe(status)
  await untilInForce(() => publish(second, pair.at), { from: 202, to: status }, 'the second node refuses')
})

test('messages are refused while the domain is not enabled, also from its members, and its administrator can enable it again', async () => {
  const own = await newTenant(api)
  const { at } = await newPair(own)
  const member = await api.newUser()
  await grantRole(api, member.id, { type: 'domain', domainId: own.domainId, id: own.domainId }, [
    'channel_read',
    'channel_publish',
  ])
  const byUser = async (node: TestApi, token: string) =>
    (await node.as(`Bearer ${token}`)('POST', `/http/m/${at.domain}/c/${at.channel}`, MESSAGE, SENML)).status
  expect([await publish(api, at), await publish(second, at), await byUser(api, member.accessToken)]).toEqual([
    202, 202, 202,
  ])
  await own.call('POST', `/domains/${own.domainId}/disable`)
  expect([
    await publish(api, at),
    await byUser(api, member.accessToken),
    await byUser(api, own.user.accessToken),
  ]).toEqual([403, 403, 403])
  await untilInForce(() => publish(second, at), { from: 202, to: 403 }, 'the second node refuses')
  expect((await member.call('GET', `/${own.domainId}/channels`)).status).toBe(403)
  expect((await own.call('GET', `/${own.domainId}/channels`)).status).toBe(200)
  await own.call('POST', `/domains/${own.domainId}/enable`)
  expect(await publish(api, at)).toBe(202)
})

test('a user sends with publish and reads with subscribe; otherwise 403 for readers of the channel and non-members, else 404', async () => {
  const { channel } = await newPair()
  const member = await api.newUser()
  const domain = { type: 'domain', domainId: tenant.domainId, id: tenant.domainId } as const
  const on = { type: 'channel', domainId: tenant.domainId, id: channel.id } as const
  const send = async () =>
    (await member.call('POST', `/http/m/${tenant.domainId}/c/${channel.id}`, MESSAGE, SENML)).status
  const get = async () => (await member.call('GET', `/m/${tenant.domainId}/c/${channel.id}`)).status
  expect([await send(), await get()]).toEqual([403, 403])
  await grantRole(api, member.id, domain, [])
  expect([await send(), await get()]).toEqual([403, 404])
  await grantRole(api, member.id, on, ['read'])
  expect([await send(), await get()]).toEqual([403, 403])
  await grantRole(api, member.id, on, ['subscribe'])
  expect([await send(), await get()]).toEqual([403, 200])
  await grantRole(api, member.id, on, ['publish'])
  expect([await send(), await get()]).toEqual([202, 200])
  await revokeRoles(api, member.id, on)
  expect([await send(), await get()]).toEqual([403, 404])
})

test('a user who reads from a foreign, an unknown or a closed domain gets the same 403, and 404 in their own or without one', async () => {
  const stranger = await newTenant(api)
  const { channel } = await newPair()
  const { route } = (await tenant.call('GET', `/domains/${tenant.domainId}`)).json<{ route: string }>()
  const get = async (path: string, caller = stranger.call) => {
    const { status, text } = await caller('GET', path)
    return `${status} ${text}`
  }
  const foreign = await get(`/m/${tenant.domainId}/c/${channel.id}`)
  expect(foreign).toMatch(/^403 /)
  for (const path of [
    `/${tenant.domainId}/channels/${channel.id}/messages`,
    `/m/${tenant.domainId}/c/${newId()}`,
    `/m/${route}/c/${channel.id}`,
    `/m/${newId()}/c/${channel.id}`,
    `/m/no-such-domain/c/${channel.id}`,
  ])
    expect(await get(path), path).toBe(foreign)
  const unknown = await get(`/m/${stranger.domainId}/c/${newId()}`)
  expect(unknown).toMatch(/^404 /)
  expect(await get(`/m/${stranger.domainId}/c/${channel.id}`)).toBe(unknown)
  expect(await get(`/channels/${channel.id}/messages`)).toBe(unknown)
  expect(await get(`/channels/${newId()}/messages`)).toBe(unknown)

  const closed = await newTenant(api)
  const within = await closed.newChannel()
  const member = await api.newUser()
  const domain = { type: 'domain', domainId: closed.domainId, id: closed.domainId } as const
  await grantRole(api, member.id, domain, ['channel_read', 'channel_subscribe'])
  await closed.call('POST', `/domains/${closed.domainId}/disable`)
  expect(await get(`/m/${closed.domainId}/c/${within.id}`, member.call)).toBe(foreign)
  expect(await get(`/m/${closed.domainId}/c/${within.id}`, closed.call)).toMatch(/^403 /)
})

test('a user whose channel id exists in two of their domains is asked to name one', async () => {
  const [one, other] = [await newTenant(api), await newTenant(api)]
  const id = newId()
  await one.newChannel({ id })
  const send = () => one.call('POST', `/channels/${id}/messages`, MESSAGE, SENML)
  expect((await send()).status).toBe(202)
  await other.newChannel({ id })
  expect((await send()).status).toBe(202)
  await grantRole(api, one.user.id, { type: 'domain', domainId: other.domainId, id: other.domainId }, [
    'channel_read',
    'channel_publish',
  ])
  const refused = await send()
  expect(refused.status).toBe(409)
  expect(refused.json()).toMatchObject({ message: expect.stringContaining('/m/<domain>/c/<channel>') as string })
})

test('a path without a domain selects the only client with the secret and a connection to the channel', async () => {
  const secret = `shared-${newId()}`
  const [one, other] = [await newTenant(api), await newTenant(api)]
  const mine = await newPair(one, { client: { credentials: { secret } } })
  const theirs = await newPair(other, { client: { credentials: { secret } } })
  const send = (channel: string, use = secret) => publish(api, { secret: use, channel })
  expect([await send(mine.channel.id), await send(theirs.channel.id)]).toEqual([202, 202])
  expect(await send(newId())).toBe(403)
  expect(await send(mine.channel.id, `unknown-${newId()}`)).toBe(401)
  for (const { at } of [mine, theirs]) {
    const stored = await api.as(`Client ${at.secret}`)('GET', `/m/${at.domain}/c/${at.channel}`)
    expect(stored.json()).toMatchObject({ total: 1 })
  }
})

test('a secret and channel that begin to match in a second domain are 401 from then on, and both journals record why', async () => {
  const [secret, id] = [`shared-${newId()}`, newId()]
  const [one, other] = [await newTenant(api), await newTenant(api)]
  const fields = { client: { credentials: { secret } }, channel: { id } }
  const mine = await newPair(one, fields)
  expect([await publish(api, { secret, channel: id }), await publish(second, { secret, channel: id })]).toEqual([
    202, 202,
  ])
  const theirs = await newPair(other, fields)
  expect(await publish(api, { secret, channel: id })).toBe(401)
  await untilInForce(() => publish(second, { secret, channel: id }), { from: 202, to: 401 }, 'the second node refuses')
  for (let attempt = 0; attempt < 5; attempt++) await publish(api, { secret, channel: id })
  expect(await publish(api, mine.at)).toBe(202)
  expect(await publish(api, theirs.at)).toBe(202)
  const { rows } = await sql<{ id: string; total: number }>`SELECT d.id, count(*) AS total
    FROM journal j JOIN domains d ON d.key = j.domain_key WHERE j.operation = 'client.ambiguous'
     AND d.id IN (${one.domainId}::uuid, ${other.domainId}::uuid) GROUP BY d.id`.execute(api.database.db)
  expect(rows.map((row) => row.id).toSorted()).toEqual([one.domainId, other.domainId].toSorted())
  // Each node reports once a minute, however often the device tries.
  for (const row of rows) expect(row.total).toBeLessThanOrEqual(2)
  await other.call('POST', `/${other.domainId}/clients/${theirs.client.id}/disable`)
  expect(await publish(api, { secret, channel: id })).toBe(202)
})

test('an external secret shorter than 16 characters is accepted without a domain only together with the client id', async () => {
  const secret = newId().slice(0, 15)
  const { client, at } = await newPair(tenant, { client: { credentials: { secret } } })
  expect(await publish(api, at)).toBe(202)
  expect(await publish(api, { secret, channel: at.channel })).toBe(401)
  const basic = `Basic ${Buffer.from(`${client.id}:${secret}`).toString('base64')}`
  expect((await api.as(basic)('POST', `/channels/${at.channel}/messages`, MESSAGE, SENML)).status).toBe(202)
})

test('ending a login, disabling a user and revoking a role take effect on every node within a second', async () => {
  const users = [await api.newUser(), await api.newUser(), await api.newUser()] as const
  const [signedOut, disabled, removed] = users
  const domain = { type: 'domain', domainId: tenant.domainId, id: tenant.domainId } as const
  for (const user of users) await grantRole(api, user.id, domain, ['client_read'])
  const list = async (token: string) =>
    (await second.as(`Bearer ${token}`)('GET', `/${tenant.domainId}/clients`)).status
  for (const user of users)
    await until(async () => (await list(user.accessToken)) === 200, 'the second node knows the role')
  await api.as(`Bearer ${signedOut.refreshToken}`)('POST', '/users/tokens/revoke')
  await untilInForce(() => list(signedOut.accessToken), { from: 200, to: 401 }, 'signed out')
  await api.admin('POST', `/users/${disabled.id}/disable`)
  await untilInForce(() => list(disabled.accessToken), { from: 200, to: 401 }, 'disabled')
  await revokeRoles(api, removed.id, domain)
  await untilInForce(() => list(removed.accessToken), { from: 200, to: 403 }, 'removed')
})

test('a node that cannot read the journal never answers from its cache', async () => {
  await using deaf = await startTestApi({ database })
  const { client, at } = await newPair()
  expect(await publish(deaf, at)).toBe(202)
  // The reader of the journal is thrown out and kept out, while requests still reach the database.
  const cutter = await database.database.dedicated('a cutter of the test')
  const { rows } = await cutter.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
  // Inside the server, where a blow falls sooner than a reader has sent its first question.
  const cutting = cutter
    .query(
      `DO $$ BEGIN LOOP
         PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE datname = current_database() AND application_name = 'skein journal tail';
         PERFORM pg_stat_clear_snapshot();
       END LOOP; END $$`,
    )
    .catch(() => undefined)
  try {
    // A connection may slip through between two blows.
    await until(() => !deaf.api.identity.journal.isFresh(), 'the journal is out of reach', 60_000)
    await tenant.call('POST', `/${tenant.domainId}/clients/${client.id}/disable`)
    expect([401, 503]).toContain(await publish(deaf, at))
    expect([401, 503]).toContain(await publish(deaf, at))
  } finally {
    await sql`SELECT pg_cancel_backend(${rows[0]?.pid ?? 0})`.execute(database.database.db)
    await cutting
    await cutter.end()
  }
  await until(() => deaf.api.identity.journal.isFresh(), 'the journal is read again')
  expect(await publish(deaf, at)).toBe(401)
  await tenant.call('POST', `/${tenant.domainId}/clients/${client.id}/enable`)
  await untilInForce(() => publish(deaf, at), { from: 401, to: 202 }, 'the node hears again')
}, 90_000)
