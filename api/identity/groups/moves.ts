/**
 * How groups get and lose parents (contract section 3, 2.5). Every change holds the lock of the domain's hierarchy, so of two
 * moves that together would make a cycle one sees the other. Whether the caller may do it is asked of the groups as they are
 * then; what he may not do comes before what cannot be done (decision 45).
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

export type MovesService = {
  /** The parent must be found by the caller and enabled. Throws `malformed`, `conflict` when it has one, `unprocessable`. */
  setParent(caller: UserPrincipal, at: Address, parentId: string): Promise<void>
  /** Without a parent nothing changes. */
  removeParent(caller: UserPrincipal, at: Address): Promise<void>
  /** All of them or none. Throws `malformed`, `forbidden`, `conflict` when one has a parent, `unprocessable`. */
  addChildren(caller: UserPrincipal, at: Address, childIds: readonly string[]): Promise<void>
  /** Roots among them stay what they are. Throws `conflict` when one has another parent. */
  removeChildren(caller: UserPrincipal, at: Address, childIds: readonly string[]): Promise<void>
  removeAllChildren(caller: UserPrincipal, at: Address): Promise<void>
}

/** Groups of one parent that are about to move. */
type Family = { parent: { key: number; id: string }; children: readonly Movable[] }

export function createMovesService({ database, journal, access }: GroupsDeps): MovesService {
  async function require(caller: UserPrincipal, at: Address, action: string) {
    const { domain, group } = await findReadable(database.db, access, caller, at)
    return { domain, group: await domain.requireOn(group, action) }
  }

  /** One change of the hierarchy around the group of a path; `move` says what moved, or that nothing had to. */
  async function change(
    caller: UserPrincipal,
    domain: DomainAccess,
    group: GroupRecord,
    operation: string,
    move: (tx: Transaction) => Promise<Family | undefined>,
  ): Promise<void> {
    await journal.change(caller, async (tx, record) => {
      await lockHierarchy(tx, domain.domainKey)
      // Deletions take the same lock: from here on the group stays.
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

  return {
    async setParent(caller, at, parentId) {
      if (at.id === parentId) throw ownParent('/parent_id')
      const { domain, group } = await require(caller, at, 'set_parent')
      await requireParentGroup(database.db, domain, parentId)
      await change(caller, domain, group, 'group.add_parent_group', async (tx) =>
        join(tx, domain, parentId, await lockAllowed(tx, domain, [group.id], 'set_parent')),
      )
    },
    async removeParent(caller, at) {
      const { domain, group } = await require(caller, at, 'set_parent')
      await change(caller, domain, group, 'group.remove_parent_group', async (tx) => {
        const children = await lockAllowed(tx, domain, [group.id], 'set_parent')
        const parentId = children[0]?.parentId ?? null
        if (parentId === null) return undefined
        // The record of a group shows its parent's id to whoever reads it, so there is nothing to hide here.
        const [parent] = await lockNamed(tx, domain.domainKey, [parentId], conditionsOf(domain, 'set_child'))
        if (parent?.isAllowed !== true) throw needs('set_child', parentId)
        return await part(tx, domain, { parent, children })
      })
    },
    async addChildren(caller, at, childIds) {
      if (childIds.includes(at.id)) throw ownParent('/children_ids')
      const { domain, group } = await require(caller, at, 'set_child')
      await change(caller, domain, group, 'group.add_children_groups', async (tx) =>
        join(tx, domain, group.id, await lockAllowed(tx, domain, childIds, 'set_parent')),
      )
    },
    async removeChildren(caller, at, childIds) {
      const { domain, group } = await require(caller, at, 'set_child')
      await change(caller, domain, group, 'group.remove_children_groups', async (tx) => {
        const named = await lockAllowed(tx, domain, childIds, 'set_parent')
        const foreign = named.find((child) => child.parentKey !== null && child.parentKey !== group.key)
        if (foreign !== undefined) throw new ServiceError('conflict', `the group ${foreign.id} has another parent`)
        const children = named.filter((child) => child.parentKey === group.key)
        return await part(tx, domain, { parent: group, children })
      })
    },
    async removeAllChildren(caller, at) {
      const { domain, group } = await require(caller, at, 'set_child')
      await change(caller, domain, group, 'group.remove_all_children_groups', async (tx) => {
        const children = await lockChildren(tx, group.key, conditionsOf(domain, 'set_parent'))
        const kept = children.find((child) => !child.isAllowed)
        // A child that the caller may not even read is not named to him.
        if (kept !== undefined) throw needs('set_parent', kept.isReadable ? kept.id : undefined)
        return await part(tx, domain, { parent: group, children })
      })
    },
  }
}

/** Puts the groups under the parent: the one rule for both directions. */
async function join(
  tx: Transaction,
  domain: DomainAccess,
  parentId: string,
  children: readonly Movable[],
): Promise<Family> {
  const parent = await lockGroupFor(tx, domain.domainKey, parentId)
  const placed = children.find((child) => child.parentKey !== null)
  if (placed !== undefined)
    throw new ServiceError('conflict', `the group ${placed.id} has a parent: remove it from there first`)
  const refuse = (reason: string) => new ServiceError('unprocessable', `failed to set the parent: ${reason}`)
  const keys = children.map((child) => child.key)
  const lineage = await findLineage(tx, parent.key)
  const above = children.find((child) => lineage.includes(child.key))
  if (above !== undefined) throw refuse(`the group ${parent.id} is below ${above.id} itself`)
  if (lineage.length + (await findHeight(tx, keys)) > MAX_LEVELS)
    throw refuse(`at most ${MAX_LEVELS} levels may be nested`)
  await attach(tx, parent.key, keys, domain.principal.id)
  return { parent, children }
}

/** Takes the groups from under their parent. */
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

/** The named groups, locked. Unknown, foreign and unreadable ones are refused alike. */
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
    throw new ServiceError('unprocessable', `failed to change the hierarchy: no group ${unknown} in this domain`)
  return movable
}

function needs(action: string, groupId: string | undefined): ServiceError {
  const on = groupId === undefined ? 'every child' : `the group ${groupId}`
  return new ServiceError('forbidden', `failed to perform authorization: needs ${action} on ${on}`)
}

const ownParent = (path: string) => refusedField(path, 'must not name the group itself')
