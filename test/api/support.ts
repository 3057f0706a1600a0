/** What the tests of the platform's API share: domains, devices, and grants where no route makes them yet. */
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { Caller, TestApi, TestResponse, TestUser } from '../harness/api.ts'

export type Client = {
  id: string
  name: string
  domain_id: string
  tags: string[]
  credentials: { identity: string; secret: string }
  metadata: Record<string, unknown>
  status: string
  owner?: string
  created_at: string
  updated_at: string
  updated_by?: string
}

export type Channel = {
  id: string
  name: string
  description?: string
  route?: string
  domain_id: string
  tags: string[]
  metadata: Record<string, unknown>
  status: string
  owner_id?: string
  created_at: string
  updated_at: string
  updated_by?: string
}

export type Page<Name extends string, T> = { total: number; offset: number; limit: number } & Record<Name, T[]>

export const ZERO_TIME = '0001-01-01T00:00:00Z'
export const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** A user with their own domain, and short calls for common requests in it. */
export type Tenant = {
  user: TestUser
  call: Caller
  domainId: string
  newClient(fields?: Record<string, unknown>): Promise<Client>
  newChannel(fields?: Record<string, unknown>): Promise<Channel>
  connect(clientId: string, channelId: string, types?: readonly string[]): Promise<void>
}

function expectStatus(status: number, response: TestResponse): TestResponse {
  if (response.status !== status) throw new Error(`expected ${status}, got ${response.status}: ${response.text}`)
  return response
}

export async function newTenant(api: TestApi): Promise<Tenant> {
  const user = await api.newUser()
  const created = expectStatus(201, await user.call('POST', '/domains', { name: 'plant' }))
  return tenantOf(user, created.json<{ id: string }>().id)
}

/** The same domain through another user. */
export function tenantOf(user: TestUser, domainId: string): Tenant {
  const { call } = user
  return {
    user,
    call,
    domainId,
    async newClient(fields = {}) {
      return expectStatus(201, await call('POST', `/${domainId}/clients`, fields)).json<Client>()
    },
    async newChannel(fields = {}) {
      return expectStatus(201, await call('POST', `/${domainId}/channels`, fields)).json<Channel>()
    },
    async connect(clientId, channelId, types = ['publish', 'subscribe']) {
      const body = { client_ids: [clientId], channel_ids: [channelId], types }
      expectStatus(201, await call('POST', `/${domainId}/channels/connect`, body))
    },
  }
}

/** The statuses of answers that came in no particular order, smallest first. */
export function statusesOf(answers: readonly TestResponse[]): number[] {
  return answers.map((answer) => answer.status).toSorted((left, right) => left - right)
}

/** Sends one measurement with a client's secret; the status says whether it was let through. */
export async function publish(
  api: TestApi,
  { secret, domain, channel }: { secret: string; domain?: string; channel: string },
): Promise<number> {
  const path = domain === undefined ? `/channels/${channel}/messages` : `/http/m/${domain}/c/${channel}`
  const body = JSON.stringify([{ n: 'voltage', u: 'V', v: 120.1 }])
  const headers = { 'content-type': 'application/senml+json' }
  return (await api.as(`Client ${secret}`)('POST', path, body, headers)).status
}

export async function read(
  api: TestApi,
  { secret, domain, channel }: { secret: string; domain: string; channel: string },
): Promise<number> {
  return (await api.as(`Client ${secret}`)('GET', `/m/${domain}/c/${channel}`)).status
}

export type EntityType = 'domain' | 'group' | 'channel' | 'client'

async function keyOf(api: TestApi, type: EntityType | 'user', domainId: string, id: string): Promise<number> {
  const table = sql.table(`${type}s`)
  const inDomain =
    type === 'user' || type === 'domain'
      ? sql`true`
      : sql`domain_key = (SELECT key FROM domains WHERE id = ${domainId}::uuid)`
  const { rows } = await sql<{ key: number }>`SELECT key FROM ${table} WHERE id = ${id}::uuid AND ${inDomain}`.execute(
    api.database.db,
  )
  const key = rows[0]?.key
  if (key === undefined) throw new Error(`no ${type} ${id}`)
  return key
}

/**
 * Gives the user a role with these actions on the entity, as a route for roles will: in one transaction with the journal
 * row from which every node learns it. `admin` instead of actions: the built-in role.
 */
export async function grantRole(
  api: TestApi,
  userId: string,
  on: { type: EntityType; domainId: string; id: string },
  actions: readonly string[] | 'admin',
): Promise<void> {
  const userKey = await keyOf(api, 'user', on.domainId, userId)
  const domainKey = await keyOf(api, 'domain', on.domainId, on.domainId)
  const entityKey = await keyOf(api, on.type, on.domainId, on.id)
  await api.api.identity.journal.change('system', async (tx, record) => {
    let roleKey = 0
    if (actions !== 'admin') {
      const { rows } = await sql<{
        key: number
      }>`INSERT INTO roles (id, entity_type, domain_key, entity_key, name, actions)
        VALUES (${`${on.type}_${newId()}`}, ${on.type}, ${domainKey}, ${entityKey}, ${newId()}, ${actions}) RETURNING key`.execute(
        tx,
      )
      roleKey = (rows[0] as { key: number }).key
    }
    await sql`INSERT INTO grants (user_key, entity_type, domain_key, entity_key, role_key)
      VALUES (${userKey}, ${on.type}, ${domainKey}, ${entityKey}, ${roleKey})`.execute(tx)
    record({ operation: `${on.type}.role.add_members`, domainKey, entityKeys: [userKey, entityKey] })
  })
}

/** Takes every role of the user on the entity. */
/** A member of the tenant's domain with these actions in it. */
export async function newMember(api: TestApi, tenant: Tenant, actions: readonly string[] | 'admin'): Promise<Tenant> {
  const user = await api.newUser()
  await grantRole(api, user.id, { type: 'domain', domainId: tenant.domainId, id: tenant.domainId }, actions)
  return tenantOf(user, tenant.domainId)
}

export async function revokeRoles(
  api: TestApi,
  userId: string,
  on: { type: EntityType; domainId: string; id: string },
): Promise<void> {
  const userKey = await keyOf(api, 'user', on.domainId, userId)
  const domainKey = await keyOf(api, 'domain', on.domainId, on.domainId)
  const entityKey = await keyOf(api, on.type, on.domainId, on.id)
  await api.api.identity.journal.change('system', async (tx, record) => {
    await sql`DELETE FROM grants WHERE user_key = ${userKey} AND entity_key = ${entityKey}`.execute(tx)
    record({ operation: `${on.type}.role.remove_members`, domainKey, entityKeys: [userKey, entityKey] })
  })
}

/** A group below another one or at the root; gives its id. */
export async function newGroup(api: TestApi, domainId: string, parentId?: string): Promise<string> {
  const id = newId()
  const domainKey = await keyOf(api, 'domain', domainId, domainId)
  const parentKey = parentId === undefined ? null : await keyOf(api, 'group', domainId, parentId)
  await api.api.identity.journal.change('system', async (tx, record) => {
    const { rows } = await sql<{ key: number }>`INSERT INTO groups (domain_key, id, parent_key, name)
      VALUES (${domainKey}, ${id}, ${parentKey}, 'group') RETURNING key`.execute(tx)
    const { key } = rows[0] as { key: number }
    await sql`INSERT INTO group_closure (ancestor_key, descendant_key, depth)
      SELECT ${key}::bigint, ${key}::bigint, 0
      UNION ALL SELECT ancestor_key, ${key}::bigint, depth + 1 FROM group_closure WHERE descendant_key = ${parentKey}`.execute(
      tx,
    )
    record({ operation: 'group.create', domainKey, entityKeys: [key] })
  })
  return id
}

/** Puts a client or channel into a group. */
export async function setParent(
  api: TestApi,
  domainId: string,
  type: 'client' | 'channel',
  id: string,
  groupId: string,
): Promise<void> {
  const domainKey = await keyOf(api, 'domain', domainId, domainId)
  const key = await keyOf(api, type, domainId, id)
  const groupKey = await keyOf(api, 'group', domainId, groupId)
  await api.api.identity.journal.change('system', async (tx, record) => {
    await sql`UPDATE ${sql.table(`${type}s`)} SET parent_group_key = ${groupKey} WHERE key = ${key}`.execute(tx)
    record({ operation: `${type}.set_parent`, domainKey, entityKeys: [key, groupKey] })
  })
}
