// contract section 4, decisions 31b, 31c and 45: two tenants with the same ids, names, routes and secrets know nothing of each other
import { describe, expect, test } from 'vitest'
import { completeDocument } from '#http/index.ts'
import type { Document } from '#http/index.ts'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { TestResponse } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import type { Tenant } from './support.ts'
import { newTenant, setParent } from './support.ts'

const api = useWorld(() => startTestApi())

/** What both tenants chose alike. */
type Chosen = {
  client: string
  spare: string
  channel: string
  other: string
  group: string
  route: string
  secret: string
}

/** A domain full of what the other one holds too; each record says in its metadata whose it is. */
async function furnish(chosen: Chosen): Promise<Tenant> {
  const tenant = await newTenant(api)
  const metadata = { of: tenant.domainId }
  await tenant.newClient({ id: chosen.client, name: 'pump', credentials: { secret: chosen.secret }, metadata })
  await tenant.newClient({ id: chosen.spare, name: 'pump', tags: ['north'], metadata })
  await tenant.newChannel({ id: chosen.channel, name: 'readings', route: chosen.route, metadata })
  await tenant.newChannel({ id: chosen.other, name: 'readings', metadata })
  const created = await tenant.call('POST', `/${tenant.domainId}/groups`, { name: 'hall', metadata })
  // Groups get their ids from the service: the same one is given here as a restored backup would.
  await sql`UPDATE groups SET id = ${chosen.group} WHERE id = ${created.json<{ id: string }>().id}`.execute(
    api.database.db,
  )
  await tenant.connect(chosen.client, chosen.channel)
  return tenant
}

async function newTwins(): Promise<{ chosen: Chosen; mine: Tenant; theirs: Tenant }> {
  const [client, spare, channel, other, group] = [newId(), newId(), newId(), newId(), newId()]
  const mark = newId().slice(0, 8)
  const chosen = { client, spare, channel, other, group, route: `r-${mark}`, secret: `a-secret-of-two-${mark}` }
  return { chosen, mine: await furnish(chosen), theirs: await furnish(chosen) }
}

/** Everything that the domain holds, row by row. */
async function dump({ domainId }: Tenant): Promise<string> {
  const { rows } = await sql<{ row: string }>`
    WITH d AS (SELECT key FROM domains WHERE id = ${domainId})
    SELECT 'client' || to_jsonb(c)::text AS row FROM clients c, d WHERE c.domain_key = d.key
    UNION ALL SELECT 'channel' || to_jsonb(h)::text FROM channels h, d WHERE h.domain_key = d.key
    UNION ALL SELECT 'connection' || to_jsonb(n)::text FROM connections n JOIN clients c ON c.key = n.client_key, d WHERE c.domain_key = d.key
    UNION ALL SELECT 'grant' || to_jsonb(g)::text FROM grants g, d WHERE g.domain_key = d.key
    UNION ALL SELECT 'journal' || to_jsonb(j)::text FROM journal j, d WHERE j.domain_key = d.key ORDER BY 1`.execute(
    api.database.db,
  )
  return rows.map((one) => one.row).join('\n')
}

type Body = ((chosen: Chosen) => unknown) | undefined
const entity = (type: 'client' | 'channel'): [string, string, Body][] => {
  const at = `/${type}s/{${type}}`
  return [
    ['GET', at, undefined],
    ['PATCH', at, () => ({ name: 'changed', metadata: {} })],
    ...(type === 'channel' ? ([['PUT', at, () => ({ name: 'changed again' })]] as [string, string, Body][]) : []),
    ['PATCH', `${at}/tags`, () => ({ tags: ['changed'] })],
    ...(type === 'client'
      ? ([['PATCH', `${at}/secret`, () => ({ secret: `other-${newId()}` })]] as [string, string, Body][])
      : []),
    ['POST', `${at}/disable`, undefined],
    ['POST', `${at}/enable`, undefined],
    ['POST', `${at}/parent`, (chosen) => ({ parent_group_id: chosen.group })],
    ['DELETE', `${at}/parent`, undefined],
    ['DELETE', at, undefined],
  ]
}
const pairOf = (chosen: Chosen) => ({ client_ids: [chosen.client, chosen.spare], channel_ids: [chosen.other] })

/** Every endpoint, in an order that leaves the entities of the next ones in place. */
const CALLS: readonly [method: string, path: string, body: Body][] = [
  ['POST', '/clients', () => ({ name: 'pump', id: newId() })],
  ['POST', '/clients/bulk', () => [{ name: 'pump' }, { id: newId() }]],
  ['GET', '/clients', undefined],
  ['GET', '/clients?status=all&name=pump&limit=100', undefined],
  ['GET', '/clients?channel={channel}', undefined],
  ['GET', '/clients?group={group}', undefined],
  ['GET', '/clients?id={client}', undefined],
  ['POST', '/channels', () => ({ name: 'readings', id: newId() })],
  ['POST', '/channels/bulk', () => [{ name: 'readings' }, { id: newId() }]],
  ['GET', '/channels', undefined],
  ['GET', '/channels?status=all&name=readings&client={client}', undefined],
  ['GET', '/channels/{channel}/clients', undefined],
  ['GET', '/clients/{client}/channels', undefined],
  ['GET', '/clients/{client}/sessions', undefined],
  ['DELETE', '/clients/{client}/sessions', undefined],
  ['GET', '/channels/{channel}/groups', undefined],
  ['POST', '/channels/{other}/groups/assign', (chosen) => ({ group_ids: [chosen.group] })],
  ['POST', '/channels/{other}/groups/unassign', (chosen) => ({ group_ids: [chosen.group] })],
  ['GET', '/groups/{group}/clients', undefined],
  ['GET', '/groups/{group}/channels', undefined],
  ['GET', '/users/{user}/clients', undefined],
  ['GET', '/users/{user}/channels', undefined],
  ['POST', '/channels/connect', pairOf],
  ['POST', '/channels/disconnect', pairOf],
  ['POST', '/connect', pairOf],
  ['POST', '/disconnect', pairOf],
  ['POST', '/channels/{channel}/connect', (chosen) => ({ client_ids: [chosen.spare] })],
  ['POST', '/channels/{channel}/disconnect', (chosen) => ({ client_ids: [chosen.spare, chosen.client] })],
  ['PUT', '/channels/{channel}/clients/{client}', undefined],
  ['DELETE', '/channels/{channel}/clients/{client}', undefined],
  ...entity('client'),
  ...entity('channel'),
]
/** These know no domain at all. */
const UNSCOPED_ONLY = new Set(['/connect', '/disconnect'])
/** This one always names its domain. */
const SCOPED_ONLY = new Set(['/clients/{client}/sessions'])

const fill = (path: string, chosen: Chosen, userId: string) =>
  path.replaceAll(/\{(\w+)\}/g, (_all, name: string) => (name === 'user' ? userId : chosen[name as keyof Chosen]))

const fails = ({ status }: TestResponse) => status < 200 || status > 299

describe.each([true, false])('with the domain in the path: %s', (isScoped) => {
  test('no call of one tenant shows or changes anything of another', async () => {
    const { chosen, mine, theirs } = await newTwins()
    const before = await dump(theirs)
    for (const [method, path, body] of CALLS) {
      if ((isScoped ? UNSCOPED_ONLY : SCOPED_ONLY).has(path)) continue
      const url = `${isScoped ? `/${mine.domainId}` : ''}${fill(path, chosen, mine.user.id)}`
      const answer = await mine.call(method, url, body?.(chosen))
      expect(fails(answer), `${method} ${url}: ${answer.status} ${answer.text}`).toBe(false)
      expect(answer.text, `${method} ${url}`).not.toContain(theirs.domainId)
      expect(await dump(theirs), `${method} ${url}`).toBe(before)
    }
  })
})

test('in the domain of another tenant every call is the same 403 as in a missing domain', async () => {
  const { chosen, mine, theirs } = await newTwins()
  const before = await dump(theirs)
  for (const [method, path, body] of CALLS) {
    if (UNSCOPED_ONLY.has(path)) continue
    const ask = (domainId: string) =>
      mine.call(method, `/${domainId}${fill(path, chosen, mine.user.id)}`, body?.(chosen))
    const [foreign, unknown] = [await ask(theirs.domainId), await ask(newId())]
    expect(foreign.status, `${method} ${path}`).toBe(403)
    expect(foreign.text, `${method} ${path}`).toBe(unknown.text)
  }
  expect(await dump(theirs)).toBe(before)
})

test('a group of another tenant is rejected as a parent', async () => {
  const { chosen, mine, theirs } = await newTwins()
  await sql`UPDATE groups SET id = ${newId()} WHERE domain_key = (SELECT key FROM domains WHERE id = ${mine.domainId})`.execute(
    api.database.db,
  )
  await setParent(api, theirs.domainId, 'client', chosen.client, chosen.group)
  const refused = await mine.call('POST', `/${mine.domainId}/clients/${chosen.client}/parent`, {
    parent_group_id: chosen.group,
  })
  expect(refused.status).toBe(422)
})

test('a secret of two tenants is accepted with the domain in the path, and refused without', async () => {
  const { chosen, mine, theirs } = await newTwins()
  const device = api.as(`Client ${chosen.secret}`)
  const send = (path: string) => device('POST', path, '[{"n":"v","v":1}]', { 'content-type': 'application/senml+json' })
  for (const { domainId } of [mine, theirs]) {
    expect((await send(`/m/${domainId}/c/${chosen.channel}`)).status).toBe(202)
    expect((await send(`/m/${domainId}/c/${chosen.route}`)).status).toBe(202)
    expect((await device('POST', `/${domainId}/clients/identify`)).json()).toEqual({
      id: chosen.client,
      domain_id: domainId,
    })
  }
  expect((await send(`/channels/${chosen.channel}/messages`)).status).toBe(401)
  expect((await device('POST', '/clients/identify')).status).toBe(401)
  const read = await device('GET', `/m/${mine.domainId}/c/${chosen.channel}`)
  expect(read.json<{ total: number }>().total).toBe(2)
  await theirs.call('DELETE', `/${theirs.domainId}/clients/${chosen.client}`)
  expect((await device('POST', '/clients/identify')).json()).toMatchObject({ domain_id: mine.domainId })
})

test('every endpoint of clients, channels and connections is covered', async () => {
  const document = completeDocument((await api.anonymous('GET', '/openapi.json')).json<Document>()) as {
    paths: Record<string, Record<string, { tags?: string[] }>>
  }
  const ours = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, { tags = [] }]) => tags.some((tag) => ['clients', 'channels', 'connections'].includes(tag)))
      .map(([method]) => `${method.toUpperCase()} ${path.replace('/{domain_id}/', '/').replaceAll(/_id\}/g, '}')}`),
  )
  const called = new Set(
    CALLS.map(([method, path]) => `${method} ${path.split('?', 1)[0]?.replace('{other}', '{channel}')}`),
  )
  expect([...new Set(ours)].filter((one) => !called.has(one) && !one.endsWith('/clients/identify'))).toEqual([])
  expect(ours.length).toBeGreaterThan(60)
})
