/**
 * Removal of the roles of users who leave a domain or the platform. The statements are set-based: a user can have a
 * role on every one of ten thousand clients.
 */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { ADMIN_ROLE_KEY, ENTITY_TABLES } from '../access/index.ts'
import { noAdminLeft } from './last-admin.ts'
import { lockDomains } from './locks.ts'

/**
 * Removes every role of the users on clients, channels and groups of these domains. The administrators of the domain
 * become the administrators of entities that would have none (contract 2.4). The domains must be locked, and the users'
 * roles on the domains already removed. Returns the keys of the new administrators.
 */
export async function removeFormerMembers(
  tx: Transaction,
  domainKeys: readonly number[],
  userKeys: readonly number[],
): Promise<number[]> {
  if (userKeys.length === 0 || domainKeys.length === 0) return []
  // Entities that are being deleted wait for this lock or no longer exist, so no user becomes the administrator of a
  // deleted entity.
  for (const [type, { table }] of Object.entries(ENTITY_TABLES)) {
    await sql`SELECT key FROM ${sql.table(table)} WHERE key IN (
        SELECT entity_key FROM grants WHERE user_key = ANY (${userKeys}::bigint[])
           AND domain_key = ANY (${domainKeys}::bigint[]) AND entity_type = ${type} AND role_key = ${ADMIN_ROLE_KEY})
      ORDER BY key FOR KEY SHARE`.execute(tx)
  }
  const { rows } = await sql<{ user_key: number }>`
    WITH gone AS (
      DELETE FROM grants WHERE user_key = ANY (${userKeys}::bigint[]) AND domain_key = ANY (${domainKeys}::bigint[])
         AND entity_type <> 'domain'
      RETURNING entity_type, domain_key, entity_key, role_key),
    emptied AS (
      SELECT DISTINCT entity_type, domain_key, entity_key FROM gone
       WHERE role_key = ${ADMIN_ROLE_KEY} AND NOT EXISTS (
         SELECT 1 FROM grants o WHERE o.entity_key = gone.entity_key AND o.role_key = ${ADMIN_ROLE_KEY}
            AND o.user_key <> ALL (${userKeys}::bigint[]))),
    filled AS (
      INSERT INTO grants (user_key, entity_type, domain_key, entity_key, role_key)
      SELECT a.user_key, e.entity_type, e.domain_key, e.entity_key, ${ADMIN_ROLE_KEY}
        FROM emptied e JOIN grants a ON a.entity_key = e.domain_key AND a.entity_type = 'domain' AND a.role_key = ${ADMIN_ROLE_KEY}
       WHERE a.user_key <> ALL (${userKeys}::bigint[]) ORDER BY a.user_key, e.entity_key
      RETURNING user_key)
    SELECT DISTINCT user_key FROM filled`.execute(tx)
  return rows.map((row) => row.user_key)
}

export type RemovedUser = {
  /** Keys of all users whose roles changed, including this user. The journal entry must contain them. */
  entityKeys: number[]
  /** Ids of the domains in which `takenOverBy` replaces the user as administrator. */
  takenOver: string[]
}

/**
 * Removes every role of a user in the transaction that deletes the user (decision 46). Throws `invalid_state` with the
 * domain of which the user is the only administrator, unless a platform administrator forces it and takes over. Must be
 * called before the row of the user is written, because every transaction locks domains before users.
 */
export async function removeUserEverywhere(
  tx: Transaction,
  userKey: number,
  takenOverBy?: { key: number },
): Promise<RemovedUser> {
  await lockDomains(tx, await findDomainsOf(tx, userKey))
  await sql`SELECT key FROM users WHERE key = ${userKey} FOR NO KEY UPDATE`.execute(tx)
  // The user can get no further roles from here on. A domain that granted one meanwhile is locked too.
  const domainKeys = await findDomainsOf(tx, userKey)
  await lockDomains(tx, domainKeys)
  const orphaned = await findSoleAdminDomains(tx, userKey)
  const first = orphaned[0]
  if (first !== undefined) {
    if (takenOverBy === undefined || takenOverBy.key === userKey) throw noAdminLeft({ type: 'domain', id: first.id })
    await sql`INSERT INTO grants (user_key, entity_type, domain_key, entity_key, role_key)
      SELECT ${takenOverBy.key}, 'domain', key, key, ${ADMIN_ROLE_KEY} FROM unnest(${orphaned.map((one) => one.key)}::bigint[]) key
       ORDER BY key ON CONFLICT ON CONSTRAINT grants_pkey DO NOTHING`.execute(tx)
  }
  await sql`DELETE FROM grants WHERE user_key = ${userKey} AND entity_type = 'domain'`.execute(tx)
  const filling = await removeFormerMembers(tx, domainKeys, [userKey])
  const changed = new Set([userKey, ...filling])
  if (first !== undefined && takenOverBy !== undefined) changed.add(takenOverBy.key)
  return { entityKeys: [...changed], takenOver: orphaned.map((domain) => domain.id) }
}

async function findDomainsOf(tx: Transaction, userKey: number): Promise<number[]> {
  const { rows } = await sql<{ domain_key: number }>`
    SELECT DISTINCT domain_key FROM grants WHERE user_key = ${userKey} ORDER BY domain_key`.execute(tx)
  return rows.map((row) => row.domain_key)
}

/**
 * Returns the domains that would have no enabled administrator without this user. They are locked until the transaction
 * ends, so that two administrators cannot leave one domain concurrently.
 */
export async function lockSoleAdminDomains(tx: Transaction, userKey: number): Promise<{ key: number; id: string }[]> {
  const { rows } = await sql<{ key: number }>`SELECT domain_key AS key FROM grants
    WHERE user_key = ${userKey} AND entity_type = 'domain' AND role_key = ${ADMIN_ROLE_KEY}`.execute(tx)
  await lockDomains(
    tx,
    rows.map(({ key }) => key),
  )
  return await findSoleAdminDomains(tx, userKey)
}

/** Returns the domains without another enabled administrator. */
async function findSoleAdminDomains(tx: Transaction, userKey: number): Promise<{ key: number; id: string }[]> {
  const { rows } = await sql<{ key: number; id: string }>`
    SELECT d.key, d.id FROM grants g JOIN domains d ON d.key = g.domain_key
     WHERE g.user_key = ${userKey} AND g.entity_type = 'domain' AND g.role_key = ${ADMIN_ROLE_KEY} AND d.status <> 'deleted'
       AND NOT EXISTS (SELECT 1 FROM grants o JOIN users u ON u.key = o.user_key AND u.status = 'enabled'
                        WHERE o.entity_key = g.entity_key AND o.role_key = ${ADMIN_ROLE_KEY} AND o.user_key <> g.user_key)
     ORDER BY d.key`.execute(tx)
  return rows
}
