/**
 * The rules of roles and their actions, for domains, groups, channels and clients (contract section 2, decision 45).
 */
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import type { Page } from '#core/page.ts'
import type { AccessPolicy, EntityType, UserPrincipal } from '../access/index.ts'
import { ACTIONS, ADMIN_ROLE_NAME, adminRoleId } from '../access/index.ts'
import type { Journal } from '../journal/index.ts'
import { readActionCheck, requireGrantable } from './granting.ts'
import { lockForRoles } from './locks.ts'
import { addMembers, removeMembers } from './members.ts'
import { MAX_UNPAGED, enterEntity, keysOf, requireRole } from './entity-access.ts'
import type { Paging, EntityAccess, RoleTarget } from './entity-access.ts'
import {
  countRoles,
  deleteRole,
  findAdminRole,
  findMembers,
  insertRole,
  listRoles,
  roleNameTaken,
  updateRole,
} from './repository.ts'
import { newRoleId } from './role.ts'
import type { RoleEntity, RoleRecord } from './role.ts'

export type ShownRole = {
  entity: RoleEntity
  role: RoleRecord
  /** Ids. Empty for a caller without `view_role_users`. */
  members: string[]
}

export type RoleInput = { name: string; actions: readonly string[]; members: readonly string[] }
export type RoleChange = { name?: string; actions?: readonly string[] }

/** Maximum number of members in the record of a role. `listMembers` returns all of them in pages. */
const MAX_SHOWN_MEMBERS = 1000
const MAX_LISTED_MEMBERS = 100
/** Maximum number of roles of one entity besides the built-in one. */
const MAX_ROLES_PER_ENTITY = 1000

export type RolesDeps = { database: Database; journal: Journal; access: AccessPolicy }

const maySeeMembers = async ({ domain, located }: EntityAccess) =>
  (await readActionCheck(domain, located))('view_role_users')

export class RolesService {
  readonly #db: Queryable
  readonly #journal: Journal
  readonly #access: AccessPolicy

  constructor({ database, journal, access }: RolesDeps) {
    this.#db = database.db
    this.#journal = journal
    this.#access = access
  }

  async availableActions(
    caller: UserPrincipal,
    type: EntityType,
    domainId: string | undefined,
  ): Promise<readonly string[]> {
    if (domainId !== undefined) await this.#access.enter(caller, domainId)
    return ACTIONS[type]
  }

  /**
   * Throws `malformed` for an unknown action, `conflict` for a name that is in use, `unprocessable` for a user who
   * cannot become a member.
   */
  async create(caller: UserPrincipal, target: RoleTarget, input: RoleInput): Promise<ShownRole> {
    const actions = requireKnownActions(target.type, input.actions)
    const place = await enterEntity(
      this.#access,
      caller,
      target,
      'manage_role',
      ...(input.members.length > 0 ? (['add_role_users'] as const) : []),
    )
    const { entity, domain } = place
    requireGrantable(await readActionCheck(domain, place.located), actions)
    if (input.name === ADMIN_ROLE_NAME) throw roleNameTaken()
    const role = await this.#journal.change(caller, async (tx, record) => {
      await lockForRoles(tx, entity)
      if ((await countRoles(tx, entity.key)) >= MAX_ROLES_PER_ENTITY)
        throw new ServiceError('unprocessable', `an entity is limited to ${MAX_ROLES_PER_ENTITY} roles`)
      const created = await insertRole(tx, entity, {
        id: newRoleId(entity.type),
        name: input.name,
        actions,
        createdBy: caller.id,
      })
      const members = input.members.length === 0 ? [] : await addMembers(tx, entity, created, input.members)
      record({
        operation: `${entity.type}.role.add`,
        domainKey: domain.domainKey,
        entityKeys: keysOf(entity, [created.key, ...members.map((user) => user.key)]),
        attributes: {
          id: created.id,
          name: created.name,
          entity_id: entity.id,
          actions,
          members: members.map((user) => user.id),
        },
      })
      return created
    })
    return await this.#show(place, role)
  }

  /** Lists the built-in role first, then the others in the order of their creation. */
  async list(caller: UserPrincipal, target: RoleTarget, paging: Paging): Promise<Page<ShownRole>> {
    const place = await enterEntity(this.#access, caller, target, 'manage_role')
    const { entity } = place
    const { offset, limit, cursor } = paging ?? { offset: 0, limit: MAX_UNPAGED, cursor: undefined }
    const [others, isOpen] = await Promise.all([countRoles(this.#db, entity.key), maySeeMembers(place)])
    // The key of the built-in role is less than those of the others.
    const builtIn = offset === 0 && cursor === undefined ? [await findAdminRole(this.#db, entity)] : []
    const range = { offset: Math.max(0, offset - 1), limit: limit - builtIn.length, cursor }
    const page = await listRoles(this.#db, entity.key, range)
    const roles = [...builtIn, ...page.roles]
    const places = [...builtIn.map(({ key }) => JSON.stringify([key])), ...page.next.places]
    const keys = roles.map((role) => role.key)
    const members = isOpen ? await findMembers(this.#db, entity.key, keys, MAX_LISTED_MEMBERS) : undefined
    const items = roles.map((role) => ({ entity, role, members: members?.get(role.key) ?? [] }))
    return { total: others + 1, offset, limit, items, next: { ...page.next, places } }
  }

  async get(caller: UserPrincipal, target: RoleTarget, roleId: string): Promise<ShownRole> {
    const place = await enterEntity(this.#access, caller, target, 'manage_role')
    return await this.#show(place, await requireRole(this.#db, place.entity, roleId))
  }

  /** Absent fields are unchanged. Actions replace the set. Throws `forbidden` for the built-in role. */
  async update(caller: UserPrincipal, target: RoleTarget, roleId: string, change: RoleChange): Promise<ShownRole> {
    const given = change.actions === undefined ? undefined : requireKnownActions(target.type, change.actions)
    const place = await enterEntity(this.#access, caller, target, 'manage_role')
    const holds = await readActionCheck(place.domain, place.located)
    const updated = await this.#changeRole(caller, place, roleId, async (tx, role) => {
      const name = change.name ?? role.name
      const actions = given ?? role.actions
      if (name === ADMIN_ROLE_NAME) throw roleNameTaken()
      requireGrantable(holds, addedTo(role.actions, actions))
      const renamed: Fact[] =
        name === role.name
          ? []
          : [{ what: 'update_name', attributes: { before: { name: role.name }, after: { name } } }]
      const facts = [...renamed, ...actionFacts(role.actions, actions)]
      if (facts.length === 0) return { role, facts }
      return { role: await updateRole(tx, role.key, { name, actions }, caller.id), facts }
    })
    return await this.#show(place, updated)
  }

  async remove(caller: UserPrincipal, target: RoleTarget, roleId: string): Promise<void> {
    const place = await enterEntity(this.#access, caller, target, 'manage_role')
    const { entity, domain } = place
    if (roleId === adminRoleId(entity.type, entity.key)) throw refuseBuiltIn()
    await this.#journal.change(caller, async (tx, record) => {
      await lockForRoles(tx, entity)
      const role = await requireRole(tx, entity, roleId)
      const changed = await removeMembers(tx, entity, { role, users: 'all' })
      await deleteRole(tx, role.key)
      record({
        operation: `${entity.type}.role.remove`,
        domainKey: domain.domainKey,
        entityKeys: keysOf(entity, [role.key, ...changed]),
        attributes: { id: role.id, name: role.name, entity_id: entity.id },
      })
    })
  }

  async listActions(caller: UserPrincipal, target: RoleTarget, roleId: string): Promise<readonly string[]> {
    const { entity } = await enterEntity(this.#access, caller, target, 'manage_role')
    return (await requireRole(this.#db, entity, roleId)).actions
  }

  async addActions(
    caller: UserPrincipal,
    target: RoleTarget,
    roleId: string,
    actions: readonly string[],
  ): Promise<void> {
    const added = requireKnownActions(target.type, actions)
    await this.#setActions(caller, target, roleId, (held) => [...held, ...added])
  }

  /** `all` removes every action. Removing a missing action is not an error. */
  async removeActions(
    caller: UserPrincipal,
    target: RoleTarget,
    roleId: string,
    actions: readonly string[] | 'all',
  ): Promise<void> {
    const removed = new Set(actions === 'all' ? [] : requireKnownActions(target.type, actions))
    await this.#setActions(caller, target, roleId, (held) =>
      actions === 'all' ? [] : held.filter((action) => !removed.has(action)),
    )
  }

  async #show(place: EntityAccess, role: RoleRecord): Promise<ShownRole> {
    const { entity } = place
    const isOpen = await maySeeMembers(place)
    const members = isOpen ? await findMembers(this.#db, entity.key, [role.key], MAX_SHOWN_MEMBERS) : undefined
    return { entity, role, members: members?.get(role.key) ?? [] }
  }

  /** Changes a role, except the built-in one, under the lock of its entity. `work` returns the journal entries. */
  async #changeRole(
    caller: UserPrincipal,
    { domain, entity }: EntityAccess,
    roleId: string,
    work: (tx: Transaction, role: RoleRecord) => Promise<{ role: RoleRecord; facts: Fact[] }>,
  ): Promise<RoleRecord> {
    if (roleId === adminRoleId(entity.type, entity.key)) throw refuseBuiltIn()
    return await this.#journal.change(caller, async (tx, record) => {
      await lockForRoles(tx, entity)
      const known = await requireRole(tx, entity, roleId)
      const { role, facts } = await work(tx, known)
      for (const { what, attributes } of facts)
        record({
          operation: `${entity.type}.role.${what}`,
          domainKey: domain.domainKey,
          entityKeys: keysOf(entity, [role.key]),
          attributes: { id: role.id, entity_id: entity.id, ...attributes },
        })
      return role
    })
  }

  /** Sets the actions of a role. The caller must have the added actions. */
  async #setActions(
    caller: UserPrincipal,
    target: RoleTarget,
    roleId: string,
    next: (held: readonly string[]) => readonly string[],
  ): Promise<void> {
    const place = await enterEntity(this.#access, caller, target, 'manage_role')
    const holds = await readActionCheck(place.domain, place.located)
    await this.#changeRole(caller, place, roleId, async (tx, role) => {
      const actions = inOrder(place.entity.type, next(role.actions))
      const facts = actionFacts(role.actions, actions)
      requireGrantable(holds, addedTo(role.actions, actions))
      if (facts.length === 0) return { role, facts }
      return { role: await updateRole(tx, role.key, { name: role.name, actions }, caller.id), facts }
    })
  }
}

type Fact = { what: string; attributes: Record<string, unknown> }

const addedTo = (held: readonly string[], actions: readonly string[]) =>
  actions.filter((action) => !held.includes(action))

function actionFacts(before: readonly string[], after: readonly string[]): Fact[] {
  const [added, removed] = [addedTo(before, after), addedTo(after, before)]
  return [
    ...(added.length === 0 ? [] : [{ what: 'add_actions', attributes: { actions: added } }]),
    ...(removed.length === 0
      ? []
      : [
          after.length === 0
            ? { what: 'remove_all_actions', attributes: {} }
            : { what: 'remove_actions', attributes: { actions: removed } },
        ]),
  ]
}

/** Returns each action once, in the order of `ACTIONS`. */
function inOrder(type: EntityType, actions: readonly string[]): string[] {
  const wanted = new Set(actions)
  return ACTIONS[type].filter((action) => wanted.has(action))
}

/** Throws `malformed` for an action that does not exist on the entity type. */
function requireKnownActions(type: EntityType, actions: readonly string[]): string[] {
  const known = new Set<string>(ACTIONS[type])
  const unknown = actions.find((action) => !known.has(action))
  if (unknown === undefined) return inOrder(type, actions)
  throw refusedField(
    '/actions',
    `contain ${unknown}, which is not an action of a ${type}: use ${ACTIONS[type].join(', ')}`,
  )
}

function refuseBuiltIn(): ServiceError {
  return new ServiceError(
    'forbidden',
    `failed to perform authorization: the built-in role ${ADMIN_ROLE_NAME} cannot be changed or deleted`,
  )
}
