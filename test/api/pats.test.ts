// contract section 6: personal access tokens and their scopes; decisions 45 and 47
import { describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { Caller } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { createTestDatabase } from '../harness/database.ts'
import { untilInForce } from '../harness/in-force.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { ZERO_TIME, grantRole, newTenant, statusesOf } from './support.ts'
import type { Client, Tenant } from './support.ts'

const api = useWorld(() => startTestApi())

type Pat = {
  id: string
  user_id: string
  name: string
  description: string
  secret?: string
  issued_at: string
  expires_at: string
  updated_at: string
  last_used_at: string
  revoked: boolean
  revoked_at: string
  status: string
}
type Scope = {
  id: string
  pat_id: string
  optional_domain_id: string
  domain_id: string
  entity_type: string
  entity_id: string
  operation: string
}
type NewScope = { optional_domain_id?: string; entity_type: string; entity_id: string; operation: string }

async function newPat(call: Caller, fields: Record<string, unknown> = {}): Promise<Pat & { secret: string }> {
  const made = await call('POST', '/pats', { name: 'robot', duration: '24h', ...fields })
  expect(made.status, made.text).toBe(201)
  return made.json<Pat & { secret: string }>()
}

/** A token with these scopes, and requests that come with it. */
async function robot(tenant: Tenant, scopes: readonly (readonly [type: string, operation: string, id?: string])[]) {
  const pat = await newPat(tenant.call)
  if (scopes.length > 0) {
    const added = await addScopes(
      tenant.call,
      pat.id,
      scopes.map(([entity_type, operation, entity_id = '*']) => ({
        ...(entity_type === 'users' ? {} : { optional_domain_id: tenant.domainId }),
        entity_type,
        entity_id,
        operation,
      })),
    )
    expect(added.status, added.text).toBe(200)
  }
  return { pat, call: api.as(`Bearer ${pat.secret}`) }
}

const addScopes = (call: Caller, id: string, scopes: readonly NewScope[]) =>
  call('PATCH', `/pats/${id}/scope/add`, { scopes })

describe('the life of a token', () => {
  test('creation returns the secret, and no later response does', async () => {
    const { call, id: userId } = await api.newUser()
    const pat = await newPat(call, { name: 'backup', description: 'nightly', duration: '24h' })
    expect(pat).toMatchObject({
      user_id: userId,
      name: 'backup',
      description: 'nightly',
      revoked: false,
      status: 'active',
      updated_at: ZERO_TIME,
      last_used_at: ZERO_TIME,
      revoked_at: ZERO_TIME,
    })
    expect(pat.secret).toMatch(/^pat_[A-Za-z0-9_-]{43}_[A-Za-z0-9_-]{43}$/)
    expect(Date.parse(pat.expires_at) - Date.parse(pat.issued_at)).toBe(24 * 3_600_000)
    const viewed = (await call('GET', `/pats/${pat.id}`)).json<Pat>()
    const { secret: _secret, ...shown } = pat
    expect(viewed).toEqual(shown)
    expect((await call('GET', '/pats')).json()).toEqual({ total: 1, offset: 0, limit: 10, pats: [shown] })
  })

  test.each([
    ['no name', { name: undefined }],
    ['an empty name', { name: '' }],
    ['a long name', { name: 'x'.repeat(1025) }],
    ['no duration', { duration: undefined }],
    ['a duration that is none', { duration: 'a day' }],
    ['a negative duration', { duration: '-1h' }],
    ['a duration of nothing', { duration: '0s' }],
    ['a duration of ages', { duration: '9999999h' }],
    ['a number as duration', { duration: 24 }],
  ])('%s is 400', async (_what, fields) => {
    const { call } = await api.newUser()
    const refused = await call('POST', '/pats', { name: 'robot', duration: '24h', ...fields })
    expect(refused.status, refused.text).toBe(400)
    expect(refused.json()).toMatchObject({ details: [{ path: `/${Object.keys(fields)[0]}` }] })
    expect((await call('GET', '/pats')).json()).toMatchObject({ total: 0, pats: [] })
  })

  test('name and description change, and absent fields stay', async () => {
    const { call } = await api.newUser()
    const { id } = await newPat(call, { name: 'one', description: 'first' })
    const renamed = await call('PATCH', `/pats/${id}/name`, { name: 'two' })
    expect(renamed.status).toBe(202)
    expect(renamed.json()).toMatchObject({ id, name: 'two', description: 'first' })
    expect(renamed.json<Pat>().updated_at).not.toBe(ZERO_TIME)
    const described = await call('PATCH', `/pats/${id}/description`, { description: 'second' })
    expect(described.status).toBe(202)
    expect(described.json()).toMatchObject({ id, name: 'two', description: 'second' })
    expect(described.json()).not.toHaveProperty('secret')
    expect((await call('PATCH', `/pats/${id}/name`, { name: '' })).status).toBe(400)
    expect((await call('PATCH', `/pats/${id}/name`, {})).status).toBe(400)
    expect((await call('PATCH', `/pats/${id}/name`, 'x', { 'content-type': 'text/plain' })).status).toBe(415)
  })

  test('a new secret invalidates the old one and ends a revocation; a revoked token is rejected', async () => {
    const tenant = await newTenant(api)
    const { pat, call } = await robot(tenant, [['domains', 'read', tenant.domainId]])
    const view = (secret: string) => api.as(`Bearer ${secret}`)('GET', `/domains/${tenant.domainId}`)
    expect((await call('GET', `/domains/${tenant.domainId}`)).status).toBe(200)
    const reset = await tenant.call('PATCH', `/pats/${pat.id}/secret/reset`, { duration: '1h' })
    expect(reset.status).toBe(200)
    const { secret } = reset.json<{ secret: string }>()
    expect(secret).not.toBe(pat.secret)
    expect((await view(pat.secret)).status).toBe(401)
    expect((await view(secret)).status).toBe(200)
    expect((await tenant.call('PATCH', `/pats/${pat.id}/secret/revoke`)).status).toBe(204)
    expect((await tenant.call('PATCH', `/pats/${pat.id}/secret/revoke`)).status).toBe(204)
    expect((await view(secret)).status).toBe(401)
    const revoked = (await tenant.call('GET', `/pats/${pat.id}`)).json<Pat>()
    expect(revoked).toMatchObject({ revoked: true, status: 'revoked' })
    expect(revoked.revoked_at).not.toBe(ZERO_TIME)
    const again = (await tenant.call('PATCH', `/pats/${pat.id}/secret/reset`, { duration: '1h' })).json<Pat>()
    expect(again).toMatchObject({ revoked: false, status: 'active', revoked_at: ZERO_TIME })
    expect((await view(again.secret ?? '')).status).toBe(200)
  })

  test('a token expires at the end of its lifetime', async () => {
    const tenant = await newTenant(api)
    const { pat, call } = await robot(tenant, [['domains', 'read', tenant.domainId]])
    expect((await call('GET', `/domains/${tenant.domainId}`)).status).toBe(200)
    // The moment is moved, not the clock; the facts of the token are forgotten as after any change of it.
    await api.api.identity.journal.change('system', async (tx, record) => {
      const { rows } = await sql<{
        key: number
      }>`UPDATE pats SET expires_at = now() - interval '1 second' WHERE id = ${pat.id} RETURNING key`.execute(tx)
      record({ operation: 'pat.update', entityKeys: rows.map((row) => row.key) })
    })
    expect((await call('GET', `/domains/${tenant.domainId}`)).status).toBe(401)
    expect((await tenant.call('GET', `/pats/${pat.id}`)).json()).toMatchObject({ status: 'expired', revoked: false })
  })

  test('deleting one token is 204 and invalidates it; deleting all is 200', async () => {
    const { call } = await api.newUser()
    const [one, two, three] = [await newPat(call), await newPat(call), await newPat(call)]
    expect((await call('DELETE', `/pats/${one.id}`)).status).toBe(204)
    expect((await call('DELETE', `/pats/${one.id}`)).status).toBe(404)
    expect((await call('GET', `/pats/${one.id}`)).status).toBe(404)
    expect((await call('DELETE', '/pats')).status).toBe(200)
    expect((await call('GET', '/pats')).json()).toMatchObject({ total: 0 })
    for (const { secret } of [one, two, three])
      expect((await api.as(`Bearer ${secret}`)('GET', '/users/profile')).status).toBe(401)
    expect((await call('DELETE', '/pats')).status).toBe(200)
  })

  test('the list filters by name, id and status, and pages', async () => {
    const { call } = await api.newUser()
    const pats = []
    for (const name of ['alpha', 'beta', 'alphabet']) pats.push(await newPat(call, { name }))
    await call('PATCH', `/pats/${pats[1]?.id}/secret/revoke`)
    const list = async (query: string) => (await call('GET', `/pats?${query}`)).json<{ total: number; pats: Pat[] }>()
    expect((await list('name=ALPHA')).pats.map((pat) => pat.name)).toEqual(['alphabet', 'alpha'])
    expect((await list('status=revoked')).pats.map((pat) => pat.name)).toEqual(['beta'])
    expect((await list('status=active')).total).toBe(2)
    expect((await list('status=expired')).total).toBe(0)
    expect((await list('status=all')).total).toBe(3)
    expect((await list(`id=${pats[0]?.id}`)).pats.map((pat) => pat.name)).toEqual(['alpha'])
    expect((await list('id=nonsense')).total).toBe(0)
    expect(await list('limit=1&offset=1')).toMatchObject({ total: 3, offset: 1, limit: 1, pats: [{ name: 'beta' }] })
    for (const query of ['limit=0', 'limit=101', 'offset=-1', 'status=gone'])
      expect((await call('GET', `/pats?${query}`)).status, query).toBe(400)
  })

  test('the token of another user and an unknown one are the same 404 everywhere', async () => {
    const [owner, stranger] = [await api.newUser(), await api.newUser()]
    const { id } = await newPat(owner.call)
    const scopes = [{ entity_type: 'users', entity_id: '*', operation: 'read' }]
    for (const [method, path, body] of [
      ['GET', '', undefined],
      ['DELETE', '', undefined],
      ['PATCH', '/name', { name: 'mine' }],
      ['PATCH', '/description', { description: 'mine' }],
      ['PATCH', '/secret/reset', { duration: '1h' }],
      ['PATCH', '/secret/revoke', undefined],
      ['PATCH', '/scope/add', { scopes }],
      ['PATCH', '/scope/remove', { scopes_id: [newId()] }],
      ['GET', '/scope', undefined],
      ['DELETE', '/scope', undefined],
    ] as const) {
      const foreign = await stranger.call(method, `/pats/${id}${path}`, body)
      expect(foreign.status, `${method} ${path}`).toBe(404)
      for (const other of [newId(), 'nonsense'])
        expect((await stranger.call(method, `/pats/${other}${path}`, body)).text).toBe(foreign.text)
    }
    expect((await owner.call('GET', `/pats/${id}`)).json()).toMatchObject({ name: 'robot', revoked: false })
  })

  test('neither a secret nor a part of it is in the journal or in the table', async () => {
    const { call, id: userId } = await api.newUser()
    const pat = await newPat(call)
    const { secret = '' } = (await call('PATCH', `/pats/${pat.id}/secret/reset`, { duration: '1h' })).json<Pat>()
    const { rows } = await sql<{
      text: string
    }>`SELECT to_jsonb(j)::text AS text FROM journal j WHERE actor_id = ${userId}
      UNION ALL SELECT to_jsonb(p)::text FROM pats p WHERE id = ${pat.id}`.execute(api.database.db)
    expect(rows.length).toBeGreaterThan(2)
    const all = rows.map((row) => row.text).join('\n')
    expect(all).toContain('pat.create')
    expect(all).toContain('pat.reset_secret')
    for (const text of [pat.secret, secret])
      for (const part of text.split('_').filter((one) => one.length > 20)) expect(all).not.toContain(part)
  })
})

describe('scopes', () => {
  test('are added, listed in pages and removed; both names of the domain are answered', async () => {
    const tenant = await newTenant(api)
    const client = await tenant.newClient()
    const pat = await newPat(tenant.call)
    const added = await tenant.call('PATCH', `/pats/${pat.id}/scope/add`, {
      scopes: [
        { optional_domain_id: tenant.domainId, entity_type: 'clients', entity_id: client.id, operation: 'read' },
        { domain_id: tenant.domainId, entity_type: 'clients', entity_id: '*', operation: 'create' },
        { entity_type: 'dashboards', entity_id: '*', operation: 'share' },
        { entity_type: 'messages', entity_id: '*', operation: 'publish' },
      ],
    })
    expect(added.status, added.text).toBe(200)
    const { scopes } = added.json<{ scopes: Scope[] }>()
    expect(scopes).toHaveLength(4)
    expect(scopes[0]).toEqual({
      id: scopes[0]?.id,
      pat_id: pat.id,
      optional_domain_id: tenant.domainId,
      domain_id: tenant.domainId,
      entity_type: 'clients',
      entity_id: client.id,
      operation: 'read',
    })
    const page = await tenant.call('GET', `/pats/${pat.id}/scope?limit=2&offset=1`)
    const next = expect.any(String) as string
    expect(page.json()).toEqual({ total: 4, offset: 1, limit: 2, next, scopes: scopes.slice(1, 3) })
    const removed = await tenant.call('PATCH', `/pats/${pat.id}/scope/remove`, { scopes_id: [scopes[0]?.id, newId()] })
    expect(removed.status).toBe(200)
    expect((await tenant.call('GET', `/pats/${pat.id}/scope`)).json()).toMatchObject({ total: 3 })
    expect((await tenant.call('DELETE', `/pats/${pat.id}/scope`)).status).toBe(200)
    expect((await tenant.call('GET', `/pats/${pat.id}/scope`)).json()).toMatchObject({ total: 0, scopes: [] })
    expect((await tenant.call('PATCH', `/pats/${pat.id}/scope/remove`, { scopes_id: [] })).status).toBe(400)
  })

  test.each([
    ['no scopes', () => []],
    [
      'an unknown type',
      (d: string) => [{ optional_domain_id: d, entity_type: 'pipelines', entity_id: '*', operation: 'read' }],
    ],
    [
      'an unknown operation',
      (d: string) => [{ optional_domain_id: d, entity_type: 'clients', entity_id: '*', operation: 'fly' }],
    ],
    ['no domain for clients', () => [{ entity_type: 'clients', entity_id: '*', operation: 'read' }]],
    [
      'no domain for one channel of messages',
      () => [{ entity_type: 'messages', entity_id: newId(), operation: 'publish' }],
    ],
    [
      'publish on clients',
      (d: string) => [{ optional_domain_id: d, entity_type: 'clients', entity_id: '*', operation: 'publish' }],
    ],
    [
      'read on messages',
      (d: string) => [{ optional_domain_id: d, entity_type: 'messages', entity_id: '*', operation: 'read' }],
    ],
    [
      'an id that is none',
      (d: string) => [{ optional_domain_id: d, entity_type: 'clients', entity_id: 'pump', operation: 'read' }],
    ],
    [
      'a domain id that is none',
      () => [{ optional_domain_id: 'plant', entity_type: 'clients', entity_id: '*', operation: 'read' }],
    ],
    ['no entity', (d: string) => [{ optional_domain_id: d, entity_type: 'clients', operation: 'read' }]],
    [
      'users of a domain',
      (d: string) => [{ optional_domain_id: d, entity_type: 'users', entity_id: '*', operation: 'read' }],
    ],
  ])('%s is 400, and nothing is added', async (_what, scopesOf) => {
    const tenant = await newTenant(api)
    const pat = await newPat(tenant.call)
    const good = { optional_domain_id: tenant.domainId, entity_type: 'groups', entity_id: '*', operation: 'list' }
    const wrong = scopesOf(tenant.domainId)
    const refused = await tenant.call('PATCH', `/pats/${pat.id}/scope/add`, {
      scopes: wrong.length === 0 ? [] : [good, ...wrong],
    })
    expect(refused.status, refused.text).toBe(400)
    expect((await tenant.call('GET', `/pats/${pat.id}/scope`)).json()).toMatchObject({ total: 0 })
  })

  test('a foreign domain is 403, a foreign or unknown entity 422, an existing scope 409; all scopes are added or none', async () => {
    const [tenant, other] = [await newTenant(api), await newTenant(api)]
    const foreign = await other.newClient()
    const pat = await newPat(tenant.call)
    const scope = (entity_id: string, optional_domain_id = tenant.domainId) => ({
      optional_domain_id,
      entity_type: 'clients',
      entity_id,
      operation: 'read',
    })
    expect((await addScopes(tenant.call, pat.id, [scope('*', other.domainId)])).status).toBe(403)
    expect((await addScopes(tenant.call, pat.id, [scope('*', newId())])).status).toBe(403)
    expect((await addScopes(tenant.call, pat.id, [scope('*'), scope(foreign.id)])).status).toBe(422)
    expect((await addScopes(tenant.call, pat.id, [scope(newId())])).status).toBe(422)
    expect((await addScopes(tenant.call, pat.id, [scope('*')])).status).toBe(200)
    expect((await addScopes(tenant.call, pat.id, [scope((await tenant.newClient()).id), scope('*')])).status).toBe(409)
    expect((await tenant.call('GET', `/pats/${pat.id}/scope`)).json()).toMatchObject({ total: 1 })
  })

  test('exactly one of several concurrent additions of one scope succeeds', async () => {
    const tenant = await newTenant(api)
    const pat = await newPat(tenant.call)
    const scope = { optional_domain_id: tenant.domainId, entity_type: 'clients', entity_id: '*', operation: 'read' }
    const answers = await Promise.all(Array.from({ length: 5 }, () => addScopes(tenant.call, pat.id, [scope])))
    expect(statusesOf(answers)).toEqual([200, 409, 409, 409, 409])
  })
})

describe('the rights of a token', () => {
  test('are none without a scope: 403 everywhere, 401 for a text that is not a token', async () => {
    const tenant = await newTenant(api)
    const client = await tenant.newClient()
    const { call } = await robot(tenant, [])
    for (const [method, url, body] of [
      ['GET', `/domains/${tenant.domainId}`, undefined],
      ['GET', '/domains', undefined],
      ['POST', '/domains', { name: 'mine' }],
      ['GET', `/${tenant.domainId}/clients`, undefined],
      ['GET', `/${tenant.domainId}/clients/${client.id}`, undefined],
      ['POST', `/${tenant.domainId}/clients`, {}],
      ['DELETE', `/${tenant.domainId}/clients/${client.id}`, undefined],
      ['GET', '/users/profile', undefined],
      ['GET', '/users', undefined],
      ['GET', `/users/${tenant.user.id}`, undefined],
      ['PATCH', `/users/${tenant.user.id}`, { first_name: 'Eve' }],
    ] as const) {
      const refused = await call(method, url, body)
      expect(refused.status, `${method} ${url}: ${refused.text}`).toBe(403)
      expect(refused.json()).toMatchObject({ error: 'forbidden' })
    }
  })

  test.each([
    ['read', 'GET', '', undefined, 200],
    ['update', 'PATCH', '', { name: 'renamed' }, 200],
    ['update', 'PATCH', '/tags', { tags: ['a'] }, 200],
    ['update', 'POST', '/disable', undefined, 200],
    ['delete', 'DELETE', '', undefined, 200],
  ] as const)(
    '%s permits %s%s of a client, and no other operation does',
    async (operation, method, path, body, status) => {
      const tenant = await newTenant(api)
      for (const granted of ['read', 'list', 'update', 'delete', 'create', 'share', 'unshare']) {
        const [client, untouched] = [await tenant.newClient(), await tenant.newClient()]
        const { call } = await robot(tenant, [['clients', granted, client.id]])
        const url = (one: Client) => `/${tenant.domainId}/clients/${one.id}${path}`
        const answer = await call(method, url(client), body)
        expect(answer.status, `${granted}: ${answer.text}`).toBe(granted === operation ? status : 403)
        expect((await call(method, url(untouched), body)).status, `${granted} elsewhere`).toBe(403)
      }
    },
  )

  test('to create clients cover one and many, and give no other right on them', async () => {
    const tenant = await newTenant(api)
    const { call } = await robot(tenant, [['clients', 'create']])
    const made = await call('POST', `/${tenant.domainId}/clients`, { name: 'made by a robot' })
    expect(made.status, made.text).toBe(201)
    expect((await call('POST', `/${tenant.domainId}/clients/bulk`, [{}, {}])).status).toBe(200)
    expect((await call('GET', `/${tenant.domainId}/clients/${made.json<Client>().id}`)).status).toBe(403)
    expect((await call('POST', `/${tenant.domainId}/channels`, {})).status).toBe(403)
  })

  test('to list select the listed entities, with secrets only if the token can change them', async () => {
    const tenant = await newTenant(api)
    const clients = [await tenant.newClient(), await tenant.newClient(), await tenant.newClient()]
    const ids = clients.map((client) => client.id) as [string, string, string]
    const list = async (call: Caller) => {
      const answer = await call('GET', `/${tenant.domainId}/clients`)
      expect(answer.status, answer.text).toBe(200)
      return answer.json<{ total: number; clients: Client[] }>()
    }
    const one = await robot(tenant, [['clients', 'list', ids[1]]])
    expect(await list(one.call)).toMatchObject({ total: 1, clients: [{ id: ids[1], credentials: { secret: '' } }] })
    const two = await robot(tenant, [
      ['clients', 'list', ids[0]],
      ['clients', 'list', ids[2]],
      ['clients', 'update', ids[2]],
    ])
    const listed = await list(two.call)
    expect(listed.total).toBe(2)
    expect(new Map(listed.clients.map((client) => [client.id, client.credentials.secret !== '']))).toEqual(
      new Map([
        [ids[0], false],
        [ids[2], true],
      ]),
    )
    expect((await list((await robot(tenant, [['clients', 'list']])).call)).total).toBe(3)
    const reader = await robot(tenant, [['clients', 'read']])
    expect((await reader.call('GET', `/${tenant.domainId}/clients`)).status).toBe(403)
    const unscoped = await one.call('GET', '/clients')
    expect(unscoped.status).toBe(200)
    expect(unscoped.json()).toMatchObject({ total: 1, clients: [{ id: ids[1] }] })
  })

  test('for one domain give no access to another domain of the owner', async () => {
    const tenant = await newTenant(api)
    const second = (await tenant.call('POST', '/domains', { name: 'second' })).json<{ id: string }>().id
    await tenant.call('POST', `/${second}/clients`, {})
    const { call } = await robot(tenant, [
      ['clients', 'list'],
      ['clients', 'create'],
      ['domains', 'list', tenant.domainId],
      ['domains', 'read', tenant.domainId],
    ])
    expect((await call('GET', `/${second}/clients`)).status).toBe(403)
    expect((await call('POST', `/${second}/clients`, {})).status).toBe(403)
    expect((await call('GET', `/domains/${second}`)).status).toBe(403)
    expect((await call('GET', `/domains/${tenant.domainId}`)).status).toBe(200)
    expect((await call('GET', '/clients')).json()).toMatchObject({ total: 0 })
    const domains = (await call('GET', '/domains')).json<{ total: number; domains: { id: string }[] }>()
    expect([domains.total, domains.domains.map((domain) => domain.id)]).toEqual([1, [tenant.domainId]])
  })

  test('to connect require update on both entities', async () => {
    const tenant = await newTenant(api)
    const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
    const body = { client_ids: [client.id], channel_ids: [channel.id], types: ['publish'] }
    const connect = (call: Caller) => call('POST', `/${tenant.domainId}/channels/connect`, body)
    const half = await robot(tenant, [['channels', 'update', channel.id]])
    expect((await connect(half.call)).status).not.toBe(201)
    const both = await robot(tenant, [
      ['channels', 'update', channel.id],
      ['clients', 'update', client.id],
    ])
    const connected = await connect(both.call)
    expect(connected.status, connected.text).toBe(201)
  })

  test('messages:publish and messages:subscribe each permit one direction, on the channel of the scope', async () => {
    const tenant = await newTenant(api)
    const [channel, other] = [await tenant.newChannel(), await tenant.newChannel()]
    const pack = JSON.stringify([{ n: 'voltage', u: 'V', v: 1 }])
    const send = (call: Caller, id: string) =>
      call('POST', `/m/${tenant.domainId}/c/${id}`, pack, { 'content-type': 'application/senml+json' })
    const read = (call: Caller, id: string) => call('GET', `/m/${tenant.domainId}/c/${id}`)
    const publisher = await robot(tenant, [['messages', 'publish', channel.id]])
    const subscriber = await robot(tenant, [['messages', 'subscribe', channel.id]])
    const neither = await robot(tenant, [
      ['channels', 'read'],
      ['channels', 'update'],
    ])
    expect((await send(publisher.call, channel.id)).status).toBe(202)
    expect((await read(publisher.call, channel.id)).status).toBe(403)
    expect((await read(subscriber.call, channel.id)).json()).toMatchObject({ total: 1 })
    expect((await send(subscriber.call, channel.id)).status).toBe(403)
    for (const { call } of [publisher, subscriber]) {
      expect((await send(call, other.id)).status).toBe(403)
      expect((await read(call, other.id)).status).toBe(403)
    }
    expect((await send(neither.call, channel.id)).status).toBe(403)
    expect((await read(neither.call, channel.id)).status).toBe(403)
    const everywhere = await newPat(tenant.call)
    await addScopes(tenant.call, everywhere.id, [{ entity_type: 'messages', entity_id: '*', operation: 'publish' }])
    expect((await send(api.as(`Bearer ${everywhere.secret}`), other.id)).status).toBe(202)
  })

  test('never exceed those of the owner: an action that the owner loses is lost', async () => {
    const tenant = await newTenant(api)
    const client = await tenant.newClient()
    const member = await api.newUser()
    await grantRole(api, member.id, { type: 'domain', domainId: tenant.domainId, id: tenant.domainId }, [
      'read',
      'client_read',
    ])
    const { call } = await robot({ ...tenant, user: member, call: member.call }, [
      ['clients', 'read'],
      ['clients', 'delete'],
      ['clients', 'create'],
    ])
    expect((await call('GET', `/${tenant.domainId}/clients/${client.id}`)).status).toBe(200)
    expect((await call('DELETE', `/${tenant.domainId}/clients/${client.id}`)).status).toBe(403)
    expect((await call('POST', `/${tenant.domainId}/clients`, {})).status).toBe(403)
    expect((await api.admin('POST', `/users/${member.id}/disable`)).status).toBe(200)
    expect((await call('GET', `/${tenant.domainId}/clients/${client.id}`)).status).toBe(401)
  })

  test('of the platform administrator cover their own domains, without administration of the platform', async () => {
    const [tenant, user] = [await newTenant(api), await api.newUser()]
    const pat = await newPat(api.admin)
    await addScopes(api.admin, pat.id, [
      { entity_type: 'users', entity_id: '*', operation: 'update' },
      { entity_type: 'domains', entity_id: '*', operation: 'read' },
    ])
    const call = api.as(`Bearer ${pat.secret}`)
    expect((await call('POST', `/users/${user.id}/disable`)).status).toBe(403)
    expect((await call('GET', `/domains/${tenant.domainId}`)).status).toBe(403)
    expect((await call('POST', `/domains/${tenant.domainId}/freeze`)).status).toBe(403)
    await api.admin('DELETE', '/pats')
  })

  test('users:read on one user shows only that user; users:update changes names and never the password', async () => {
    const [tenant, other] = [await newTenant(api), await api.newUser()]
    const { call } = await robot(tenant, [
      ['users', 'read', tenant.user.id],
      ['users', 'update', tenant.user.id],
      ['users', 'list', tenant.user.id],
    ])
    expect((await call('GET', '/users/profile')).json()).toMatchObject({ id: tenant.user.id })
    expect((await call('GET', `/users/${tenant.user.id}`)).status).toBe(200)
    expect((await call('GET', `/users/${other.id}`)).status).toBe(403)
    const name = `Robot ${newId()}`
    expect((await call('PATCH', `/users/${tenant.user.id}`, { first_name: name })).status).toBe(200)
    expect((await call('PATCH', `/users/${other.id}`, { first_name: name })).status).toBe(403)
    const { secret } = tenant.user
    const changed = await call('PATCH', '/users/secret', { old_secret: secret, new_secret: 'another-secret' })
    expect(changed.status).toBe(403)
    expect((await call('GET', '/users')).json()).toMatchObject({ total: 1, users: [{ id: tenant.user.id }] })
    for (const [method, path, body] of [
      ['PATCH', '/email', { email: 'eve@example.com' }],
      ['PATCH', '/role', { role: 'admin' }],
      ['GET', '/memberships', undefined],
      ['DELETE', '', undefined],
    ] as const)
      expect((await call(method, `/users/${tenant.user.id}${path}`, body)).status, `${method} ${path}`).toBe(403)
    expect((await call('GET', `/journal/user/${tenant.user.id}`)).status).toBe(403)
    expect((await call('GET', `/users/search?username=${tenant.user.username}`)).status).toBe(403)
  })

  test('users:create registers a user whose owner is the owner of the token', async () => {
    const tenant = await newTenant(api)
    const registration = () => {
      const mark = newId().slice(0, 8)
      const names = { first_name: `Robot ${mark}`, last_name: `Made ${mark}`, email: `robot-${mark}@example.com` }
      return { ...names, credentials: { username: `robot-${mark}`, secret: 'secret-of-a-robot' } }
    }
    const without = await robot(tenant, [['users', 'read', tenant.user.id]])
    expect((await without.call('POST', '/users', registration())).status).toBe(403)
    const { call } = await robot(tenant, [['users', 'create']])
    const made = await call('POST', '/users', registration())
    expect(made.status, made.text).toBe(201)
    const { id } = made.json<{ id: string }>()
    expect((await tenant.call('GET', `/users?visibility=mine`)).json()).toMatchObject({ users: [{ id }] })
  })

  test('never include tokens, and neither do those of a key or a bound login', async () => {
    const tenant = await newTenant(api)
    const { pat, call } = await robot(tenant, [
      ['domains', 'update'],
      ['users', 'update', tenant.user.id],
    ])
    const key = (await tenant.call('POST', '/keys', { type: 3 })).json<{ value: string }>()
    const bound = await api.anonymous('POST', '/users/tokens/issue', {
      identity: tenant.user.username,
      secret: tenant.user.secret,
      domain_id: tenant.domainId,
    })
    const callers = [
      call,
      api.as(`Bearer ${key.value}`),
      api.as(`Bearer ${bound.json<{ access_token: string }>().access_token}`),
    ]
    const scopes = [{ entity_type: 'users', entity_id: '*', operation: 'read' }]
    for (const caller of callers) {
      for (const [method, url, body] of [
        ['POST', '/pats', { name: 'x', duration: '1h' }],
        ['GET', '/pats', undefined],
        ['DELETE', '/pats', undefined],
        ['GET', `/pats/${pat.id}`, undefined],
        ['DELETE', `/pats/${pat.id}`, undefined],
        ['PATCH', `/pats/${pat.id}/name`, { name: 'x' }],
        ['PATCH', `/pats/${pat.id}/description`, { description: 'x' }],
        ['PATCH', `/pats/${pat.id}/secret/reset`, { duration: '1h' }],
        ['PATCH', `/pats/${pat.id}/secret/revoke`, undefined],
        ['PATCH', `/pats/${pat.id}/scope/add`, { scopes }],
        ['PATCH', `/pats/${pat.id}/scope/remove`, { scopes_id: [newId()] }],
        ['GET', `/pats/${pat.id}/scope`, undefined],
        ['DELETE', `/pats/${pat.id}/scope`, undefined],
      ] as const) {
        const refused = await caller(method, url, body)
        expect(refused.status, `${method} ${url}`).toBe(403)
      }
      // 400 comes before 403 (decision 45).
      expect((await caller('POST', '/pats', {})).status).toBe(400)
    }
    for (const [method, url, body] of [
      ['POST', '/keys', { type: 3 }],
      ['GET', '/keys', undefined],
      ['GET', '/users/tokens/refresh-tokens', undefined],
      ['POST', '/keys/rotate', undefined],
    ] as const)
      expect((await call(method, url, body)).status, `${method} ${url}`).toBe(403)
    expect((await tenant.call('GET', `/pats/${pat.id}`)).json()).toMatchObject({ name: 'robot', status: 'active' })
  })

  test('do not include a refresh, and no similar text is a token', async () => {
    const tenant = await newTenant(api)
    const { pat, call } = await robot(tenant, [['users', 'read', tenant.user.id]])
    expect((await call('GET', '/users/profile')).status).toBe(200)
    for (const path of ['refresh', 'revoke']) expect((await call('POST', `/users/tokens/${path}`)).status).toBe(401)
    const other = await newPat((await api.newUser()).call)
    const swapped = `${pat.secret.slice(0, 47)}${other.secret.slice(47)}`
    for (const text of [
      pat.secret.slice(0, -1),
      `${pat.secret}A`,
      pat.secret.slice(4),
      swapped,
      'pat_',
      `pat_${'A'.repeat(43)}_${'A'.repeat(43)}`,
    ])
      expect((await api.as(`Bearer ${text}`)('GET', '/users/profile')).status, text).toBe(401)
  })

  test('on an entity do not cover a later entity with the same id', async () => {
    const tenant = await newTenant(api)
    const id = newId()
    await tenant.newClient({ id })
    const { pat, call } = await robot(tenant, [['clients', 'read', id]])
    expect((await call('GET', `/${tenant.domainId}/clients/${id}`)).status).toBe(200)
    await tenant.call('DELETE', `/${tenant.domainId}/clients/${id}`)
    await tenant.newClient({ id })
    expect((await call('GET', `/${tenant.domainId}/clients/${id}`)).status).toBe(403)
    const again = { optional_domain_id: tenant.domainId, entity_type: 'clients', entity_id: id, operation: 'read' }
    expect((await addScopes(tenant.call, pat.id, [again])).status).toBe(200)
    expect((await call('GET', `/${tenant.domainId}/clients/${id}`)).status).toBe(200)
  })
})

test('the revocation, change or deletion of a token takes effect on every node within a second', async () => {
  await using database = await createTestDatabase()
  await using one = await startTestApi({ database, tailIntervalMs: 250 })
  await using other = await startTestApi({ database, tailIntervalMs: 250 })
  const tenant = await newTenant(one)
  const endings: [string, (id: string) => Promise<unknown>, number][] = [
    ['revoked', (id) => tenant.call('PATCH', `/pats/${id}/secret/revoke`), 401],
    ['reset', (id) => tenant.call('PATCH', `/pats/${id}/secret/reset`, { duration: '1h' }), 401],
    ['unscoped', (id) => tenant.call('DELETE', `/pats/${id}/scope`), 403],
    ['deleted', (id) => tenant.call('DELETE', `/pats/${id}`), 401],
    ['all deleted', () => tenant.call('DELETE', '/pats'), 401],
  ]
  for (const [what, end, status] of endings) {
    const pat = await newPat(tenant.call)
    const scope = { optional_domain_id: tenant.domainId, entity_type: 'domains', entity_id: '*', operation: 'read' }
    expect((await addScopes(tenant.call, pat.id, [scope])).status).toBe(200)
    const there = async () => (await other.as(`Bearer ${pat.secret}`)('GET', `/domains/${tenant.domainId}`)).status
    await until(async () => (await there()) === 200, `${what}: usable there`)
    await end(pat.id)
    await untilInForce(there, { from: 200, to: status }, `${what}: over there`)
    expect((await one.as(`Bearer ${pat.secret}`)('GET', `/domains/${tenant.domainId}`)).status).toBe(status)
  }
})

test('the time of use is recorded without a write per request', async () => {
  const tenant = await newTenant(api)
  const { pat, call } = await robot(tenant, [['domains', 'read', tenant.domainId]])
  await Promise.all(Array.from({ length: 20 }, () => call('GET', `/domains/${tenant.domainId}`)))
  const used = await until(async () => {
    const shown = (await tenant.call('GET', `/pats/${pat.id}`)).json<Pat>()
    return shown.last_used_at !== ZERO_TIME && shown
  }, 'the use is written')
  expect(used.updated_at).toBe(ZERO_TIME)
  expect(used.last_used_at >= used.issued_at).toBe(true)
})
