/**
 * The rules that clients and channels share: finding one and asking whether the caller may, changing it with its entry in
 * the journal, its status, its parent group and its end (contract 2.5, 4.1, 4.2, decisions 13, 31, 31b, 45, 46).
 */
import { isDeepStrictEqual } from 'node:util'
import { removeRolesOf, rolesShownTo } from '#api/identity/index.ts'
import type { AccessPolicy, DomainAccess, Journal, Recorder, ShownRoles, UserPrincipal } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { findParent, requireEnabledParent, requireParent, requireParents } from './parents.ts'
import type { ConnectableRecord, EnabledStatus } from './record.ts'
import type { ConnectableChange, ConnectableTable } from './repository.ts'

/** Where a client or channel is looked for: in a domain, or in every domain that the caller reaches (decision 31b). */
export type Address = { domainId: string | undefined; id: string }

/** What the journal tells of a record, named as on the wire. Never a secret. */
export type Facts = Readonly<Record<string, unknown>>

export type ConnectableRules<R extends ConnectableRecord, C extends ConnectableChange> = {
  /** Throws as decision 45 says: `forbidden` for a foreign domain, `not_found` for what the caller may not read. */
  find(caller: UserPrincipal, at: Address, action: string): Promise<{ domain: DomainAccess; entity: R }>
  /** The record, and on request the roles by which the caller has access to it. */
  view(caller: UserPrincipal, at: Address, withRoles: boolean): Promise<{ entity: R; roles: ShownRoles | undefined }>
  /**
   * Creates all or none: `insert` writes the rows with the keys of their parent groups, and the caller as their administrator.
   * Throws `forbidden`, `unprocessable` for a parent that is none.
   */
  create<I extends { parentGroupId: string | null }>(
    caller: UserPrincipal,
    domain: DomainAccess,
    inputs: readonly I[],
    insert: (tx: Transaction, inputs: readonly (I & { parentGroupKey: number | null })[]) => Promise<R[]>,
  ): Promise<R[]>
  /** Fields that are absent stay; a function makes the change of the record as it is. */
  change(caller: UserPrincipal, at: Address, operation: string, change: C | ((current: R) => C)): Promise<R>
  /** Idempotent (decision 13). */
  setStatus(caller: UserPrincipal, at: Address, status: EnabledStatus): Promise<R>
  /** The parent that it has already changes nothing. Throws `conflict` for another one, `unprocessable` for no good group. */
  setParent(caller: UserPrincipal, at: Address, groupId: string): Promise<void>
  /** Without a parent nothing changes; `only` removes that parent and no other. */
  removeParent(caller: UserPrincipal, at: Address, only?: string): Promise<void>
  /** Removes it, its connections and its roles; stored messages stay (decision 46). */
  remove(caller: UserPrincipal, at: Address): Promise<void>
}

export type ConnectableDeps = { database: Database; journal: Journal; access: AccessPolicy }

export function createConnectableRules<R extends ConnectableRecord, C extends ConnectableChange>(
  { database, journal, access }: ConnectableDeps,
  table: ConnectableTable<R, C>,
  factsOf: (record: R) => Facts,
): ConnectableRules<R, C> {
  const { type } = table

  async function find(caller: UserPrincipal, at: Address, action: string) {
    const domain =
      at.domainId === undefined
        ? (await access.locate(caller, undefined, type, at.id)).domain
        : await access.enter(caller, at.domainId)
    const entity = isId(at.id) ? await table.find(database.db, domain.domainKey, at.id) : undefined
    return { domain, entity: await domain.requireOn(entity, action) }
  }

  function recordChange(record: Recorder, operation: string, before: R, after: R, others: readonly number[] = []) {
    record({
      operation,
      domainKey: before.domainKey,
      entityKeys: [before.key, ...others],
      attributes: { id: before.id, ...difference(factsOf(before), factsOf(after)) },
    })
  }

  /** Locks the record and writes what `decide` wants of it; nothing wanted: nothing written. */
  async function changeLocked(
    caller: UserPrincipal,
    { key }: R,
    operation: string,
    decide: (current: R) => C | undefined,
  ): Promise<R> {
    return await journal.change(caller, async (tx, record) => {
      const current = await table.lock(tx, key)
      if (current === undefined) throw notFound()
      const change = decide(current)
      if (change === undefined) return current
      const updated = await table.update(tx, key, change, caller.id)
      recordChange(record, operation, current, updated)
      return updated
    })
  }

  return {
    find,
    async view(caller, at, withRoles) {
      const { domain, entity } = await find(caller, at, 'read')
      return { entity, roles: withRoles ? await rolesShownTo(database.db, domain, entity) : undefined }
    },
    async create(caller, domain, inputs, insert) {
      return await journal.change(caller, async (tx, record) => {
        const parents = await requireParents(tx, domain, type, inputs)
        const created = await insert(
          tx,
          inputs.map((input) => ({
            ...input,
            parentGroupKey: input.parentGroupId === null ? null : (parents.get(input.parentGroupId)?.key ?? null),
          })),
        )
        const keys = created.map((entity) => entity.key)
        const [only, ...more] = created
        record({
          operation: `${type}.create`,
          domainKey: domain.domainKey,
          entityKeys: keys,
          attributes:
            only !== undefined && more.length === 0 ? factsOf(only) : { ids: created.map((entity) => entity.id) },
        })
        return created
      })
    },
    async change(caller, at, operation, change) {
      const { entity } = await find(caller, at, 'update')
      return await changeLocked(caller, entity, operation, (current) =>
        typeof change === 'function' ? change(current) : change,
      )
    },
    async setStatus(caller, at, status) {
      const { entity } = await find(caller, at, 'update')
      if (entity.status === status) return entity
      const operation = `${type}.${status === 'enabled' ? 'enable' : 'disable'}`
      return await changeLocked(caller, entity, operation, (current) =>
        current.status === status ? undefined : ({ status } as C),
      )
    },
    async setParent(caller, at, groupId) {
      const { domain, entity } = await find(caller, at, 'set_parent_group')
      await journal.change(caller, async (tx, record) => {
        // The group before the record, as a deletion of the group takes them.
        const group = await requireParent(tx, domain, type, groupId)
        const current = await table.lock(tx, entity.key)
        if (current === undefined) throw notFound()
        if (current.parentGroupKey === group.key) return
        if (current.parentGroupKey !== null)
          throw new ServiceError('conflict', `the ${type} has another parent group: remove it first`)
        requireEnabledParent(group)
        const updated = await table.update(tx, entity.key, { parentGroupKey: group.key } as C, caller.id)
        recordChange(record, `${type}.set_parent`, current, updated, [group.key])
      })
    },
    async removeParent(caller, at, only) {
      const { domain, entity } = await find(caller, at, 'set_parent_group')
      const groupId = entity.parentGroupId
      if (groupId === null || (only !== undefined && only !== groupId)) return
      await journal.change(caller, async (tx, record) => {
        const group = await findParent(tx, domain, type, groupId)
        const current = await table.lock(tx, entity.key)
        if (current === undefined) throw notFound()
        // Another call was faster: whatever parent it has now is not the one that this call was to remove.
        if (group === undefined || current.parentGroupKey !== group.key) return
        const updated = await table.update(tx, entity.key, { parentGroupKey: null } as C, caller.id)
        recordChange(record, `${type}.remove_parent`, current, updated, [group.key])
      })
    },
    async remove(caller, at) {
      const { entity } = await find(caller, at, 'delete')
      await journal.change(caller, async (tx, record) => {
        if (!(await table.remove(tx, entity.key))) throw notFound()
        await removeRolesOf(tx, [entity.key])
        record({
          operation: `${type}.remove`,
          domainKey: entity.domainKey,
          entityKeys: [entity.key],
          attributes: { id: entity.id },
        })
      })
    },
  }
}

const notFound = () => new ServiceError('not_found', 'entity not found')

/** The facts that differ, as they were and as they are. */
function difference(before: Facts, after: Facts): { before: Facts; after: Facts } {
  const changed = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter(
    (name) => !isDeepStrictEqual(before[name], after[name]),
  )
  const of = (facts: Facts) => Object.fromEntries(changed.map((name) => [name, facts[name] ?? null]))
  return { before: of(before), after: of(after) }
}
