// specification sections 2 "Connection" and 4; contract 4.2, decisions 16, 16b, 31b, 45 and 52: one rule under every form
import { describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { TestResponse } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { grantRole, tenantOf, newTenant, ZERO_TIME } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

type Connection = {
  owner_id: string
  subject: string
  object: string
  actions: string[]
  created_at: string
  updated_at: string
}

async function newPair(of = tenant): Promise<{ clientId: string; channelId: string }> {
  const [client, channel] = await Promise.all([of.newClient(), of.newChannel()])
  return { clientId: client.id, channelId: channel.id }
}

/** Bits of the stored connection of the tenant's pair; undefined: none. */
async function bitsOf({ clientId, channelId }: { clientId: string; channelId: string }, of = tenant) {
  const { rows } = await sql<{ types: number }>`SELECT n.types FROM connections n
    JOIN clients c ON c.key = n.client_key JOIN channels h ON h.key = n.channel_key JOIN domains d ON d.key = n.domain_key
    WHERE c.id = ${clientId} AND h.id = ${channelId} AND d.id = ${of.domainId}`.execute(api.database.db)
  return rows[0]?.types
}

/** Every way to say "connect" or "disconnect": the pair goes where the form wants it. */
const FORMS: Record<
  string,
  (verb: 'connect' | 'disconnect', pair: { clientId: string; channelId: string }) => [string, string, unknown]
> = {
  'ids of channels and clients': (verb, { clientId, channelId }) => [
    'POST',
    `/${tenant.domainId}/channels/${verb}`,
    { channel_ids: [channelId], client_ids: [clientId], types: ['publish', 'subscribe'] },
  ],
  'an array of them': (verb, { clientId, channelId }) => [
    'POST',
    `/${tenant.domainId}/channels/${verb}`,
    [{ channel_ids: [channelId], client_ids: [clientId] }],
  ],
  'subjects and objects': (verb, { clientId, channelId }) => [
    'POST',
    `/${tenant.domainId}/channels/${verb}`,
    { subjects: [clientId], objects: [channelId], actions: ['m_read', 'm_write'] },
  ],
  'the channel in the path': (verb, { clientId, channelId }) => [
    'POST',
    `/${tenant.domainId}/channels/${channelId}/${verb}`,
    { client_ids: [clientId], types: ['Publish', 'Subscribe'] },
  ],
  'the channel in the path without a domain': (verb, { clientId, channelId }) => [
    'POST',
    `/channels/${channelId}/${verb}`,
    { client_ids: [clientId] },
  ],
  'no domain in the path': (verb, { clientId, channelId }) => [
    'POST',
    `/channels/${verb}`,
    { channel_ids: [channelId], client_ids: [clientId] },
  ],
  'the verb alone': (verb, { clientId, channelId }) => [
    'POST',
    `/${verb}`,
    { channel_ids: [channelId], client_ids: [clientId] },
  ],
  'one of each under older names': (verb, { clientId, channelId }) => [
    'POST',
    `/${verb}`,
    { thing_id: clientId, channel_id: channelId },
  ],
  'an array behind the verb alone': (verb, { clientId, channelId }) => [
    'POST',
    `/${verb}`,
    [{ objects: [channelId], subjects: [clientId] }],
  ],
  'the pair in the path': (verb, { clientId, channelId }) => [
    verb === 'connect' ? 'PUT' : 'DELETE',
    `/${tenant.domainId}/channels/${channelId}/clients/${clientId}`,
    undefined,
  ],
  'the pair in the path without a domain': (verb, { clientId, channelId }) => [
    verb === 'connect' ? 'PUT' : 'DELETE',
    `/channels/${channelId}/clients/${clientId}`,
    undefined,
  ],
}
const isPairForm = (name: string) => name.startsWith('the pair')

describe.each(Object.entries(FORMS))('with %s', (name, form) => {
  const send = (verb: 'connect' | 'disconnect', pair: { clientId: string; channelId: string }, call = tenant.call) =>
    call(...form(verb, pair))

  test('a pair can be connected in both directions and disconnected, each repeatedly', async () => {
    const pair = await newPair()
    for (let round = 0; round < 2; round++) {
      const connected = await send('connect', pair)
      expect(connected.status).toBe(201)
      if (!isPairForm(name)) expect(connected.text).toBe('')
      expect(await bitsOf(pair)).toBe(3)
    }
    for (let round = 0; round < 2; round++) {
      const parted = await send('disconnect', pair)
      expect([parted.status, parted.text]).toEqual([204, ''])
      expect(await bitsOf(pair)).toBeUndefined()
    }
  })

  test('an unknown id is 404 in the path and 422 in the body; a disabled entity is 422; nothing is connected', async () => {
    const pair = await newPair()
    const [, path] = form('connect', pair)
    for (const [end, unknown] of [
      [pair.clientId, { ...pair, clientId: newId() }],
      [pair.channelId, { ...pair, channelId: newId() }],
    ] as const)
      expect((await send('connect', unknown)).status).toBe(path.includes(end) ? 404 : 422)
    const neither = { clientId: newId(), channelId: newId() }
    const isInPath = [pair.clientId, pair.channelId].some((id) => path.includes(id))
    expect((await send('connect', neither)).status).toBe(isInPath ? 404 : 422)
    await tenant.call('POST', `/${tenant.domainId}/clients/${pair.clientId}/disable`)
    expect((await send('connect', pair)).status).toBe(422)
    await tenant.call('POST', `/${tenant.domainId}/clients/${pair.clientId}/enable`)
    await tenant.call('POST', `/${tenant.domainId}/channels/${pair.channelId}/disable`)
    expect((await send('connect', pair)).status).toBe(422)
    expect(await bitsOf(pair)).toBeUndefined()
  })

  test('a stranger learns nothing, and a member requires the right on both entities', async () => {
    const pair = await newPair()
    const stranger = await newTenant(api)
    const own = await newPair(stranger)
    const [, path] = form('connect', pair)
    const isScoped = path.startsWith(`/${tenant.domainId}`)
    const unknown = { clientId: newId(), channelId: newId() }
    const [foreign, nothing] = [
      await send('connect', pair, stranger.call),
      await send('connect', unknown, stranger.call),
    ]
    expect(foreign.status).toBe(isScoped ? 403 : path.includes(pair.channelId) ? 404 : 422)
    const bare = (answer: TestResponse, ids: object) =>
      Object.values(ids).reduce<string>((text, id) => text.replaceAll(String(id), ''), answer.text)
    expect(bare(foreign, pair)).toBe(bare(nothing, unknown))
    // The stranger's own client is not connected to a channel of another tenant.
    const crossed = { clientId: own.clientId, channelId: pair.channelId }
    expect([403, 404, 422]).toContain((await send('connect', crossed, stranger.call)).status)
    expect(await bitsOf(pair)).toBeUndefined()
    const member = tenantOf(await api.newUser(), tenant.domainId)
    const domain = { type: 'domain', domainId: tenant.domainId, id: tenant.domainId } as const
    await grantRole(api, member.user.id, domain, ['client_read', 'channel_read', 'channel_connect_to_client'])
    expect((await send('connect', pair, member.call)).status).toBe(403)
    expect((await send('disconnect', pair, member.call)).status).toBe(403)
    await grantRole(api, member.user.id, domain, ['client_connect_to_channel'])
    expect((await send('connect', pair, member.call)).status).toBe(201)
  })
})

test('PUT of a pair returns its connection, and an existing connection keeps its creation time', async () => {
  const pair = await newPair()
  const path = `/${tenant.domainId}/channels/${pair.channelId}/clients/${pair.clientId}`
  const made = (await tenant.call('PUT', path)).json<Connection>()
  expect(made).toEqual({
    owner_id: tenant.user.id,
    subject: pair.clientId,
    object: pair.channelId,
    actions: ['m_write', 'm_read'],
    created_at: expect.stringMatching(/Z$/) as string,
    updated_at: ZERO_TIME,
  })
  expect((await tenant.call('PUT', path)).json()).toEqual(made)
  const half = await newPair()
  await tenant.connect(half.clientId, half.channelId, ['publish'])
  const widened = await tenant.call('PUT', `/channels/${half.channelId}/clients/${half.clientId}`)
  expect(widened.json<Connection>().actions).toEqual(['m_write', 'm_read'])
  expect(widened.json<Connection>().updated_at).not.toBe(ZERO_TIME)
})

test('ids that exist in two domains of the caller are 409 without a domain, unless the other entity exists in only one of them', async () => {
  const own = await newTenant(api)
  const other = tenantOf(own.user, (await own.call('POST', '/domains', { name: 'second' })).json<{ id: string }>().id)
  const shared = { clientId: newId(), channelId: newId() }
  for (const one of [own, other]) {
    await one.newClient({ id: shared.clientId })
    await one.newChannel({ id: shared.channelId })
  }
  const connect = (pair: typeof shared) =>
    own.call('POST', '/connect', { client_ids: [pair.clientId], channel_ids: [pair.channelId] })
  expect((await connect(shared)).status).toBe(409)
  expect([await bitsOf(shared, own), await bitsOf(shared, other)]).toEqual([undefined, undefined])
  const onlyOther = { ...shared, clientId: (await other.newClient()).id }
  expect((await connect(onlyOther)).status).toBe(201)
  expect([await bitsOf(onlyOther, own), await bitsOf(onlyOther, other)]).toEqual([undefined, 3])
})

test('a call that changes nothing writes no journal record', async () => {
  const pair = await newPair()
  const entries = async () => {
    const { rows } = await sql<{
      operation: string
    }>`SELECT j.operation FROM journal j JOIN clients c ON c.key = ANY (j.entity_keys)
      WHERE c.id = ${pair.clientId} AND j.operation LIKE 'channel.%' ORDER BY j.xid, j.seq`.execute(api.database.db)
    return rows.map((row) => row.operation)
  }
  const body = { client_ids: [pair.clientId], channel_ids: [pair.channelId] }
  for (const verb of ['disconnect', 'connect', 'connect', 'disconnect', 'disconnect'])
    await tenant.call('POST', `/${tenant.domainId}/channels/${verb}`, body)
  expect(await entries()).toEqual(['channel.connect', 'channel.disconnect'])
})

test('every item of a call has a journal record, with the ids of both entities', async () => {
  const [first, second] = [await newPair(), await newPair()]
  const items = [
    { client_ids: [first.clientId], channel_ids: [first.channelId], types: ['publish'] },
    { subjects: [second.clientId], objects: [first.channelId, second.channelId] },
  ]
  expect((await tenant.call('POST', `/${tenant.domainId}/channels/connect`, items)).status).toBe(201)
  const { rows } = await sql<{ attributes: object; keys: number }>`
    SELECT attributes, cardinality(entity_keys) AS keys FROM journal WHERE operation = 'channel.connect' ORDER BY xid DESC, seq DESC LIMIT 2`.execute(
    api.database.db,
  )
  expect(rows.toReversed()).toEqual([
    { attributes: { client_ids: [first.clientId], channel_ids: [first.channelId], types: ['publish'] }, keys: 2 },
    {
      attributes: {
        client_ids: [second.clientId],
        channel_ids: [first.channelId, second.channelId],
        types: ['publish', 'subscribe'],
      },
      keys: 3,
    },
  ])
})
