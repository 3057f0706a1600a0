/**
 * The built-in role `admin` of every entity: it holds all actions of its type and is no row anywhere. Its id derives from
 * the entity's key, its members are grants (mechanisms section 4, contract 2.4).
 */
import { createHash } from 'node:crypto'
import { sql } from 'kysely'
import type { Queryable } from '#core/database/index.ts'
import type { EntityType } from '../access/index.ts'
import { ADMIN_ROLE_KEY } from '../access/index.ts'

export const ADMIN_ROLE_NAME = 'admin'
const SHORT_ID_BYTES = 16

/** `<entity type>_<22 characters>`, the same for an entity for ever (contract 2.2). */
export function adminRoleId(type: EntityType, entityKey: number): string {
  const digest = createHash('sha256').update(`admin role of ${type} ${entityKey}`).digest()
  return `${type}_${digest.subarray(0, SHORT_ID_BYTES).toString('base64url')}`
}

/** Makes the user a member of the built-in role of each entity: one statement for any number. */
export async function grantAdmin(
  db: Queryable,
  userKey: number,
  type: EntityType,
  domainKey: number,
  entityKeys: readonly number[],
): Promise<void> {
  await sql`INSERT INTO grants (user_key, entity_type, domain_key, entity_key, role_key)
    SELECT ${userKey}, ${type}, ${domainKey}, entity_key, ${ADMIN_ROLE_KEY} FROM unnest(${entityKeys}::bigint[]) entity_key
    ON CONFLICT ON CONSTRAINT grants_pkey DO NOTHING`.execute(db)
}

/** Removes every role and every grant of entities that are being deleted. */
export async function removeRolesOf(db: Queryable, entityKeys: readonly number[]): Promise<void> {
  await sql`DELETE FROM grants WHERE entity_key = ANY (${entityKeys}::bigint[])`.execute(db)
  await sql`DELETE FROM roles WHERE entity_key = ANY (${entityKeys}::bigint[])`.execute(db)
}
