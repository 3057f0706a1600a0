/**
 * Adds and removes members of roles in a transaction. Role routes, invitations, assignments and sharing use these
 * functions, so that the rules of contract 2.4 hold for concurrent requests. Services check permissions; this file
 * maintains the invariants.
 */
import type { Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { ADMIN_ROLE_KEY } from '../access/index.ts'
import { noAdminLeft } from './last-admin.ts'
import { removeFormerMembers } from './leaving.ts'
import { lockForRoles, lockUsers } from './locks.ts'
import type { LockedUser } from './locks.ts'
import {
  deleteGrants,
  findAdminRole,
  findDomainMembers,
  findRoleByName,
  hasAdmin,
  insertGrants,
  insertRole,
} from './repository.ts'
import type { Relation } from './relations.ts'
import { relationActions, roleNameOf } from './relations.ts'
import { newRoleId } from './role.ts'
import type { RoleEntity, RoleRecord } from './role.ts'

/**
 * Returns the role of a relation on the entity (decision 24) and creates it on first use. An existing role with that
 * name is used as it is, so callers must read its actions from the result. Locks the roles of the entity.
 */
export async function ensureRelationRole(
  tx: Transaction,
  entity: RoleEntity,
  relation: Relation,
  createdBy: string,
): Promise<RoleRecord> {
  await lockForRoles(tx, entity)
  if (relation === 'administrator') return await findAdminRole(tx, entity)
  const name = roleNameOf(relation)
  const known = await findRoleByName(tx, entity.key, name)
  if (known !== undefined) return known
  const actions = relationActions(entity.type, relation)
  return await insertRole(tx, entity, { id: newRoleId(entity.type), name, actions, createdBy })
}

/**
 * Makes the users members of the role. Existing members are unchanged. Returns all users with their keys, for the
 * journal entry. Throws the same `unprocessable` for an unknown user and, except on a domain, for a user who is not a
 * member of the domain.
 */
export async function addMembers(
  tx: Transaction,
  entity: RoleEntity,
  role: Pick<RoleRecord, 'key'>,
  userIds: readonly string[],
): Promise<LockedUser[]> {
  await lockForRoles(tx, entity)
  const users = await lockUsers(tx, userIds.filter(isId))
  const keys = users.map((user) => user.key)
  const members = entity.type === 'domain' ? new Set(keys) : await findDomainMembers(tx, entity.domainKey, keys)
  const accepted = new Set(users.filter((user) => members.has(user.key)).map((user) => user.id))
  const refused = userIds.find((id) => !accepted.has(id))
  if (refused !== undefined)
    throw new ServiceError(
      'unprocessable',
      entity.type === 'domain' ? `user ${refused} does not exist` : `user ${refused} is not a member of the domain`,
    )
  await insertGrants(tx, entity, role.key, keys)
  return users
}

export type MemberRemoval = {
  /** The role to remove the users from. Absent for every role on the entity. */
  role?: Pick<RoleRecord, 'key'>
  /** The users to remove, or `all`. Removing a user who is not a member is not an error. */
  users: readonly string[] | 'all'
  /** The platform administrator who forces the removal and replaces the last administrator (contract 2.4). */
  takenOverBy?: { key: number }
}

/**
 * Removes users from roles on the entity. A user without a role on a domain is not a member of it and also loses all
 * roles in it. Returns the keys of the users whose roles changed. Throws `invalid_state` when the entity would have no
 * administrator (decision 33).
 */
export async function removeMembers(tx: Transaction, entity: RoleEntity, removal: MemberRemoval): Promise<number[]> {
  await lockForRoles(tx, entity)
  const { takenOverBy } = removal
  const users =
    removal.users === 'all' ? 'all' : (await lockUsers(tx, removal.users.filter(isId))).map((user) => user.key)
  const hadAdmin = await hasAdmin(tx, entity)
  const removed = await deleteGrants(tx, entity, removal.role?.key ?? 'every', users)
  const changed = new Set(removed)
  if (hadAdmin && !(await hasAdmin(tx, entity))) {
    if (takenOverBy === undefined || removed.includes(takenOverBy.key)) throw noAdminLeft(entity)
    await insertGrants(tx, entity, ADMIN_ROLE_KEY, [takenOverBy.key])
    changed.add(takenOverBy.key)
  }
  if (entity.type === 'domain') {
    const members = await findDomainMembers(tx, entity.domainKey, removed)
    const strangers = removed.filter((key) => !members.has(key))
    for (const key of await removeFormerMembers(tx, [entity.domainKey], strangers)) changed.add(key)
  }
  return [...changed]
}
