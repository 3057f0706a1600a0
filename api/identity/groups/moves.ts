/**
 * Moves of groups in the hierarchy (contract section 3, 2.5). Every change holds the lock of the domain's hierarchy, so
 * of two moves that together would create a cycle the second sees the first. Permissions are checked on the state under
 * the lock, and `forbidden` has precedence over `unprocessable` (decision 45).
 */
import type { Transaction } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import type { DomainAccess, UserPrincipal } from '../access/index.ts'
import type { Movable } from './closure.ts'
import { attach, detach, findHeight, findLineage, lockChildren, lockHierarchy, lockNamed } from './closure.ts'
import { findReadable } from './find.ts'
import type { Address } from './find.ts'
import { lockGroupFor, requireParentGroup } from './parent-group.ts'
import type { GroupRecord } from './repository.ts'
import { MAX_LEVELS } from './schema.ts'
import type { GroupsDeps } from './service.ts'

/** A parent and the children that are moved to or from it. */
type Family = { parent: { key: number; id: string }; children: readonly Movable[] }

export class MovesService {
  readonly #database: Omit<GroupsDeps, 'quotas'>['database']
  readonly #journal: Omit<GroupsDeps, 'quotas'>['journal']
  readonly #access: Omit<GroupsDeps, 'quotas'>['access']

  constructor({ database, journal, access }: Omit<GroupsDeps, 'quotas'>) {
    this.#database = database
    this.#journal = journal
    this.#access = access
  }

  /**
   * The caller must be able to read the parent, and it must be enabled. Throws `malformed`, `conflict` when the group
   * has a parent, `unprocessable`.
   */
  async setParent(caller: UserPrincipal, at: Address, parentId: string): Promise<void> {
    if (at.id === parentId) throw ownParent('/parent_id')
    const { domain, group } = await this.#require(caller, at, 'set_parent')
    await requireParentGroup(this.#database.db, domain, parentId)
    await this.#change(caller, domain, group, 'group.add_parent_group', async (tx) =>
      join(tx, domain, parentId, await lockAllowed(tx, domain, [group.id], 'set_parent')),
    )
  }

  /** Has no effect without a parent. */
  async removeParent(caller: UserPrincipal, at: Address): Promise<void> {
    const { domain, group } = await this.#require(caller, at, 'set_parent')
    await this.#change(caller, domain, group, 'group.remove_parent_group', async (tx) => {
      const children = await lockAllowed(tx, domain, [group.id], 'set_parent')
      const parentId = children[0]?.parentId ?? null
      if (parentId === null) return undefined
      // The record of the group contains the id of its parent, so the error does not reveal it.
      const [parent] = await lockNamed(tx, domain.domainKey, [parentId], conditionsOf(domain, 'set_child'))
      if (parent?.isAllowed !== true) throw needs('set_child', parentId)
      return await part(tx, domain, { parent, children })
    })
  }

  /** Adds all children or none. Throws `malformed`, `forbidden`, `conflict` when one has a parent, `unprocessable`. */
  async addChildren(caller: UserPrincipal, at: Address, childIds: readonly string[]): Promise<void> {
    if (childIds.includes(at.id)) throw ownParent('/children_ids')
    const { domain, group } = await this.#require(caller, at, 'set_child')
    await this.#change(caller, domain, group, 'group.add_children_groups', async (tx) =>
      join(tx, domain, group.id, await lockAllowed(tx, domain, childIds, 'set_parent')),
    )
  }

  /** Has no effect on root groups. Throws `conflict` when one has another parent. */
  async removeChildren(caller: UserPrincipal, at: Address, childIds: readonly string[]): Promise<void> {
    const { domain, group } = await this.#require(caller, at, 'set_child')
    await this.#change(caller, domain, group, 'group.remove_children_groups', async (tx) => {
      const named = await lockAllowed(tx, domain, childIds, 'set_parent')
      const foreign = named.find((child) => child.parentKey !== null && child.parentKey !== group.key)
      if (foreign !== undefined) throw new ServiceError('conflict', `group ${foreign.id} has another parent`)
      const children = named.filter((child) => child.parentKey === group.key)
      return await part(tx, domain, { parent: group, children })
    })
  }

  async removeAllChildren(caller: UserPrincipal, at: Address): Promise<void> {
    const { domain, group } = await this.#require(caller, at, 'set_child')
    await this.#change(caller, domain, group, 'group.remove_all_children_groups', async (tx) => {
      const children = await lockChildren(tx, group.key, conditionsOf(domain, 'set_parent'))
      const kept = children.find((child) => !child.isAllowed)
      // The error must not contain the id of a child that the caller may not read.
      if (kept !== undefined) throw needs('set_parent', kept.isReadable ? kept.id : undefined)
      return await part(tx, domain, { parent: group, children })
    })
  }

  async #require(caller: UserPrincipal, at: Address, action: string) {
    const { domain, group } = await findReadable(this.#database.db, this.#access, caller, at)
    return { domain, group: await domain.requireOn(group, action) }
  }

  /**
   * Runs one change of the hierarchy for the group of a path. `move` returns the moved groups, or undefined when there
   * is nothing to move.
   */
  async #change(
    caller: UserPrincipal,
    domain: DomainAccess,
    group: GroupRecord,
    operation: string,
    move: (tx: Transaction) => Promise<Family | undefined>,
  ): Promise<void> {
    await this.#journal.change(caller, async (tx, record) => {
      await lockHierarchy(tx, domain.domainKey)
      // Deletions take the same lock, so the group cannot be deleted from here on.
      if ((await findLineage(tx, group.key)).length === 0) throw new ServiceError('not_found', 'entity not found')
      const moved = await move(tx)
      if (moved === undefined) return
      const { parent, children } = moved
      const ids = children.map((child) => child.id)
      record({
        operation,
        domainKey: domain.domainKey,
        entityKeys: [...children.map((child) => child.key), parent.key],
        attributes:
          parent.id === group.id ? { id: parent.id, children_ids: ids } : { id: group.id, parent_id: parent.id },
      })
    })
  }
}

/** Attaches the groups to the parent. Both directions use it. */
async function join(
  tx: Transaction,
  domain: DomainAccess,
  parentId: string,
  children: readonly Movable[],
): Promise<Family> {
  const parent = await lockGroupFor(tx, domain.domainKey, parentId)
  const placed = children.find((child) => child.parentKey !== null)
  if (placed !== undefined)
    throw new ServiceError('conflict', `group ${placed.id} already has a parent: remove it first`)
  const refuse = (reason: string) => new ServiceError('unprocessable', `failed to set the parent: ${reason}`)
  const keys = children.map((child) => child.key)
  const lineage = await findLineage(tx, parent.key)
  const above = children.find((child) => lineage.includes(child.key))
  if (above !== undefined) throw refuse(`group ${parent.id} is a descendant of ${above.id}`)
  if (lineage.length + (await findHeight(tx, keys)) > MAX_LEVELS)
    throw refuse(`the hierarchy is limited to ${MAX_LEVELS} levels`)
  await attach(tx, parent.key, keys, domain.principal.id)
  return { parent, children }
}

/** Detaches the groups from their parent. */
async function part(tx: Transaction, domain: DomainAccess, family: Family): Promise<Family | undefined> {
  const keys = family.children.map((child) => child.key)
  if (keys.length === 0) return undefined
  await detach(tx, keys, domain.principal.id)
  return family
}

const conditionsOf = (domain: DomainAccess, action: string) => ({
  isReadable: domain.reachable('group', 'read', 'g', 'row'),
  isAllowed: domain.reachable('group', action, 'g', 'row'),
})

/**
 * Returns the groups with these ids, locked. Unknown groups, groups of other domains and groups without `read` get the
 * same error.
 */
async function lockAllowed(
  tx: Transaction,
  domain: DomainAccess,
  ids: readonly string[],
  action: string,
): Promise<Movable[]> {
  const movable = await lockNamed(tx, domain.domainKey, ids, conditionsOf(domain, action))
  const found = new Map(movable.filter((group) => group.isReadable).map((group) => [group.id, group]))
  const refused = [...found.values()].find((group) => !group.isAllowed)
  if (refused !== undefined) throw needs(action, refused.id)
  const unknown = ids.find((id) => !found.has(id))
  if (unknown !== undefined)
    throw new ServiceError(
      'unprocessable',
      `failed to change the hierarchy: group ${unknown} does not exist in this domain`,
    )
  return movable
}

function needs(action: string, groupId: string | undefined): ServiceError {
  const on = groupId === undefined ? 'every child' : `the group ${groupId}`
  return new ServiceError('forbidden', `failed to perform authorization: requires ${action} on ${on}`)
}

const ownParent = (path: string) => refusedField(path, 'must not contain the group itself')
