/**
 * Rules about the state of clients: takes the changes that triggers of the database noted, evaluates them in order, and stores what they cause in the
 * transaction that takes them. So each change is evaluated once for each rule, whatever fails. A rule that begins looks at all clients as they are.
 */
import type { Quotas, Recorder } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { createTurns } from '#core/turns.ts'
import type { CompiledRule, StateSource } from '../../compile.ts'
import type { Contacts } from '../../contacts.ts'
import { RuleClient } from '../../engine/index.ts'
import type { Silencing } from '../../maintenance/silencing.ts'
import { noteChange } from '../../repository.ts'
import { lackOf } from '../../rights.ts'
import type { RightsDeps } from '../../rights.ts'
import { Collected } from '../collected.ts'
import { CHANGE } from '../effects.ts'
import { Evaluation } from '../evaluation.ts'
import { addCounts, findGroupsAbove, listClientsById, pauseRule, readDue, readStates } from '../repository.ts'
import type { ChannelRow, StateRow, StepDomain } from '../repository.ts'
import type { Evaluated, Series } from '../samples.ts'
import { Spending } from '../spending.ts'
import { StepTurns } from '../step-turns.ts'
import {
  findLook,
  isSettled,
  listDocuments,
  listWatchedClients,
  readChanges,
  removeChanges,
  storeLook,
} from './repository.ts'
import type { ChangeRow, Documents, WatchedClient } from './repository.ts'
import { storeEvaluation } from '../stored-evaluation.ts'

/** Changes, and clients that are looked at, of one step. Each has up to 192 KiB of documents. */
const MAX_TAKEN = 50
/** Evaluations of one step; one change may exceed them. */
const MAX_EVALUATED = 5_000
/** States that time changes, of one step. */
const MAX_DUE = 1_000
/** Changes that were made before the time is due are stored after it. */
const SETTLE_MS = 500
const NO_CHANNELS: ReadonlyMap<number, ChannelRow> = new Map()

type StateRule = CompiledRule & { state: StateSource }

const isOfState = (rule: CompiledRule): rule is StateRule => rule.state !== undefined

type Deps = RightsDeps & { quotas: Pick<Quotas, 'ofDomain'>; contacts: Pick<Contacts, 'record'> }

type Outcome = { hasMore: boolean; published: boolean; started: boolean; notified: boolean }

const NOTHING: Outcome = { hasMore: false, published: false, started: false, notified: false }

/** A change, for one of the rules that it meets. Without a sample the client is not one of the rule any more. */
type Met = { change: ChangeRow; rule: StateRule; series: Series; sample: Evaluated | undefined; isLook: boolean }

/** Clients that a rule looks at after a change of it; `isLast`: there are none after these. */
type Looks = { rule: StateRule; rows: readonly ChangeRow[]; after: number; isLast: boolean }

/** What a step has to do. */
type Work = {
  changes: readonly ChangeRow[]
  /** Clients that the rule looks at, after the changes. */
  looks: Looks | undefined
  due: readonly StateRow[]
  nowMs: number
}

type Step = {
  domain: StepDomain
  record: Recorder
  rules: readonly CompiledRule[]
  /** Rules that have not looked at all clients; one that has is taken out. */
  looking: Set<number>
  /** The changes of transactions that begin here are kept for all of these rules. */
  noted: bigint
  /** The maintenance windows of the domain. */
  silencing: Silencing
}

export async function stepStates(tx: Transaction, deps: Deps, step: Step): Promise<Outcome> {
  const rules = step.rules.filter(isOfState)
  if (rules.length === 0) return NOTHING
  const { work, hasMore } = await takeWork(tx, rules, step)
  if (work.changes.length + work.due.length === 0 && work.looks === undefined) return { ...NOTHING, hasMore }
  const outcome = await evaluate(tx, deps, step, { rules, work })
  return { ...outcome, hasMore: hasMore || outcome.hasMore }
}

async function takeWork(
  tx: Transaction,
  rules: readonly StateRule[],
  { domain, looking, noted }: Step,
): Promise<{ work: Work; hasMore: boolean }> {
  const limit = Math.max(1, Math.min(MAX_TAKEN, Math.floor(MAX_EVALUATED / Math.max(rules.length, 1))))
  const rule = rules.find(({ key }) => looking.has(key))
  const isBegun = rule !== undefined && (await isSettled(tx, noted))
  const after = isBegun ? await findLook(tx, rule.key) : undefined
  if (isBegun && after === undefined) looking.delete(rule.key)
  const look =
    rule === undefined || after === undefined
      ? undefined
      : { ruleKey: rule.key, document: rule.state.document, after, limit: MAX_TAKEN }
  const { changes, looked } = await readChanges(tx, domain.domainKey, limit, look)
  const isDrained = changes.length < limit
  const nowMs = Date.now() - SETTLE_MS
  // What is due is settled when no change before it is left, and when the rule has looked at what changed while it was paused.
  const keys = rules.flatMap(({ key }) => (looking.has(key) ? [] : [key]))
  const due = isDrained ? await readDue(tx, keys, nowMs, MAX_DUE) : []
  const isFull = !isDrained || due.length >= MAX_DUE
  const looks =
    rule === undefined || look === undefined || !isDrained ? undefined : { rule, after: look.after, ...pageOf(looked) }
  return { work: { changes, looks, due, nowMs }, hasMore: isFull }
}

/** The look does not go on before it has found all clients that were deleted. */
function pageOf(looked: readonly ChangeRow[]): Pick<Looks, 'rows' | 'isLast'> {
  const gone = looked.filter(({ goneId }) => goneId !== null)
  if (gone.length === MAX_TAKEN) return { rows: gone, isLast: false }
  return { rows: looked, isLast: looked.length - gone.length < MAX_TAKEN }
}

async function evaluate(
  tx: Transaction,
  deps: Deps,
  { domain, record, silencing, looking }: Step,
  { rules, work }: { rules: readonly StateRule[]; work: Work },
): Promise<Outcome> {
  const { due, nowMs } = work
  const { met, clients } = await meetingsOf(tx, domain.domainKey, rules, work)
  const states = await readStates(
    tx,
    met.map(({ rule, series }) => ({ ruleKey: rule.key, series })),
  )
  // A rule acts for its clients, and for those that it has a state of.
  const acting = new Set([...due, ...states].map(({ ruleKey }) => ruleKey))
  for (const { rule, sample } of met) if (sample !== undefined) acting.add(rule.key)
  const paused = await pauseLacking(
    tx,
    deps,
    domain,
    rules.filter(({ key }) => acting.has(key)),
  )
  const going = met.filter(({ rule }) => !paused.has(rule.key))
  const byKey = new Map(rules.map((rule) => [rule.key, rule]))
  const ofDue = await clientsOfDue(tx, domain.domainKey, rules, due)
  for (const [id, client] of ofDue.clients) clients.set(id, client)
  const collected = new Collected({ domain, channels: NO_CHANNELS, client: (id) => clients.get(id) }, byKey)
  const evaluation = new Evaluation((caused) => collected.take(caused))
  for (const row of [...due, ...states]) {
    const rule = byKey.get(row.ruleKey)
    if (rule !== undefined && !paused.has(rule.key)) evaluation.give(rule, row.series, row)
  }
  const stoppedAt = await evaluateAll(tx, evaluation, { met: going, collected, paused, domain })
  const isDue = new Set(due.map(({ ruleKey }) => ruleKey))
  const entries = [...evaluation.states].filter(({ rule }) => isDue.has(rule.key) && !paused.has(rule.key))
  // What is due is settled when no change before it is left.
  const isLeft =
    stoppedAt !== undefined ||
    (await new StepTurns(tx, collected).forEach(entries, (entry) => {
      if (ofDue.isGone(entry.rule, entry.series.publisherId)) evaluation.leave(entry, nowMs)
      else evaluation.pass(entry, nowMs)
    }))
  const outcome = await storeEvaluation(
    tx,
    record,
    { evaluation, collected },
    {
      silencing,
      coveredBy: () => [],
      nowMs,
      maxOpen: deps.quotas.ofDomain(domain.domainKey, 'open_alarms'),
      contacts: deps.contacts,
    },
  )
  await addCounts(tx, evaluation.counts)
  await storeTaken(tx, work, { stoppedAt, looking })
  if (paused.size > 0) await noteChange(tx, domain.domainKey)
  const hasMoreLooks = work.looks !== undefined && looking.size > 0
  return { ...outcome, hasMore: paused.size > 0 || isLeft || hasMoreLooks }
}

/** Takes what was evaluated: up to a change or client, or all of it. */
async function storeTaken(
  tx: Transaction,
  { changes, looks }: Work,
  { stoppedAt, looking }: { stoppedAt: ChangeRow | undefined; looking: Set<number> },
): Promise<void> {
  const rows = [...changes, ...(looks?.rows ?? [])]
  const count = stoppedAt === undefined ? rows.length : rows.indexOf(stoppedAt)
  await removeChanges(
    tx,
    changes.slice(0, count).map(({ key }) => key),
  )
  if (looks === undefined) return
  const { rule, after, isLast } = looks
  const isOver = isLast && stoppedAt === undefined
  await storeLook(tx, rule.key, isOver ? null : (rows.slice(changes.length, count).at(-1)?.clientKey ?? after))
  if (isOver) looking.delete(rule.key)
}

/**
 * In turns of the event loop. A rule that takes too long for one change is paused. Returns the change, or the client that is looked at, at which it
 * stopped, because those before it took long enough.
 */
async function evaluateAll(
  tx: Transaction,
  evaluation: Evaluation,
  {
    met,
    collected,
    paused,
    domain,
  }: { met: readonly Met[]; collected: Collected; paused: Set<number>; domain: StepDomain },
): Promise<ChangeRow | undefined> {
  const turns = new StepTurns(tx, collected)
  const spending = new Spending<CompiledRule>()
  let before: ChangeRow | undefined
  for (const { change, rule, series, sample, isLook } of met) {
    if (change !== before) {
      if (before !== undefined && turns.isFull) return change
      before = change
      spending.begin()
    }
    if (turns.isOver) await turns.next()
    if (paused.has(rule.key)) continue
    const { chars } = collected
    const beganMs = performance.now()
    if (sample === undefined) evaluation.rise(rule, series, { atMs: Date.now(), cause: '' })
    else if (isLook) evaluation.look(rule, sample)
    else evaluation.meet(rule, sample, undefined)
    const costliest = spending.add(rule, { ms: performance.now() - beganMs, chars: collected.chars - chars })
    if (costliest === undefined) continue
    paused.add(costliest.rule.key)
    const reason = `the rule ${costliest.took} for one change of a client, most of all rules that it meets`
    await pauseRule(tx, costliest.rule.key, { place: domain.place, kind: 'costly', reason })
  }
  return undefined
}

/** Pauses rules whose user lacks a right. When it is back they look at all clients again. */
async function pauseLacking(
  tx: Transaction,
  deps: Deps,
  { domainId, place }: StepDomain,
  rules: readonly StateRule[],
): Promise<Set<number>> {
  const paused = new Set<number>()
  for (const rule of rules) {
    const reason = await lackOf(tx, deps, rule.userKey, domainId, rule)
    if (reason === undefined) continue
    paused.add(rule.key)
    await pauseRule(tx, rule.key, { place, kind: 'right', reason })
  }
  return paused
}

const seriesOf = (publisherId: string, { state }: StateRule): Series => ({
  publisherId,
  channelKey: 0,
  subtopic: '',
  name: state.document,
})

const follows = (change: ChangeRow, { state }: StateRule): boolean =>
  change.document === null ? state.followsConnection : state.followsDocument && state.document === change.document

/** What each change meets, in order, and after them what the looking rule meets. */
async function meetingsOf(
  tx: Transaction,
  domainKey: number,
  rules: readonly StateRule[],
  { changes, looks }: Pick<Work, 'changes' | 'looks'>,
): Promise<{ met: Met[]; clients: Map<string, RuleClient> }> {
  const keys = [...new Set([...changes, ...(looks?.rows ?? [])].map(({ clientKey }) => clientKey))]
  const { rows, above } = await watchedOf(tx, domainKey, rules, keys)
  const clients = new Map<string, RuleClient>()
  for (const { id, name, tags, metadata } of rows.values()) clients.set(id, new RuleClient(id, name, tags, metadata))
  const documents = await currentDocuments(tx, rules, changes)
  const turns = createTurns()
  const met: Met[] = []
  const meet = (change: ChangeRow, rule: StateRule, given: { view: View; isLook: boolean }): void => {
    const row = rows.get(change.clientKey)
    const client = row === undefined ? undefined : clients.get(row.id)
    const id = row?.id ?? change.goneId
    if (id === null) return
    const series = seriesOf(id, rule)
    const isOurs = row !== undefined && client !== undefined && matches(rule, row, above)
    met.push({
      change,
      rule,
      series,
      isLook: given.isLook,
      sample: isOurs ? sampleOf(change, { series, client, row, ...given }) : undefined,
    })
  }
  for (const change of changes) {
    if (turns.isOver) await turns.next()
    if (change.goneId !== null) for (const rule of rules) meet(change, rule, { view: NO_VIEW, isLook: false })
    const own = change.document === null ? undefined : viewOf(change)
    for (const rule of change.goneId === null ? rules : [])
      if (follows(change, rule)) {
        const view = own ?? documents.get(`${change.clientKey} ${rule.state.document}`) ?? NO_VIEW
        meet(change, rule, { view, isLook: false })
      }
  }
  for (const row of looks?.rows ?? []) {
    if (turns.isOver) await turns.next()
    if (looks !== undefined) meet(row, looks.rule, { view: viewOf(row), isLook: true })
  }
  return { met, clients }
}

/** The clients of states that are due, and whether one is not a client of the rule any more. */
async function clientsOfDue(
  tx: Transaction,
  domainKey: number,
  rules: readonly StateRule[],
  due: readonly StateRow[],
): Promise<{ clients: Map<string, RuleClient>; isGone: (rule: CompiledRule, id: string) => boolean }> {
  const ids = new Set(due.map(({ series }) => series.publisherId))
  const found = await listClientsById(tx, domainKey, [...ids])
  const { rows, above } = await watchedOf(
    tx,
    domainKey,
    rules,
    found.map(({ key }) => key),
  )
  const byId = new Map([...rows.values()].map((row) => [row.id, row]))
  return {
    clients: new Map(found.map(({ id, name, tags, metadata }) => [id, new RuleClient(id, name, tags, metadata)])),
    isGone(rule, id) {
      const row = byId.get(id)
      return ids.has(id) && (row === undefined || !matches(rule, row, above))
    },
  }
}

async function watchedOf(
  tx: Transaction,
  domainKey: number,
  rules: readonly StateRule[],
  keys: readonly number[],
): Promise<{ rows: Map<number, WatchedClient>; above: ReadonlyMap<number, readonly string[]> }> {
  const channelIds = [...new Set(rules.flatMap(({ filter }) => filter.channels ?? []))]
  const groupIds = [...new Set(rules.flatMap(({ filter }) => filter.groups ?? []))]
  const rows = new Map((await listWatchedClients(tx, keys, channelIds)).map((row) => [row.key, row]))
  return { rows, above: await findGroupsAbove(tx, domainKey, groupIds) }
}

type View = { desired: unknown; reported: unknown; delta: unknown }

const NO_VIEW: View = { desired: {}, reported: {}, delta: {} }
const parsed = (text: string | null): unknown => (text === null ? {} : JSON.parse(text))

const viewOf = ({ desired, reported, delta }: { [Side in keyof Documents]: string | null }): View => ({
  desired: parsed(desired),
  reported: parsed(reported),
  delta: parsed(delta),
})

/** The documents of clients that went online or offline, where a rule looks at both. */
async function currentDocuments(
  tx: Transaction,
  rules: readonly StateRule[],
  changes: readonly ChangeRow[],
): Promise<Map<string, View>> {
  const names = new Set(
    rules.flatMap(({ state }) => (state.followsConnection && state.readsDocuments ? [state.document] : [])),
  )
  const keys = new Set(changes.flatMap(({ clientKey, document }) => (document === null ? [clientKey] : [])))
  const turns = createTurns()
  const found = new Map<string, View>()
  for (const { clientKey, name, ...row } of await listDocuments(tx, [...keys], [...names])) {
    if (turns.isOver) await turns.next()
    found.set(`${clientKey} ${name}`, viewOf(row))
  }
  return found
}

function matches(
  { filter: { channels, clients, groups, tags } }: CompiledRule,
  client: WatchedClient,
  above: ReadonlyMap<number, readonly string[]>,
): boolean {
  const inGroups = client.parentGroupKey === null ? [] : (above.get(client.parentGroupKey) ?? [])
  return (
    client.isEnabled &&
    (clients === undefined || clients.includes(client.id)) &&
    (tags === undefined || tags.some((tag) => client.tags.includes(tag))) &&
    (groups === undefined || groups.some((group) => inGroups.includes(group))) &&
    (channels === undefined || channels.some((channel) => client.channels.includes(channel)))
  )
}

function sampleOf(
  { key, atMs, isOnline }: ChangeRow,
  {
    series,
    client,
    row,
    view,
    isLook,
  }: { series: Series; client: RuleClient; row: WatchedClient; view: View; isLook: boolean },
): Evaluated {
  return {
    cause: `${CHANGE}${isLook ? 'look ' : ''}${key}`,
    series,
    record: undefined,
    atMs,
    timeMs: atMs,
    protocol: '',
    depth: 0,
    variables: {
      name: series.name,
      time: new Date(atMs),
      channel: '',
      subtopic: '',
      protocol: '',
      client,
      ...view,
      online: isOnline ?? row.isOnline,
    },
  }
}
