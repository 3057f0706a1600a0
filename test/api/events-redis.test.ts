// contract section 10: the journal as Redis streams, for consumers of both generations; nothing is lost while Redis is away
import { createClient } from 'redis'
import { describe, expect, test } from 'vitest'
import type { TestApi } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { createTestDatabase } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { RedisServer, hasRedisServer } from '../core/redis-server.ts'
import { newTenant } from './support.ts'

type Entry = Record<string, string>

/** All entries of a stream. */
async function entriesOf(server: RedisServer, stream: string): Promise<Entry[]> {
  const client = createClient({ url: server.url })
  client.on('error', () => undefined)
  await client.connect()
  try {
    return ((await client.xRange(stream, '-', '+')) ?? []).map(({ message }) => ({ ...message }))
  } finally {
    client.destroy()
  }
}

const arrived = (server: RedisServer, stream: string, count: number) =>
  until(async () => {
    const entries = await entriesOf(server, stream)
    return entries.length >= count ? entries : undefined
  }, `${count} entries in ${stream}`)

const startWith = (server: RedisServer, environment: Record<string, string> = {}): Promise<TestApi> =>
  startTestApi({ environment: { SKEIN_REDIS_URL: server.url, ...environment } })

describe.skipIf(!hasRedisServer())('events in Redis streams (needs redis-server)', { timeout: 120_000 }, () => {
  test('a change is in the stream of its service and in the stream of its operation, flat', async () => {
    await using server = await RedisServer.start()
    await using api = await startWith(server)
    const tenant = await newTenant(api)
    const client = await tenant.newClient({ name: 'pump', tags: ['a'], metadata: { b: 1 } })
    const { call, domainId } = tenant
    await call('PATCH', `/${domainId}/clients/${client.id}`, { name: 'new' }, { 'x-request-id': 'request-9' })
    await call('POST', `/${domainId}/clients/${client.id}/disable`)
    const older = await arrived(server, 'events.skein.clients', 3)
    expect(older.map(({ operation }) => operation)).toEqual(['client.create', 'client.update', 'client.change_status'])
    expect(older[0]).toMatchObject({
      id: client.id,
      name: 'pump',
      tags: '["a"]',
      metadata: '{"b":1}',
      domain: domainId,
      user_id: tenant.user.id,
      token_type: 'access token',
      super_admin: 'false',
    })
    expect(older[0]?.['occurred_at']).toMatch(/^\d{19}$/)
    expect(older[1]).toMatchObject({ id: client.id, name: 'new', request_id: 'request-9' })
    expect(older[2]).toMatchObject({ id: client.id, status: 'disabled' })
    expect(await arrived(server, 'events.skein.client.create', 1)).toMatchObject([{ id: client.id }])
    expect(await arrived(server, 'events.skein.client.disable', 1)).toMatchObject([
      { id: client.id, status: 'disabled', operation: 'client.disable' },
    ])
    await arrived(server, 'events.skein.domains', 1)
    await arrived(server, 'events.skein.user.issue_token', 1)
    const everything = JSON.stringify(await entriesOf(server, 'events.skein.users'))
    for (const secret of [tenant.user.secret, tenant.user.accessToken, client.credentials.secret])
      expect(everything).not.toContain(secret)
  })

  test('each entity of a bulk has an event of its own', async () => {
    await using server = await RedisServer.start()
    await using api = await startWith(server)
    const tenant = await newTenant(api)
    const bulk = await tenant.call(
      'POST',
      `/${tenant.domainId}/clients/bulk`,
      Array.from({ length: 300 }, () => ({})),
    )
    const ids = bulk.json<{ clients: { id: string }[] }>().clients.map(({ id }) => id)
    const entries = await arrived(server, 'events.skein.client.create', ids.length)
    expect(entries.map(({ id }) => id)).toEqual(ids)
    expect(entries.every((entry) => entry['ids'] === undefined)).toBe(true)
  })

  test('events from a time without Redis arrive when it is back, in order and complete', async () => {
    await using server = await RedisServer.start()
    await using api = await startWith(server)
    const tenant = await newTenant(api)
    const client = await tenant.newClient()
    await arrived(server, 'events.skein.client.create', 1)
    await server.kill()
    const rename = (name: string) => tenant.call('PATCH', `/${tenant.domainId}/clients/${client.id}`, { name })
    for (let index = 0; index < 20; index++) expect((await rename(`name ${index}`)).status).toBe(200)
    await server.begin()
    const entries = await arrived(server, 'events.skein.client.update', 20)
    const names = [...new Set(entries.map(({ name }) => name))]
    expect(names).toEqual(Array.from({ length: 20 }, (_, index) => `name ${index}`))
  }, 120_000)

  test('two nodes publish each change once, and one continues when the other stops', async () => {
    await using server = await RedisServer.start()
    await using database = await createTestDatabase()
    const environment = { SKEIN_REDIS_URL: server.url }
    const one = await startTestApi({ database, environment })
    await using two = await startTestApi({ database, environment })
    const tenant = await newTenant(one)
    const made: string[] = []
    for (let index = 0; index < 20; index++) made.push((await tenant.newClient()).id)
    await arrived(server, 'events.skein.client.create', made.length)
    await one[Symbol.asyncDispose]()
    const other = await newTenant(two)
    for (let index = 0; index < 5; index++) made.push((await other.newClient()).id)
    const entries = await arrived(server, 'events.skein.client.create', made.length)
    expect(entries.map(({ id }) => id)).toEqual(made)
    const positions = entries.map((entry) => entry['event_id'])
    expect(new Set(positions).size).toBe(made.length)
  })

  test('a stream keeps about as many events as the setting says; with 0 nothing is sent', async () => {
    await using server = await RedisServer.start()
    await using api = await startWith(server, { SKEIN_EVENT_STREAM_LENGTH: '50' })
    const tenant = await newTenant(api)
    await tenant.call(
      'POST',
      `/${tenant.domainId}/clients/bulk`,
      Array.from({ length: 1000 }, () => ({})),
    )
    const last = await tenant.newClient()
    await until(
      async () => (await entriesOf(server, 'events.skein.client.create')).some(({ id }) => id === last.id),
      'the last one',
    )
    // Redis trims whole nodes of 100 entries.
    expect((await entriesOf(server, 'events.skein.client.create')).length).toBeLessThan(300)
    await using silent = await RedisServer.start()
    await using other = await startWith(silent, { SKEIN_EVENT_STREAM_LENGTH: '0' })
    await (await newTenant(other)).newClient()
    expect(await entriesOf(silent, 'events.skein.clients')).toEqual([])
  })
})
