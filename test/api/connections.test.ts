// specification section 4 "Channels"; contract 4.2, 2.5 and 7.1, decisions 16 and 16b
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import type { Client, Page } from './support.ts'
import { grantRole, publish, read, newTenant } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

const connect = (body: unknown, at = tenant) => at.call('POST', `/${at.domainId}/channels/connect`, body)
const disconnect = (body: unknown, at = tenant) => at.call('POST', `/${at.domainId}/channels/disconnect`, body)

/** What the client may do on the channel, as messages find out. */
async function rightsOf(client: Client, channelId: string): Promise<{ publish: boolean; subscribe: boolean }> {
  const at = { secret: client.credentials.secret, domain: tenant.domainId, channel: channelId }
  return { publish: (await publish(api, at)) === 202, subscribe: (await read(api, at)) === 200 }
}

async function rowsOf(clientIds: readonly string[]): Promise<number> {
  const { rows } = await sql<{ total: number }>`SELECT count(*) AS total FROM connections n
    JOIN clients c ON c.key = n.client_key WHERE c.id = ANY (${clientIds}::uuid[])`.execute(api.database.db)
  return rows[0]?.total ?? 0
}

const NOTHING = { publish: false, subscribe: false }
const BOTH = { publish: true, subscribe: true }

test('every client of one list is connected with every channel of the other, with an empty response', async () => {
  const clients = [await tenant.newClient(), await tenant.newClient()]
  const channels = [await tenant.newChannel(), await tenant.newChannel()]
  const answer = await connect({
    client_ids: clients.map((client) => client.id),
    channel_ids: channels.map((channel) => channel.id),
    types: ['publish', 'subscribe'],
  })
  expect(answer.status).toBe(201)
  expect(answer.text).toBe('')
  for (const client of clients) for (const channel of channels) expect(await rightsOf(client, channel.id)).toEqual(BOTH)
})

test('a type is publish, subscribe or a legacy name in any case; without a type both are connected', async () => {
  for (const [body, rights] of [
    [{ types: ['publish'] }, { publish: true, subscribe: false }],
    [{ types: ['Subscribe'] }, { publish: false, subscribe: true }],
    [{ types: ['PUBLISH', 'subscribe', 'publish'] }, BOTH],
    [{ actions: ['m_write'] }, { publish: true, subscribe: false }],
    [{ actions: ['m_read'] }, { publish: false, subscribe: true }],
    [{}, BOTH],
  ] as const) {
    const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
    expect((await connect({ client_ids: [client.id], channel_ids: [channel.id], ...body })).status).toBe(201)
    expect(await rightsOf(client, channel.id), JSON.stringify(body)).toEqual(rights)
  }
})

test('the legacy names subjects and objects mean clients and channels', async () => {
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  expect((await connect({ subjects: [client.id], objects: [channel.id] })).status).toBe(201)
  expect(await rightsOf(client, channel.id)).toEqual(BOTH)
  const gone = await disconnect({ subjects: [client.id], objects: [channel.id] })
  expect([gone.status, gone.text]).toEqual([204, ''])
  expect(await rightsOf(client, channel.id)).toEqual(NOTHING)
})

test('a refused device is admitted as soon as it is connected, and refused as soon as it is disconnected', async () => {
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  const pair = { client_ids: [client.id], channel_ids: [channel.id] }
  for (let round = 0; round < 3; round++) {
    expect(await rightsOf(client, channel.id)).toEqual(NOTHING)
    await connect(pair)
    expect(await rightsOf(client, channel.id)).toEqual(BOTH)
    await disconnect(pair)
  }
})

test('connecting existing pairs changes nothing, and adds missing ones', async () => {
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  const pair = { client_ids: [client.id], channel_ids: [channel.id] }
  expect((await connect({ ...pair, types: ['publish'] })).status).toBe(201)
  expect((await connect({ ...pair, types: ['publish'] })).status).toBe(201)
  const { rows } = await sql<{ updated_at: string | null }>`SELECT n.updated_at FROM connections n
    JOIN clients c ON c.key = n.client_key WHERE c.id = ${client.id}::uuid`.execute(api.database.db)
  expect(rows).toEqual([{ updated_at: null }])
  expect((await connect({ ...pair, types: ['subscribe'] })).status).toBe(201)
  expect(await rightsOf(client, channel.id)).toEqual(BOTH)
  expect(await rowsOf([client.id])).toBe(1)
})

test('disconnecting removes the given types; a missing pair is not an error', async () => {
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  const pair = { client_ids: [client.id], channel_ids: [channel.id] }
  await connect(pair)
  expect((await disconnect({ ...pair, types: ['publish'] })).status).toBe(204)
  expect(await rightsOf(client, channel.id)).toEqual({ publish: false, subscribe: true })
  expect((await disconnect({ ...pair, types: ['publish'] })).status).toBe(204)
  expect((await disconnect({ ...pair, types: ['subscribe'] })).status).toBe(204)
  expect(await rowsOf([client.id])).toBe(0)
  expect((await disconnect(pair)).status).toBe(204)
})

test('the path may name the channel', async () => {
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  const at = (verb: string) => `/${tenant.domainId}/channels/${channel.id}/${verb}`
  const connected = await tenant.call('POST', at('connect'), { client_ids: [client.id], types: ['publish'] })
  expect([connected.status, connected.text]).toEqual([201, ''])
  expect(await rightsOf(client, channel.id)).toEqual({ publish: true, subscribe: false })
  expect((await tenant.call('POST', at('disconnect'), { client_ids: [client.id], types: ['publish'] })).status).toBe(
    204,
  )
  expect(await rightsOf(client, channel.id)).toEqual(NOTHING)
  expect((await tenant.call('POST', at('connect'), { client_ids: [client.id], actions: 7 })).status).toBe(400)
  expect((await tenant.call('POST', at('connect'), { types: ['publish'] })).status).toBe(400)
})

test('several connections in one call are all created or none, and a pair may be repeated', async () => {
  const [client, other] = [await tenant.newClient(), await tenant.newClient()]
  const [channel, second] = [await tenant.newChannel(), await tenant.newChannel()]
  const items = [
    { client_ids: [client.id], channel_ids: [channel.id], types: ['publish'] },
    { client_ids: [other.id, client.id], channel_ids: [channel.id, second.id], types: ['subscribe'] },
  ]
  const refused = await connect([...items, { client_ids: [client.id], channel_ids: [newId()] }])
  expect(refused.status).toBe(422)
  expect(await rowsOf([client.id, other.id])).toBe(0)
  expect((await connect(items)).status).toBe(201)
  expect(await rightsOf(client, channel.id)).toEqual(BOTH)
  expect(await rightsOf(other, channel.id)).toEqual({ publish: false, subscribe: true })
  expect((await disconnect(items)).status).toBe(204)
  expect(await rowsOf([client.id, other.id])).toBe(0)
})

test('unknown, foreign and disabled ids are 422 with the ids, and nothing is connected', async () => {
  const foreign = await newTenant(api)
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  const disabledClient = await tenant.newClient({ status: 'disabled' })
  const disabledChannel = await tenant.newChannel({ status: 'disabled' })
  const [foreignClient, foreignChannel] = [await foreign.newClient(), await foreign.newChannel()]
  const unknown = newId()
  for (const [culprit, clientIds, channelIds] of [
    [unknown, [client.id, unknown], [channel.id]],
    [unknown, [client.id], [channel.id, unknown]],
    [foreignClient.id, [client.id, foreignClient.id], [channel.id]],
    [foreignChannel.id, [client.id], [foreignChannel.id]],
    [disabledClient.id, [client.id, disabledClient.id], [channel.id]],
    [disabledChannel.id, [client.id], [channel.id, disabledChannel.id]],
  ] as const) {
    const refused = await connect({ client_ids: clientIds, channel_ids: channelIds })
    expect(refused.status).toBe(422)
    expect(refused.json()).toMatchObject({
      error: 'unprocessable',
      message: expect.stringContaining(culprit) as string,
    })
  }
  expect(await rowsOf([client.id, disabledClient.id, foreignClient.id])).toBe(0)
})

test.each([
  ['client_ids', { channel_ids: [newId()] }],
  ['channel_ids', { client_ids: [newId()] }],
  ['client_ids', { client_ids: [], channel_ids: [newId()] }],
  ['channel_ids', { client_ids: [newId()], channel_ids: ['nonsense'] }],
  ['client_ids', { client_ids: [newId().toUpperCase()], channel_ids: [newId()] }],
  ['types', { client_ids: [newId()], channel_ids: [newId()], types: ['listen'] }],
  ['types', { client_ids: [newId()], channel_ids: [newId()], types: [] }],
  ['body', []],
])('connecting without valid %s is malformed', async (_field, body) => {
  for (const answer of [await connect(body), await disconnect(body)]) {
    expect(answer.status).toBe(400)
    expect(answer.json()).toMatchObject({ error: 'malformed' })
  }
})

test('an unknown id fails with the operation of the request', async () => {
  const unknown = { client_ids: [newId()], channel_ids: [(await tenant.newChannel()).id] }
  for (const [answer, verb] of [
    [await connect(unknown), 'connect'],
    [await disconnect(unknown), 'disconnect'],
  ] as const) {
    expect(answer.status).toBe(422)
    expect(answer.json<{ message: string }>().message).toMatch(
      new RegExp(`^failed to ${verb}: client \\S+ does not exist`),
    )
  }
})

test('a call with too many pairs or ids is too large', async () => {
  const ids = (count: number) => Array.from({ length: count }, () => newId())
  expect((await connect({ client_ids: ids(1001), channel_ids: ids(100) })).status).toBe(413)
  expect((await connect({ client_ids: ids(10_001), channel_ids: ids(1) })).status).toBe(413)
})

test('connecting requires connect_to_channel on the client and connect_to_client on the channel', async () => {
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  const member = await api.newUser()
  const domain = { type: 'domain', domainId: tenant.domainId, id: tenant.domainId } as const
  const pair = { client_ids: [client.id], channel_ids: [channel.id] }
  const attempt = async () => (await connect(pair, { ...tenant, call: member.call })).status
  expect(await attempt()).toBe(403)
  await grantRole(api, member.id, domain, [])
  expect(await attempt()).toBe(422)
  await grantRole(api, member.id, domain, ['client_read', 'channel_read', 'client_connect_to_channel'])
  expect(await attempt()).toBe(403)
  await grantRole(api, member.id, { type: 'channel', domainId: tenant.domainId, id: channel.id }, ['connect_to_client'])
  expect(await attempt()).toBe(201)
  const listed = (await tenant.call('GET', `/${tenant.domainId}/clients?channel=${channel.id}`)).json<
    Page<'clients', Client>
  >()
  expect(listed.clients.map((one) => one.id)).toEqual([client.id])
})

test('thousands of pairs are disconnected also without statistics about them', async () => {
  const bulk = async (type: string, count: number) => {
    const items = Array.from({ length: count }, () => ({}))
    const made = await tenant.call('POST', `/${tenant.domainId}/${type}/bulk`, items)
    return (made.json<Record<string, { id: string }[]>>()[type] ?? []).map((one) => one.id)
  }
  const pairs = { client_ids: await bulk('clients', 300), channel_ids: await bulk('channels', 100) }
  // A table that was full, is empty when it is analysed, and then is filled again: the planner expects one row.
  expect((await connect(pairs)).status).toBe(201)
  await sql`DELETE FROM connections`.execute(api.database.db)
  await sql`ANALYZE connections`.execute(api.database.db)
  expect((await connect(pairs)).status).toBe(201)
  expect((await disconnect({ ...pairs, types: ['publish'] })).status).toBe(204)
  expect(await rowsOf(pairs.client_ids)).toBe(30_000)
  expect((await disconnect(pairs)).status).toBe(204)
  expect(await rowsOf(pairs.client_ids)).toBe(0)
}, 60_000)
