/** Profiles of bootstrap configurations: templates, slots, bindings, preview, enrolments (contract 9.1, decision 0037). */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { newId } from '#core/ids.ts'
import { tenantOf, newTenant } from '../api/support.ts'
import type { Channel, Client, Tenant } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestResponse } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'

const ENCRYPT_KEY = 'v7aT0HGxJxt2gULzr3RHwf4WIf6DusPp'

/** As agents of this platform family have it. */
const AGENT_TEMPLATE = `{
  "agent": {
    "domain_id": "{{.Device.DomainID}}",
    "channels": { "id": "{{.Bindings.mqtt_channel.Snapshot.id}}" },
    "mqtt": {
      "url": "{{.Vars.mqtt_url}}",
      "username": "{{.Bindings.device_client.Snapshot.id}}",
      "password": "{{.Bindings.device_client.Secret.secret}}",
      "qos": {{.Vars.qos}},
      "mtls": {{.Vars.mtls}}
    }
  }
}`
const SLOTS = [
  { name: 'device_client', type: 'client', required: true },
  { name: 'mqtt_channel', type: 'channel', required: true },
]

type Profile = { id: string; version: number; content_template: string; binding_slots: object[]; content_type: string }
type Listed = { total: number; offset: number; limit: number; profiles: Profile[] }

const api = useWorld(() => startTestApi({ environment: { SKEIN_BOOTSTRAP_ENCRYPT_KEY: ENCRYPT_KEY } }))
const tenant = useWorld(() => newTenant(api))
let other: Tenant
let client: Client
let channel: Channel

beforeAll(async () => {
  other = await newTenant(api)
  client = await tenant.newClient({ name: 'pump' })
  channel = await tenant.newChannel({ name: 'telemetry', metadata: { type: 'data' } })
})

const profilesAt = (path = '', domainId = tenant.domainId) => `/${domainId}/clients/bootstrap/profiles${path}`
const enrolmentAt = (path: string, domainId = tenant.domainId) => `/${domainId}/clients/bootstrap/enrollments/${path}`
const configAt = (path = '') => `/${tenant.domainId}/clients/configs${path}`

async function newProfile(fields: Record<string, unknown> = {}): Promise<Profile> {
  const body = {
    name: 'agent',
    template_format: 'json',
    content_template: AGENT_TEMPLATE,
    defaults: { qos: 1, mtls: false },
    binding_slots: SLOTS,
    ...fields,
  }
  const made = await tenant.call('POST', profilesAt(), body)
  expect(made.status, made.text).toBe(201)
  return made.json<Profile>()
}

/** An enrolment with a client of its own. */
async function enrol(profileId: string, fields: Record<string, unknown> = {}) {
  const external = { external_id: newId(), external_key: newId() }
  const body = { ...external, name: 'gateway', profile_id: profileId, ...fields }
  const made = await tenant.call('POST', configAt(), body)
  expect(made.status, made.text).toBe(201)
  const id = String(made.headers['location']).split('/').at(-1) ?? ''
  const fetch = (): Promise<TestResponse> =>
    api.as(`Client ${external.external_key}`)('GET', `/clients/bootstrap/${external.external_id}`)
  return { ...external, id, fetch }
}

const bindingsOf = () => [
  { slot: 'device_client', type: 'client', resource_id: client.id },
  { slot: 'mqtt_channel', type: 'channel', resource_id: channel.id },
]
const bind = (id: string, bindings: object[] = bindingsOf(), by = tenant) =>
  by.call('PUT', enrolmentAt(`${id}/bindings`), { bindings })
const contentOf = (answer: TestResponse) => JSON.parse(answer.json<{ content: string }>().content) as unknown

describe('a profile', () => {
  it('is created, viewed, listed by name, changed and deleted', async () => {
    const name = `profile ${newId()}`
    const body = { name, description: 'of gateways', content_format: 'yaml', content_template: 'a: {{.Vars.a}}' }
    const made = await tenant.call('POST', profilesAt(), body)
    expect(made.status, made.text).toBe(201)
    const { id } = made.json<Profile>()
    expect(made.headers['location']).toBe(`/clients/bootstrap/profiles/${id}`)
    expect(made.json()).toMatchObject({
      ...body,
      domain_id: tenant.domainId,
      template_format: 'yaml',
      content_type: 'application/yaml',
      defaults: {},
      binding_slots: [],
      version: 1,
      updated_at: '0001-01-01T00:00:00Z',
    })
    expect((await tenant.call('GET', profilesAt(`/${id}`))).json()).toEqual(made.json())
    const page = (await tenant.call('GET', profilesAt(`?name=${encodeURIComponent(name.slice(3))}`))).json<Listed>()
    expect(page).toMatchObject({ total: 1, offset: 0, limit: 10, profiles: [{ id }] })
    const changed = await tenant.call('PATCH', profilesAt(`/${id}`), { content_format: 'toml', defaults: { a: 1 } })
    expect(changed.status).toBe(200)
    expect(changed.json()).toMatchObject({ name, content_type: 'application/toml', defaults: { a: 1 }, version: 2 })
    expect((await tenant.call('DELETE', profilesAt(`/${id}`))).status).toBe(204)
    for (const method of ['GET', 'DELETE'] as const)
      expect((await tenant.call(method, profilesAt(`/${id}`))).status).toBe(404)
  })

  it('lists its slots', async () => {
    const { id } = await newProfile()
    expect((await tenant.call('GET', profilesAt(`/${id}/slots`))).json()).toEqual({ binding_slots: SLOTS })
  })

  it.each([
    [
      'application/json',
      '{"name":"file","content_template":"{{.Vars.a}}","binding_slots":[{"name":"c","type":"client"}]}',
    ],
    ['application/yaml', 'name: file\ncontent_template: "{{.Vars.a}}"\nbinding_slots:\n  - {name: c, type: client}\n'],
    [
      'application/toml',
      'name = "file"\ncontent_template = "{{.Vars.a}}"\n[[binding_slots]]\nname = "c"\ntype = "client"\n',
    ],
  ])('comes from a file of %s', async (type, text) => {
    const upload = (body: string, as = type) => tenant.call('POST', profilesAt('/upload'), body, { 'content-type': as })
    const made = await upload(text)
    expect(made.status, made.text).toBe(201)
    expect(made.json()).toMatchObject({
      name: 'file',
      content_template: '{{.Vars.a}}',
      binding_slots: [{ name: 'c', type: 'client', required: false }],
    })
    expect((await upload(text.replaceAll('file', ''))).status).toBe(400)
    expect((await upload('{"name": [')).status).toBe(400)
    expect((await upload(text, 'text/csv')).status).toBe(415)
  })

  it.each([
    ['no name', { name: '' }, '/name'],
    ['an unknown format', { content_format: 'xml' }, '/content_format'],
    ['an unknown content type', { content_type: 'text/html' }, '/content_type'],
    ['a template that cannot be read', { content_template: 'a\n{{if .Vars.a}}' }, '/content_template'],
    ['a function that there is not', { content_template: '{{env "HOME"}}' }, '/content_template'],
    ['two slots of one name', { binding_slots: [SLOTS[0], SLOTS[0]] }, '/binding_slots/1/name'],
    ['a slot of another type', { binding_slots: [{ name: 'x', type: 'group' }] }, '/binding_slots/0/type'],
    ['a slot without name', { binding_slots: [{ name: '', type: 'client' }] }, '/binding_slots/0/name'],
    ['variables that are too large', { defaults: { a: 'x'.repeat(70_000) } }, '/defaults'],
    ['a template that is too long', { content_template: 'x'.repeat(262_145) }, '/content_template'],
  ])('is refused with %s', async (_what, fields, path) => {
    const answer = await tenant.call('POST', profilesAt(), { name: 'p', ...fields })
    expect(answer.status, answer.text).toBe(400)
    expect(answer.json<{ details: { path: string }[] }>().details.map((one) => one.path)).toContain(path)
  })

  it('may be any text when it is raw', async () => {
    const { id } = await newProfile({ template_format: 'raw', content_template: '{{if', binding_slots: [] })
    const { fetch } = await enrol(id)
    expect((await fetch()).json()).toMatchObject({ content: '{{if', content_type: 'text/plain' })
  })

  it('that is in use is not deleted', async () => {
    const { id } = await newProfile()
    const { id: configId } = await enrol(id)
    const refused = await tenant.call('DELETE', profilesAt(`/${id}`))
    expect([refused.status, refused.text.includes('1 configurations use this profile')]).toEqual([409, true])
    expect((await tenant.call('DELETE', enrolmentAt(`${configId}/profile`))).status).toBe(204)
    expect((await tenant.call('DELETE', profilesAt(`/${id}`))).status).toBe(204)
  })
})

describe('an enrolment', () => {
  it('returns the rendered profile to the device, with the secret of the bound client', async () => {
    const { id: profileId } = await newProfile()
    const { id, fetch } = await enrol(profileId, { render_context: { mqtt_url: 'ssl://broker:8883', qos: 2 } })
    expect((await bind(id)).status).toBe(204)
    const answer = await fetch()
    expect(answer.status, answer.text).toBe(200)
    expect(answer.json()).toMatchObject({ id, client_id: id, content_type: 'application/json' })
    expect(contentOf(answer)).toEqual({
      agent: {
        domain_id: tenant.domainId,
        channels: { id: channel.id },
        mqtt: {
          url: 'ssl://broker:8883',
          username: client.id,
          password: client.credentials.secret,
          qos: 2,
          mtls: false,
        },
      },
    })
  })

  it('is created by one request with its bindings, active, for a new client', async () => {
    const { id: profileId } = await newProfile({ defaults: { qos: 0, mtls: true, mqtt_url: 'u' } })
    const external = { external_id: newId(), external_key: newId() }
    const made = await tenant.call('POST', `/${tenant.domainId}/clients/bootstrap/enrollments`, {
      ...external,
      profile_id: profileId,
      channels: [channel.id],
      status: 'enabled',
      bindings: [{ slot: 'device_client', type: 'client' }, bindingsOf()[1]],
    })
    expect(made.status, made.text).toBe(201)
    const id = String(made.headers['location']).split('/').at(-1) ?? ''
    expect(made.headers['location']).toBe(`/clients/bootstrap/enrollments/${id}`)
    const view = (await tenant.call('GET', configAt(`/${id}`))).json<{ client_secret: string }>()
    expect(view).toMatchObject({ id, client_id: id, profile_id: profileId, state: 1, status: 'enabled' })
    const answer = await api.as(`Client ${external.external_key}`)('GET', `/clients/bootstrap/${external.external_id}`)
    expect(contentOf(answer)).toMatchObject({ agent: { mqtt: { username: id, password: view.client_secret } } })
  })

  it('is atomic: a rejected binding creates neither configuration nor client', async () => {
    const { id: profileId } = await newProfile()
    const count = async () => (await tenant.call('GET', `/${tenant.domainId}/clients?limit=1`)).json<Listed>().total
    const before = await count()
    const external = { external_id: newId(), external_key: newId(), profile_id: profileId }
    const create = (bindings: object[]) => tenant.call('POST', configAt(), { ...external, bindings })
    expect((await create([{ slot: 'mqtt_channel', type: 'channel', resource_id: newId() }])).status).toBe(404)
    expect((await create([{ slot: 'nowhere', type: 'client' }])).status).toBe(400)
    expect(await count()).toBe(before)
    expect((await create([{ slot: 'device_client', type: 'client' }])).status).toBe(201)
  })

  it('is found by its profile, and by its current names', async () => {
    const { id: profileId } = await newProfile()
    const { id } = await enrol(profileId)
    const found = async (query: string) =>
      (await tenant.call('GET', configAt(`?${query}`)))
        .json<{ configs: { id: string }[] }>()
        .configs.map((one) => one.id)
    for (const query of [`profile_id=${profileId}`, `id=${id}`, `profile_id=${profileId}&status=all`])
      expect(await found(query), query).toEqual([id])
    expect(await found(`profile_id=${profileId}&status=enabled`)).toEqual([])
  })

  it('reports missing values, also to the device, until it can be rendered', async () => {
    const { id: profileId } = await newProfile()
    const { id, fetch } = await enrol(profileId)
    const refusal = async () => {
      const answer = await fetch()
      expect(answer.status).toBe(422)
      expect(answer.text).not.toContain(client.credentials.secret)
      return answer.text
    }
    expect(await refusal()).toContain('the slot device_client is not bound')
    await bind(id)
    expect(await refusal()).toContain('.Vars.mqtt_url has no value (line 6')
    await tenant.call('PATCH', configAt(`/${id}`), { render_context: { mqtt_url: 'u' } })
    expect((await fetch()).status).toBe(200)
    await tenant.call('PATCH', profilesAt(`/${profileId}`), {
      content_template: '{"a": {{.Bindings.device_client.Secret.secret}} }',
    })
    expect(await refusal()).toContain('the result is not valid JSON')
    await tenant.call('PATCH', profilesAt(`/${profileId}`), {
      binding_slots: [{ name: 'device_client', type: 'channel' }],
    })
    expect(await refusal()).toContain('the slot device_client requires a channel')
  })

  it('follows its client, channel and profile: the device fetches their current values', async () => {
    const { id: profileId } = await newProfile({
      content_template:
        '{"s":"{{.Bindings.device_client.Secret.secret}}","n":"{{.Bindings.mqtt_channel.Snapshot.name}}"}',
    })
    const [bound, named] = [await tenant.newClient(), await tenant.newChannel({ name: 'before' })]
    const { id, fetch } = await enrol(profileId)
    await bind(id, [
      { slot: 'device_client', type: 'client', resource_id: bound.id },
      { slot: 'mqtt_channel', type: 'channel', resource_id: named.id },
    ])
    expect(contentOf(await fetch())).toEqual({ s: bound.credentials.secret, n: 'before' })
    const injecting = 'x","s":"stolen'
    await tenant.call('PATCH', `/${tenant.domainId}/clients/${bound.id}/secret`, { secret: 'a-new-secret-of-it' })
    await tenant.call('PATCH', `/${tenant.domainId}/channels/${named.id}`, { name: injecting })
    expect(contentOf(await fetch())).toEqual({ s: 'a-new-secret-of-it', n: injecting })
    await tenant.call('DELETE', `/${tenant.domainId}/channels/${named.id}`)
    expect((await fetch()).text).toContain('the slot mqtt_channel is not bound')
  })

  it('is rendered for the secure variant as well', async () => {
    const { id: profileId } = await newProfile({
      content_template: '{"e":"{{.Device.ExternalID}}"}',
      binding_slots: [],
    })
    const { external_id, external_key } = await enrol(profileId)
    const iv = randomBytes(16)
    const cipher = createCipheriv('aes-256-cfb', ENCRYPT_KEY, iv)
    const key = Buffer.concat([iv, cipher.update(external_key), cipher.final()]).toString('hex')
    const answer = await api.app.inject({
      url: `/clients/bootstrap/secure/${external_id}`,
      headers: { authorization: `Client ${key}` },
    })
    const decipher = createDecipheriv('aes-256-cfb', ENCRYPT_KEY, answer.rawPayload.subarray(0, 16))
    const text = Buffer.concat([decipher.update(answer.rawPayload.subarray(16)), decipher.final()]).toString()
    expect(JSON.parse((JSON.parse(text) as { content: string }).content)).toEqual({ e: external_id })
  })

  it('is assigned and unassigned a profile, and its own content with it', async () => {
    const { id: profileId } = await newProfile({
      template_format: 'go-template',
      content_template: 'of {{.Device.ID}}',
      binding_slots: [],
    })
    const own = await tenant.newClient()
    const external = { external_id: newId(), external_key: newId() }
    const body = { ...external, client_id: own.id, channels: [channel.id], content: 'its own' }
    expect((await tenant.call('POST', configAt(), body)).status).toBe(201)
    const content = async () =>
      (await api.as(`Client ${external.external_key}`)('GET', `/clients/bootstrap/${external.external_id}`)).json<{
        content: string
      }>().content
    const assign = (id: string) => tenant.call('PATCH', enrolmentAt(`${own.id}/profile`), { profile_id: id })
    expect((await bind(own.id)).status, 'without a profile').toBe(409)
    expect((await assign(profileId)).status).toBe(204)
    expect(await content()).toBe(`of ${own.id}`)
    expect((await assign(newId())).status).toBe(404)
    expect((await assign('')).status).toBe(400)
    expect((await tenant.call('DELETE', enrolmentAt(`${own.id}/profile`))).status).toBe(204)
    expect(await content()).toBe('its own')
  })

  it('changes its external key', async () => {
    const { id: profileId } = await newProfile({ content_template: '{}', binding_slots: [] })
    const { id, external_id, fetch } = await enrol(profileId)
    const fresh = newId()
    expect((await tenant.call('PATCH', configAt(`/${id}`), { external_key: fresh, name: 'renamed' })).status).toBe(200)
    expect((await fetch()).status).toBe(403)
    expect((await api.as(`Client ${fresh}`)('GET', `/clients/bootstrap/${external_id}`)).status).toBe(200)
    expect((await tenant.call('GET', configAt(`/${id}`))).json()).toMatchObject({
      name: 'renamed',
      external_key: fresh,
    })
  })

  it.each(['application/yaml', 'application/toml'])('is written as %s', async (type) => {
    const format = type.slice('application/'.length)
    const { id: profileId } = await newProfile({
      template_format: format,
      content_template: '{"port": {{.Vars.port}}, "name": {{toJSON .Vars.name}}}',
      binding_slots: [],
    })
    const { fetch } = await enrol(profileId, { render_context: { port: 1883, name: 'a "b"' } })
    const answer = await fetch()
    expect(answer.json()).toMatchObject({ content_type: type })
    expect(answer.json<{ content: string }>().content).toBe(
      format === 'yaml' ? 'port: 1883\nname: a "b"\n' : 'port = 1883\nname = "a \\"b\\""\n',
    )
  })
})

describe('bindings', () => {
  it('are listed without secrets, refreshed, replaced individually and removed', async () => {
    const { id: profileId } = await newProfile()
    const { id } = await enrol(profileId)
    await bind(id)
    const listed = await tenant.call('GET', enrolmentAt(`${id}/bindings`))
    expect(listed.json()).toMatchObject({
      bindings: [
        {
          config_id: id,
          slot: 'device_client',
          type: 'client',
          resource_id: client.id,
          snapshot: { id: client.id, name: 'pump' },
        },
        { slot: 'mqtt_channel', type: 'channel', snapshot: { name: 'telemetry', metadata: { type: 'data' } } },
      ],
    })
    expect(listed.text).not.toContain(client.credentials.secret)
    const next = await tenant.newChannel()
    expect((await bind(id, [{ slot: 'mqtt_channel', type: 'channel', resource_id: next.id }])).status).toBe(204)
    expect((await tenant.call('POST', enrolmentAt(`${id}/bindings/refresh`))).status).toBe(204)
    expect((await tenant.call('GET', enrolmentAt(`${id}/bindings`))).json()).toMatchObject({
      bindings: [{ resource_id: client.id }, { resource_id: next.id }],
    })
    expect((await tenant.call('DELETE', enrolmentAt(`${id}/bindings/mqtt_channel`))).status).toBe(204)
    expect((await tenant.call('DELETE', enrolmentAt(`${id}/bindings/mqtt_channel`))).status).toBe(404)
  })

  it('are rejected for unknown slots, other types, duplicate slots, an empty list and a channel without id', async () => {
    const { id } = await enrol((await newProfile()).id)
    const [ofClient, ofChannel] = bindingsOf()
    for (const wrong of [
      [{ ...ofClient, slot: 'nowhere' }],
      [{ ...ofClient, type: 'channel' }],
      [{ ...ofClient, type: 'group' }],
      [ofClient, ofClient],
      [],
      [{ ...ofChannel, resource_id: undefined }],
    ])
      expect((await bind(id, wrong as object[])).status, JSON.stringify(wrong)).toBe(400)
    expect((await tenant.call('GET', enrolmentAt(`${id}/bindings`))).json()).toEqual({ bindings: [] })
  })

  it('cannot refer to entities of another domain, or to entities that the caller may not read', async () => {
    const { id: profileId } = await newProfile()
    const { id } = await enrol(profileId)
    const foreign = { slot: 'device_client', type: 'client', resource_id: (await other.newClient()).id }
    const foreignChannel = { slot: 'mqtt_channel', type: 'channel', resource_id: (await other.newChannel()).id }
    const unknown = await bind(id, [{ ...foreign, resource_id: newId() }])
    const refused = await bind(id, [foreign])
    expect([refused.status, refused.json()]).toEqual([404, unknown.json()])
    expect((await bind(id, [foreignChannel])).status).toBe(404)

    // A user who can update only the client of the enrolment, and create none.
    const user = await api.newUser()
    await tenant.call('POST', `/domains/${tenant.domainId}/users/assign`, { relation: 'member', user_ids: [user.id] })
    const member = tenantOf(user, tenant.domainId)
    expect((await bind(id, bindingsOf(), member)).status).toBe(404)
    for (const profile of [profileId, newId()]) {
      const body = { external_id: newId(), external_key: newId(), profile_id: profile }
      expect((await member.call('POST', configAt(), body)).status).toBe(403)
    }
    for (const [method, path] of [
      ['GET', ''],
      ['GET', `/${profileId}`],
      ['DELETE', `/${profileId}`],
      ['POST', `/${profileId}/render-preview`],
    ] as const)
      expect((await member.call(method, profilesAt(path), method === 'POST' ? {} : undefined)).status, path).toBe(403)
  })
})

describe('the preview', () => {
  it('shows the response that a device would get, and no secret of the platform', async () => {
    const { id: profileId } = await newProfile()
    const { id } = await enrol(profileId, { render_context: { mqtt_url: 'u' } })
    await bind(id)
    const preview = (body: object) => tenant.call('POST', profilesAt(`/${profileId}/render-preview`), body)
    const shown = await preview({ config_id: id, render_context: { qos: 2 } })
    expect(shown.status, shown.text).toBe(200)
    expect(contentOf(shown)).toMatchObject({
      agent: { mqtt: { url: 'u', username: client.id, password: '[redacted]', qos: 2 } },
    })
    const sampled = await preview({
      config: { id: 'sample', external_id: 'gw' },
      render_context: { mqtt_url: 'v' },
      bindings: [
        { slot: 'device_client', type: 'client', resource_id: 'c', secret_snapshot: { secret: 'of the sample' } },
        { slot: 'mqtt_channel', type: 'channel', snapshot: { id: 'h' } },
      ],
    })
    expect(contentOf(sampled)).toMatchObject({
      agent: { channels: { id: 'h' }, mqtt: { username: 'c', password: 'of the sample' } },
    })
    expect((await preview({})).status).toBe(422)
    expect((await preview({ config_id: newId() })).status).toBe(404)
    expect((await tenant.call('POST', profilesAt(`/${newId()}/render-preview`), {})).status).toBe(404)
  })
})

describe('another tenant', () => {
  it('gets the same response for existing and unknown profiles and enrolments of a domain', async () => {
    const { id: profileId } = await newProfile()
    const { id } = await enrol(profileId)
    const theirs = await other.newClient()
    await other.call('POST', `/${other.domainId}/clients/configs`, {
      client_id: theirs.id,
      external_id: newId(),
      external_key: newId(),
      channels: [(await other.newChannel()).id],
    })
    const calls = (profile: string, config: string) =>
      [
        ['GET', profilesAt(`/${profile}`, other.domainId)],
        ['GET', profilesAt(`/${profile}/slots`, other.domainId)],
        ['PATCH', profilesAt(`/${profile}`, other.domainId), { name: 'mine' }],
        ['DELETE', profilesAt(`/${profile}`, other.domainId)],
        ['POST', profilesAt(`/${profile}/render-preview`, other.domainId), {}],
        ['PATCH', enrolmentAt(`${theirs.id}/profile`, other.domainId), { profile_id: profile }],
        ['PUT', enrolmentAt(`${config}/bindings`, other.domainId), { bindings: bindingsOf() }],
        ['GET', enrolmentAt(`${config}/bindings`, other.domainId)],
        ['POST', enrolmentAt(`${config}/bindings/refresh`, other.domainId)],
        ['DELETE', enrolmentAt(`${config}/profile`, other.domainId)],
      ] as const
    const known = calls(profileId, id)
    for (const [place, [method, url, body]] of calls(newId(), newId()).entries()) {
      const unknown = await other.call(method, url, body)
      const [, knownUrl, knownBody] = known[place] ?? []
      const answer = await other.call(method, knownUrl ?? '', knownBody)
      expect([answer.status, answer.json()], `${method} ${url}`).toEqual([404, unknown.json()])
      expect((await other.call(method, url.replace(other.domainId, tenant.domainId), body)).status).toBe(403)
    }
  })
})

describe('secrets', () => {
  it('of a device are stored encrypted in the database, and none is in the journal', async () => {
    const { id: profileId } = await newProfile()
    const { id } = await enrol(profileId, { render_context: { mqtt_url: 'WIFI-PASSWORD-7' } })
    await bind(id)
    await tenant.call('PATCH', configAt(`/${id}`), { render_context: { mqtt_url: 'WIFI-PASSWORD-8' } })
    expect((await tenant.call('GET', configAt(`/${id}`))).json()).toMatchObject({
      render_context: { mqtt_url: 'WIFI-PASSWORD-8' },
    })
    for (const table of ['bootstrap_configs', 'bootstrap_bindings', 'journal']) {
      const { rows } = await api.database.pool.query(`SELECT row_to_json(t)::text FROM ${table} t`)
      expect(JSON.stringify(rows), table).not.toContain('WIFI-PASSWORD')
      expect(JSON.stringify(rows), table).not.toContain(client.credentials.secret)
    }
    const { rows } = await api.database.pool.query(
      `SELECT DISTINCT operation FROM journal WHERE operation LIKE 'bootstrap.%' ORDER BY operation`,
    )
    expect(rows.map((row) => (row as { operation: string }).operation)).toEqual(
      expect.arrayContaining(['bootstrap.config.bind', 'bootstrap.config.update', 'bootstrap.profile.create']),
    )
  })
})
