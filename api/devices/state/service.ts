/** The states of devices for users: what each should be, what it reports, and how far many are. */
import type { AccessPolicy, DomainAccess, Journal, UserPrincipal } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { durationWithin } from '#core/durations.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { Slots } from '#core/slots.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { createTurns } from '#core/turns.ts'
import type { Address } from '../connectable/index.ts'
import type { ClientWaits } from '../device-topics/index.ts'
import { requireVersion, writeOf } from './changes.ts'
import type { JsonObject } from './document.ts'
import { mergePatch, parseName, requireObject } from './document.ts'
import type { ClientSelection, ListedState, StateProgress, StateRecord, StateWrite } from './repository.ts'
import {
  countProgress,
  deleteState,
  findFullClients,
  findSelected,
  findState,
  findVersion,
  listStates,
  lockState,
  lockStates,
  unwritten,
  writeStates,
} from './repository.ts'
import type { SelectionQuery } from './schema.ts'

/** Clients of one change. */
const MAX_CHANGED = 10_000
/** Clients whose documents are read by one statement. */
const READ_AT_ONCE = 50
/** JSON that is written by one statement. */
const MAX_WRITTEN_CHARS = 1024 * 1024
/** The journal keeps what was changed up to this size; of a larger change it has the names of the fields. */
const MAX_RECORDED_BYTES = 8 * 1024

/** Callers who wait for a change, of this process and of one domain. */
const MAX_WAITERS = 2_000
const MAX_WAITERS_PER_DOMAIN = 200
export const MAX_WAIT_MS = 60_000
/** A waiting caller looks no more often: a device may report hundreds of times a second, also other documents. */
const MIN_LOOK_MS = 50

export type DeviceStatesDeps = {
  database: Database
  journal: Journal
  access: AccessPolicy
  waits: ClientWaits
  /** Aborted when the process begins to stop. */
  signal: AbortSignal
}

/** Waits until the document has another version. */
export type StateWait = {
  wait: string
  /** Undefined: the one that it has now. */
  version: number | undefined
  /** Aborted when the caller has gone. */
  signal: AbortSignal
}

/** A merge patch of what is desired, or all of it. */
export type DesiredChange = { kind: 'patch' | 'replace'; body: unknown }

export class DeviceStatesService {
  readonly #database: Database
  readonly #journal: Journal
  readonly #access: AccessPolicy
  readonly #waits: ClientWaits
  readonly #signal: AbortSignal
  readonly #waiters = new Slots({
    what: 'callers that wait for the state of a device',
    max: MAX_WAITERS,
    share: MAX_WAITERS_PER_DOMAIN,
  })

  constructor({ database, journal, access, waits, signal }: DeviceStatesDeps) {
    this.#waits = waits
    this.#signal = signal
    this.#database = database
    this.#journal = journal
    this.#access = access
  }

  /** A document that was never written is empty, and has version 0. */
  async get(caller: UserPrincipal, at: Address, name: string | undefined, wait?: StateWait): Promise<StateRecord> {
    const asked = parseName(name)
    const waitMs = wait === undefined ? 0 : durationWithin(wait.wait, 'wait', [0, MAX_WAIT_MS])
    const { key, domainKey } = await this.#find(caller, at, 'state_read')
    if (wait === undefined || waitMs === 0) return await this.#read(key, asked)
    const changed = await this.#waiters.run(domainKey, () => this.#untilChanged(key, asked, waitMs, wait))
    // The right may have ended meanwhile.
    await this.#find(caller, at, 'state_read')
    return changed
  }

  async #read(key: number, name: string): Promise<StateRecord> {
    return (await findState(this.#database.db, key, name)) ?? unwritten(key, name)
  }

  async #untilChanged(key: number, name: string, waitMs: number, { version, signal }: StateWait): Promise<StateRecord> {
    const deadlineMs = monotonicMs() + waitMs
    const over = AbortSignal.any([signal, this.#signal])
    const wait = this.#waits.begin(key)
    try {
      let known = version
      for (;;) {
        const lookedMs = monotonicMs()
        const current = await findVersion(this.#database.db, key, name)
        known ??= current
        if (current !== known || over.aborted || monotonicMs() >= deadlineMs) break
        await wait.next(deadlineMs, over)
        const pauseMs = Math.min(lookedMs + MIN_LOOK_MS, deadlineMs) - monotonicMs()
        if (pauseMs > 0) await sleep(pauseMs)
      }
    } finally {
      wait.end()
    }
    return await this.#read(key, name)
  }

  async list(caller: UserPrincipal, at: Address): Promise<ListedState[]> {
    const { key } = await this.#find(caller, at, 'state_read')
    return await listStates(this.#database.db, key)
  }

  /** Throws `precondition_failed` for another version than `ifMatch`. A change without an effect writes nothing. */
  async change(
    caller: UserPrincipal,
    at: Address,
    name: string | undefined,
    { change, ifMatch }: { change: DesiredChange; ifMatch: number | undefined },
  ): Promise<StateRecord> {
    const asked = parseName(name)
    const body = requireObject(change.body)
    const { key, domainKey } = await this.#find(caller, at, 'state_update')
    return await this.#journal.change(caller, async (tx, record) => {
      const before = await lockState(tx, key, asked)
      requireVersion(before, ifMatch)
      const write = writeOf(before, 'desired', changed(before, change.kind, body))
      if (write === undefined) return before
      const after = (await writeStates(tx, [write])).get(key) as StateRecord
      record({
        operation: 'client_state.update',
        domainKey,
        entityKeys: [key],
        attributes: { id: at.id, state: asked, version: after.version, ...recorded(before.desired, after.desired) },
      })
      return after
    })
  }

  /** Has no effect on a document that was never written. Throws `precondition_failed` for another version than `ifMatch`. */
  async remove(
    caller: UserPrincipal,
    at: Address,
    name: string | undefined,
    ifMatch: number | undefined,
  ): Promise<void> {
    const asked = parseName(name)
    const { key, domainKey } = await this.#find(caller, at, 'state_update')
    await this.#journal.change(caller, async (tx, record) => {
      const before = await lockState(tx, key, asked)
      requireVersion(before, ifMatch)
      if (before.version === 0) return
      await deleteState(tx, key, asked)
      record({
        operation: 'client_state.remove',
        domainKey,
        entityKeys: [key],
        attributes: { id: at.id, state: asked, version: before.version, ...recorded(before.desired, {}) },
      })
    })
  }

  /**
   * Merges the patch into what is desired of each selected client that the caller may change: all or none. Throws `malformed` without a
   * selection, and `unprocessable` for more clients than one change may have.
   */
  async changeMany(
    caller: UserPrincipal,
    domainId: string,
    query: SelectionQuery,
    patch: unknown,
  ): Promise<{ total: number; changed: number }> {
    const name = parseName(query.name)
    const body = requireObject(patch)
    const domain = await this.#access.enter(caller, domainId)
    const selection = selectionOf(domain, query, 'state_update')
    return await this.#journal.change(caller, async (tx, record) => {
      const clients = await findSelected(tx, selection, MAX_CHANGED)
      if (clients.length > MAX_CHANGED)
        throw new ServiceError('unprocessable', `a change is limited to ${MAX_CHANGED} clients: select fewer`)
      const changedKeys = new Set<number>()
      for (let first = 0; first < clients.length; first += READ_AT_ONCE)
        for (const key of await changeSome(tx, clients.slice(first, first + READ_AT_ONCE), { name, body }))
          changedKeys.add(key)
      const touched = clients.filter(({ key }) => changedKeys.has(key))
      if (touched.length > 0)
        record({
          operation: 'client_state.update',
          domainKey: domain.domainKey,
          entityKeys: touched.map(({ key }) => key),
          attributes: { ids: touched.map(({ id }) => id), state: name, patch: bounded(body) },
          names: touched.map((client) => client.name),
        })
      return { total: clients.length, changed: touched.length }
    })
  }

  /** Counts only clients whose state the caller may read. */
  async progress(caller: UserPrincipal, domainId: string, query: SelectionQuery): Promise<StateProgress> {
    const name = parseName(query.name)
    const domain = await this.#access.enter(caller, domainId)
    return await countProgress(this.#database.db, selectionOf(domain, query, 'state_read'), name)
  }

  async #find(caller: UserPrincipal, { domainId, id }: Address, action: 'state_read' | 'state_update') {
    const { domain, entity } = await this.#access.locate(caller, domainId, 'client', id)
    const { key } = await domain.requireOn(entity, action)
    return { key, domainKey: domain.domainKey }
  }
}

function changed({ desired }: StateRecord, kind: DesiredChange['kind'], body: JsonObject): JsonObject {
  // A replacement has no fields that are null, as if it had been merged: a device could not tell them from absent ones.
  return mergePatch(kind === 'patch' ? desired : {}, body)
}

/** Throws `malformed` without a tag and a group: a change of all clients must be asked for by a tag that all have. */
function selectionOf(domain: DomainAccess, { tag, group }: SelectionQuery, action: string): ClientSelection {
  if (tag === undefined && group === undefined)
    throw new ServiceError('malformed', 'tag or group is required: it selects the clients')
  const conditions: Sql<boolean>[] = [domain.reachable('client', action, 'c')]
  if (tag !== undefined) conditions.push(sql<boolean>`c.tags @> ${[tag]}::text[]`)
  if (group !== undefined)
    conditions.push(
      isId(group)
        ? sql<boolean>`c.parent_group_key = (SELECT g.key FROM groups g WHERE g.domain_key = ${domain.domainKey} AND g.id = ${group})`
        : sql<boolean>`false`,
    )
  return { domainKey: domain.domainKey, where: sql<boolean>`${sql.join(conditions, sql` AND `)}` }
}

/** Changes what is desired of these clients, in turns of the event loop; returns the keys of those that changed. */
async function changeSome(
  tx: Transaction,
  clients: readonly { key: number; id: string }[],
  { name, body }: { name: string; body: JsonObject },
): Promise<number[]> {
  const keys = clients.map(({ key }) => key)
  const states = await lockStates(tx, keys, name)
  const [full] = name === '' ? [] : await findFullClients(tx, keys, name)
  if (full !== undefined) {
    const id = clients.find(({ key }) => key === full)?.id
    throw new ServiceError('unprocessable', `client ${id} has as many named documents as a client may have`)
  }
  const turns = createTurns()
  const changedKeys: number[] = []
  let writes: StateWrite[] = []
  let chars = 0
  const write = async () => {
    if (writes.length > 0) await writeStates(tx, writes)
    changedKeys.push(...writes.map(({ clientKey }) => clientKey))
    writes = []
    chars = 0
  }
  for (const { key, id } of clients) {
    if (turns.isOver) await turns.next()
    const before = states.get(key) ?? unwritten(key, name)
    const one = withClient(id, () => writeOf(before, 'desired', mergePatch(before.desired, body)))
    if (one === undefined) continue
    writes.push(one)
    chars += JSON.stringify(one).length
    if (chars >= MAX_WRITTEN_CHARS) await write()
  }
  await write()
  return changedKeys
}

/** Names the client in the error of its document. */
function withClient<T>(id: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error
    throw new ServiceError(error.kind, `client ${id}: ${error.message}`, { cause: error })
  }
}

/** The fields that differ, with their values before and after. */
function recorded(before: JsonObject, after: JsonObject) {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter(
    (name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]),
  )
  const of = (document: JsonObject) =>
    Object.fromEntries(names.filter((name) => Object.hasOwn(document, name)).map((name) => [name, document[name]]))
  const sides = { before: { desired: of(before) }, after: { desired: of(after) } }
  return JSON.stringify(sides).length > MAX_RECORDED_BYTES ? { fields: names.slice(0, 100) } : sides
}

const bounded = (patch: JsonObject) =>
  JSON.stringify(patch).length > MAX_RECORDED_BYTES ? { fields: Object.keys(patch).slice(0, 100) } : patch
