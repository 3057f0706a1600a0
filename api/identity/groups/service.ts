/** The rules of groups (contract section 3, decisions 2, 13, 31, 31b, 45, 46). `moves.ts` changes the hierarchy. */
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import { enterForCreation } from '../access/index.ts'
import type { AccessPolicy, DomainAccess, UserPrincipal } from '../access/index.ts'
import { difference } from '../journal/index.ts'
import type { Facts, Journal } from '../journal/index.ts'
import type { Quotas } from '../quotas/index.ts'
import { grantAdmin, removeRolesOf, rolesShownTo } from '../roles/index.ts'
import type { ShownRoles } from '../roles/index.ts'
import { detach, findLineage, lockChildren, lockHierarchy } from './closure.ts'
import { findReadable, withAccess } from './find.ts'
import type { Address, WithAccess } from './find.ts'
import { listPage, parseFilter } from './listing.ts'
import { recordOrphans } from './members.ts'
import { lockGroupFor, requireParentGroup } from './parent-group.ts'
import type { GroupChange, GroupRecord, ListedGroup } from './repository.ts'
import { deleteGroup, insertGroup, lockForDeletion, lockGroup, updateGroup } from './repository.ts'
import type { GroupQuery, GroupUpdate, NewGroup } from './schema.ts'
import { MAX_LEVELS } from './schema.ts'

export type { Address, WithAccess } from './find.ts'
export type { GroupRecord, ListedGroup } from './repository.ts'

export type GroupsDeps = { database: Database; journal: Journal; access: AccessPolicy; quotas: Quotas }

export class GroupsService {
  readonly #database: Database
  readonly #journal: Journal
  readonly #access: AccessPolicy
  readonly #quotas: Quotas

  constructor({ database, journal, access, quotas }: GroupsDeps) {
    this.#database = database
    this.#journal = journal
    this.#access = access
    this.#quotas = quotas
  }

  /**
   * Without `domainId` it uses the domain of the token or the only domain of the caller (decision 31). With a parent,
   * `subgroup_create` or `set_child` on the parent is sufficient. Throws `malformed`, `forbidden`, `unprocessable`.
   */
  async create(caller: UserPrincipal, domainId: string | undefined, input: NewGroup): Promise<GroupRecord> {
    const domain = await enterForCreation(this.#access, caller, domainId, 'groups')
    const parentId = input.parent_id === '' ? undefined : input.parent_id
    if (parentId === undefined) domain.require('group_create')
    else await requireParentGroup(this.#database.db, domain, parentId, ['subgroup_create', 'set_child'])
    const fields = {
      id: newId(),
      name: input.name,
      description: input.description ?? null,
      tags: input.tags ?? [],
      metadata: input.metadata ?? {},
      status: input.status ?? ('enabled' as const),
    }
    return await this.#journal.change(caller, async (tx, record) => {
      await this.#quotas.requireEntities(tx, domain.domainKey, 'group', 1)
      const parentKey = parentId === undefined ? null : await this.#placeBelow(tx, domain, parentId)
      const group = await insertGroup(tx, domain.domainKey, fields, parentKey, caller.id)
      await grantAdmin(tx, caller.key, 'group', domain.domainKey, [group.key])
      record({
        operation: 'group.create',
        domainKey: domain.domainKey,
        entityKeys: [group.key],
        attributes: { id: group.id, ...factsOf(group) },
      })
      return group
    })
  }

  /**
   * Returns the group with the role by which the caller has access to it, and on request all effective roles of the
   * caller on it.
   */
  async get(
    caller: UserPrincipal,
    at: Address,
    withRoles: boolean,
  ): Promise<{ group: WithAccess<GroupRecord>; roles: ShownRoles | undefined }> {
    const { domain, group } = await findReadable(this.#database.db, this.#access, caller, at)
    const [shown, roles] = await Promise.all([
      withAccess(this.#database.db, [domain], [group]),
      withRoles ? rolesShownTo(this.#database.db, domain, group) : undefined,
    ])
    return { group: shown[0] as WithAccess<GroupRecord>, roles }
  }

  /**
   * Lists the groups of the domain that the caller may read. Without `domainId` it searches every domain of the caller.
   */
  async list(
    caller: UserPrincipal,
    domainId: string | undefined,
    query: GroupQuery,
  ): Promise<Page<WithAccess<ListedGroup>>> {
    const filter = parseFilter(query)
    const domains =
      domainId === undefined ? await this.#access.enterAll(caller) : [await this.#access.enter(caller, domainId)]
    return await listPage(this.#database.db, domains, filter)
  }

  /** Absent fields are unchanged. `description: null` clears it (decision 2). */
  async update(caller: UserPrincipal, at: Address, input: GroupUpdate): Promise<GroupRecord> {
    const group = await this.#require(caller, at, 'update')
    const fields = {
      ...(input.name === undefined ? {} : { name: input.name }),
      ...(input.description === undefined ? {} : { description: input.description }),
      ...(input.metadata === undefined ? {} : { metadata: input.metadata }),
      ...(input.tags === undefined ? {} : { tags: input.tags }),
    }
    return await this.#change(caller, group, 'group.update', () =>
      Object.keys(fields).length === 0 ? undefined : fields,
    )
  }

  /** Idempotent (decision 13). Members and descendants keep their own status. */
  async setStatus(caller: UserPrincipal, at: Address, status: GroupRecord['status']): Promise<GroupRecord> {
    const group = await this.#require(caller, at, 'update')
    const operation = status === 'enabled' ? 'group.enable' : 'group.disable'
    return await this.#change(caller, group, operation, (now) => (now.status === status ? undefined : { status }))
  }

  /** Children become root groups, members lose the parent, and the roles of the group are removed (decision 46). */
  async remove(caller: UserPrincipal, at: Address): Promise<void> {
    const { key, domainKey } = await this.#require(caller, at, 'delete')
    await this.#journal.change(caller, async (tx, record) => {
      await lockHierarchy(tx, domainKey)
      const group = await lockForDeletion(tx, key)
      if (group === undefined) throw new ServiceError('not_found', 'entity not found')
      const children = await lockChildren(tx, key)
      await detach(
        tx,
        children.map((child) => child.key),
        caller.id,
      )
      await recordOrphans(tx, group, record)
      await deleteGroup(tx, key)
      await removeRolesOf(tx, [key])
      record({
        operation: 'group.remove',
        domainKey,
        entityKeys: [key, ...children.map((child) => child.key)],
        attributes: { id: group.id, ...factsOf(group), children_ids: children.map((child) => child.id) },
      })
    })
  }

  async #require(caller: UserPrincipal, at: Address, action: string): Promise<GroupRecord> {
    const { domain, group } = await findReadable(this.#database.db, this.#access, caller, at)
    return await domain.requireOn(group, action)
  }

  /** Writes the change that `decide` returns for the current group. Undefined writes nothing. */
  async #change(
    caller: UserPrincipal,
    { key }: GroupRecord,
    operation: string,
    decide: (current: GroupRecord) => GroupChange | undefined,
  ): Promise<GroupRecord> {
    return await this.#journal.change(caller, async (tx, record) => {
      const before = await lockGroup(tx, key)
      if (before === undefined) throw new ServiceError('not_found', 'entity not found')
      const wanted = decide(before)
      if (wanted === undefined) return before
      const after = await updateGroup(tx, key, wanted, caller.id)
      record({
        operation,
        domainKey: before.domainKey,
        entityKeys: [key],
        attributes: { id: before.id, ...difference(factsOf(before), factsOf(after)) },
      })
      return after
    })
  }

  /** Returns the key of the parent, with the hierarchy locked until the transaction ends. */
  async #placeBelow(tx: Transaction, domain: DomainAccess, parentId: string): Promise<number> {
    await lockHierarchy(tx, domain.domainKey)
    const parent = await lockGroupFor(tx, domain.domainKey, parentId)
    const level = (await findLineage(tx, parent.key)).length
    if (level >= MAX_LEVELS)
      throw new ServiceError(
        'unprocessable',
        `failed to create the group: the hierarchy is limited to ${MAX_LEVELS} levels`,
      )
    return parent.key
  }
}

/** Attributes of a group in the journal, with their wire names. */
function factsOf(group: GroupRecord): Facts {
  return {
    name: group.name,
    description: group.description,
    parent_id: group.parentGroupId,
    tags: group.tags,
    metadata: group.metadata,
    status: group.status,
  }
}
