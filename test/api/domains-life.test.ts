// contract 1.2: statuses of a domain, its deletion and restoration; decisions 13, 45, 46
import { expect, test } from 'vitest'
import { ACTIONS } from '#api/identity/index.ts'
import { completeDocument } from '#http/index.ts'
import type { Document } from '#http/index.ts'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { newMember, newTenant, publish, read, statusesOf, tenantOf } from './support.ts'
import type { Tenant } from './support.ts'

const api = useWorld(() => startTestApi())

type Domain = { id: string; status: string; updated_at: string }

const domainOf = async (tenant: Tenant) => (await tenant.call('GET', `/domains/${tenant.domainId}`)).json<Domain>()

/** What a member does in a domain, over every kind of call that there is for one. */
async function callsOf(tenant: Tenant, ids: { client: string; channel: string }): Promise<number[]> {
  const { call, domainId } = tenant
  const answers = await Promise.all([
    call('GET', `/domains/${domainId}`),
    call('GET', `/${domainId}/clients`),
    call('GET', `/${domainId}/clients/${ids.client}`),
    call('GET', `/${domainId}/channels/${ids.channel}`),
    call('POST', `/${domainId}/clients`, {}),
    call('POST', `/${domainId}/channels/connect`, { client_ids: [ids.client], channel_ids: [ids.channel] }),
  ])
  return statusesOf(answers)
}

async function withDevice(tenant: Tenant) {
  const client = await tenant.newClient()
  const channel = await tenant.newChannel()
  await tenant.connect(client.id, channel.id)
  return { client: client.id, channel: channel.id, secret: client.credentials.secret }
}

test('a disabled domain is closed to its members but not to its administrators, and delivers no messages', async () => {
  const tenant = await newTenant(api)
  const ids = await withDevice(tenant)
  const everything = ['read', 'client_read', 'client_create', 'channel_read', 'client_connect_to_channel']
  const member = await newMember(api, tenant, [
    ...everything,
    'channel_connect_to_client',
    'channel_publish',
    'channel_subscribe',
  ])
  const path = { secret: ids.secret, domain: tenant.domainId, channel: ids.channel }
  const asUser = (who: Tenant) =>
    who.call('POST', `/m/${tenant.domainId}/c/${ids.channel}`, '[{"n":"a","v":1}]', {
      'content-type': 'application/senml+json',
    })
  expect(await callsOf(member, ids)).toEqual([200, 200, 200, 200, 201, 201])
  expect([await publish(api, path), await read(api, path), (await asUser(member)).status]).toEqual([202, 200, 202])

  expect((await tenant.call('POST', `/domains/${tenant.domainId}/disable`)).status).toBe(200)
  expect(await callsOf(member, ids)).toEqual([403, 403, 403, 403, 403, 403])
  expect(await callsOf(tenant, ids)).toEqual([200, 200, 200, 200, 201, 201])
  expect([await publish(api, path), await read(api, path)]).toEqual([403, 403])
  expect([(await asUser(member)).status, (await asUser(tenant)).status]).toEqual([403, 403])

  expect((await tenant.call('POST', `/domains/${tenant.domainId}/enable`)).status).toBe(200)
  expect(await callsOf(member, ids)).toEqual([200, 200, 200, 200, 201, 201])
  expect([await publish(api, path), await read(api, path)]).toEqual([202, 200])
})

/** Every path that names a domain, as the document says; not those of devices, which are asked above. */
async function domainPaths(): Promise<{ method: string; path: string }[]> {
  const document = completeDocument((await api.anonymous('GET', '/openapi.json')).json<Document>()) as {
    paths: Record<string, object>
  }
  return Object.entries(document.paths)
    .filter(([path]) => path.includes('{domain_id}') && !/messages|\/m\/|identify/.test(path))
    .flatMap(([path, methods]) => Object.keys(methods).map((method) => ({ method: method.toUpperCase(), path })))
}

/** A request that names nothing that exists in the domain, and is well formed where no body is asked for. */
function urlOf(path: string, domainId: string): string {
  const url = path
    .replace('{domain_id}', domainId)
    .replace('{entity_type}', 'client')
    .replaceAll(/\{[a-z_]+\}/g, () => newId())
  if (path.endsWith('/access')) return `${url}?entity=client:${newId()}&action=read`
  if (path.endsWith('/latest')) return `${url}?client_id=${newId()}`
  return path.endsWith('/search') ? `${url}?q=no-such-name` : url
}

test('every path of a closed domain is refused: disabled to members, frozen and deleted to administrators too', async () => {
  const tenant = await newTenant(api)
  const member = await newMember(api, tenant, ACTIONS.domain)
  const paths = await domainPaths()
  expect(paths.length).toBeGreaterThan(80)

  async function openTo(who: Tenant): Promise<string[]> {
    const found: string[] = []
    for (const { method, path } of paths) {
      // Enabling is what restores a deleted domain.
      if (path === '/domains/{domain_id}/enable') continue
      const { status } = await who.call(method, urlOf(path, tenant.domainId), method === 'GET' ? undefined : {})
      // A body that is malformed is said first (decision 45), and a document that is none is no JSON.
      const isClosed = method === 'GET' ? status === 403 : [400, 403, 415].includes(status)
      if (!isClosed) found.push(`${method} ${path} answers ${status}`)
    }
    return found
  }
  await tenant.call('POST', `/domains/${tenant.domainId}/disable`)
  expect(await openTo(member)).toEqual([])
  await api.admin('POST', `/domains/${tenant.domainId}/freeze`)
  expect(await openTo(tenant)).toEqual([])
  await api.admin('DELETE', `/domains/${tenant.domainId}`)
  expect(await openTo(tenant)).toEqual([])
})

test('a frozen domain is open to the platform administrator only, who can end that', async () => {
  const tenant = await newTenant(api)
  const ids = await withDevice(tenant)
  const { domainId } = tenant
  const path = { secret: ids.secret, domain: domainId, channel: ids.channel }
  expect((await tenant.call('POST', `/domains/${domainId}/freeze`)).status).toBe(403)
  expect((await api.admin('POST', `/domains/${newId()}/freeze`)).status).toBe(403)

  const frozen = await api.admin('POST', `/domains/${domainId}/freeze`)
  expect(frozen.status).toBe(200)
  expect(frozen.json<Domain>().status).toBe('freezed')
  const again = await api.admin('POST', `/domains/${domainId}/freeze`)
  expect(again.json<Domain>().updated_at).toBe(frozen.json<Domain>().updated_at)

  expect(await callsOf(tenant, ids)).toEqual([403, 403, 403, 403, 403, 403])
  for (const verb of ['enable', 'disable']) {
    expect((await tenant.call('POST', `/domains/${domainId}/${verb}`)).status).toBe(403)
  }
  expect((await tenant.call('DELETE', `/domains/${domainId}`)).status).toBe(403)
  expect([await publish(api, path), await read(api, path)]).toEqual([403, 403])
  expect((await api.admin('GET', `/${domainId}/clients`)).status).toBe(200)
  const listed = (await tenant.call('GET', '/domains?status=freezed')).json<{ domains: Domain[] }>()
  expect(listed.domains.map((domain) => domain.id)).toEqual([domainId])

  expect((await api.admin('POST', `/domains/${domainId}/enable`)).status).toBe(200)
  expect(await callsOf(tenant, ids)).toEqual([200, 200, 200, 200, 201, 201])
})

test('a deleted domain returns 403 everywhere until its administrator enables it again', async () => {
  const tenant = await newTenant(api)
  const ids = await withDevice(tenant)
  const { domainId } = tenant
  const manager = await newMember(api, tenant, ['read', 'enable', 'delete'])
  const path = { secret: ids.secret, domain: domainId, channel: ids.channel }
  const deleted = await tenant.call('DELETE', `/domains/${domainId}`)
  expect([deleted.status, deleted.text]).toEqual([204, ''])

  expect(await callsOf(tenant, ids)).toEqual([403, 403, 403, 403, 403, 403])
  expect((await tenant.call('DELETE', `/domains/${domainId}`)).status).toBe(403)
  expect((await tenant.call('POST', `/domains/${domainId}/disable`)).status).toBe(403)
  expect((await api.admin('GET', `/${domainId}/clients`)).status).toBe(403)
  expect([await publish(api, path), await read(api, path)]).toEqual([403, 403])
  expect((await tenant.call('GET', '/domains')).json()).toMatchObject({ total: 0 })
  expect((await tenant.call('GET', '/domains?status=deleted')).json()).toMatchObject({ domains: [{ id: domainId }] })

  // The action `enable` is not enough: the domain's administrator restores it.
  const refused = await manager.call('POST', `/domains/${domainId}/enable`)
  const unknown = await manager.call('POST', `/domains/${newId()}/enable`)
  expect([refused.status, refused.text]).toEqual([403, unknown.text])
  const restored = await tenant.call('POST', `/domains/${domainId}/enable`)
  expect([restored.status, restored.json<Domain>().status]).toEqual([200, 'enabled'])
  expect(await callsOf(tenant, ids)).toEqual([200, 200, 200, 200, 201, 201])
  expect([await publish(api, path), await read(api, path)]).toEqual([202, 200])
})

test('the platform administrator restores a deleted domain too; a token of another domain cannot', async () => {
  const tenant = await newTenant(api)
  const other = tenantOf(tenant.user, (await tenant.call('POST', '/domains', { name: 'other' })).json<Domain>().id)
  const bound = await api.anonymous('POST', '/users/tokens/issue', {
    identity: tenant.user.username,
    secret: tenant.user.secret,
    domain_id: other.domainId,
  })
  const elsewhere = api.as(`Bearer ${bound.json<{ access_token: string }>().access_token}`)
  await tenant.call('DELETE', `/domains/${tenant.domainId}`)
  expect((await elsewhere('POST', `/domains/${tenant.domainId}/enable`)).status).toBe(403)
  expect((await elsewhere('POST', '/domains', { name: 'third' })).status).toBe(403)
  expect((await api.admin('POST', `/domains/${tenant.domainId}/enable`)).status).toBe(200)
  expect((await domainOf(tenant)).status).toBe('enabled')
})

test('a personal access token restores no domain, whatever its scopes', async () => {
  const tenant = await newTenant(api)
  const pat = await tenant.call('POST', '/pats', { name: 'robot', duration: '1h' })
  const { id, secret } = pat.json<{ id: string; secret: string }>()
  const scopes = ['update', 'read', 'delete'].map((operation) => ({
    optional_domain_id: tenant.domainId,
    entity_type: 'domains',
    entity_id: '*',
    operation,
  }))
  expect((await tenant.call('PATCH', `/pats/${id}/scope/add`, { scopes })).status).toBe(200)
  const call = api.as(`Bearer ${secret}`)
  expect((await call('GET', `/domains/${tenant.domainId}`)).status).toBe(200)
  expect((await call('DELETE', `/domains/${tenant.domainId}`)).status).toBe(204)
  expect((await call('POST', `/domains/${tenant.domainId}/enable`)).status).toBe(403)
  expect((await tenant.call('POST', `/domains/${tenant.domainId}/enable`)).status).toBe(200)
})

test('a caller without delete is refused, and nothing is deleted', async () => {
  const tenant = await newTenant(api)
  const member = await newMember(api, tenant, ['read', 'update', 'disable', 'enable'])
  const stranger = await api.newUser()
  expect((await member.call('DELETE', `/domains/${tenant.domainId}`)).status).toBe(403)
  expect((await stranger.call('DELETE', `/domains/${tenant.domainId}`)).status).toBe(403)
  expect((await api.anonymous('DELETE', `/domains/${tenant.domainId}`)).status).toBe(401)
  expect((await domainOf(tenant)).status).toBe('enabled')
})

test('concurrent deletions and disablings never restore a deleted domain', async () => {
  const tenant = await newTenant(api)
  const { call, domainId } = tenant
  const answers = await Promise.all(
    Array.from({ length: 12 }, (_, index) =>
      index % 2 === 0 ? call('DELETE', `/domains/${domainId}`) : call('POST', `/domains/${domainId}/disable`),
    ),
  )
  for (const answer of answers) expect([200, 204, 403]).toContain(answer.status)
  expect((await call('GET', '/domains?status=deleted')).json()).toMatchObject({ domains: [{ id: domainId }] })
})

test('the journal records each change of a domain before and after', async () => {
  const tenant = await newTenant(api)
  const { call, domainId } = tenant
  await call('PATCH', `/domains/${domainId}`, { name: 'renamed', tags: ['a'] })
  await call('POST', `/domains/${domainId}/disable`)
  await call('DELETE', `/domains/${domainId}`)
  const { rows } = await sql<{ operation: string; attributes: unknown }>`
    SELECT operation, attributes FROM journal WHERE domain_key = (SELECT key FROM domains WHERE id = ${domainId}) ORDER BY seq`.execute(
    api.database.db,
  )
  expect(rows).toMatchObject([
    { operation: 'domain.create', attributes: { id: domainId, name: 'plant', status: 'enabled' } },
    {
      operation: 'domain.update',
      attributes: { id: domainId, before: { name: 'plant', tags: [] }, after: { name: 'renamed', tags: ['a'] } },
    },
    { operation: 'domain.disable', attributes: { before: { status: 'enabled' }, after: { status: 'disabled' } } },
    { operation: 'domain.delete', attributes: { before: { status: 'disabled' }, after: { status: 'deleted' } } },
  ])
})
