/** Provisioning: everything a device needs in one call, or nothing (specification section 4 Provision service, contract 9.2). */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { newId } from '#core/ids.ts'
import { grantRole, publish, statusesOf, newTenant } from '../api/support.ts'
import type { Tenant } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi, TestResponse } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'

type Mapping = {
  clients: { id: string; name: string; key: string; metadata: Record<string, string> }[]
  channels: { id: string; name: string; metadata: Record<string, string> }[]
  whitelisted: Record<string, boolean>
  client_cert?: Record<string, string>
  client_key?: Record<string, string>
  ca_cert?: string
}

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))
let folder: string

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'skein-layout-'))
})
afterAll(async () => {
  rmSync(folder, { recursive: true })
})

const external = () => ({ external_id: newId(), external_key: newId() })

function layoutFile(text: string): string {
  const path = join(folder, `${newId()}.toml`)
  writeFileSync(path, text)
  return path
}

/** Rows of every table that a call of /mapping may write. */
async function countRows(of: TestApi): Promise<Record<string, number>> {
  const counts: Record<string, number> = {}
  for (const table of TABLES) {
    const { rows } = await of.database.pool.query<{ count: number }>(`SELECT count(*) AS count FROM ${table}`)
    counts[table] = rows[0]?.count ?? 0
  }
  return counts
}

const TABLES = [
  'clients',
  'channels',
  'grants',
  'connections',
  'bootstrap_configs',
  'bootstrap_channels',
  'certificates',
  'journal',
] as const

describe('the built-in layout', () => {
  it('creates one client and the channels control and data, connected and whitelisted', async () => {
    const order = external()
    const answer = await tenant.call('POST', '/mapping', { ...order, name: 'gate' })
    expect(answer.status, answer.text).toBe(200)
    const { clients, channels, whitelisted } = answer.json<Mapping>()
    expect(clients).toHaveLength(1)
    const [client] = clients as [Mapping['clients'][number]]
    expect(client.name).toBe('gate')
    expect(client.metadata['external_id']).toBe(order.external_id)
    expect(channels.map(({ name, metadata }) => [name, metadata['type']])).toEqual([
      ['gate_control-channel', 'control'],
      ['gate_data-channel', 'data'],
    ])
    expect(whitelisted).toEqual({ [client.id]: true })
    expect(answer.json()).not.toHaveProperty('client_cert')
    for (const { id } of channels)
      expect(await publish(api, { secret: client.key, domain: tenant.domainId, channel: id })).toBe(202)
    const stored = await tenant.call('GET', `/${tenant.domainId}/clients/${client.id}`)
    expect(stored.json()).toMatchObject({
      metadata: {
        ...order,
        type: 'gateway',
        ctrl_channel_id: channels[0]?.id,
        data_channel_id: channels[1]?.id,
        cfg_id: client.id,
      },
    })
    const device = await api.as(`Client ${order.external_key}`)('GET', `/clients/bootstrap/${order.external_id}`)
    expect(device.json()).toMatchObject({
      client_id: client.id,
      client_secret: client.key,
      channels: channels.map(({ id }) => ({ id })),
    })
  })

  it('returns 201 with the domain in the path, and returns no entities that were not requested', async () => {
    const answer = await tenant.call('POST', `/${tenant.domainId}/mapping`, external())
    expect(answer.status).toBe(201)
    expect(answer.json<Mapping>().channels.map(({ name }) => name)).toEqual(['control-channel', 'data-channel'])
  })

  it('returns 409 for a repeated external id and changes nothing', async () => {
    const order = external()
    await tenant.call('POST', '/mapping', order)
    const before = await countRows(api)
    for (const again of [order, { ...order, external_key: 'another-key-of-theirs' }])
      expect((await tenant.call('POST', '/mapping', again)).status).toBe(409)
    expect(await countRows(api)).toEqual(before)
  })

  it('creates the client once for concurrent requests with one external id', async () => {
    const order = external()
    const answers = await Promise.all(Array.from({ length: 6 }, () => tenant.call('POST', '/mapping', order)))
    expect(statusesOf(answers)).toEqual([200, 409, 409, 409, 409, 409])
  })

  it('responds to all concurrent requests when they outnumber the database connections', async () => {
    const others = await Promise.all(Array.from({ length: 3 }, () => newTenant(api)))
    const calls = others.flatMap((one) => Array.from({ length: 10 }, () => one.call('POST', '/mapping', external())))
    const refused = others.flatMap((one) =>
      Array.from({ length: 10 }, () => one.call('POST', `/${tenant.domainId}/mapping`, external())),
    )
    expect(new Set(statusesOf(await Promise.all(calls)))).toEqual(new Set([200]))
    expect(new Set(statusesOf(await Promise.all(refused)))).toEqual(new Set([403]))
  })

  it.each([
    ['no external id', { external_key: 'k' }, 400],
    ['no external key', { external_id: 'i' }, 400],
    ['an empty external id', { external_id: '', external_key: 'k' }, 400],
  ])('refuses %s', async (_what, body, status) => {
    expect((await tenant.call('POST', '/mapping', body)).status).toBe(status)
  })

  it('checks 401, 415, 400 and 403 in this order', async () => {
    const body = JSON.stringify(external())
    expect((await api.anonymous('POST', '/mapping', body)).status).toBe(401)
    expect((await api.as('Bearer wrong')('POST', '/mapping', body)).status).toBe(401)
    expect((await tenant.call('POST', '/mapping', body, { 'content-type': 'text/plain' })).status).toBe(415)
    const other = await newTenant(api)
    expect((await other.call('POST', `/${tenant.domainId}/mapping`, external())).status).toBe(403)
    expect((await other.call('GET', `/${tenant.domainId}/mapping`)).status).toBe(403)
  })

  it('never writes the external key into the journal', async () => {
    const order = external()
    await tenant.call('POST', '/mapping', order)
    const { rows } = await api.database.pool.query('SELECT row_to_json(j)::text AS row FROM journal j')
    expect(JSON.stringify(rows)).not.toContain(order.external_key)
    expect(JSON.stringify(rows)).toContain(order.external_id)
  })
})

describe('a failure at any step leaves nothing behind', () => {
  let failing: TestApi
  let owner: Tenant
  const run = (text: string) => failing.database.pool.query(text)

  beforeAll(async () => {
    failing = await startTestApi({ environment: { SKEIN_PROVISION_X509_PROVISIONING: 'true' } })
    owner = await newTenant(failing)
    await run(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$`)
  })
  afterAll(() => failing[Symbol.asyncDispose]())

  const DEFERRED = 'DEFERRABLE INITIALLY DEFERRED'
  it.each([
    ...TABLES.map((table) => [`when ${table} cannot be written`, table, ''] as const),
    ['when the transaction cannot be committed', 'clients', DEFERRED] as const,
  ])('%s', async (_when, table, timing) => {
    const constraint = timing === '' ? '' : 'CONSTRAINT'
    await run(
      `CREATE ${constraint} TRIGGER refuse AFTER INSERT ON ${table} ${timing} FOR EACH ROW EXECUTE FUNCTION refuse()`,
    )
    const before = await countRows(failing)
    const order = external()
    expect((await owner.call('POST', '/mapping', order)).status).toBe(500)
    expect(await countRows(failing)).toEqual(before)
    await run(`DROP TRIGGER refuse ON ${table}`)
    const answer = await owner.call('POST', '/mapping', order)
    expect(answer.status, answer.text).toBe(200)
    const after = await countRows(failing)
    for (const name of TABLES) expect(after[name], name).toBeGreaterThan(before[name] ?? 0)
  })
})

describe('a layout file', () => {
  const LAYOUT = `
file = "ignored.toml"
[server]
port = "9016"
log_level = "debug"
[bootstrap]
provision = true
autowhite_list = false
x509_provision = true
[bootstrap.content]
edgex = { url = "http://localhost:48090" }
[bootstrap.content.agent.server]
port = "9999"
[cert]
ttl = "10h"
[[clients]]
name = "gateway"
[clients.metadata]
external_id = "xxxxxx"
room = "hall 2"
[[clients]]
name = "sensor"
[[channels]]
name = "control"
[channels.metadata]
type = "control"
[[channels]]
name = "export"
[channels.metadata]
type = "export"
`
  it('defines the clients, channels, certificates and content that are created', async () => {
    const environment = { SKEIN_PROVISION_LAYOUT: layoutFile(LAYOUT) }
    await using other = await startTestApi({ environment })
    const owner = await newTenant(other)
    const order = external()
    const answer = await owner.call('POST', `/${owner.domainId}/mapping`, order)
    const { clients, channels, whitelisted, client_cert, client_key, ca_cert } = answer.json<Mapping>()
    expect(clients.map(({ name }) => name)).toEqual(['gateway', 'sensor'])
    const [gateway, sensor] = clients as [Mapping['clients'][number], Mapping['clients'][number]]
    expect(gateway.metadata).toMatchObject({
      room: 'hall 2',
      external_id: order.external_id,
      export_channel_id: channels[1]?.id,
    })
    expect(sensor.metadata).toEqual({})
    expect(whitelisted).toEqual({})
    expect(Object.keys(client_cert ?? {})).toEqual([gateway.id])
    expect(client_key?.[gateway.id]).toContain('BEGIN PRIVATE KEY')
    const content = { edgex: { url: 'http://localhost:48090' }, agent: { server: { port: '9999' } } }
    expect((await owner.call('GET', `/${owner.domainId}/mapping`)).json()).toEqual(content)
    expect((await owner.call('GET', '/mapping')).json()).toEqual(content)
    expect((await other.anonymous('GET', '/mapping')).status).toBe(401)
    const device = await other.as(`Client ${order.external_key}`)('GET', `/clients/bootstrap/${order.external_id}`)
    expect(JSON.parse(device.json<{ content: string }>().content)).toEqual(content)
    expect(device.json()).toMatchObject({
      client_cert: client_cert?.[gateway.id],
      client_key: client_key?.[gateway.id],
      ca_cert,
    })
    // Not whitelisted: the gateway waits, everything else is connected.
    const channel = channels[0]?.id ?? ''
    expect(await publish(other, { secret: gateway.key, domain: owner.domainId, channel })).toBe(403)
    expect(await publish(other, { secret: sensor.key, domain: owner.domainId, channel })).toBe(202)
    await owner.call('PUT', `/${owner.domainId}/clients/state/${gateway.id}`, { state: 1 })
    expect((await owner.call('GET', `/${owner.domainId}/clients/configs/${gateway.id}`)).json()).toMatchObject({
      state: 1,
    })
  })

  it('is overridden by the settings of the environment', async () => {
    const environment = {
      SKEIN_PROVISION_CONFIG_FILE: layoutFile(LAYOUT),
      SKEIN_PROVISION_X509_PROVISIONING: 'false',
      SKEIN_PROVISION_BS_CONFIG_PROVISIONING: 'false',
    }
    await using other = await startTestApi({ environment })
    const owner = await newTenant(other)
    const order = external()
    const first = await owner.call('POST', '/mapping', order)
    expect(first.json()).not.toHaveProperty('client_cert')
    const { clients, channels } = first.json<Mapping>()
    expect(
      await publish(other, { secret: clients[0]?.key ?? '', domain: owner.domainId, channel: channels[0]?.id ?? '' }),
    ).toBe(202)
    expect(
      (await other.as(`Client ${order.external_key}`)('GET', `/clients/bootstrap/${order.external_id}`)).status,
    ).toBe(404)
    // Without a configuration the same external id is refused all the same.
    const before = await countRows(other)
    const answers = await Promise.all([1, 2, 3].map(() => owner.call('POST', '/mapping', order)))
    expect(answers.map(({ status }) => status)).toEqual([409, 409, 409])
    expect(await countRows(other)).toEqual(before)
  })
})

describe('calls without Authorization', () => {
  it('work with user and password of the settings, are limited to ten a minute for each address, and are recorded in the journal', async () => {
    const environment = { SKEIN_PROVISION_USER: 'admin', SKEIN_PROVISION_PASSWORD: 'the-first-admin' }
    await using other = await startTestApi({ environment })
    const owner = await newTenant(other)
    const from = async (address: string, body: unknown = external()): Promise<TestResponse> => {
      const answer = await other.app.inject({
        method: 'POST',
        url: `/${owner.domainId}/mapping`,
        payload: body as object,
        remoteAddress: address,
      })
      return {
        status: answer.statusCode,
        headers: answer.headers,
        text: answer.body,
        json: () => answer.json() as never,
      }
    }
    for (let count = 0; count < 10; count++) expect((await from('192.0.2.1')).status).toBe(201)
    const refused = await from('192.0.2.1')
    expect(refused.status).toBe(429)
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0)
    expect((await from('192.0.2.2')).status).toBe(201)
    const { rows } = await other.database.pool.query(
      "SELECT attributes FROM journal WHERE operation = 'provision.mapping'",
    )
    expect(rows).toHaveLength(11)
    expect(rows[0]).toMatchObject({ attributes: { credentials_of: 'service' } })
    // The header counts before the credentials of the service.
    expect((await other.as('Bearer wrong')('POST', '/mapping', external())).status).toBe(401)
    const logins = await other.database.pool.query("SELECT FROM journal WHERE operation = 'user.issue_token'")
    expect(logins.rowCount).toBeLessThanOrEqual(4)
  })

  it('work with an API key of the settings, in the domain of the settings', async () => {
    const key = (await tenant.call('POST', '/keys', { type: 3 })).json<{ value: string }>().value
    const environment = { SKEIN_PROVISION_API_KEY: key, SKEIN_PROVISION_DOMAIN_ID: tenant.domainId }
    await using other = await startTestApi({
      environment,
      database: {
        address: api.address as never,
        database: api.database,
        [Symbol.asyncDispose]: () => Promise.resolve(),
      },
    })
    const answer = await other.anonymous('POST', '/mapping', external())
    expect(answer.status, answer.text).toBe(200)
    expect(answer.json<{ clients: { domain_id: string }[] }>().clients[0]?.domain_id).toBe(tenant.domainId)
  })

  it('are rejected with wrong credentials in the settings', async () => {
    const environment = { SKEIN_PROVISION_USER: 'admin', SKEIN_PROVISION_PASSWORD: 'wrong' }
    await using other = await startTestApi({ environment })
    expect((await other.anonymous('POST', '/mapping', external())).status).toBe(401)
  })
})

describe('a member who may create clients and channels', () => {
  it('may provision; a member who may create only clients may not, and nothing is created', async () => {
    const domain = { type: 'domain' as const, domainId: tenant.domainId, id: tenant.domainId }
    const [full, half] = [await api.newUser(), await api.newUser()]
    await grantRole(api, full.id, domain, ['read', 'client_create', 'channel_create'])
    await grantRole(api, half.id, domain, ['read', 'client_create'])
    const answer = await full.call('POST', `/${tenant.domainId}/mapping`, external())
    expect(answer.status, answer.text).toBe(201)
    const before = await countRows(api)
    expect((await half.call('POST', `/${tenant.domainId}/mapping`, external())).status).toBe(403)
    expect(await countRows(api)).toEqual(before)
  })

  it('of several domains gets an error that names the scoped path', async () => {
    const owner = await api.newUser()
    for (const name of ['north of two', 'south of two']) await owner.call('POST', '/domains', { name })
    const answer = await owner.call('POST', '/mapping', external())
    expect(answer.status).toBe(400)
    expect(answer.json<{ message: string }>().message).toContain('POST /<domain_id>/mapping')
  })

  it('may read the content of the layout; a user without the right to provision may not, with any kind of token', async () => {
    const domain = { type: 'domain' as const, domainId: tenant.domainId, id: tenant.domainId }
    const [maker, reader, stranger] = [await api.newUser(), await api.newUser(), await api.newUser()]
    await grantRole(api, maker.id, domain, ['read', 'client_create'])
    await grantRole(api, reader.id, domain, ['read', 'client_read'])
    const pat = (await maker.call('POST', '/pats', { name: 'robot', duration: '1h' })).json<{ secret: string }>().secret
    for (const path of ['/mapping', `/${tenant.domainId}/mapping`]) {
      expect((await maker.call('GET', path)).status).toBe(200)
      for (const call of [reader.call, stranger.call, api.as(`Bearer ${pat}`)])
        expect((await call('GET', path)).status).toBe(403)
    }
  })
})

describe('a dry run', () => {
  it('reports every entity of the device, with the rules of the creation, and creates none', async () => {
    const device = external()
    const url = `/${tenant.domainId}/mapping`
    const before = await countRows(api)
    const tried = await tenant.call('POST', `${url}?dry_run=true`, device)
    expect(tried.status, tried.text).toBe(200)
    const report = tried.json<{ total: number; changes: { operation: string }[] }>()
    const operations = report.changes.map(({ operation }) => operation)
    expect(operations).toEqual(expect.arrayContaining(['client.create', 'channel.create', 'provision.mapping']))
    expect(report.total).toBe(operations.length)
    expect(tried.text).not.toContain(device.external_key)
    expect(await countRows(api)).toEqual(before)
    expect((await tenant.call('POST', url, device)).status).toBe(201)
    expect((await tenant.call('POST', `${url}?dry_run=true`, device)).status).toBe(409)
  })
})
