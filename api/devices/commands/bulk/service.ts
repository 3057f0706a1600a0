/** The rules of commands to many clients: who may give them, to how many, and how they are stopped. */
import type { AccessPolicy, DomainAccess, Journal, Quotas, UserPrincipal } from '#api/identity/index.ts'
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { isId, newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import {
  countRunning,
  countSelected,
  findBulk,
  findRepeatedBulk,
  forgetKey,
  groupExists,
  insertBulk,
  insertTargets,
  listBulks,
  lockBulk,
  removeBulksBeyond,
} from './repository.ts'
import type { BulkRecord } from './repository.ts'
import { MAX_RUNNING, MAX_TARGETS } from './schema.ts'
import type { BulkQuery, NewBulk } from './schema.ts'
import { bulkEntry, endBulk } from './step.ts'
import { idempotencyOf, usedWithAnotherBody } from '../idempotency.ts'
import type { Idempotency } from '../idempotency.ts'
import { commandOf } from '../service.ts'

export type BulkCommandsDeps = {
  database: Database
  journal: Pick<Journal, 'change'>
  access: AccessPolicy
  quotas: Pick<Quotas, 'requireToday'>
}

const notFound = () => new ServiceError('not_found', 'command not found')

export class BulkCommandsService {
  readonly #deps: BulkCommandsDeps

  constructor(deps: BulkCommandsDeps) {
    this.#deps = deps
  }

  /**
   * Gives a command to the enabled clients with a tag or of a group, as they are now. Throws `malformed`, `too_large`, `unprocessable` for an unknown
   * group, no clients or too many, or a key that was used with another request, `quota_exceeded` while too many such requests run,
   * `rate_limited`. Repeated with its key, it returns the request that was given before, whatever its clients are by now.
   */
  async create(
    caller: UserPrincipal,
    domainId: string,
    input: NewBulk,
    idempotencyKey: string | undefined,
  ): Promise<BulkRecord> {
    const { tag = null, group: groupId = null } = input
    if ((tag === null) === (groupId === null)) throw refusedField('/tag', 'is required, or group, and not both')
    const { at_once: atOnce, per_minute: perMinute = null, stop_failed_percent: stopPercent = null } = input
    const options = [tag, groupId, atOnce, perMinute, stopPercent]
    const idempotency = idempotencyOf(caller, idempotencyKey, input, options)
    const { database, journal, quotas } = this.#deps
    const domain = await this.#enter(caller, domainId, 'client_command')
    const { domainKey } = domain
    const before = await repeatedIn(database.db, domainKey, idempotency)
    if (before !== undefined) return await this.#found(domain, before)
    const fields = commandOf(input, Date.now())
    if (groupId !== null && !(await groupExists(database.db, domainKey, groupId)))
      throw new ServiceError('unprocessable', 'the group does not exist', {
        details: [{ path: '/group', message: 'must be the id of a group of the domain' }],
      })
    const selection = { domainKey, tag, groupId }
    const expected = await countSelected(database.db, selection, MAX_TARGETS + 1)
    requireTargets(expected)
    await quotas.requireToday(domainKey, 'commands_per_day', expected)
    const id = newId()
    const row = {
      ...fields,
      ...selection,
      id,
      createdBy: caller.id,
      atOnce,
      perMinute,
      stopPercent,
      idempotency,
    }
    const given = await journal.change(caller, async (tx, record) => {
      const running = await countRunning(tx, domainKey)
      const meanwhile = await repeatedIn(tx, domainKey, idempotency)
      if (meanwhile !== undefined) return meanwhile
      if (running >= MAX_RUNNING)
        throw new ServiceError(
          'quota_exceeded',
          `at most ${MAX_RUNNING} commands to many clients of a domain run at a time`,
        )
      if (idempotency !== undefined) await forgetKey(tx, domainKey, idempotency)
      await removeBulksBeyond(tx, domainKey)
      const key = await insertBulk(tx, row)
      const total = await insertTargets(tx, key, row, MAX_TARGETS + 1)
      requireTargets(total)
      const selected = tag === null ? { group_id: groupId } : { tag }
      record(bulkEntry('begin', { domainKey, id, name: fields.name }, { ...selected, total }))
      return id
    })
    return await this.#found(domain, given)
  }

  async get(caller: UserPrincipal, domainId: string, id: string): Promise<BulkRecord> {
    return await this.#found(await this.#enter(caller, domainId, 'client_read'), id)
  }

  async list(caller: UserPrincipal, domainId: string, query: BulkQuery): Promise<Page<BulkRecord>> {
    const { domainKey } = await this.#enter(caller, domainId, 'client_read')
    const { offset, limit } = query
    const { total, bulks, next } = await listBulks(this.#deps.database.db, domainKey, query)
    return { total, offset, limit, items: bulks, next }
  }

  /** Idempotent. No more commands are given, and those that no device has are cancelled. Throws `invalid_state` for one that has ended otherwise. */
  async cancel(caller: UserPrincipal, domainId: string, id: string): Promise<BulkRecord> {
    const domain = await this.#enter(caller, domainId, 'client_command')
    const found = await this.#found(domain, id)
    await this.#deps.journal.change(caller, async (tx, record) => {
      const bulk = await lockBulk(tx, found.key, true)
      if (bulk?.status === 'running')
        await endBulk(tx, bulk, record, { operation: 'cancel', status: 'cancelled', reason: null })
    })
    const bulk = await this.#found(domain, id)
    if (bulk.status !== 'cancelled')
      throw new ServiceError('invalid_state', `it has ended before: it is ${bulk.status}`)
    return bulk
  }

  async #enter(
    caller: UserPrincipal,
    domainId: string,
    action: 'client_read' | 'client_command',
  ): Promise<DomainAccess> {
    const domain = await this.#deps.access.enter(caller, domainId)
    domain.require(action)
    return domain
  }

  async #found({ domainKey }: DomainAccess, id: string): Promise<BulkRecord> {
    const record = isId(id) ? await findBulk(this.#deps.database.db, domainKey, id) : undefined
    if (record === undefined) throw notFound()
    return record
  }
}

/** The id of the request that was given with this key. Throws `unprocessable` if it was another one. */
async function repeatedIn(
  db: Queryable,
  domainKey: number,
  idempotency: Idempotency | undefined,
): Promise<string | undefined> {
  const found = idempotency === undefined ? undefined : await findRepeatedBulk(db, domainKey, idempotency)
  if (found?.isSame === false) throw usedWithAnotherBody()
  return found?.id
}

/** Throws `unprocessable`. */
function requireTargets(total: number): void {
  if (total === 0) throw new ServiceError('unprocessable', 'no enabled client is selected')
  if (total > MAX_TARGETS)
    throw new ServiceError('unprocessable', `more than ${MAX_TARGETS} clients are selected: use several tags or groups`)
}
