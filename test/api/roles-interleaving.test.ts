// contract 2.4, decision 33: what must stay true of roles, whichever two changes meet and whichever is first
import { beforeAll, expect, test } from 'vitest'
import type { RoleEntity } from '#api/identity/index.ts'
import { addMembers, ensureRelationRole, removeMembers, removeRolesOf } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { removeUserEverywhere } from '../../api/identity/roles/index.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'

const api = useWorld(() => startTestApi())
type User = { id: string; key: number }
/** Two administrators of the domain and of the client, and a member of the domain. */
let first: User
let second: User
let third: User

beforeAll(async () => {
  const registered = [await api.newUser(), await api.newUser(), await api.newUser()]
  ;[first, second, third] = (await Promise.all(
    registered.map(async ({ id }) => {
      const { rows } = await sql<{ key: number }>`SELECT key FROM users WHERE id = ${id}`.execute(api.database.db)
      return { id, key: rows[0]?.key as number }
    }),
  )) as [User, User, User]
})

type World = { domain: RoleEntity; client: RoleEntity }

async function newWorld(): Promise<World> {
  return await api.database.transaction(async (tx) => {
    const [domainId, clientId] = [newId(), newId()]
    const keyOf = async (insert: ReturnType<typeof sql<{ key: number }>>) =>
      ((await insert.execute(tx)).rows[0] as { key: number }).key
    const domainKey = await keyOf(
      sql`INSERT INTO domains (id, name, route) VALUES (${domainId}, 'world', ${`w${domainId.slice(0, 30)}`}) RETURNING key`,
    )
    const clientKey = await keyOf(sql`INSERT INTO clients (domain_key, id, secret_mac, secret_sealed)
      VALUES (${domainKey}, ${clientId}, decode(replace(${clientId}, '-', ''), 'hex'), ''::bytea) RETURNING key`)
    const domain: RoleEntity = { type: 'domain', key: domainKey, id: domainId, domainKey, domainId }
    const client: RoleEntity = { type: 'client', key: clientKey, id: clientId, domainKey, domainId }
    for (const entity of [domain, client]) {
      const admin = await ensureRelationRole(tx, entity, 'administrator', first.id)
      await addMembers(tx, entity, admin, [first.id, second.id])
    }
    const member = await ensureRelationRole(tx, domain, 'member', first.id)
    await addMembers(tx, domain, member, [third.id])
    return { domain, client }
  })
}

const ADMIN = { key: 0 }
type Change = (tx: Transaction, world: World) => Promise<unknown>

const CHANGES: Record<string, Change> = {
  'the first leaves the role of the domain': (tx, { domain }) =>
    removeMembers(tx, domain, { role: ADMIN, users: [first.id] }),
  'the second leaves the role of the domain': (tx, { domain }) =>
    removeMembers(tx, domain, { role: ADMIN, users: [second.id] }),
  'the first leaves the role of the client': (tx, { client }) =>
    removeMembers(tx, client, { role: ADMIN, users: [first.id] }),
  'the second leaves the role of the client': (tx, { client }) =>
    removeMembers(tx, client, { role: ADMIN, users: [second.id] }),
  'the first leaves the domain': (tx, { domain }) => removeMembers(tx, domain, { users: [first.id] }),
  'the third leaves the domain': (tx, { domain }) => removeMembers(tx, domain, { users: [third.id] }),
  'the third becomes administrator of the client': async (tx, { client }) =>
    addMembers(tx, client, await ensureRelationRole(tx, client, 'administrator', first.id), [third.id]),
  'the third becomes editor of the client': async (tx, { client }) =>
    addMembers(tx, client, await ensureRelationRole(tx, client, 'editor', first.id), [third.id]),
  'the second is deleted': (tx) => removeUserEverywhere(tx, second.key),
  'the third is deleted': async (tx) => {
    await removeUserEverywhere(tx, third.key)
    await sql`UPDATE users SET status = 'deleted' WHERE key = ${third.key}`.execute(tx)
  },
  'the client is deleted': async (tx, { client }) => {
    await sql`DELETE FROM clients WHERE key = ${client.key}`.execute(tx)
    await removeRolesOf(tx, [client.key])
  },
}

/** Refusals that a rule gives; anything else is a fault. */
const REFUSALS = new Set(['invalid_state', 'unprocessable', 'not_found'])

async function settle(work: Promise<unknown>): Promise<void> {
  await work.catch((error: unknown) => {
    if (!REFUSALS.has(kindOf(error))) throw error
  })
}

const DEADLINE_MS = 30_000

/** Resolves when a session waits for a lock of this database, or the work is done. */
async function waitsOrEnds(work: Promise<void>): Promise<void> {
  let isDone = false
  const done = work.then(
    () => (isDone = true),
    () => (isDone = true),
  )
  const deadline = performance.now() + DEADLINE_MS
  while (!isDone) {
    const { rows } = await sql`SELECT 1 FROM pg_stat_activity
      WHERE datname = current_database() AND wait_event_type = 'Lock'`.execute(api.database.db)
    if (rows.length > 0) return
    if (performance.now() > deadline) throw new Error('neither waits nor ends')
    await Promise.race([done, new Promise((resolve) => setTimeout(resolve, 5))])
  }
}

async function findFaults({ domain, client }: World): Promise<string[]> {
  const { rows } = await sql<{ fault: string }>`
    SELECT 'the domain has no administrator' AS fault WHERE NOT EXISTS (
      SELECT 1 FROM grants g JOIN users u ON u.key = g.user_key AND u.status = 'enabled'
       WHERE g.entity_key = ${domain.key} AND g.role_key = 0)
    UNION ALL SELECT 'the client has no administrator' WHERE EXISTS (SELECT 1 FROM clients WHERE key = ${client.key})
      AND NOT EXISTS (SELECT 1 FROM grants WHERE entity_key = ${client.key} AND role_key = 0)
    UNION ALL SELECT 'a role of a client that is gone' WHERE NOT EXISTS (SELECT 1 FROM clients WHERE key = ${client.key})
      AND EXISTS (SELECT 1 FROM grants WHERE entity_key = ${client.key} UNION ALL SELECT 1 FROM roles WHERE entity_key = ${client.key})
    UNION ALL SELECT 'a role of who is no member of the domain' FROM grants g WHERE g.entity_key = ${client.key}
      AND NOT EXISTS (SELECT 1 FROM grants m WHERE m.user_key = g.user_key AND m.entity_key = ${domain.key})
    UNION ALL SELECT 'a role of a deleted user' FROM grants g JOIN users u ON u.key = g.user_key AND u.status = 'deleted'
      WHERE g.domain_key = ${domain.key}`.execute(api.database.db)
  return rows.map((row) => row.fault)
}

const PAIRS = Object.keys(CHANGES).flatMap((earlier) => Object.keys(CHANGES).map((later) => [earlier, later] as const))

test.each(PAIRS)('%s, and before that is done: %s', async (earlier, later) => {
  await sql`UPDATE users SET status = 'enabled' WHERE key = ${third.key}`.execute(api.database.db)
  const world = await newWorld()
  const { promise: mayEnd, resolve: end } = Promise.withResolvers<void>()
  const { promise: hasChanged, resolve: changed } = Promise.withResolvers<void>()
  const one = settle(
    api.database.transaction(async (tx) => {
      try {
        await CHANGES[earlier]?.(tx, world)
      } finally {
        changed()
      }
      await mayEnd
    }),
  )
  await hasChanged
  const other = settle(api.database.transaction(async (tx) => await CHANGES[later]?.(tx, world)))
  await waitsOrEnds(other)
  end()
  await Promise.all([one, other])
  expect(await findFaults(world)).toEqual([])
})
