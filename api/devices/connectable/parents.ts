/** Rules for the parent group of a client or channel (contract 2.4, 2.5, 4.1). */
import type { DomainAccess } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { ConnectableType } from './record.ts'
import type { ParentGroup } from './repository.ts'
import { lockParentGroups } from './repository.ts'

/**
 * Returns the current parent group, locked against deletion until the transaction ends. Throws `forbidden` without
 * `set_child` on it.
 */
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
 * Returns the group, locked against deletion until the transaction ends. Throws the same `unprocessable` for an unknown
 * group, a group of another domain and a group without `read`. Throws `forbidden` without `set_child` on it.
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

/** Throws `unprocessable` for a disabled group. */
export function requireEnabledParent(group: ParentGroup): void {
  if (group.status !== 'enabled')
    throw new ServiceError('unprocessable', `failed to set the parent: group ${group.id} is disabled`)
}

/**
 * Returns the parent groups of a creation by id. Creating requires `client_create` or `channel_create` in the domain
 * (`requireCreation`). Inside a group the same action on the group or one of its ancestors is sufficient.
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
  // `forbidden` has precedence over `unprocessable` (decision 45).
  for (const group of readable.values()) if (!domain.can(action) && !group.mayCreateIn) throw needs(action, group.id)
  for (const id of ids) {
    const group = readable.get(id)
    if (group === undefined) throw noGroup(id)
    requireEnabledParent(group)
  }
  return readable
}

const noGroup = (id: string) =>
  new ServiceError('unprocessable', `failed to set the parent: group ${id} does not exist in this domain`)

const needs = (action: string, id: string) =>
  new ServiceError('forbidden', `failed to perform authorization: requires ${action} on the group ${id}`)
