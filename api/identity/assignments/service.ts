/**
 * Assigns users to domains, groups and channels, and shares clients with them. These are the relations of Mainflux and
 * SuperMQ. Each relation is membership in the role with its name on that entity (contract 4.3, decision 24).
 */
import type { Database } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import type { AccessPolicy, DomainAccess, DomainAction, LocatedEntity, UserPrincipal } from '../access/index.ts'
import { ACTIONS, adminRoleId } from '../access/index.ts'
import type { Journal } from '../journal/index.ts'
import type { Force, RoleEntity, RoleTarget, MembershipsService } from '../roles/index.ts'
import {
  addMembers,
  ensureRelationRole,
  findRoleByName,
  readActionCheck,
  parseRelation,
  requireGrantable,
  roleEntityOf,
  roleNameOf,
} from '../roles/index.ts'
import type { UserRecord } from '../users/index.ts'
import type { AssignedQuery, Assignment, Unassignment } from './schema.ts'
import { MAX_ASSIGNED } from './schema.ts'
import { listAssigned, parseAssignedFilter } from './repository.ts'

type Entered = { domain: DomainAccess; located: LocatedEntity | undefined; entity: RoleEntity }

export class AssignmentsService {
  readonly #database: Database
  readonly #journal: Journal
  readonly #access: AccessPolicy
  readonly #memberships: MembershipsService

  constructor({
    database,
    journal,
    access,
    memberships,
  }: {
    database: Database
    journal: Journal
    access: AccessPolicy
    memberships: MembershipsService
  }) {
    this.#database = database
    this.#journal = journal
    this.#access = access
    this.#memberships = memberships
  }

  /**
   * Assigns all users or none. Assigning an existing relation has no effect. Throws `malformed`, `too_large`,
   * `forbidden` for a relation with actions that the caller does not have, `unprocessable` for an unknown user or, on
   * an entity, a user who is not a member of its domain.
   */
  async assign(caller: UserPrincipal, target: RoleTarget, input: Assignment): Promise<void> {
    const relation = parseRelation(input.relation)
    const userIds = requireUserIds(input.user_ids)
    const entered = await this.#enter(caller, target)
    await this.#require(entered, 'add_role_users')
    const { entity, domain, located } = entered
    const holds = await readActionCheck(domain, located)
    await this.#journal.change(caller, async (tx, record) => {
      const role = await ensureRelationRole(tx, entity, relation, caller.id)
      requireGrantable(holds, role.actions)
      const members = await addMembers(tx, entity, role, userIds)
      record({
        operation: `${entity.type}.role.add_members`,
        domainKey: domain.domainKey,
        // The key of the domain is omitted: it would invalidate all cache entries of its channels and devices.
        entityKeys: [...(located === undefined ? [] : [entity.key]), ...members.map((member) => member.key)],
        attributes: { id: role.id, name: role.name, entity_id: entity.id, relation, members: userIds },
      })
    })
  }

  /**
   * Removes the relation, or without one every role on the entity, and for a domain every role on entities in it.
   * Removing a missing relation is not an error. Throws `invalid_state` for the last administrator (decision 33),
   * unless a platform administrator forces it.
   */
  async unassign(caller: UserPrincipal, target: RoleTarget, input: Unassignment, options: Force): Promise<void> {
    const relation = input.relation === undefined ? undefined : parseRelation(input.relation)
    const given = input.user_ids ?? (input.user_id === undefined ? [] : [input.user_id])
    const userIds = requireUserIds(given)
    if (relation === undefined) {
      await this.#memberships.removeEntityMembers(caller, target, userIds, options)
      return
    }
    const entered = await this.#enter(caller, target)
    await this.#require(entered, 'remove_role_users')
    const { entity } = entered
    const roleId =
      relation === 'administrator'
        ? adminRoleId(entity.type, entity.key)
        : (await findRoleByName(this.#database.db, entity.key, roleNameOf(relation)))?.id
    // The role of this relation does not exist, so it has no members.
    if (roleId === undefined) return
    await this.#memberships.removeMembers(caller, target, roleId, userIds, options)
  }

  /** Lists the users with a role on the entity itself. Throws `forbidden` without `view_role_users`. */
  async listUsers(caller: UserPrincipal, target: RoleTarget, query: AssignedQuery): Promise<Page<UserRecord>> {
    const filter = parseAssignedFilter(caller, query)
    const entered = await this.#enter(caller, target)
    await this.#require(entered, 'view_role_users')
    return await listAssigned(this.#database.db, entered.entity, query, filter)
  }

  /** Returns every action of the caller on the entity, from any role. */
  async permissions(caller: UserPrincipal, target: RoleTarget): Promise<string[]> {
    const { domain, located, entity } = await this.#enter(caller, target)
    const holds = await readActionCheck(domain, located)
    return ACTIONS[entity.type].filter(holds)
  }

  async #enter(caller: UserPrincipal, { type, domainId, id }: RoleTarget): Promise<Entered> {
    if (type === 'domain') {
      const domain = await this.#access.enter(caller, id)
      return { domain, located: undefined, entity: roleEntityOf(domain) }
    }
    const { domain, entity } = await this.#access.locate(caller, domainId, type, id)
    return { domain, located: entity, entity: roleEntityOf(domain, entity) }
  }

  async #require({ domain, located }: Entered, action: DomainAction): Promise<void> {
    if (located === undefined) domain.require(action)
    else await domain.requireOn(located, action)
  }
}

function requireUserIds(ids: readonly string[]): string[] {
  const refuse = (message: string) => refusedField('/user_ids', message)
  if (ids.length === 0) throw refuse('must contain at least one user')
  if (!ids.every(isId)) throw refuse('must contain only UUIDs in lower case')
  if (ids.length > MAX_ASSIGNED)
    throw new ServiceError('too_large', `a request is limited to ${MAX_ASSIGNED} users: got ${ids.length}`)
  return [...new Set(ids)]
}
