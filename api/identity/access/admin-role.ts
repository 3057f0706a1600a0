/**
 * The built-in role `admin` of every entity. It contains all actions of its type and is not stored. Its id is derived
 * from the key of the entity. Its members are grants with `ADMIN_ROLE_KEY` (mechanisms section 4, contract 2.4).
 */
import { createHash } from 'node:crypto'
import type { EntityType } from './actions.ts'

/** `role_key` of a grant of the built-in role. */
export const ADMIN_ROLE_KEY = 0
export const ADMIN_ROLE_NAME = 'admin'
const SHORT_ID_BYTES = 16

/** Returns `<entity type>_<22 characters>`. The id of an entity's built-in role never changes (contract 2.2). */
export function adminRoleId(type: EntityType, entityKey: number): string {
  const digest = createHash('sha256').update(`admin role of ${type} ${entityKey}`).digest()
  return `${type}_${digest.subarray(0, SHORT_ID_BYTES).toString('base64url')}`
}
