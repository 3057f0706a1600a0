/** What users do with rules. A rule belongs to its domain, and acts with the rights of who last changed it. */
import { isDeepStrictEqual } from 'node:util'
import type { MessageGate } from '#api/devices/index.ts'
import { startOf } from '#api/consumers/index.ts'
import type { Place } from '#api/consumers/index.ts'
import type {
  AccessPolicy,
  DomainAccess,
  DomainAction,
  Journal,
  Quotas,
  Recorder,
  UserPrincipal,
} from '#api/identity/index.ts'
import type { LetterSelection } from '#core/changelog/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { isId, newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import { compileDefinition } from './compile.ts'
import { contactsOf, requireContacts } from './contacts.ts'
import type { Contacts, RuleContact, RuleLetter } from './contacts.ts'
import { fieldsOf } from './fields.ts'
import {
  beginAt,
  clearAlarmsOf,
  countRules,
  deleteRule,
  disableRule,
  enableRule,
  findKnown,
  findRule,
  forgetAll,
  forgetCall,
  forgetPending,
  forgetWaits,
  hasNodesBefore,
  insertRule,
  leaveOthers,
  listRules,
  lockDomain,
  lockRule,
  noteChange,
  renameInAlarms,
  resumeRule,
  revisitEscalations,
  revisitWaits,
  stopEscalations,
  updateRule,
} from './repository.ts'
import type { RuleFields, RuleRecord, StoredRule } from './repository.ts'
import { requireRights } from './rights.ts'
import type { NewRule, RuleDefinition, RuleLetterQuery, RuleQuery, RuleUpdate } from './schema.ts'
import { isSameTimetable } from './timetable.ts'

export type RulesDeps = {
  database: Database
  journal: Pick<Journal, 'change'>
  access: AccessPolicy
  gate: Pick<MessageGate, 'authorize'>
  quotas: Pick<Quotas, 'requireRoom'>
  contacts: Contacts
  /** Called after the commit of a change of the domain's rules. */
  onChanged: (domainKey: number) => void
}

const notFound = () => new ServiceError('not_found', 'rule not found')

/** `takenBack`: mails and webhook requests that are not sent. */
const entryOf = (
  operation: string,
  { domainKey, id, name }: Pick<StoredRule, 'domainKey' | 'id' | 'name'>,
  takenBack = 0,
) => ({
  operation: `rule.${operation}`,
  domainKey,
  entityKeys: [],
  attributes: { id, name, ...(takenBack === 0 ? {} : { taken_back: takenBack }) },
})

export class RulesService {
  readonly #deps: RulesDeps

  constructor(deps: RulesDeps) {
    this.#deps = deps
  }

  /**
   * Throws `malformed`, `conflict` for a name in use, `quota_exceeded`, `forbidden`, `gone` for a position that is no longer kept, `unavailable` while
   * an earlier version would evaluate it as something else.
   */
  async create(caller: UserPrincipal, domainId: string, input: NewRule): Promise<RuleRecord> {
    const fields = fieldsOf(input)
    const domain = await this.#enter(caller, domainId, 'rule_create')
    const { domainKey } = domain
    const members = await this.#check(caller, domain, fields)
    await this.#requireKnown(fields.definition, undefined)
    const id = newId()
    const status = input.status ?? 'enabled'
    await this.#deps.journal.change(caller, async (tx, record) => {
      await this.#deps.quotas.requireRoom(tx, domainKey, 'rules', 1, (db) => countRules(db, domainKey))
      const at = await beginAt(tx, domainKey, await fromOf(tx, input.from, fields))
      const by = { userKey: caller.key, createdBy: caller.id }
      const key = await insertRule(tx, {
        ...fields,
        ...by,
        ...at,
        id,
        domainKey,
        status,
        isBehind: status === 'enabled' && (at.isBehind || isDecidedByTask(fields.definition)),
      })
      await this.#keepContacts(tx, { key, id, ...by, ...fields }, members)
      await noteChange(tx, domainKey)
      record(entryOf('create', { domainKey, id, name: fields.name }))
    })
    this.#deps.onChanged(domainKey)
    return await this.#asked(caller, domain, id)
  }

  /** Throws `not_found`. */
  async get(caller: UserPrincipal, domainId: string, id: string): Promise<RuleRecord> {
    return await this.#shown(await this.#enter(caller, domainId, 'rule_read'), id)
  }

  async list(caller: UserPrincipal, domainId: string, query: RuleQuery): Promise<Page<RuleRecord>> {
    const { offset, limit, cursor, name, channel, status = 'all' } = query
    const { domainKey } = await this.#enter(caller, domainId, 'rule_read')
    const page = { domainKey, name, channel, status, offset, limit, cursor }
    const { total, rules, next } = await listRules(this.#deps.database.db, page)
    return { total, offset, limit, items: await this.#withFailures(rules), next }
  }

  /** Absent fields are unchanged; its position too. Ends a pause. */
  async update(caller: UserPrincipal, domainId: string, id: string, input: RuleUpdate): Promise<RuleRecord> {
    const domain = await this.#enter(caller, domainId, 'rule_update')
    const before = await this.#shown(domain, id)
    const checked = fieldsOf(input, before)
    const members = await this.#check(caller, domain, checked)
    await this.#requireKnown(checked.definition, before.definition)
    await this.#change(caller, domain, id, async (tx, rule, record) => {
      const fields = fieldsOf(input, rule)
      // What another change gave meanwhile is checked too.
      compileDefinition(fields.definition)
      await this.#takeOwnPlace(tx, rule, fields.definition)
      await updateRule(tx, rule.key, {
        ...fields,
        userKey: caller.key,
        updatedBy: caller.id,
        isRescheduled: !isSameTimetable(rule.definition.source, fields.definition.source),
      })
      await this.#keepContacts(tx, { ...fields, key: rule.key, id, userKey: caller.key }, members)
      const { source } = rule.definition
      if (isOfOther(source, fields.definition.source) || becomesReport(rule.definition, fields.definition)) {
        await clearAlarmsOf(tx, rule.id, caller.id)
        await forgetAll(tx, rule.key)
      } else if (!isDeepStrictEqual(fields.definition.source, source)) await forgetPending(tx, rule.key)
      if (hasMissed(rule)) await forgetWaits(tx, rule.key)
      await revisitWaits(tx, rule.key)
      const escalates = [rule.definition, fields.definition].some((one) => isEscalating(one))
      if (escalates && rule.status === 'enabled') await revisitEscalations(tx, rule.key)
      if (fields.name !== rule.name) await renameInAlarms(tx, rule.id, fields.name)
      record(entryOf('update', { ...rule, name: fields.name }))
    })
    return await this.#asked(caller, domain, id)
  }

  /** A disabled rule goes on with messages from now on, or at the position; a paused one at its place. */
  async enable(caller: UserPrincipal, domainId: string, id: string, from: string | undefined): Promise<RuleRecord> {
    const domain = await this.#enter(caller, domainId, 'rule_update')
    const members = await this.#check(caller, domain, await this.#shown(domain, id))
    await this.#change(caller, domain, id, async (tx, rule, record) => {
      const by = { userKey: caller.key, updatedBy: caller.id }
      if (rule.status === 'enabled' && from === undefined) {
        await resumeRule(tx, rule.key, by)
        await forgetCall(tx, rule.key)
        if (hasMissed(rule)) await forgetWaits(tx, rule.key)
      } else {
        const at = await beginAt(tx, rule.domainKey, await fromOf(tx, from, rule))
        const isBehind = at.isBehind || isDecidedByTask(rule.definition)
        await enableRule(tx, rule.key, { ...by, ...at, isBehind, definition: rule.definition })
        await forgetCall(tx, rule.key)
        await forgetWaits(tx, rule.key)
        if (isEscalating(rule.definition)) await revisitEscalations(tx, rule.key)
      }
      await this.#keepContacts(tx, { ...rule, userKey: caller.key }, members)
      record(entryOf('enable', rule))
    })
    return await this.#asked(caller, domain, id)
  }

  /** Mails and webhook requests that wait are not sent any more. */
  async disable(caller: UserPrincipal, domainId: string, id: string): Promise<RuleRecord> {
    const domain = await this.#enter(caller, domainId, 'rule_update')
    await this.#change(caller, domain, id, async (tx, rule, record) => {
      const { place } = (await findRule(tx, rule.domainKey, id)) ?? rule
      await disableRule(tx, rule.key, place, caller.id)
      await forgetCall(tx, rule.key)
      if (isEscalating(rule.definition)) await stopEscalations(tx, rule.key)
      record(entryOf('disable', rule, await this.#deps.contacts.takeBack(tx, rule.key)))
    })
    return await this.#shown(domain, id)
  }

  async remove(caller: UserPrincipal, domainId: string, id: string): Promise<void> {
    const domain = await this.#enter(caller, domainId, 'rule_delete')
    await this.#change(caller, domain, id, async (tx, rule, record) => {
      await clearAlarmsOf(tx, rule.id, caller.id)
      const takenBack = await this.#deps.contacts.takeBack(tx, rule.key)
      await deleteRule(tx, rule.key)
      record(entryOf('remove', rule, takenBack))
    })
  }

  /** To whom it sends mails and webhook requests. Needs `rule_update`: it has the secrets of their signatures. */
  async contacts(caller: UserPrincipal, domainId: string, id: string): Promise<RuleContact[]> {
    return await this.#deps.contacts.list(await this.#keyOf(caller, domainId, id))
  }

  /** Mails and webhook requests that were given up. */
  async deadLetters(
    caller: UserPrincipal,
    domainId: string,
    id: string,
    range: RuleLetterQuery,
  ): Promise<Page<RuleLetter>> {
    const { offset, limit } = range
    const key = await this.#keyOf(caller, domainId, id)
    const { total, letters, next } = await this.#deps.contacts.deadLetters(key, range)
    return { total, offset, limit, items: letters, next }
  }

  /** Tries them again, or discards them. Return their number. Throw `malformed`. */
  async retryDeadLetters(
    caller: UserPrincipal,
    domainId: string,
    id: string,
    selection: LetterSelection,
  ): Promise<number> {
    return await this.#deps.contacts.retryDeadLetters(await this.#keyOf(caller, domainId, id), selection)
  }

  async discardDeadLetters(
    caller: UserPrincipal,
    domainId: string,
    id: string,
    selection: LetterSelection,
  ): Promise<number> {
    return await this.#deps.contacts.discardDeadLetters(await this.#keyOf(caller, domainId, id), selection)
  }

  /** The key of a rule that the caller may change. */
  async #keyOf(caller: UserPrincipal, domainId: string, id: string): Promise<number> {
    return (await this.#shown(await this.#enter(caller, domainId, 'rule_update'), id)).key
  }

  /** A rule that a function decides for from now on goes on where it stands, by itself. What its function was asked is asked again. */
  async #takeOwnPlace(tx: Transaction, rule: StoredRule, definition: RuleDefinition): Promise<void> {
    await forgetCall(tx, rule.key)
    if (!isDecidedByTask(definition) || rule.isBehind || rule.status !== 'enabled') return
    const { place } = (await findRule(tx, rule.domainKey, rule.id)) ?? rule
    await leaveOthers(tx, rule.key, place)
  }

  async #keepContacts(
    tx: Transaction,
    rule: Pick<StoredRule, 'key' | 'id' | 'userKey' | 'definition'>,
    members: ReadonlyMap<string, number>,
  ): Promise<void> {
    await this.#deps.contacts.keep(tx, rule, contactsOf(rule.definition), members)
  }

  /** The rule after a change. New addresses are asked. */
  async #asked(caller: UserPrincipal, domain: DomainAccess, id: string): Promise<RuleRecord> {
    const rule = await this.#shown(domain, id)
    if (contactsOf(rule.definition).length > 0) await this.#deps.contacts.ask(caller, rule.key)
    return rule
  }

  /** What the rules could not deliver is an error of theirs, if it was the last. */
  async #withFailures(rules: readonly RuleRecord[]): Promise<RuleRecord[]> {
    const notifying = rules.filter(({ definition }) => contactsOf(definition).length > 0)
    const failures = await this.#deps.contacts.failuresOf(notifying.map(({ key }) => key))
    return rules.map((rule) => {
      const failure = failures.get(rule.key)
      const isLast =
        failure !== undefined && (rule.lastError === null || Date.parse(failure.at) > Date.parse(rule.lastError.at))
      return isLast ? { ...rule, lastError: failure } : rule
    })
  }

  async #enter(caller: UserPrincipal, domainId: string, action: DomainAction): Promise<DomainAccess> {
    const domain = await this.#deps.access.enter(caller, domainId)
    domain.require(action)
    return domain
  }

  async #shown({ domainKey }: DomainAccess, id: string): Promise<RuleRecord> {
    const found = isId(id) ? await findRule(this.#deps.database.db, domainKey, id) : undefined
    if (found === undefined) throw notFound()
    const [rule = found] = await this.#withFailures([found])
    return rule
  }

  /** Throws `malformed` and `forbidden` for what the caller may not save. Returns the members among its contacts. */
  async #check(caller: UserPrincipal, domain: DomainAccess, fields: RuleFields): Promise<ReadonlyMap<string, number>> {
    const compiled = compileDefinition(fields.definition)
    requireContacts(this.#deps.contacts, fields.definition)
    await requireRights(this.#deps, caller, domain.domainId, compiled)
    const { source, actions = [] } = fields.definition
    const { condition_task: decides } = fields.definition
    const started = actions.flatMap((action) => (action.type === 'start' ? [action.task] : []))
    const tasks = decides === undefined ? started : [...started, decides]
    const { clients = [], groups = [] } = source
    const known = await findKnown(this.#deps.database.db, domain.domainKey, { clients, groups, tasks })
    for (const [index, id] of groups.entries())
      if (!known.has(id)) throw refusedField(`/source/groups/${index}`, 'is not the id of a group of the domain')
    for (const [index, id] of clients.entries())
      if (!known.has(id)) throw refusedField(`/source/clients/${index}`, 'is not the id of a client of the domain')
    for (const [index, action] of actions.entries())
      if (action.type === 'start' && !known.has(action.task))
        throw refusedField(`/actions/${index}/task`, 'is not the id of a task of the domain')
    if (decides !== undefined && !known.has(decides))
      throw refusedField('/condition_task', 'is not the id of a task of the domain')
    return await this.#deps.contacts.membersOf(domain.domainId, contactsOf(fields.definition))
  }

  /** A process of an earlier version may evaluate the domain: it would clear what such a rule raised, and pass what it is about. */
  async #requireKnown(definition: RuleDefinition, before: RuleDefinition | undefined): Promise<void> {
    for (const [what, { migration, is }] of Object.entries(NEWER_RULES))
      if (is(definition) && (before === undefined || !is(before))) {
        if (!(await hasNodesBefore(this.#deps.database.db, migration))) continue
        throw new ServiceError(
          'unavailable',
          `${what} requires that all nodes have this version: one of an earlier version would evaluate the rule as one that never matches`,
          { retryAfterSeconds: UPGRADE_SECONDS },
        )
      }
  }

  /** Locks the rules of the domain and the rule, and changes it. */
  async #change(
    caller: UserPrincipal,
    domain: DomainAccess,
    id: string,
    work: (tx: Transaction, rule: StoredRule, record: Recorder) => Promise<void>,
  ): Promise<void> {
    const { domainKey } = domain
    if (!isId(id)) throw notFound()
    await this.#deps.journal.change(caller, async (tx, record) => {
      await lockDomain(tx, domainKey)
      const rule = await lockRule(tx, domainKey, id)
      if (rule === undefined) throw notFound()
      await work(tx, rule, record)
      await noteChange(tx, domainKey)
    })
    this.#deps.onChanged(domainKey)
  }
}

const isDecidedByTask = ({ condition_task: task }: RuleDefinition): boolean => task !== undefined

/** A node that was updated counts as older for about this time. */
const UPGRADE_SECONDS = 30

/** What earlier builds do not know, and the migration that came with it. */
const NEWER_RULES: Readonly<Record<string, { migration: string; is: (definition: RuleDefinition) => boolean }>> = {
  'a schedule as the source of a rule': {
    migration: 'rules_by_schedule',
    is: ({ source }) => source.type === 'schedule',
  },
  condition_task: { migration: 'functions_of_rules', is: isDecidedByTask },
}

type Source = StoredRule['definition']['source']

/** Nothing clears what was raised: its series are of another source, or have the name of another document. */
const isOfOther = (before: Source, after: Source): boolean =>
  before.type !== after.type || (before.document ?? '') !== (after.document ?? '')

/** A schedule without a condition has no states, so nothing would clear what was raised. */
const becomesReport = (before: RuleDefinition, after: RuleDefinition): boolean =>
  after.source.type === 'schedule' && before.condition !== '' && after.condition === ''

/** Changes of states are not kept for a paused rule. */
const hasMissed = ({ isPaused, definition }: StoredRule): boolean => isPaused && definition.source.type === 'state'

const isEscalating = ({ actions = [] }: RuleDefinition): boolean =>
  actions.some((action) => action.type !== 'alarm' && action.on?.includes('escalate') === true)

const POSITION = /^\d+-\d+-\d+$/

/** Undefined: from now on. Throws `malformed`, and `gone` with the earliest position for one that is no longer kept. */
async function fromOf(
  tx: Transaction,
  from: string | undefined,
  { definition: { source } }: Pick<RuleFields, 'definition'>,
): Promise<Place | undefined> {
  if (from === undefined || from === '') return undefined
  if (source.type === 'state')
    throw refusedField('/from', 'must be absent: a rule about state begins with what the state is')
  if (source.type === 'schedule') throw refusedField('/from', 'must be absent: a schedule begins with its next time')
  if (!POSITION.test(from)) throw refusedField('/from', 'must be the position of a message: <number>-<number>-<number>')
  return (await startOf(tx, from)).place
}
