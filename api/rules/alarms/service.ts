/** What users do with alarms. Rules raise and clear them: `raising.ts`. */
import { findActingUser } from '#api/identity/index.ts'
import type {
  AccessPolicy,
  DomainAccess,
  DomainAction,
  Journal,
  JournalEntry,
  UserPrincipal,
} from '#api/identity/index.ts'
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { ServiceError, kindOf, refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import { parseInstant } from '#core/time.ts'
import {
  deleteAlarm,
  findAlarms,
  findUserKey,
  insertHistory,
  listAlarms,
  listHistory,
  lockAlarms,
  updateAlarms,
} from './repository.ts'
import type { AlarmChange, AlarmFields, AlarmFilter, AlarmRecord, NewChange } from './repository.ts'
import { SEVERITIES } from './schema.ts'
import type { AlarmBulkUpdate, AlarmHistoryQuery, AlarmQuery, AlarmUpdate, Severity } from './schema.ts'

export type AlarmsDeps = {
  database: Database
  journal: Pick<Journal, 'change'>
  access: AccessPolicy
  /** Called before alarms are locked: it waits for the rules of the domain, which lock alarms in an order of their own. */
  lockRules: (tx: Transaction, domainKey: number) => Promise<unknown>
  /** Called, with the rules locked, for alarms that may end otherwise than by their rule: their condition begins again from the start. */
  forget: (tx: Transaction, domainKey: number, ids: readonly string[]) => Promise<void>
  /** Called, with the rules locked, for alarms that nobody has acknowledged any more: they may be escalated. */
  revisit: (tx: Transaction, domainKey: number, ids: readonly string[]) => Promise<void>
  /** Called after the commit. */
  onStatesChanged: (domainKey: number) => void
}

const notFound = () => new ServiceError('not_found', 'alarm not found')

export function alarmEntry(
  change: string,
  domainKey: number,
  alarm: Pick<AlarmRecord, 'id' | 'ruleId' | 'ruleName' | 'clientId' | 'severity' | 'name'>,
  more: Readonly<Record<string, unknown>> = {},
): JournalEntry {
  const { id, ruleId, ruleName, clientId, severity, name } = alarm
  return {
    operation: `alarm.${change}`,
    domainKey,
    entityKeys: [],
    attributes: {
      id,
      rule_id: ruleId,
      rule_name: ruleName,
      ...(clientId === null ? {} : { client_id: clientId }),
      severity,
      ...(name === '' ? {} : { name }),
      ...more,
    },
  }
}

export class AlarmsService {
  readonly #deps: AlarmsDeps

  constructor(deps: AlarmsDeps) {
    this.#deps = deps
  }

  async list(caller: UserPrincipal, domainId: string, query: AlarmQuery): Promise<Page<AlarmRecord>> {
    const { domainKey } = await this.#enter(caller, domainId, 'alarm_read')
    const { offset, limit, cursor } = query
    const range = { offset, limit, cursor }
    const { total, alarms, next } = await listAlarms(this.#deps.database.db, filterOf(domainKey, query), range)
    return { total, offset, limit, items: alarms, next }
  }

  /** Throws `not_found`. */
  async get(caller: UserPrincipal, domainId: string, id: string): Promise<AlarmRecord> {
    return await this.#find((await this.#enter(caller, domainId, 'alarm_read')).domainKey, id)
  }

  async history(
    caller: UserPrincipal,
    domainId: string,
    id: string,
    { offset, limit, cursor }: AlarmHistoryQuery,
  ): Promise<Page<AlarmChange>> {
    const { domainKey } = await this.#enter(caller, domainId, 'alarm_read')
    const alarm = await this.#find(domainKey, id)
    const { total, changes, next } = await listHistory(this.#deps.database.db, alarm.key, { offset, limit, cursor })
    return { total, offset, limit, items: changes, next }
  }

  /** Throws `not_found`, `malformed`, and `conflict` for a cleared alarm, which only takes comments. */
  async update(caller: UserPrincipal, domainId: string, id: string, input: AlarmUpdate): Promise<AlarmRecord> {
    const [changed] = await this.updateMany(caller, domainId, { ids: [id], ...input })
    if (changed === undefined) throw notFound()
    return changed
  }

  /** Changes all of them or none. */
  async updateMany(
    caller: UserPrincipal,
    domainId: string,
    { ids, ...input }: AlarmBulkUpdate,
  ): Promise<AlarmRecord[]> {
    const { database, journal, access, lockRules, forget, revisit, onStatesChanged } = this.#deps
    const domain = await this.#enter(caller, domainId, 'alarm_update')
    const { domainKey } = domain
    const assigneeId = await assigneeOf(database.db, access, domain.domainId, input.assignee_id)
    const wanted = [...new Set(ids.map((id) => id.toLowerCase()))].filter(isId)
    await journal.change(caller, async (tx, record) => {
      await lockRules(tx, domainKey)
      if (input.status === 'cleared') await forget(tx, domainKey, wanted)
      const alarms = await lockAlarms(tx, domainKey, wanted)
      requireAll(ids, alarms)
      const fields: AlarmFields[] = []
      const history: NewChange[] = []
      for (const alarm of alarms) {
        const changes = changesOf(alarm, input, assigneeId)
        if (changes.length === 0) continue
        fields.push(changedFields(alarm, changes))
        history.push(...changes)
        for (const one of changes)
          record(
            alarmEntry(one.change, domainKey, alarm, one.change === 'assign' ? { assignee_id: one.assigneeId } : {}),
          )
      }
      await updateAlarms(tx, fields, caller.id)
      if (input.status === 'active') await revisit(tx, domainKey, wanted)
      await insertHistory(tx, history, caller.id)
    })
    if (input.status === 'cleared' || input.status === 'active') onStatesChanged(domainKey)
    return await findAlarms(database.db, domainKey, wanted)
  }

  async remove(caller: UserPrincipal, domainId: string, id: string): Promise<void> {
    const { journal, lockRules, forget, onStatesChanged } = this.#deps
    const { domainKey } = await this.#enter(caller, domainId, 'alarm_delete')
    if (!isId(id)) throw notFound()
    await journal.change(caller, async (tx, record) => {
      await lockRules(tx, domainKey)
      await forget(tx, domainKey, [id])
      const [alarm] = await lockAlarms(tx, domainKey, [id])
      if (alarm === undefined) throw notFound()
      await deleteAlarm(tx, alarm.key)
      record(alarmEntry('remove', domainKey, alarm))
    })
    onStatesChanged(domainKey)
  }

  async #enter(caller: UserPrincipal, domainId: string, action: DomainAction): Promise<DomainAccess> {
    const domain = await this.#deps.access.enter(caller, domainId)
    domain.require(action)
    return domain
  }

  async #find(domainKey: number, id: string): Promise<AlarmRecord> {
    const [found] = isId(id) ? await findAlarms(this.#deps.database.db, domainKey, [id]) : []
    if (found === undefined) throw notFound()
    return found
  }
}

function changedFields(alarm: AlarmRecord, changes: readonly NewChange[]): AlarmFields {
  const done = new Map(changes.map((one) => [one.change, one]))
  const assigned = done.get('assign')
  return {
    key: alarm.key,
    isAcknowledged: (alarm.acknowledgedAt !== null || done.has('acknowledge')) && !done.has('unacknowledge'),
    isCleared: done.has('clear'),
    assigneeId: assigned === undefined ? alarm.assigneeId : assigned.assigneeId,
    comments: done.has('comment') ? 1 : 0,
  }
}

/** Throws `not_found`, which names the ids that are unknown. */
function requireAll(ids: readonly string[], alarms: readonly AlarmRecord[]): void {
  const known = new Set(alarms.map(({ id }) => id))
  const details = ids.flatMap((id, index) =>
    known.has(id.toLowerCase()) ? [] : [{ path: `/ids/${index}`, message: 'is not the id of an alarm of the domain' }],
  )
  if (details.length === 0) return
  if (ids.length === 1) throw notFound()
  throw new ServiceError('not_found', `${details.length} of the alarms were not found: nothing was changed`, {
    details,
  })
}

/** What the input changes, in the order of the history. */
function changesOf(
  alarm: AlarmRecord,
  { status, comment }: AlarmUpdate,
  assigneeId: string | null | undefined,
): NewChange[] {
  const is = alarm.clearedAt === null ? (alarm.acknowledgedAt === null ? 'active' : 'acknowledged') : 'cleared'
  const isReassigned = assigneeId !== undefined && assigneeId !== alarm.assigneeId
  if (is === 'cleared' && (isReassigned || (status !== undefined && status !== 'cleared')))
    throw new ServiceError('conflict', `the alarm ${alarm.id} is cleared: it only takes comments`)
  const change = (
    name: NewChange['change'],
    more: Partial<Pick<NewChange, 'assigneeId' | 'comment'>> = {},
  ): NewChange => ({ alarmKey: alarm.key, change: name, assigneeId: null, comment: '', ...more })
  return [
    ...(comment === undefined ? [] : [change('comment', { comment })]),
    ...(isReassigned ? [change('assign', { assigneeId })] : []),
    ...(status === 'acknowledged' && is === 'active' ? [change('acknowledge')] : []),
    ...(status === 'active' && is === 'acknowledged' ? [change('unacknowledge')] : []),
    ...(status === 'cleared' && is !== 'cleared' ? [change('clear')] : []),
  ]
}

/** The user to whom alarms are assigned; null: nobody. Throws `malformed` for one who may not read them. */
async function assigneeOf(
  db: Queryable,
  access: AccessPolicy,
  domainId: string,
  id: string | undefined,
): Promise<string | null | undefined> {
  if (id === undefined) return undefined
  if (id === '') return null
  const refuse = () => refusedField('/assignee_id', 'must be the id of a user who may read alarms of the domain')
  const key = isId(id) ? await findUserKey(db, id) : undefined
  const user = key === undefined ? undefined : await findActingUser(db, key)
  if (user === undefined) throw refuse()
  const domain = await access.enter(user, domainId).catch((error: unknown) => {
    if (kindOf(error) === 'forbidden' || kindOf(error) === 'not_found') return undefined
    throw error
  })
  if (domain?.can('alarm_read') !== true) throw refuse()
  return user.id
}

function instantOf(text: string | undefined, path: string): string | undefined {
  return text === undefined || text === '' ? undefined : parseInstant(text, path)
}

/** Empty filters nothing, as elsewhere. */
function idOf(text: string | undefined, path: string): string | undefined {
  if (text === undefined || text === '') return undefined
  if (!isId(text)) throw refusedField(path, 'must be a UUID')
  return text
}

function severitiesOf(text: string | undefined): Severity[] | undefined {
  if (text === undefined || text === '') return undefined
  return text.split(',').map((given) => {
    const severity = SEVERITIES.find((one) => one === given.trim())
    if (severity === undefined) throw refusedField('severity', `must be of ${SEVERITIES.join(', ')}`)
    return severity
  })
}

function filterOf(domainKey: number, query: AlarmQuery): AlarmFilter {
  return {
    domainKey,
    status: query.status,
    severities: severitiesOf(query.severity),
    ruleId: idOf(query.rule, 'rule'),
    clientId: idOf(query.client, 'client'),
    groupId: idOf(query.group, 'group'),
    tag: query.tag === '' ? undefined : query.tag,
    assigneeId: query.assignee === 'none' ? null : idOf(query.assignee, 'assignee'),
    from: instantOf(query.from, 'from'),
    to: instantOf(query.to, 'to'),
    text: query.text === '' ? undefined : query.text,
    isSilenced: query.silenced,
  }
}
