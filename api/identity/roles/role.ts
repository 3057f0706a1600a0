/** A role and its entity. */
import { randomBytes } from 'node:crypto'
import type { EntityType } from '../access/index.ts'
import { ACTIONS, ADMIN_ROLE_KEY, ADMIN_ROLE_NAME, adminRoleId } from '../access/index.ts'

/** The entity of a role. For a domain `key` and `id` are those of the domain. */
export type RoleEntity = {
  readonly type: EntityType
  readonly key: number
  readonly id: string
  readonly domainKey: number
  readonly domainId: string
}

export type RoleRecord = {
  /** `ADMIN_ROLE_KEY` for the built-in role. */
  key: number
  id: string
  name: string
  actions: readonly string[]
  createdBy: string | null
  createdAt: string | null
  updatedBy: string | null
  updatedAt: string | null
}

/** Returns the built-in role. Its creation is that of its entity. */
export function adminRoleOf(
  entity: Pick<RoleEntity, 'type' | 'key'>,
  made: { createdBy: string | null; createdAt: string | null },
): RoleRecord {
  return {
    key: ADMIN_ROLE_KEY,
    id: adminRoleId(entity.type, entity.key),
    name: ADMIN_ROLE_NAME,
    actions: ACTIONS[entity.type],
    ...made,
    updatedBy: null,
    updatedAt: null,
  }
}

export const isAdminRole = (role: Pick<RoleRecord, 'key'>): boolean => role.key === ADMIN_ROLE_KEY

const SHORT_ID_BYTES = 16

/** Returns `<entity type>_<22 characters>` (contract 2.2). */
export function newRoleId(type: EntityType): string {
  return `${type}_${randomBytes(SHORT_ID_BYTES).toString('base64url')}`
}
