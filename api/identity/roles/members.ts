/**
 * Who holds which role, as steps of a transaction: everything that gives or takes roles (role routes, invitations,
 * assignments, sharing) goes through here, so that the rules of contract 2.4 hold however two requests meet. Whether the
 * caller may is for the service to ask; here stands what must stay true.
 */
import type { Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { ADMIN_ROLE_KEY } from '../access/index.ts'
import { noAdminLeft } from './last-admin.ts'
import { removeStrangers } from './leaving.ts'
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
 * The role that a relation means on the entity (decision 24), made on first use. A role of that name that somebody made
 * before is taken as it is, so what it holds is read from the answer, never from the relation. Locks the entity's roles.
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
 * Makes the users members of the role; who is one already stays. Gives all of them with their keys, which the journal row
 * names. Throws `unprocessable` for an id that is no user, and on everything but a domain for one that is no member of the
 * domain, alike.
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
      entity.type === 'domain' ? `there is no user ${refused}` : `the user ${refused} is no member of the domain`,
    )
  await insertGrants(tx, entity, role.key, keys)
  return users
}

export type Removal = {
  /** The role that is taken; absent: every role on the entity. */
  role?: Pick<RoleRecord, 'key'>
  /** From whom; `all`: from every member. Who is no member is no error. */
  users: readonly string[] | 'all'
  /** The platform administrator who forces it and takes the place of a last administrator (contract 2.4). */
  takenOverBy?: { key: number }
}

/**
 * Takes roles on the entity. Who has no role left in a domain is no member of it: his roles in it go too. Gives the keys
 * of the users who lost something, or took over. Throws `invalid_state` when the entity would be left without an
 * administrator (decision 33).
 */
export async function removeMembers(tx: Transaction, entity: RoleEntity, removal: Removal): Promise<number[]> {
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
    for (const key of await removeStrangers(tx, [entity.domainKey], strangers)) changed.add(key)
  }
  return [...changed]
}
