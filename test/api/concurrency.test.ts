// specification sections 2, 4 and 7: uniqueness and all-or-nothing hold when everything comes at once
import { afterAll, beforeAll, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { TestApi, TestResponse } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { Tenant } from './support.ts'
import { newGroup, newTenant, publish, statusesOf } from './support.ts'

/** Two nodes over one database: what holds in one process by luck must hold between processes. */
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

const AT_ONCE = 12

/** The same call many times at once, from both nodes. */
function everywhere(make: (index: number) => [method: string, path: string, body?: unknown]): Promise<TestResponse[]> {
  const nodes = [api, second].map((node) => node.as(`Bearer ${tenant.user.accessToken}`))
  return Promise.all(
    Array.from({ length: AT_ONCE }, (_, index) => {
      const call = nodes[index % nodes.length] as Tenant['call']
      return call(...make(index))
    }),
  )
}

const oneWins = (success: number) => [success, ...Array.from({ length: AT_ONCE - 1 }, () => 409)]
const allWin = (success: number) => Array.from({ length: AT_ONCE }, () => success)

async function countOf(query: Promise<{ rows: { total: number }[] }>): Promise<number> {
  return (await query).rows[0]?.total ?? 0
}

test('exactly one of concurrent creations with one id, secret, route or alias succeeds', async () => {
  const at = `/${tenant.domainId}`
  const [id, secret, route, alias, domainId] = [
    newId(),
    newId(),
    `r-${newId().slice(0, 8)}`,
    `a-${newId().slice(0, 8)}`,
    newId(),
  ]
  for (const [success, path, body] of [
    [201, `${at}/clients`, { id }],
    [201, `${at}/clients`, { credentials: { secret } }],
    [201, `${at}/channels`, { id }],
    [201, `${at}/channels`, { route }],
    [201, '/domains', { name: 'x', alias }],
    [201, '/domains', { name: 'x', id: domainId }],
  ] as const)
    expect(statusesOf(await everywhere(() => ['POST', path, body])), path).toEqual(oneWins(success))
})

test('exactly one of concurrent registrations with one email, username or name succeeds', async () => {
  for (const shared of ['email', 'username', 'first_name'] as const) {
    const value = `same-${newId().slice(0, 8)}`
    const answers = await everywhere((index) => {
      const mark = `${newId().slice(0, 8)}-${index}`
      const credentials = { username: shared === 'username' ? value : `u-${mark}`, secret: 'correct horse' }
      const email = shared === 'email' ? `${value}@example.com` : `${mark}@example.com`
      const names = { first_name: shared === 'first_name' ? value : `F ${mark}`, last_name: `L ${mark}` }
      return ['POST', '/users', { ...names, email, credentials }]
    })
    expect(statusesOf(answers), shared).toEqual(oneWins(201))
  }
})

test('exactly one of concurrent bulks that share an item, in any order, succeeds and the others leave nothing', async () => {
  const shared = Array.from({ length: 5 }, () => newId())
  const total = () =>
    countOf(
      sql<{ total: number }>`SELECT count(*) AS total FROM clients c JOIN domains d ON d.key = c.domain_key
      WHERE d.id = ${tenant.domainId}::uuid`.execute(api.database.db),
    )
  const before = await total()
  const answers = await everywhere((index) => {
    const ids = index % 2 === 0 ? shared : shared.toReversed()
    return ['POST', `/${tenant.domainId}/clients/bulk`, [{}, ...ids.map((id) => ({ id })), {}]]
  })
  expect(statusesOf(answers)).toEqual(oneWins(200))
  expect((await total()) - before).toBe(7)
})

test('at most one of concurrent bulks that share a secret and an id crosswise succeeds, and none hangs', async () => {
  const [id, secret] = [newId(), newId()]
  const answers = await everywhere((index) => {
    const items = [{ id }, { credentials: { secret } }]
    return ['POST', `/${tenant.domainId}/clients/bulk`, index % 2 === 0 ? items : items.toReversed()]
  })
  // Each refusal tells that a secret is taken, and a user may learn that ten times a minute.
  const statuses = statusesOf(answers)
  expect(statuses.filter((status) => status === 200)).toHaveLength(1)
  for (const status of statuses) expect([200, 409, 429]).toContain(status)
  tenant = await newTenant(api)
})

test('concurrent connections of the same pairs, in any order, are 201 for all and one row for each pair', async () => {
  const clients = (
    await tenant.call(
      'POST',
      `/${tenant.domainId}/clients/bulk`,
      Array.from({ length: 20 }, () => ({})),
    )
  ).json<{ clients: { id: string }[] }>().clients
  const channels = (
    await tenant.call(
      'POST',
      `/${tenant.domainId}/channels/bulk`,
      Array.from({ length: 10 }, () => ({})),
    )
  ).json<{ channels: { id: string }[] }>().channels
  const clientIds = clients.map((client) => client.id)
  const channelIds = channels.map((channel) => channel.id)
  const rows = () =>
    countOf(
      sql<{ total: number }>`SELECT count(*) AS total FROM connections n JOIN clients c ON c.key = n.client_key
      WHERE c.id = ANY (${clientIds}::uuid[])`.execute(api.database.db),
    )
  const turned = (index: number) => ({
    client_ids: index % 2 === 0 ? clientIds : clientIds.toReversed(),
    channel_ids: index % 3 === 0 ? channelIds : channelIds.toReversed(),
    types: [index % 2 === 0 ? 'publish' : 'subscribe'],
  })
  const connected = await everywhere((index) => ['POST', `/${tenant.domainId}/channels/connect`, turned(index)])
  expect(statusesOf(connected)).toEqual(allWin(201))
  expect(await rows()).toBe(200)
  const { rows: types } = await sql<{ types: number }>`SELECT DISTINCT types FROM connections n
    JOIN clients c ON c.key = n.client_key WHERE c.id = ANY (${clientIds}::uuid[])`.execute(api.database.db)
  expect(types).toEqual([{ types: 3 }])
  const parted = await everywhere((index) => ['POST', `/${tenant.domainId}/channels/disconnect`, turned(index)])
  expect(statusesOf(parted)).toEqual(allWin(204))
  expect(await rows()).toBe(0)
})

test('concurrent connecting, disconnecting and deleting ends, and leaves no connection of deleted entities', async () => {
  for (let round = 0; round < 3; round++) {
    const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
    const pair = { client_ids: [client.id], channel_ids: [channel.id] }
    const at = `/${tenant.domainId}`
    const answers = await everywhere((index) => {
      if (index === 5) return ['DELETE', `${at}/clients/${client.id}`]
      if (index === 7) return ['DELETE', `${at}/channels/${channel.id}`]
      return ['POST', `${at}/channels/${index % 2 === 0 ? 'connect' : 'disconnect'}`, pair]
    })
    for (const { status } of answers) expect([200, 201, 204, 422]).toContain(status)
    const left = sql<{ total: number }>`SELECT count(*) AS total FROM connections n
      LEFT JOIN clients c ON c.key = n.client_key LEFT JOIN channels h ON h.key = n.channel_key
     WHERE c.key IS NULL OR h.key IS NULL`.execute(api.database.db)
    expect(await countOf(left)).toBe(0)
    const { secret } = client.credentials
    expect(await publish(api, { secret, domain: tenant.domainId, channel: channel.id })).toBe(401)
  }
})

test('concurrent PUT of one pair, with the domain in the path and without, is 201 for all and one row', async () => {
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  const pair = `/channels/${channel.id}/clients/${client.id}`
  const answers = await everywhere((index) => ['PUT', index % 3 === 0 ? pair : `/${tenant.domainId}${pair}`])
  expect(statusesOf(answers)).toEqual(allWin(201))
  const records = new Set(answers.map((answer) => answer.text))
  expect(records.size).toBe(1)
  const rows = sql<{ total: number }>`SELECT count(*) AS total FROM connections n JOIN clients c ON c.key = n.client_key
    WHERE c.id = ${client.id}`.execute(api.database.db)
  expect(await countOf(rows)).toBe(1)
})

test('exactly one of concurrent different parents is set; the same parent succeeds for all', async () => {
  for (const type of ['client', 'channel'] as const) {
    const groups = await Promise.all(Array.from({ length: AT_ONCE }, () => newGroup(api, tenant.domainId)))
    const [entity, other] =
      type === 'client'
        ? [await tenant.newClient(), await tenant.newClient()]
        : [await tenant.newChannel(), await tenant.newChannel()]
    const at = (id: string) => `/${tenant.domainId}/${type}s/${id}`
    const answers = await everywhere((index) => ['POST', `${at(entity.id)}/parent`, { parent_group_id: groups[index] }])
    expect(statusesOf(answers)).toEqual(oneWins(200))
    const winner = answers.findIndex((answer) => answer.status === 200)
    expect((await tenant.call('GET', at(entity.id))).json()).toMatchObject({ parent_group_id: groups[winner] })
    const same = await everywhere(() => ['POST', `${at(other.id)}/parent`, { parent_group_id: groups[0] }])
    expect(statusesOf(same)).toEqual(allWin(200))
  }
})

test('setting, using and removing a parent while the group is deleted leaves nothing behind', async () => {
  for (let round = 0; round < 3; round++) {
    const group = await newGroup(api, tenant.domainId)
    const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
    const at = `/${tenant.domainId}`
    const answers = await everywhere((index) => {
      if (index === 6) return ['DELETE', `${at}/groups/${group}`]
      const body = { parent_group_id: group }
      switch (index % 5) {
        case 0:
          return ['POST', `${at}/clients/${client.id}/parent`, body]
        case 1:
          return ['POST', `${at}/channels/${channel.id}/parent`, body]
        case 2:
          return ['POST', `${at}/clients/bulk`, [body, body, {}]]
        case 3:
          return ['DELETE', `${at}/clients/${client.id}/parent`]
        default:
          return ['POST', `${at}/channels`, body]
      }
    })
    for (const { status, text } of answers) expect([200, 201, 204, 422], text).toContain(status)
    const left = sql<{ total: number }>`SELECT count(*) AS total FROM clients c JOIN domains d ON d.key = c.domain_key
      WHERE d.id = ${tenant.domainId} AND c.parent_group_key IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM groups g WHERE g.key = c.parent_group_key)`.execute(api.database.db)
    expect(await countOf(left)).toBe(0)
    const viewed = (await tenant.call('GET', `${at}/clients/${client.id}`)).json()
    expect(viewed).not.toHaveProperty('parent_group_id')
  }
})

test('concurrent changing, disabling and deleting of one client deletes it completely', async () => {
  const client = await tenant.newClient()
  const at = `/${tenant.domainId}/clients/${client.id}`
  const answers = await everywhere((index) => {
    if (index === 4) return ['DELETE', at]
    if (index % 3 === 0) return ['PATCH', `${at}/secret`, { secret: `secret-${newId()}` }]
    if (index % 3 === 1) return ['POST', `${at}/${index % 2 === 0 ? 'enable' : 'disable'}`]
    return ['PATCH', at, { name: `n${index}` }]
  })
  for (const { status } of answers) expect([200, 404]).toContain(status)
  expect((await tenant.call('GET', at)).status).toBe(404)
  const left = sql<{ total: number }>`SELECT count(*) AS total FROM grants g WHERE g.entity_type = 'client'
    AND NOT EXISTS (SELECT 1 FROM clients c WHERE c.key = g.entity_key)`.execute(api.database.db)
  expect(await countOf(left)).toBe(0)
})

test('exactly one of concurrent deletions finds the entity', async () => {
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  const clientAnswers = await everywhere(() => ['DELETE', `/${tenant.domainId}/clients/${client.id}`])
  expect(statusesOf(clientAnswers)).toEqual([200, ...Array.from({ length: AT_ONCE - 1 }, () => 404)])
  const channelAnswers = await everywhere(() => ['DELETE', `/${tenant.domainId}/channels/${channel.id}`])
  expect(statusesOf(channelAnswers)).toEqual([204, ...Array.from({ length: AT_ONCE - 1 }, () => 404)])
})

test('concurrent changes of one record all succeed, and the record is one of them', async () => {
  const client = await tenant.newClient()
  const answers = await everywhere((index) => [
    'PATCH',
    `/${tenant.domainId}/clients/${client.id}`,
    { name: `n${index}`, tags: [`n${index}`] },
  ])
  expect(statusesOf(answers)).toEqual(allWin(200))
  const after = (await tenant.call('GET', `/${tenant.domainId}/clients/${client.id}`)).json<{
    name: string
    tags: string[]
  }>()
  expect(after.tags).toEqual([after.name])
})

test('a member with many entities who connects and lists concurrently starves no other caller', async () => {
  // Twice as many calls as a node has connections: a call that needed a second one while it holds one would wait for ever.
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  const pair = { client_ids: [client.id], channel_ids: [channel.id] }
  const answers = await Promise.all(
    Array.from({ length: 24 }, (_, index) =>
      index % 2 === 0
        ? tenant.call('POST', `/${tenant.domainId}/channels/connect`, pair)
        : tenant.call('GET', `/${tenant.domainId}/clients`),
    ),
  )
  for (const { status } of answers) expect([200, 201]).toContain(status)
})
