/** What users do with maintenance windows. */
import type {
  AccessPolicy,
  DomainAccess,
  DomainAction,
  Journal,
  Quotas,
  Recorder,
  UserPrincipal,
} from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { isId, newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import { requireSchedule } from '#core/schedule.ts'
import { parseDurationMs, parseInstant } from '#core/time.ts'
import { neverEnds } from './planned-times.ts'
import type { Plan } from './planned-times.ts'
import {
  countWindows,
  deleteWindow,
  findNamed,
  findWindow,
  insertWindow,
  listWindows,
  lockWindow,
  revisitSilenced,
  updateWindow,
} from './repository.ts'
import type { StoredWindow, WindowFields, WindowRecord } from './repository.ts'
import type { NewWindow, WindowQuery, WindowUpdate } from './schema.ts'

const MIN_DURATION_MS = 60_000
const MAX_DURATION_MS = 720 * 3_600_000

export type WindowsDeps = {
  database: Database
  journal: Pick<Journal, 'change'>
  access: AccessPolicy
  quotas: Pick<Quotas, 'requireRoom'>
  /** Locks the rules of the domain, which read the windows with their states. */
  lockRules: (tx: Transaction, domainKey: number) => Promise<unknown>
  /** Processes read the windows again. */
  noteChange: (tx: Transaction, domainKey: number) => Promise<void>
  /** Called after the commit of a change. */
  onChanged: (domainKey: number) => void
}

const NOTHING_FIRST = () => Promise.resolve()

const notFound = () => new ServiceError('not_found', 'maintenance window not found')

const entryOf = (change: string, { domainKey, id, name }: Pick<StoredWindow, 'domainKey' | 'id' | 'name'>) => ({
  operation: `maintenance_window.${change}`,
  domainKey,
  entityKeys: [],
  attributes: { id, name },
})

export class WindowsService {
  readonly #deps: WindowsDeps

  constructor(deps: WindowsDeps) {
    this.#deps = deps
  }

  /** Throws `malformed`, `conflict` for a name in use, `quota_exceeded` and `forbidden`. */
  async create(caller: UserPrincipal, domainId: string, input: NewWindow): Promise<WindowRecord> {
    const fields = fieldsOf(input, undefined)
    const domain = await this.#enter(caller, domainId, 'rule_create')
    const { domainKey } = domain
    await this.#check(domain, fields)
    const id = newId()
    const { quotas } = this.#deps
    const hasRoom = async (tx: Transaction) =>
      await quotas.requireRoom(tx, domainKey, 'maintenance_windows', 1, (db) => countWindows(db, domainKey))
    await this.#change(caller, domainKey, hasRoom, async (tx, record) => {
      await insertWindow(tx, { ...fields, id, domainKey, createdBy: caller.id })
      record(entryOf('create', { domainKey, id, name: fields.name }))
    })
    return await this.#shown(domain, id)
  }

  /** Throws `not_found`. */
  async get(caller: UserPrincipal, domainId: string, id: string): Promise<WindowRecord> {
    return await this.#shown(await this.#enter(caller, domainId, 'rule_read'), id)
  }

  async list(caller: UserPrincipal, domainId: string, query: WindowQuery): Promise<Page<WindowRecord>> {
    const { offset, limit, cursor, name } = query
    const { domainKey } = await this.#enter(caller, domainId, 'rule_read')
    const page = { domainKey, name, offset, limit, cursor }
    const { total, windows, next } = await listWindows(this.#deps.database.db, page)
    return { total, offset, limit, items: windows, next }
  }

  /** Absent fields are unchanged. What it silenced, and no longer does, is sent. */
  async update(caller: UserPrincipal, domainId: string, id: string, input: WindowUpdate): Promise<WindowRecord> {
    const domain = await this.#enter(caller, domainId, 'rule_update')
    const { domainKey } = domain
    await this.#check(domain, fieldsOf(input, await this.#shown(domain, id)))
    await this.#change(caller, domainKey, NOTHING_FIRST, async (tx, record) => {
      const before = await lockWindow(tx, domainKey, id)
      if (before === undefined) throw notFound()
      // What another change gave meanwhile is checked too.
      const fields = fieldsOf(input, before)
      await updateWindow(tx, before.key, { ...fields, updatedBy: caller.id })
      await revisitSilenced(tx, domainKey)
      record(entryOf('update', { ...before, name: fields.name }))
    })
    return await this.#shown(domain, id)
  }

  async remove(caller: UserPrincipal, domainId: string, id: string): Promise<void> {
    const { domainKey } = await this.#enter(caller, domainId, 'rule_delete')
    if (!isId(id)) throw notFound()
    await this.#change(caller, domainKey, NOTHING_FIRST, async (tx, record) => {
      const window = await lockWindow(tx, domainKey, id)
      if (window === undefined) throw notFound()
      await deleteWindow(tx, window.key)
      await revisitSilenced(tx, domainKey)
      record(entryOf('remove', window))
    })
  }

  /**
   * Changes windows with the rules of the domain locked: no step of them is between two states of the windows. `first` is called before: quotas are
   * locked before rules.
   */
  async #change(
    caller: UserPrincipal,
    domainKey: number,
    first: (tx: Transaction) => Promise<void>,
    work: (tx: Transaction, record: Recorder) => Promise<void>,
  ): Promise<void> {
    const { journal, lockRules, noteChange, onChanged } = this.#deps
    await journal.change(caller, async (tx, record) => {
      await first(tx)
      await lockRules(tx, domainKey)
      await work(tx, record)
      await noteChange(tx, domainKey)
    })
    onChanged(domainKey)
  }

  async #enter(caller: UserPrincipal, domainId: string, action: DomainAction): Promise<DomainAccess> {
    const domain = await this.#deps.access.enter(caller, domainId)
    domain.require(action)
    return domain
  }

  async #shown({ domainKey }: DomainAccess, id: string): Promise<WindowRecord> {
    const found = isId(id) ? await findWindow(this.#deps.database.db, domainKey, id) : undefined
    if (found === undefined) throw notFound()
    return found
  }

  /** Throws `malformed` and `forbidden` for what the caller may not save. */
  async #check(domain: DomainAccess, fields: WindowFields): Promise<void> {
    const { rules, clients, groups, tags } = fields
    if (clients !== null || groups !== null || tags !== null) domain.require('client_read')
    const known = await findNamed(this.#deps.database.db, domain.domainKey, fields)
    for (const [field, what, ids] of [
      ['rules', 'rule', rules],
      ['clients', 'client', clients],
      ['groups', 'group', groups],
    ] as const)
      for (const [index, id] of (ids ?? []).entries())
        if (!known.has(id.toLowerCase()))
          throw refusedField(`/${field}/${index}`, `is not the id of a ${what} of the domain`)
  }
}

type Given = Partial<Omit<NewWindow, 'name'>> & { name?: string }

/** The fields after a change. Throws `malformed`. */
function fieldsOf(input: Given, before: WindowFields | undefined): WindowFields {
  const listOf = (given: readonly string[] | undefined, was: readonly string[] | null | undefined) =>
    given === undefined ? (was ?? null) : given.length === 0 ? null : given
  return {
    name: input.name ?? before?.name ?? '',
    description: input.description ?? before?.description ?? '',
    plan: planOf(input, before?.plan),
    rules: idsOf(listOf(input.rules, before?.rules), '/rules'),
    clients: idsOf(listOf(input.clients, before?.clients), '/clients'),
    groups: idsOf(listOf(input.groups, before?.groups), '/groups'),
    tags: listOf(input.tags, before?.tags),
  }
}

function idsOf(ids: readonly string[] | null, path: string): readonly string[] | null {
  for (const [index, id] of (ids ?? []).entries())
    if (!isId(id)) throw refusedField(`${path}/${index}`, 'must be a UUID')
  return ids
}

function planOf(input: Given, before: Plan | undefined): Plan {
  const startsAtMs = instantOf(input.starts_at, before?.startsAtMs, '/starts_at')
  const endsAtMs = instantOf(input.ends_at, before?.endsAtMs, '/ends_at')
  const expression = input.schedule ?? before?.schedule?.expression ?? ''
  if (startsAtMs !== null && endsAtMs !== null && endsAtMs <= startsAtMs)
    throw refusedField('/ends_at', 'must be after `starts_at`')
  if (expression === '') {
    for (const field of ['timezone', 'duration'] as const)
      if ((input[field] ?? '') !== '') throw refusedField(`/${field}`, 'must be absent: it is of `schedule`')
    if (startsAtMs === null) throw refusedField('/starts_at', 'is required without `schedule`')
    if (endsAtMs === null) throw refusedField('/ends_at', 'is required without `schedule`')
    return { startsAtMs, endsAtMs, schedule: null }
  }
  const given = (input.timezone ?? before?.schedule?.timezone ?? '') || 'UTC'
  const durationMs =
    input.duration === undefined
      ? (before?.schedule?.durationMs ?? NaN)
      : Math.round(parseDurationMs(input.duration, '/duration') / 1000) * 1000
  if (Number.isNaN(durationMs)) throw refusedField('/duration', 'is required with `schedule`: a duration such as 2h')
  if (!(durationMs >= MIN_DURATION_MS && durationMs <= MAX_DURATION_MS))
    throw refusedField('/duration', 'must be between 1m and 720h')
  const plan: Plan = { startsAtMs, endsAtMs, schedule: { expression, timezone: given, durationMs } }
  requireSchedule(expression, given)
  if (neverEnds(plan, Date.now()))
    throw refusedField('/duration', 'must be less than the time from one start to the next: it would never end')
  return plan
}

/** Empty: none. */
function instantOf(text: string | undefined, before: number | null | undefined, path: string): number | null {
  if (text === undefined) return before ?? null
  return text === '' ? null : Date.parse(parseInstant(text, path))
}
