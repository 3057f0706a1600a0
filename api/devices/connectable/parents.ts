/** Which group may become the parent of a client or channel, and for whom (contract 2.4, 2.5, 4.1). */
import type { DomainAccess } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { ConnectableType } from './record.ts'
import type { ParentGroup } from './repository.ts'
import { lockParentGroups } from './repository.ts'

/** A group that is the parent already, held against deletion until the transaction ends. Throws `forbidden` without `set_child`. */
export async function findParent(
  tx: Transaction,
  domain: DomainAccess,
  type: ConnectableType,
  groupId: string,
): Promise<ParentGroup | undefined> {
  const [group] = await lockParentGroups(tx, domain, type, [groupId])
  if (group !== undefined && !group.canSetChild) throw needs('set_child', groupId)
  return group
}

/**
 * The group, held against deletion until the transaction ends. Throws `unprocessable` for an unknown group, one of another
 * domain and one that the caller may not read alike; `forbidden` without `set_child` on it.
 */
export async function requireParent(
  tx: Transaction,
  domain: DomainAccess,
  type: ConnectableType,
  groupId: string,
): Promise<ParentGroup> {
  const [group] = isId(groupId) ? await lockParentGroups(tx, domain, type, [groupId]) : []
  if (group?.isReadable !== true) throw noGroup(groupId)
  if (!group.canSetChild) throw needs('set_child', groupId)
  return group
}

/** Throws `unprocessable` for a group that is disabled. */
export function requireEnabledParent(group: ParentGroup): void {
  if (group.status !== 'enabled')
    throw new ServiceError('unprocessable', `failed to set the parent: the group ${group.id} is disabled`)
}

/**
 * The parents that a creation names, by id. Creating needs `client_create` or `channel_create` in the domain
 * (`requireCreation`); inside a group the same action by a role on the group or above it is enough.
 */
export async function requireParents(
  tx: Transaction,
  domain: DomainAccess,
  type: ConnectableType,
  inputs: readonly { parentGroupId: string | null }[],
): Promise<ReadonlyMap<string, ParentGroup>> {
  const action = `${type}_create` as const
  const ids = [...new Set(inputs.map((input) => input.parentGroupId))].filter((id) => id !== null)
  if (ids.length === 0) return new Map()
  const groups = await lockParentGroups(tx, domain, type, ids.filter(isId))
  const readable = new Map(groups.filter((group) => group.isReadable).map((group) => [group.id, group]))
  // What the caller may not do comes before what does not exist (decision 45).
  for (const group of readable.values()) if (!domain.can(action) && !group.mayCreateIn) throw needs(action, group.id)
  for (const id of ids) {
    const group = readable.get(id)
    if (group === undefined) throw noGroup(id)
    requireEnabledParent(group)
  }
  return readable
}

const noGroup = (id: string) =>
  new ServiceError('unprocessable', `failed to set the parent: no group ${id} in this domain`)

const needs = (action: string, id: string) =>
  new ServiceError('forbidden', `failed to perform authorization: needs ${action} on the group ${id}`)
