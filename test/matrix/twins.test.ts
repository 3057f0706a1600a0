/**
 * Two tenants with the same ids, routes and secrets never see or affect each other, whatever is called; foreign and unknown
 * ids answer alike (contract section 0, decisions 31b and 45).
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { startFullApp } from '../../tools/generate/full-app.ts'
import type { FullApp } from '../../tools/generate/full-app.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createEntities, roleIdOf } from './entities.ts'
import type { Thing } from './entities.ts'
import { isInside, routesOf } from './fill.ts'
import { rowsOf } from './rows.ts'
import type { Row } from './rows.ts'
import type { Furniture } from './world.ts'

const DEADLINE_MS = 900_000
const TYPES = ['domain', 'client', 'channel', 'group'] as const
/** Their answer does not end. */
const STREAMS = /\/(events|live)$/

let database: TestDatabase
let full: FullApp
let entities: ReturnType<typeof createEntities>
let firstFreshKey: number
let mine: Tenant
let theirs: Tenant
let people: { bystander: string; leaver: string; outsider: string }

type User = { id: string; key: number; token: string }
type Tenant = { owner: User; domain: Thing; top: Thing; parent: Thing; memberRole: number }
type Answer = { status: number; text: string }

beforeAll(async () => {
  database = await createTestDatabase()
  full = await startFullApp(database.address)
  entities = createEntities(database.database.db, full.keyring)
  const [bystander, leaver, outsider] = [await newUser('bystander'), await newUser('leaver'), await newUser('outsider')]
  people = { bystander: bystander.id, leaver: leaver.id, outsider: outsider.id }
  const shared = { top: newId(), parent: newId() }
  mine = await newTenant('mine', shared, [bystander, leaver])
  theirs = await newTenant('theirs', shared, [bystander, leaver])
  firstFreshKey = entities.newThing('domain').key
})
afterAll(async () => {
  await full[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

async function send(token: string | undefined, method: string, url: string, body?: unknown): Promise<Answer> {
  const response = await full.app.inject({
    method: method as 'GET',
    url,
    headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
    ...(body === undefined ? {} : { payload: body as object }),
    payloadAsStream: true,
  })
  const isStream = STREAMS.test(url.split('?', 1)[0] ?? '') && response.statusCode === 200
  if (isStream) response.stream().destroy()
  return {
    status: response.statusCode,
    text: isStream ? '' : await new Response(response.stream() as unknown as ReadableStream).text(),
  }
}

async function newUser(name: string): Promise<User> {
  const secret = `secret-of-${name}`
  await send(undefined, 'POST', '/users', {
    first_name: name,
    last_name: `of ${name}`,
    email: `${name}@example.com`,
    credentials: { username: name, secret },
  })
  const { text } = await send(undefined, 'POST', '/users/tokens/issue', { identity: name, secret })
  const { rows } = await sql<{ id: string; key: number }>`SELECT id, key FROM users WHERE username = ${name}`.execute(
    database.database.db,
  )
  const user = rows[0] as { id: string; key: number }
  return { ...user, token: (JSON.parse(text) as { access_token: string }).access_token }
}

async function newTenant(
  name: string,
  ids: { top: string; parent: string },
  members: readonly User[],
): Promise<Tenant> {
  const owner = await newUser(name)
  const { text } = await send(owner.token, 'POST', '/domains', { name: 'plant', route: name })
  const { id } = JSON.parse(text) as { id: string }
  const { rows } = await sql<{ key: number }>`SELECT key FROM domains WHERE id = ${id}`.execute(database.database.db)
  const domain: Thing = { type: 'domain', id, key: (rows[0] as { key: number }).key }
  const { newThing, insertGroups, insertGrants, insertRoles } = entities
  const [top, parent, role] = [newThing('group', ids.top), newThing('group', ids.parent), newThing('domain')]
  await insertGroups(domain.key, [
    { ...top, above: [] },
    { ...parent, above: [top.key] },
  ])
  await insertRoles(domain.key, [{ thing: domain, role, actions: [] }])
  await insertGrants(
    domain.key,
    members.map((user) => ({ user: user.key, thing: domain, roleKey: role.key })),
  )
  return { owner, domain, top, parent, memberRole: role.key }
}

type Ids = Record<'client' | 'channel' | 'group' | 'child' | 'other', string>
const newIds = (): Ids => ({ client: newId(), channel: newId(), group: newId(), child: newId(), other: newId() })

/** What a call names, with these ids, in the tenant's domain; nothing is written. */
function named(tenant: Tenant, ids: Ids): Furniture & { keys: Record<(typeof TYPES)[number], Thing> } {
  const { newThing } = entities
  const keys = {
    domain: newThing('domain'),
    client: newThing('client'),
    channel: newThing('channel'),
    group: newThing('group'),
  }
  return {
    domain: tenant.domain,
    parent: tenant.parent,
    client: newThing('client', ids.client),
    channel: newThing('channel', ids.channel),
    group: newThing('group', ids.group),
    child: newThing('group', ids.child),
    other: newThing('group', ids.other),
    roles: {
      domain: roleIdOf('domain', keys.domain.id),
      client: roleIdOf('client', keys.client.id),
      channel: roleIdOf('channel', keys.channel.id),
      group: roleIdOf('group', keys.group.id),
    },
    keys,
  }
}

/** The same, and it exists. */
async function furnished(tenant: Tenant, ids: Ids): Promise<Furniture> {
  const at = named(tenant, ids)
  const { domain, top, parent } = tenant
  const place = { ...domain, parent }
  await entities.insertGroups(domain.key, [
    { ...at.group, above: [parent.key, top.key] },
    { ...at.child, above: [at.group.key, parent.key, top.key] },
    { ...at.other, above: [parent.key, top.key] },
  ])
  await entities.insertClients(place, [at.client])
  await entities.insertChannels(place, [at.channel])
  await entities.insertRoles(
    domain.key,
    TYPES.map((type) => ({ thing: at[type], role: at.keys[type], actions: ['read'] })),
  )
  return at
}

/** The digest of everything that the domain holds. */
async function dump({ domain: { key } }: Tenant): Promise<string> {
  const { rows } = await sql<{ digest: string | null }>`SELECT md5(string_agg(row, '' ORDER BY row)) AS digest FROM (
    SELECT 'domain' || to_jsonb(d)::text AS row FROM domains d WHERE d.key = ${key}
    UNION ALL SELECT 'client' || to_jsonb(c)::text FROM clients c WHERE c.domain_key = ${key}
    UNION ALL SELECT 'channel' || to_jsonb(h)::text FROM channels h WHERE h.domain_key = ${key}
    UNION ALL SELECT 'group' || to_jsonb(g)::text FROM groups g WHERE g.domain_key = ${key}
    UNION ALL SELECT 'above' || to_jsonb(a)::text FROM group_closure a JOIN groups g ON g.key = a.descendant_key WHERE g.domain_key = ${key}
    UNION ALL SELECT 'connection' || to_jsonb(n)::text FROM connections n WHERE n.domain_key = ${key}
    UNION ALL SELECT 'role' || to_jsonb(r)::text FROM roles r WHERE r.domain_key = ${key}
    UNION ALL SELECT 'grant' || to_jsonb(g)::text FROM grants g WHERE g.domain_key = ${key}
    UNION ALL SELECT 'invitation' || to_jsonb(i)::text FROM invitations i WHERE i.domain_key = ${key}
    UNION ALL SELECT 'message' || to_jsonb(p)::text FROM payloads p JOIN channels h ON h.key = p.channel_key WHERE h.domain_key = ${key}
    UNION ALL SELECT 'journal' || to_jsonb(j)::text FROM journal j WHERE j.domain_key = ${key}) held`.execute(
    database.database.db,
  )
  return rows[0]?.digest ?? ''
}

async function ask(row: Row, at: Furniture): Promise<Answer> {
  const { url, body } = row.request(at, people)
  return await send(mine.owner.token, row.method, url, body)
}

/** The answer without the ids that the call named, and without the id of the request itself. */
function bare({ status, text }: Answer, at: Furniture): string {
  const ids = [at.domain, at.client, at.channel, at.group, at.child, at.other].map(({ id }) => id)
  return `${status} ${[...ids, ...Object.values(at.roles)].reduce((rest, id) => rest.replaceAll(id, '<id>'), text)}`
}

const rows = () => routesOf(full).filter(isInside).flatMap(rowsOf)
const namesDomain = ({ url }: Row) => url.includes(':domain_id')
const namesEntity = ({ url, on }: Row) => on !== 'domain' || url.includes(':role_id')

async function restore(): Promise<void> {
  await sql`UPDATE domains SET status = 'enabled', deleted_at = NULL WHERE key = ${mine.domain.key}`.execute(
    database.database.db,
  )
  full.api.identity.access.invalidateAll()
}

test(
  'no call of one tenant shows or changes anything of another with the same ids',
  async () => {
    const faults: string[] = []
    let succeeded = 0
    for (const row of rows()) {
      await entities.removeFrom(firstFreshKey)
      const ids = newIds()
      const at = await furnished(mine, ids)
      await furnished(theirs, ids)
      full.api.identity.access.invalidateAll()
      const before = await dump(theirs)
      const answer = await ask(row, at)
      if (answer.text.includes(theirs.domain.id) || answer.text.includes(theirs.owner.id))
        faults.push(`${row.label} shows`)
      if (answer.status < 300) succeeded++
      if (answer.status >= 500 || answer.status === 401) faults.push(`${row.label}: ${answer.status} ${answer.text}`)
      if ((await dump(theirs)) !== before) faults.push(`${row.label} changes`)
      if (row.changesDomain) await restore()
    }
    expect(faults).toEqual([])
    expect(succeeded).toBeGreaterThan(0.89 * rows().length)
  },
  DEADLINE_MS,
)

test(
  'an entity of the other tenant and a missing one get the same response, in one domain and in none, byte for byte',
  async () => {
    const faults: string[] = []
    for (const row of rows().filter(namesEntity)) {
      await entities.removeFrom(firstFreshKey)
      const foreign = await furnished(theirs, newIds())
      full.api.identity.access.invalidateAll()
      const before = await dump(theirs)
      const [there, nowhere] = [{ ...foreign, domain: mine.domain, parent: foreign.other }, named(mine, newIds())]
      const [one, other] = [await ask(row, there), await ask(row, { ...nowhere, parent: nowhere.other })]
      if (bare(one, there) !== bare(other, nowhere))
        faults.push(`${row.label}: ${bare(one, there)} but ${bare(other, nowhere)}`)
      if ((await dump(theirs)) !== before) faults.push(`${row.label} changes`)
    }
    expect(faults).toEqual([])
  },
  DEADLINE_MS,
)

test(
  'every call in the domain of the other tenant gets the response of a missing domain, byte for byte',
  async () => {
    const faults: string[] = []
    const at = await furnished(theirs, newIds())
    const before = await dump(theirs)
    for (const row of rows().filter(namesDomain)) {
      const nowhere = { ...at, domain: { ...at.domain, id: newId() } }
      const [one, other] = [await ask(row, at), await ask(row, nowhere)]
      if (bare(one, at) !== bare(other, nowhere) || one.status !== 403)
        faults.push(`${row.label}: ${bare(one, at)} but ${bare(other, nowhere)}`)
    }
    expect(faults).toEqual([])
    expect(await dump(theirs)).toBe(before)
  },
  DEADLINE_MS,
)
