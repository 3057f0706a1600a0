/** Members of the built-in role of entities that are made, and the end of all roles of entities that go. */
import { prepared } from '#core/database/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { EntityType } from '../access/index.ts'
import { ADMIN_ROLE_KEY } from '../access/index.ts'

/**
 * A part of a statement: makes the user a member of the built-in role of what another part, `made`, has just inserted. Nobody
 * has a role of it yet. `user` and `domain` are the parameters that hold their keys.
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

/** Makes the user a member of the built-in role of each entity: one statement for any number. */
export async function grantAdmin(
  db: Queryable,
  userKey: number,
  type: EntityType,
  domainKey: number,
  entityKeys: readonly number[],
): Promise<void> {
  await GRANT(db, [userKey, type, domainKey, ADMIN_ROLE_KEY, entityKeys])
}

/** Removes every role and every grant of entities that are being deleted. */
export async function removeRolesOf(db: Queryable, entityKeys: readonly number[]): Promise<void> {
  await sql`DELETE FROM grants WHERE entity_key = ANY (${entityKeys}::bigint[])`.execute(db)
  await sql`DELETE FROM roles WHERE entity_key = ANY (${entityKeys}::bigint[])`.execute(db)
}
