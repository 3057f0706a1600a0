/**
 * The rules that clients and channels share: finding and authorizing, changes with their journal entry, status, parent
 * group and deletion (contract 2.5, 4.1, 4.2, decisions 13, 31, 31b, 45, 46).
 */
import { difference, removeRolesOf, rolesShownTo } from '#api/identity/index.ts'
import type {
  AccessPolicy,
  DomainAccess,
  Facts,
  Journal,
  Quotas,
  Recorder,
  ShownRoles,
  UserPrincipal,
} from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { findParent, requireEnabledParent, requireParent, requireParents } from './parents.ts'
import type { ConnectableRecord, EnabledStatus } from './record.ts'
import type { ConnectableChange, ConnectableTable } from './repository.ts'

/**
 * Address of a client or channel: its id, in one domain or in every domain that the caller has access to (decision
 * 31b).
 */
export type Address = { domainId: string | undefined; id: string }

export type ConnectableDeps = { database: Database; journal: Journal; access: AccessPolicy; quotas: Quotas }

export class ConnectableRules<R extends ConnectableRecord, C extends ConnectableChange> {
  readonly #database: Database
  readonly #journal: Journal
  readonly #access: AccessPolicy
  readonly #quotas: Quotas
  readonly #table: ConnectableTable<R, C>
  readonly #factsOf: (record: R) => Facts

  constructor(
    { database, journal, access, quotas }: ConnectableDeps,
    table: ConnectableTable<R, C>,
    factsOf: (record: R) => Facts,
  ) {
    this.#database = database
    this.#journal = journal
    this.#access = access
    this.#quotas = quotas
    this.#table = table
    this.#factsOf = factsOf
  }

  /** Throws `forbidden` for a domain without access and `not_found` for an entity without `read` (decision 45). */
  async find(caller: UserPrincipal, at: Address, action: string): Promise<{ domain: DomainAccess; entity: R }> {
    const domain =
      at.domainId === undefined
        ? (await this.#access.locate(caller, undefined, this.#table.type, at.id)).domain
        : await this.#access.enter(caller, at.domainId)
    const entity = isId(at.id) ? await this.#table.find(this.#database.db, domain.domainKey, at.id) : undefined
    return { domain, entity: await domain.requireOn(entity, action) }
  }

  /** Returns the record, and on request the roles by which the caller has access to it. */
  async view(
    caller: UserPrincipal,
    at: Address,
    withRoles: boolean,
  ): Promise<{ domain: DomainAccess; entity: R; roles: ShownRoles | undefined }> {
    const { domain, entity } = await this.find(caller, at, 'read')
    return { domain, entity, roles: withRoles ? await rolesShownTo(this.#database.db, domain, entity) : undefined }
  }

  /**
   * Creates all or none. `insert` writes the rows with the keys of their parent groups and makes the caller their
   * administrator. Throws `forbidden`, `quota_exceeded`, and `unprocessable` for an unknown or disabled parent.
   */
  async create<I extends { parentGroupId: string | null }>(
    caller: UserPrincipal,
    domain: DomainAccess,
    inputs: readonly I[],
    insert: (tx: Transaction, inputs: readonly (I & { parentGroupKey: number | null })[]) => Promise<R[]>,
  ): Promise<R[]> {
    return await this.#journal.change(caller, async (tx, record) => {
      await this.#quotas.requireEntities(tx, domain.domainKey, this.#table.type, inputs.length)
      const parents = await requireParents(tx, domain, this.#table.type, inputs)
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
        operation: `${this.#table.type}.create`,
        domainKey: domain.domainKey,
        entityKeys: keys,
        attributes:
          only !== undefined && more.length === 0 ? this.#factsOf(only) : { ids: created.map((entity) => entity.id) },
        names: created.map((entity) => entity.name),
      })
      return created
    })
  }

  /** Absent fields are unchanged. A function computes the change from the current record. */
  async change(caller: UserPrincipal, at: Address, operation: string, change: C | ((current: R) => C)): Promise<R> {
    const { entity } = await this.find(caller, at, 'update')
    return await this.#changeLocked(caller, entity, operation, (current) =>
      typeof change === 'function' ? change(current) : change,
    )
  }

  /** Idempotent (decision 13). */
  async setStatus(caller: UserPrincipal, at: Address, status: EnabledStatus): Promise<R> {
    const { entity } = await this.find(caller, at, 'update')
    if (entity.status === status) return entity
    const operation = `${this.#table.type}.${status === 'enabled' ? 'enable' : 'disable'}`
    return await this.#changeLocked(caller, entity, operation, (current) =>
      current.status === status ? undefined : ({ status } as C),
    )
  }

  /**
   * Idempotent. Throws `conflict` when the entity has another parent, `unprocessable` for an unknown or disabled group.
   */
  async setParent(caller: UserPrincipal, at: Address, groupId: string): Promise<void> {
    const { domain, entity } = await this.find(caller, at, 'set_parent_group')
    await this.#journal.change(caller, async (tx, record) => {
      // The group is locked before the record, in the same order as a deletion of the group.
      const group = await requireParent(tx, domain, this.#table.type, groupId)
      const current = await this.#table.lock(tx, entity.key)
      if (current === undefined) throw notFound()
      if (current.parentGroupKey === group.key) return
      if (current.parentGroupKey !== null)
        throw new ServiceError('conflict', `the ${this.#table.type} already has a parent group: remove it first`)
      requireEnabledParent(group)
      const updated = await this.#table.update(tx, entity.key, { parentGroupKey: group.key } as C, caller.id)
      this.#recordChange(record, `${this.#table.type}.set_parent`, current, updated, [group.key])
    })
  }

  /** Has no effect without a parent. With `only` it removes the parent only if it is that group. */
  async removeParent(caller: UserPrincipal, at: Address, only?: string): Promise<void> {
    const { domain, entity } = await this.find(caller, at, 'set_parent_group')
    const groupId = entity.parentGroupId
    if (groupId === null || (only !== undefined && only !== groupId)) return
    await this.#journal.change(caller, async (tx, record) => {
      const group = await findParent(tx, domain, this.#table.type, groupId)
      const current = await this.#table.lock(tx, entity.key)
      if (current === undefined) throw notFound()
      // A concurrent request changed the parent after it was read. The new parent is not the one to remove.
      if (group === undefined || current.parentGroupKey !== group.key) return
      const updated = await this.#table.update(tx, entity.key, { parentGroupKey: null } as C, caller.id)
      this.#recordChange(record, `${this.#table.type}.remove_parent`, current, updated, [group.key])
    })
  }

  /** Removes the entity, its connections and its roles. Stored messages are kept (decision 46). */
  async remove(caller: UserPrincipal, at: Address): Promise<void> {
    const { entity } = await this.find(caller, at, 'delete')
    await this.#journal.change(caller, async (tx, record) => {
      if (!(await this.#table.remove(tx, entity.key))) throw notFound()
      await removeRolesOf(tx, [entity.key])
      record({
        operation: `${this.#table.type}.remove`,
        domainKey: entity.domainKey,
        entityKeys: [entity.key],
        attributes: { id: entity.id },
      })
    })
  }

  #recordChange(record: Recorder, operation: string, before: R, after: R, others: readonly number[] = []) {
    record({
      operation,
      domainKey: before.domainKey,
      entityKeys: [before.key, ...others],
      attributes: { id: before.id, ...difference(this.#factsOf(before), this.#factsOf(after)) },
    })
  }

  /** Locks the record and writes the change that `decide` returns. Undefined writes nothing. */
  async #changeLocked(
    caller: UserPrincipal,
    { key }: R,
    operation: string,
    decide: (current: R) => C | undefined,
  ): Promise<R> {
    return await this.#journal.change(caller, async (tx, record) => {
      const current = await this.#table.lock(tx, key)
      if (current === undefined) throw notFound()
      const change = decide(current)
      if (change === undefined) return current
      const updated = await this.#table.update(tx, key, change, caller.id)
      this.#recordChange(record, operation, current, updated)
      return updated
    })
  }
}

const notFound = () => new ServiceError('not_found', 'entity not found')
