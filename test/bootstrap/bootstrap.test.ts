/** Bootstrap configurations and their retrieval by the device, plain and secure (contract 9.1). */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { newId } from '#core/ids.ts'
import { grantRole, newTenant, publish, read } from '../api/support.ts'
import type { Channel, Client } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestResponse } from '../harness/api.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'

const ENCRYPT_KEY = 'v7aT0HGxJxt2gULzr3RHwf4WIf6DusPp'

type Config = {
  client_id: string
  client_secret: string
  channels: { id: string; name: string; metadata: Record<string, unknown> }[]
  external_id: string
  external_key: string
  content: string
  name: string
  state: number
}

const api = useWorld(() => startTestApi({ environment: { SKEIN_BOOTSTRAP_ENCRYPT_KEY: ENCRYPT_KEY } }))
const tenant = useWorld(() => newTenant(api))
let client: Client
let channels: Channel[]

const at = (path: string) => `/${tenant.domainId}/clients${path}`

/** A configuration for a new client with two channels. */
async function newConfig(fields: Record<string, unknown> = {}) {
  client = await tenant.newClient({ name: 'pump' })
  channels = [
    await tenant.newChannel({ name: 'one', metadata: { type: 'control' } }),
    await tenant.newChannel({ name: 'two' }),
  ]
  const external = { external_id: newId(), external_key: newId() }
  const body = {
    client_id: client.id,
    channels: channels.map(({ id }) => id),
    name: 'config',
    content: '{"k":1}',
    client_cert: 'CERT',
    client_key: 'PRIVATE',
    ca_cert: 'CA',
    ...external,
    ...fields,
  }
  return { ...external, created: await tenant.call('POST', at('/configs'), body) }
}

const view = async (id = client.id) => (await tenant.call('GET', at(`/configs/${id}`))).json<Config>()
const setState = (state: unknown, id = client.id) => tenant.call('PUT', at(`/state/${id}`), { state })
const retrieve = (id: string, key: string): Promise<TestResponse> =>
  api.as(`Client ${key}`)('GET', `/clients/bootstrap/${id}`)
const send = (channel: number) =>
  publish(api, {
    secret: client.credentials.secret,
    domain: tenant.domainId,
    channel: (channels[channel] as Channel).id,
  })

describe('a bootstrap configuration', () => {
  it('is created inactive, with 201, no body and its Location', async () => {
    const { created, external_id, external_key } = await newConfig()
    expect(created.status, created.text).toBe(201)
    expect(created.text).toBe('')
    expect(created.headers['location']).toBe(`/clients/configs/${client.id}`)
    expect(await view()).toMatchObject({
      client_id: client.id,
      client_secret: client.credentials.secret,
      external_id,
      external_key,
      name: 'config',
      content: '{"k":1}',
      state: 0,
      client_cert: 'CERT',
      ca_cert: 'CA',
      channels: channels.map(({ id, name, metadata }) => ({ id, name, metadata })),
    })
    expect((await tenant.call('GET', at(`/configs/${client.id}`))).text).not.toContain('PRIVATE')
  })

  it('creates a client when the request names none', async () => {
    const { created } = await newConfig({ client_id: '', name: 'made' })
    const id = String(created.headers['location']).split('/').at(-1)
    expect((await tenant.call('GET', at(`/${id}`))).json()).toMatchObject({ name: 'made' })
    expect(await view(id)).toMatchObject({ client_id: id, state: 0 })
  })

  it.each(['thing_id', 'mainflux_id', 'magistrala_id'])('accepts the client under its legacy name %s', async (name) => {
    const older = await tenant.newClient()
    const { created } = await newConfig({ client_id: undefined, [name]: older.id })
    expect(created.headers['location']).toBe(`/clients/configs/${older.id}`)
  })

  it.each([
    ['no external id', { external_id: undefined }, 400],
    ['an empty external key', { external_key: '' }, 400],
    ['no channels', { channels: undefined }, 400],
    ['an empty list of channels', { channels: [] }, 400],
    ['an unknown channel', { channels: [newId()] }, 400],
    ['a channel that is no id', { channels: ['x'] }, 400],
    ['an unknown client', { client_id: newId() }, 404],
  ])('is rejected with %s', async (_what, fields, status) => {
    const { total } = (await tenant.call('GET', at('?limit=1'))).json<{ total: number }>()
    const { created } = await newConfig(fields)
    expect(created.status).toBe(status)
    expect((await tenant.call('GET', at('?limit=1'))).json()).toMatchObject({ total: total + 1 })
  })

  it('is rejected for an existing external id in the domain and a client that has a configuration, and not for those of other domains', async () => {
    const { external_id, external_key } = await newConfig()
    const first = client
    expect((await newConfig({ external_id })).created.status).toBe(409)
    expect((await newConfig({ client_id: first.id })).created.status).toBe(409)
    const other = await newTenant(api)
    const channel = await other.newChannel()
    const again = (fields: object) =>
      other.call('POST', `/${other.domainId}/clients/configs`, {
        external_id,
        external_key,
        channels: [channel.id],
        ...fields,
      })
    // Inside a domain an external id is unique, whatever its key is.
    expect((await again({})).status).toBe(201)
    expect((await again({ external_key: 'another-key-of-theirs' })).status).toBe(409)
  })

  it('with a client and channels of another domain is rejected, and nothing is created', async () => {
    const other = await newTenant(api)
    await newConfig()
    const foreign = await other.newChannel()
    expect((await newConfig({ channels: [foreign.id] })).created.status).toBe(400)
    const theirs = await other.newClient()
    expect((await newConfig({ client_id: theirs.id })).created.status).toBe(404)
    expect((await other.call('GET', at(`/configs/${client.id}`))).status).toBe(403)
    expect((await other.call('GET', `/${other.domainId}/clients/configs/${client.id}`)).status).toBe(404)
  })

  it('is listed by state, name, external id, client and channel', async () => {
    const { external_id } = await newConfig({ name: 'Findable' })
    await setState(1)
    const list = async (query: string) =>
      (await tenant.call('GET', at(`/configs?${query}`))).json<{ total: number; configs: Config[] }>()
    for (const query of [
      `external_id=${external_id}`,
      `client_id=${client.id}`,
      `channel=${channels[0]?.id}`,
      'name=findab',
      'state=1',
    ])
      expect(
        (await list(query)).configs.map((one) => one.client_id),
        query,
      ).toEqual([client.id])
    expect((await list('state=0')).configs.some((one) => one.client_id === client.id)).toBe(false)
    expect((await list('limit=2&offset=1')).configs).toHaveLength(2)
    expect((await tenant.call('GET', at('/configs?limit=101'))).status).toBe(400)
    expect(JSON.stringify(await list('limit=100'))).not.toContain('PRIVATE')
    await setState(0)
  })

  it('is shown only to members who may update its client, in lists too, because it has secrets', async () => {
    const name = newId()
    await newConfig({ name })
    const listedTo = async (actions: readonly string[]) => {
      const member = await api.newUser()
      await grantRole(api, member.id, { type: 'domain', domainId: tenant.domainId, id: tenant.domainId }, ['read'])
      await grantRole(api, member.id, { type: 'client', domainId: tenant.domainId, id: client.id }, actions)
      const { status } = await member.call('GET', at(`/configs/${client.id}`))
      const page = await member.call('GET', at(`/configs?name=${name}`))
      return [status, page.json<{ total: number; configs: unknown[] }>().total, page.text.includes(client.id)]
    }
    expect(await listedTo(['read', 'delete'])).toEqual([403, 0, false])
    expect(await listedTo(['read', 'update'])).toEqual([200, 1, true])
  })

  it('changes its name and content, and its certificates without showing the key', async () => {
    await newConfig()
    const changed = await tenant.call('PUT', at(`/configs/${client.id}`), { name: 'new', content: 'text' })
    expect([changed.status, changed.text]).toEqual([200, ''])
    expect(await view()).toMatchObject({ name: 'new', content: 'text' })
    const certs = await tenant.call('PATCH', at(`/configs/certs/${client.id}`), {
      client_cert: 'C2',
      client_key: 'K2',
      ca_cert: 'A2',
    })
    expect(certs.json()).toEqual({ client_id: client.id, client_cert: 'C2', client_key: '', ca_cert: 'A2' })
  })

  it('is deleted, and its client stays; deleted with its client', async () => {
    const { external_id, external_key } = await newConfig()
    expect((await tenant.call('DELETE', at(`/configs/${client.id}`))).status).toBe(204)
    expect((await tenant.call('DELETE', at(`/configs/${client.id}`))).status).toBe(404)
    expect((await tenant.call('GET', at(`/${client.id}`))).status).toBe(200)
    expect((await retrieve(external_id, external_key)).status).toBe(404)
    const next = await newConfig()
    await tenant.call('DELETE', at(`/${client.id}`))
    expect((await retrieve(next.external_id, next.external_key)).status).toBe(404)
  })
})

describe('the state', () => {
  it('1 connects the client with all channels in both directions, 0 disconnects it; the same again changes nothing', async () => {
    await newConfig()
    expect(await send(0)).toBe(403)
    for (let twice = 0; twice < 2; twice++) expect((await setState(1)).status).toBe(200)
    await until(async () => (await send(0)) === 202 && (await send(1)) === 202, 'it may publish')
    expect(
      await read(api, { secret: client.credentials.secret, domain: tenant.domainId, channel: channels[0]?.id ?? '' }),
    ).toBe(200)
    for (let twice = 0; twice < 2; twice++) expect((await setState(0)).status).toBe(200)
    await until(async () => (await send(0)) === 403, 'it may not publish')
    for (const wrong of [2, -1, '1x', null]) expect((await setState(wrong)).status).toBe(400)
  })

  it('follows changes of the connections by other requests', async () => {
    await newConfig()
    await setState(1)
    const pair = { client_ids: [client.id], channel_ids: [channels[0]?.id] }
    await tenant.call('POST', `/${tenant.domainId}/channels/disconnect`, { ...pair, types: ['publish'] })
    expect((await view()).state).toBe(0)
    await tenant.call('POST', `/${tenant.domainId}/channels/connect`, pair)
    expect((await view()).state).toBe(1)
  })

  it('is also set by enable and disable', async () => {
    await newConfig()
    expect((await tenant.call('POST', at(`/configs/${client.id}/enable`))).json()).toMatchObject({ state: 1 })
    expect((await tenant.call('POST', at(`/configs/${client.id}/disable`))).json()).toMatchObject({ state: 0 })
  })

  it('does not become active with a disabled channel, and nothing is connected', async () => {
    await newConfig()
    await tenant.call('POST', `/${tenant.domainId}/channels/${channels[1]?.id}/disable`)
    expect((await setState(1)).status).toBe(422)
    expect((await view()).state).toBe(0)
    expect(await send(0)).toBe(403)
  })
})

describe('the channels of a configuration', () => {
  it('are replaced; while it is active connections follow', async () => {
    await newConfig()
    await setState(1)
    const third = await tenant.newChannel({ name: 'three' })
    const wanted = { channels: [third.id, channels[1]?.id] }
    expect((await tenant.call('PUT', at(`/configs/connections/${client.id}`), wanted)).status).toBe(200)
    expect(await view()).toMatchObject({ state: 1, channels: [{ id: third.id }, { id: channels[1]?.id }] })
    await until(async () => (await send(0)) === 403, 'the old channel is disconnected')
    channels = [third]
    await until(async () => (await send(0)) === 202, 'the new channel is connected')
    expect((await tenant.call('PUT', at(`/configs/connections/${client.id}`), { channels: [] })).status).toBe(400)
    expect((await tenant.call('PUT', at(`/configs/connections/${client.id}`), { channels: [newId()] })).status).toBe(
      400,
    )
  })

  it('are renamed and deleted with the channels themselves', async () => {
    await newConfig()
    await tenant.call('PATCH', `/${tenant.domainId}/channels/${channels[0]?.id}`, { name: 'renamed' })
    expect((await view()).channels[0]).toMatchObject({ name: 'renamed' })
    await tenant.call('DELETE', `/${tenant.domainId}/channels/${channels[0]?.id}`)
    expect((await view()).channels.map(({ id }) => id)).toEqual([channels[1]?.id])
  })
})

describe('the device', () => {
  it('gets its complete configuration for its external id and key, active or not', async () => {
    const { external_id, external_key } = await newConfig()
    const answer = await retrieve(external_id, external_key)
    expect(answer.status).toBe(200)
    expect(answer.json()).toMatchObject({
      client_id: client.id,
      client_secret: client.credentials.secret,
      thing_id: client.id,
      mainflux_key: client.credentials.secret,
      content: '{"k":1}',
      client_cert: 'CERT',
      client_key: 'PRIVATE',
      ca_cert: 'CA',
      channels: channels.map(({ id, name, metadata }) => ({ id, name, metadata })),
    })
    expect((await api.as(`Client ${external_key}`)('GET', `/things/bootstrap/${external_id}`)).json()).toEqual(
      answer.json(),
    )
  })

  it('is rejected without key (401), with a wrong key (403), with an unknown id (404) and without an id (400)', async () => {
    const { external_id, external_key } = await newConfig()
    expect((await api.anonymous('GET', `/clients/bootstrap/${external_id}`)).status).toBe(401)
    expect((await api.as(`Bearer ${external_key}`)('GET', `/clients/bootstrap/${external_id}`)).status).toBe(401)
    expect((await retrieve(external_id, 'wrong')).status).toBe(403)
    expect((await retrieve(newId(), external_key)).status).toBe(404)
    expect((await api.anonymous('GET', '/clients/bootstrap')).status).toBe(400)
    await tenant.call('POST', at(`/${client.id}/disable`))
    expect((await retrieve(external_id, external_key)).status).toBe(403)
  })

  it('gets the new secret after a change of it', async () => {
    const { external_id, external_key } = await newConfig()
    await tenant.call('PATCH', at(`/${client.id}/secret`), { secret: 'a-new-secret-of-the-pump' })
    expect((await retrieve(external_id, external_key)).json()).toMatchObject({
      client_secret: 'a-new-secret-of-the-pump',
    })
  })

  it('gets the configuration that matches its key when several domains use the same external id', async () => {
    const { external_id, external_key } = await newConfig()
    const other = await newTenant(api)
    const channel = await other.newChannel()
    const body = { external_id, external_key: 'a-key-that-is-theirs', channels: [channel.id], content: 'theirs' }
    await other.call('POST', `/${other.domainId}/clients/configs`, body)
    expect((await retrieve(external_id, external_key)).json()).toMatchObject({ content: '{"k":1}' })
    expect((await retrieve(external_id, 'a-key-that-is-theirs')).json()).toMatchObject({ content: 'theirs' })
  })
})

describe('the secure variant', () => {
  const encrypt = (text: string) => {
    const iv = randomBytes(16)
    const cipher = createCipheriv('aes-256-cfb', ENCRYPT_KEY, iv)
    return Buffer.concat([iv, cipher.update(text), cipher.final()]).toString('hex')
  }
  const ask = (externalId: string, key: string) =>
    api.app.inject({ url: `/clients/bootstrap/secure/${externalId}`, headers: { authorization: `Client ${key}` } })

  it('accepts the encrypted key and returns an encrypted response, IV first', async () => {
    const { external_id, external_key } = await newConfig()
    const answer = await ask(external_id, encrypt(external_key))
    expect(answer.statusCode).toBe(200)
    expect(answer.headers['content-type']).toBe('application/octet-stream+json')
    const bytes = answer.rawPayload
    const decipher = createDecipheriv('aes-256-cfb', ENCRYPT_KEY, bytes.subarray(0, 16))
    const text = Buffer.concat([decipher.update(bytes.subarray(16)), decipher.final()]).toString()
    expect(JSON.parse(text)).toEqual((await retrieve(external_id, external_key)).json())
  })

  it('rejects a key that cannot be decrypted, or decrypts to a wrong key, with 403', async () => {
    const { external_id, external_key } = await newConfig()
    for (const key of [external_key, 'zz', 'ab', encrypt(''), encrypt('wrong'), encrypt(external_key).slice(0, -2)])
      expect((await ask(external_id, key)).statusCode, key).toBe(403)
  })

  it('is off without a key: 404', async () => {
    await using other = await startTestApi()
    expect((await other.as('Client 00')('GET', '/clients/bootstrap/secure/x')).status).toBe(404)
  })

  it('refuses to start with a key of another length', async () => {
    const starting = startTestApi({ environment: { SKEIN_BOOTSTRAP_ENCRYPT_KEY: 'short' } })
    await expect(starting).rejects.toThrow('SKEIN_BOOTSTRAP_ENCRYPT_KEY must be 32 bytes')
  })
})

describe('secrets', () => {
  it('of configurations are stored encrypted in the database and do not appear in the journal', async () => {
    const { external_key } = await newConfig({ client_key: 'VERY-PRIVATE-KEY' })
    const dump = async (table: string) =>
      JSON.stringify((await api.database.pool.query(`SELECT row_to_json(t)::text FROM ${table} t`)).rows)
    for (const table of ['bootstrap_configs', 'journal']) {
      expect(await dump(table), table).not.toContain(external_key)
      expect(await dump(table), table).not.toContain('VERY-PRIVATE-KEY')
    }
  })
})
