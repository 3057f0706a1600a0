/** Adds members to the built-in role of new entities, and removes all roles of deleted entities. */
import { prepared } from '#core/database/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { EntityType } from '../access/index.ts'
import { ADMIN_ROLE_KEY } from '../access/index.ts'

/**
 * Returns a part of a statement: it makes the user a member of the built-in role of the entities that the CTE `made`
 * has inserted. New entities have no other members. `user` and `domain` are the parameters with their keys.
 */
export const grantingAdmin = (type: EntityType, { made, user, domain }: Record<'made' | 'user' | 'domain', string>) =>
  `INSERT INTO grants (user_key, entity_type, domain_key, entity_key, role_key)
   SELECT ${user}::bigint, '${type}', ${domain}::bigint, key, ${ADMIN_ROLE_KEY} FROM ${made} ORDER BY key`

const GRANT = prepared(
  'grant_admin',
  `INSERT INTO grants (user_key, entity_type, domain_key, entity_key, role_key)
   SELECT $1, $2, $3, entity_key, $4 FROM unnest($5::bigint[]) entity_key
   ON CONFLICT ON CONSTRAINT grants_pkey DO NOTHING`,
)

/** Makes the user a member of the built-in role of each entity, with one statement. */
export async function grantAdmin(
  db: Queryable,
  userKey: number,
  type: EntityType,
  domainKey: number,
  entityKeys: readonly number[],
): Promise<void> {
  await GRANT(db, [userKey, type, domainKey, ADMIN_ROLE_KEY, entityKeys])
}

/** Removes every role and every grant on entities that are being deleted. */
export async function removeRolesOf(db: Queryable, entityKeys: readonly number[]): Promise<void> {
  await sql`DELETE FROM grants WHERE entity_key = ANY (${entityKeys}::bigint[])`.execute(db)
  await sql`DELETE FROM roles WHERE entity_key = ANY (${entityKeys}::bigint[])`.execute(db)
}
