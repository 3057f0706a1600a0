/**
 * Where groups stand: who is above and below whom, and how that changes (contract section 3, decision 26). Every change
 * holds the lock of the domain's hierarchy, so of two moves that together would make a cycle one sees the other.
 */
import type { Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Page } from '#core/page.ts'
import type { DomainAccess, UserPrincipal } from '../access/index.ts'
import type { Recorder } from '../journal/index.ts'
import type { Movable } from './closure.ts'
import { attach, detach, findHeight, findLineage, lockChildren, lockHierarchy, lockNamed } from './closure.ts'
import { findReadable } from './find.ts'
import type { Address, WithAccess } from './find.ts'
import { listPage, parseFilter } from './listing.ts'
import { lockGroupFor, requireParentGroup } from './parent-group.ts'
import type { GroupRecord, Kinship, ListedGroup } from './repository.ts'
import { countKin, listKin } from './repository.ts'
import type { ChildrenQuery, HierarchyQuery, ParentsQuery } from './schema.ts'
import { MAX_LEVELS } from './schema.ts'
import type { GroupsDeps } from './service.ts'

export type HierarchyService = {
  /** The parent must be found by the caller and enabled. Throws `malformed`, `conflict` when it has one, `unprocessable`. */
  setParent(caller: UserPrincipal, at: Address, parentId: string): Promise<void>
  /** Without a parent nothing changes. */
  removeParent(caller: UserPrincipal, at: Address): Promise<void>
  /** All of them or none. Throws `malformed`, `forbidden`, `conflict` when one has a parent, `unprocessable`. */
  addChildren(caller: UserPrincipal, at: Address, childIds: readonly string[]): Promise<void>
  /** Roots among them stay what they are. Throws `conflict` when one has another parent. */
  removeChildren(caller: UserPrincipal, at: Address, childIds: readonly string[]): Promise<void>
  removeAllChildren(caller: UserPrincipal, at: Address): Promise<void>
  /** Readable groups below this one, level by level from here. */
  children(caller: UserPrincipal, at: Address, query: ChildrenQuery): Promise<Page<WithAccess<ListedGroup>>>
  /** Readable groups above this one, the nearest first. */
  parents(caller: UserPrincipal, at: Address, query: ParentsQuery): Promise<Page<WithAccess<ListedGroup>>>
  /** The group with everything above or below it, also what the caller may not read. Throws `unprocessable` above the bound. */
  hierarchy(
    caller: UserPrincipal,
    at: Address,
    query: HierarchyQuery,
  ): Promise<(GroupRecord & { isReadable: boolean })[]>
}

/** Groups that one answer of a hierarchy may hold; more are read page by page from `/children`. */
const MAX_HIERARCHY_GROUPS = 10_000
const ALL_ABOVE = { fromLevel: 1, toLevel: MAX_LEVELS }

export function createHierarchyService({ database, journal, access }: GroupsDeps): HierarchyService {
  const find = (caller: UserPrincipal, at: Address) => findReadable(database.db, access, caller, at)

  async function require(caller: UserPrincipal, at: Address, action: string) {
    const { domain, group } = await find(caller, at)
    return { domain, group: await domain.requireOn(group, action) }
  }

  /** Puts the groups under the parent: the one rule for both directions. */
  async function join(
    caller: UserPrincipal,
    domain: DomainAccess,
    parentId: string,
    childIds: readonly string[],
    operation: string,
  ): Promise<void> {
    await journal.change(caller, async (tx, record) => {
      await lockHierarchy(tx, domain.domainKey)
      const children = await lockAllowed(tx, domain, childIds, 'set_parent')
      const parent = await lockGroupFor(tx, domain.domainKey, parentId)
      const placed = children.find((child) => child.parentKey !== null)
      if (placed !== undefined)
        throw new ServiceError('conflict', `the group ${placed.id} has a parent: remove it from there first`)
      const keys = children.map((child) => child.key)
      const lineage = await findLineage(tx, parent.key)
      const above = children.find((child) => lineage.includes(child.key))
      if (above !== undefined)
        throw new ServiceError(
          'unprocessable',
          `failed to set the parent: the group ${parent.id} is below ${above.id} itself`,
        )
      if (lineage.length + (await findHeight(tx, keys)) > MAX_LEVELS)
        throw new ServiceError('unprocessable', `failed to set the parent: at most ${MAX_LEVELS} levels may be nested`)
      await attach(tx, parent.key, keys, caller.id)
      recordMove(record, operation, domain, { parent, children })
    })
  }

  /** Takes the groups from under the parent, which may stay unnamed when there are none. */
  async function part(
    caller: UserPrincipal,
    domain: DomainAccess,
    operation: string,
    choose: (tx: Transaction) => Promise<{ parent: { key: number; id: string } | undefined; children: Movable[] }>,
  ): Promise<void> {
    await journal.change(caller, async (tx, record) => {
      await lockHierarchy(tx, domain.domainKey)
      const { parent, children } = await choose(tx)
      if (parent === undefined || children.length === 0) return
      await detach(
        tx,
        children.map((child) => child.key),
        caller.id,
      )
      recordMove(record, operation, domain, { parent, children })
    })
  }

  return {
    async setParent(caller, at, parentId) {
      if (at.id === parentId) throw ownParent('/parent_id')
      const { domain, group } = await require(caller, at, 'set_parent')
      await requireParentGroup(database.db, domain, parentId)
      await join(caller, domain, parentId, [group.id], 'group.add_parent_group')
    },
    async removeParent(caller, at) {
      const { domain, group } = await require(caller, at, 'set_parent')
      await part(caller, domain, 'group.remove_parent_group', async (tx) => {
        const children = await lockAllowed(tx, domain, [group.id], 'set_parent')
        const parentId = children[0]?.parentId ?? null
        if (parentId === null) return { parent: undefined, children: [] }
        // The record of a group shows its parent's id to whoever reads it, so there is nothing to hide here.
        const [parent] = await lockNamed(tx, domain.domainKey, [parentId], conditionsOf(domain, 'set_child'))
        if (parent?.isAllowed !== true) throw needs('set_child', parentId)
        return { parent, children }
      })
    },
    async addChildren(caller, at, childIds) {
      if (childIds.includes(at.id)) throw ownParent('/children_ids')
      const { domain, group } = await require(caller, at, 'set_child')
      await join(caller, domain, group.id, childIds, 'group.add_children_groups')
    },
    async removeChildren(caller, at, childIds) {
      const { domain, group } = await require(caller, at, 'set_child')
      await part(caller, domain, 'group.remove_children_groups', async (tx) => {
        const named = await lockAllowed(tx, domain, childIds, 'set_parent')
        const foreign = named.find((child) => child.parentKey !== null && child.parentKey !== group.key)
        if (foreign !== undefined) throw new ServiceError('conflict', `the group ${foreign.id} has another parent`)
        return { parent: group, children: named.filter((child) => child.parentKey === group.key) }
      })
    },
    async removeAllChildren(caller, at) {
      const { domain, group } = await require(caller, at, 'set_child')
      await part(caller, domain, 'group.remove_all_children_groups', async (tx) => {
        const children = await lockChildren(tx, group.key, conditionsOf(domain, 'set_parent'))
        // A child that the caller may not even read is not named to him.
        const kept = children.find((child) => !child.isAllowed)
        if (kept !== undefined) throw needs('set_parent', kept.isReadable ? kept.id : undefined)
        return { parent: group, children }
      })
    },
    async children(caller, at, query) {
      const [filter, levels] = [parseFilter(query), levelsOf(query)]
      const { domain, group } = await find(caller, at)
      return await listPage(database.db, [domain], filter, { side: 'below', key: group.key, ...levels })
    },
    async parents(caller, at, query) {
      const filter = parseFilter(query)
      const { domain, group } = await find(caller, at)
      return await listPage(database.db, [domain], filter, { side: 'above', key: group.key, ...ALL_ABOVE })
    },
    async hierarchy(caller, at, { level, dir }) {
      const { domain, group } = await find(caller, at)
      const kinship: Kinship = {
        side: dir < 0 ? 'below' : 'above',
        key: group.key,
        fromLevel: 0,
        toLevel: level === 0 ? MAX_LEVELS : level,
      }
      if ((await countKin(database.db, kinship)) > MAX_HIERARCHY_GROUPS)
        throw new ServiceError(
          'unprocessable',
          `the hierarchy has more than ${MAX_HIERARCHY_GROUPS} groups: ask for fewer levels, or page by page from /children`,
        )
      return await listKin(database.db, kinship, domain.reachable('group', 'read', 'g'))
    },
  }
}

const conditionsOf = (domain: DomainAccess, action: string) => ({
  isReadable: domain.reachable('group', 'read', 'g'),
  isAllowed: domain.reachable('group', action, 'g'),
})

/** The named groups, locked. What the caller may not do comes before what he cannot know of (decision 45). */
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

function ownParent(path: string): ServiceError {
  const message = 'must not name the group itself'
  return new ServiceError('malformed', `${path.slice(1)} ${message}`, { details: [{ path, message }] })
}

/** Levels counted from the group of the path; throws `malformed` when the last comes before the first. */
function levelsOf({ start_level: fromLevel, end_level: endLevel, tree }: ChildrenQuery) {
  const end = endLevel ?? (tree === true ? -1 : 0)
  const toLevel = end < 0 ? MAX_LEVELS : end === 0 ? fromLevel : end
  if (toLevel < fromLevel) {
    const message = 'must not be less than start_level'
    throw new ServiceError('malformed', `end_level ${message}`, { details: [{ path: 'end_level', message }] })
  }
  return { fromLevel, toLevel }
}

function recordMove(
  record: Recorder,
  operation: string,
  { domainKey }: DomainAccess,
  { parent, children }: { parent: { key: number; id: string }; children: readonly Movable[] },
): void {
  const isUpwards = operation.endsWith('_parent_group')
  const ids = children.map((child) => child.id)
  record({
    operation,
    domainKey,
    entityKeys: [...children.map((child) => child.key), parent.key],
    attributes: isUpwards ? { id: ids[0], parent_id: parent.id } : { id: parent.id, children_ids: ids },
  })
}
