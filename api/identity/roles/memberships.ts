/** The rules of memberships: members of one role and of all roles of an entity (contract 2.2, 2.4, decision 33). */
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Page, PageRange } from '#core/page.ts'
import type { AccessPolicy, AccessType, PlacedRole, UserPrincipal } from '../access/index.ts'
import { ADMIN_ROLE_NAME, findRoleProviders, listRoleHolders } from '../access/index.ts'
import type { Journal } from '../journal/index.ts'
import { readActionCheck, requireGrantable } from './granting.ts'
import { lockForRoles } from './locks.ts'
import { addMembers, removeMembers } from './members.ts'
import { MAX_UNPAGED, enterEntity, keysOf, requireRole } from './entity-access.ts'
import type { Paging, EntityAccess, RoleTarget } from './entity-access.ts'
import { countMembers, listMembers } from './repository.ts'
import { isAdminRole } from './role.ts'

export type Force = { force: boolean }

export type EntityMember = { memberId: string; roles: PlacedRole[] }
export type EntityMemberFilter = PageRange & {
  access_provider_id?: string
  access_type?: AccessType
  role_id?: string
  role_name?: string
  actions?: string
}

export class MembershipsService {
  readonly #db: Queryable
  readonly #journal: Journal
  readonly #access: AccessPolicy

  constructor({ database, journal, access }: { database: Database; journal: Journal; access: AccessPolicy }) {
    this.#db = database.db
    this.#journal = journal
    this.#access = access
  }

  async listMembers(caller: UserPrincipal, target: RoleTarget, roleId: string, paging: Paging): Promise<Page<string>> {
    const { entity } = await enterEntity(this.#access, caller, target, 'view_role_users')
    const role = await requireRole(this.#db, entity, roleId)
    const range = paging ?? { offset: 0, limit: MAX_UNPAGED }
    const [total, page] = await Promise.all([
      countMembers(this.#db, entity.key, role.key),
      listMembers(this.#db, entity.key, role.key, range),
    ])
    if (paging === undefined && total > MAX_UNPAGED)
      throw new ServiceError('unprocessable', `the role has ${total} members: request pages with limit and cursor`)
    return { total, offset: range.offset, limit: range.limit, ...page }
  }

  async addMembers(
    caller: UserPrincipal,
    target: RoleTarget,
    roleId: string,
    userIds: readonly string[],
  ): Promise<void> {
    const { entity, domain, located } = await enterEntity(this.#access, caller, target, 'add_role_users')
    const holds = await readActionCheck(domain, located)
    await this.#journal.change(caller, async (tx, record) => {
      await lockForRoles(tx, entity)
      const role = await requireRole(tx, entity, roleId)
      requireGrantable(holds, role.actions)
      const members = await addMembers(tx, entity, role, userIds)
      record({
        operation: `${entity.type}.role.add_members`,
        domainKey: domain.domainKey,
        entityKeys: keysOf(
          entity,
          members.map((user) => user.key),
        ),
        attributes: { id: role.id, entity_id: entity.id, members: members.map((user) => user.id) },
      })
    })
  }

  async removeMembers(
    caller: UserPrincipal,
    target: RoleTarget,
    roleId: string,
    users: readonly string[] | 'all',
    options: Force,
  ): Promise<void> {
    const place = await enterEntity(this.#access, caller, target, users === 'all' ? 'manage_role' : 'remove_role_users')
    const what = users === 'all' ? 'remove_all_members' : 'remove_members'
    await this.#takeRoles(caller, place, what, { roleId, users }, options)
  }

  /** Lists the users whose roles grant something on the entity, including inherited roles. */
  async listEntityMembers(
    caller: UserPrincipal,
    target: RoleTarget,
    filter: EntityMemberFilter,
  ): Promise<Page<EntityMember>> {
    const { domain, located } = await enterEntity(this.#access, caller, target, 'view_role_users')
    const { access_provider_id: providerId, access_type: accessType, offset, limit, cursor } = filter
    const places = (await findRoleProviders(this.#db, domain.domainKey, located)).filter(
      (place) =>
        (providerId === undefined || place.id === providerId) &&
        (accessType === undefined || place.accessType === accessType),
    )
    const { total, roles, next } = await listRoleHolders(
      this.#db,
      places,
      {
        ...(filter.role_id === undefined ? {} : { roleId: filter.role_id }),
        ...(filter.role_name === undefined ? {} : { roleName: filter.role_name }),
        ...(filter.actions === undefined ? {} : { actions: splitList(filter.actions) }),
      },
      { offset, limit, cursor },
    )
    const byUser = Map.groupBy(roles, (role) => role.userId)
    const items = [...byUser].map(([memberId, held]) => ({ memberId, roles: held }))
    return { total, offset, limit, items, next }
  }

  /** Removes the users from every role on the entity, and for a domain from every role on entities in it. */
  async removeEntityMembers(
    caller: UserPrincipal,
    target: RoleTarget,
    userIds: readonly string[],
    options: Force,
  ): Promise<void> {
    const place = await enterEntity(this.#access, caller, target, 'remove_role_users')
    await this.#takeRoles(caller, place, 'remove_members', { users: userIds }, options)
  }

  async #takeRoles(
    caller: UserPrincipal,
    place: EntityAccess,
    what: string,
    removal: { roleId?: string; users: readonly string[] | 'all' },
    { force }: Force,
  ): Promise<void> {
    const { entity, domain } = place
    if (force) this.#access.requirePlatformAdmin(caller)
    await this.#journal.change(caller, async (tx, record) => {
      await lockForRoles(tx, entity)
      const role = removal.roleId === undefined ? undefined : await requireRole(tx, entity, removal.roleId)
      if (role !== undefined && isAdminRole(role) && removal.users === 'all' && !force)
        throw new ServiceError(
          'invalid_state',
          `the role ${ADMIN_ROLE_NAME} of the ${entity.type} ${entity.id} must keep at least one member`,
        )
      const changed = await removeMembers(tx, entity, {
        ...(role === undefined ? {} : { role }),
        users: removal.users,
        ...(force ? { takenOverBy: caller } : {}),
      })
      if (changed.length === 0) return
      record({
        operation: `${entity.type}.role.${what}`,
        domainKey: domain.domainKey,
        entityKeys: keysOf(entity, changed),
        attributes: {
          ...(role === undefined ? {} : { id: role.id }),
          entity_id: entity.id,
          ...(removal.users === 'all' ? {} : { members: removal.users }),
          ...(force ? { forced: true } : {}),
        },
      })
    })
  }
}

const splitList = (text: string) => text.split(',').filter((item) => item !== '')
