/**
 * One step of the rules of a domain: reads the messages after their place, evaluates them, and stores states, alarms, what is to be published and the
 * new place in one transaction. So each message is evaluated once for each rule, whatever fails.
 */
import { isDeepStrictEqual } from 'node:util'
import { comparePlaces } from '#api/consumers/index.ts'
import type { Place } from '#api/consumers/index.ts'
import type { Journal, Quotas, Recorder } from '#api/identity/index.ts'
import { placeOf } from '#api/messages/index.ts'
import type { LiveMessage } from '#api/messages/index.ts'
import { BoundedCache } from '#core/bounded-cache.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { formatTime, monotonicMs } from '#core/time.ts'
import { inTurns } from '#core/turns.ts'
import { compileRule } from '../compile.ts'
import type { CompiledRule } from '../compile.ts'
import type { Contacts } from '../contacts.ts'
import { RuleIndex } from '../engine/index.ts'
import type { RuleClient } from '../engine/index.ts'
import { Silencing } from '../maintenance/silencing.ts'
import { leaveOthers, listEnabled, noteChange } from '../repository.ts'
import type { StoredRule } from '../repository.ts'
import { lackOf } from '../rights.ts'
import type { RightsDeps } from '../rights.ts'
import { Collected } from './collected.ts'
import { MAX_DEPTH, publishes } from './effects.ts'
import { passDue, withChannelsOf } from './due.ts'
import { Evaluation } from './evaluation.ts'
import { isDecidedByTask, stepFunctions } from './functions/step.ts'
import {
  addCounts,
  channelMark,
  countErrors,
  holdDomain,
  isLogHeld,
  listBehind,
  listChannels,
  pauseRule,
  readDue,
  readStates,
  renewLeases,
  storeOwnPlace,
  storePlace,
  takeDomain,
} from './repository.ts'
import type { ChannelRow, StateRow, StepDomain } from './repository.ts'
import { MAX_ASKED, judgeSilence } from './judging.ts'
import type { Watched } from './judging.ts'
import { clientsOf, meetingsOf, readMessages, reasonOfDropped } from './meetings.ts'
import type { Meeting, Read } from './meetings.ts'
import { keyOf, seriesOfClient } from './samples.ts'
import type { Sample, Series } from './samples.ts'
import { LATE_MS, MAX_WATCHED, SilenceClock, SilenceWatch, TOO_MANY_CLIENTS, hear, restoreAll } from './silence.ts'
import { Spending } from './spending.ts'
import { StepTurns } from './step-turns.ts'
import { stepTicks } from './schedule/step.ts'
import { stepStates } from './state/step.ts'
import { snapshotEnd } from './state/repository.ts'
import { storeEvaluation } from './stored-evaluation.ts'
import type { CausedDeps } from './stored-evaluation.ts'
import { judgeWindows } from './window-budget.ts'
import { DomainWindows } from './windows.ts'
import type { Loaded } from './windows.ts'

/** States that time changes, of one step. */
const MAX_DUE = 1_000
/** Messages that arrived before the time is due are settled after it. */
const SETTLE_MS = 500
/** Batches of other channels that are passed without storing it. */
const UNSTORED_BATCHES = 200
const LEASE_SECONDS = 4
/** A step that takes longer, and one of a domain that was not held for so long, holds it again at its end. */
const HOLD_AGAIN_MS = 1_000
/** Domains whose rules a process has compiled. */
const MAX_DOMAINS = 10_000

export type StepDeps = RightsDeps & {
  journal: Pick<Journal, 'change'>
  quotas: Pick<Quotas, 'ofDomain'>
  contacts: Pick<Contacts, 'record'>
  /** Identifies this process. */
  node: string
}

export type StepOutcome = {
  /** The rules of the domain are locked, or another process evaluates them. */
  isElsewhere: boolean
  /** There is more to do at once. */
  hasMore: boolean
  published: boolean
  started: boolean
  notified: boolean
}

const NO_WATCHES: ReadonlyMap<number, SilenceWatch> = new Map()

const NOTHING: StepOutcome = { isElsewhere: false, hasMore: false, published: false, started: false, notified: false }

type Rules = { stored: readonly StoredRule[]; compiled: ReadonlyMap<number, CompiledRule> }

/** What a process knows of a domain between its steps. */
type Domain = {
  version: number
  rules: Rules
  /** The rules that are served together, and which of them a record meets. */
  served: readonly CompiledRule[]
  index: RuleIndex<CompiledRule>
  windows: DomainWindows | undefined
  /** The windows of rules that are behind, by their keys. */
  alone: Map<number, DomainWindows>
  channels: { mark: string; byKey: ReadonlyMap<number, ChannelRow> } | undefined
  /** Those of rules that a function decides for, by the keys of the rules. */
  channelsOf: Map<number, Pick<Domain, 'version' | 'channels'>>
  /** The clients of rules about silence, by the keys of the rules. */
  watches: ReadonlyMap<number, SilenceWatch>
  /** The maintenance windows of the domain. */
  silencing: Silencing
  /** When this process last made sure that it has the domain. */
  heldMs: number
  /** Rules about state that have not looked at all clients, and the position from which on the triggers know of them. */
  looking: Set<number>
  noted: bigint
}

/** Where a step ends: where its reading did, or before that. */
type Reached = Pick<Read, 'place' | 'isEnd' | 'leftSeconds'>

const reachedBefore = (left: LiveMessage): Reached => {
  const { xid, seq, message, arrivedAtSeconds } = placeOf(left)
  return { place: { xid, seq, message }, isEnd: false, leftSeconds: arrivedAtSeconds }
}

/** The others follow the states of clients, or a schedule. They stand where these stand. */
const readsMessages = ({ state, schedule }: CompiledRule): boolean => state === undefined && schedule === undefined
/** What time changes in the states of a schedule is as that of messages. */
const isOfSeries = ({ state }: CompiledRule): boolean => state === undefined

type Shared = { domain: StepDomain; known: Domain; record: Recorder }

export class RuleSteps {
  readonly #deps: StepDeps
  readonly #domains = new BoundedCache<number, Domain>({ maxEntries: MAX_DOMAINS })
  readonly #clock = new SilenceClock()
  /** Domains that have a step: their rows are locked by it, so nobody can take them, and it holds them itself. */
  readonly #stepping = new Set<number>()

  constructor(deps: StepDeps) {
    this.#deps = deps
  }

  /** Domains with rules about silence that have something to do. Call it often: a longer time between two calls counts for no client. */
  async lookForSilence(db: Queryable): Promise<number[]> {
    const watching = this.#watching()
    // While an older transaction runs, messages after it are not read: their clients are not silent. Without clients no time is counted.
    this.#clock.tick(watching.length === 0 || (await isLogHeld(db, LATE_MS / 1000)))
    return watching.flatMap(([key, { watches }]) =>
      watches.values().some(({ isDue, isStale }) => isDue || isStale) ? [key] : [],
    )
  }

  /**
   * Keeps the domains with rules about silence while no message comes, and while the steps of others take long. Call it more often than a lease ends,
   * also during steps.
   */
  async holdSilent(db: Queryable): Promise<void> {
    const domains = new Map(this.#watching())
    if (domains.size === 0) return
    const nowMs = monotonicMs()
    const held = await renewLeases(db, [...domains.keys()], { node: this.#deps.node, leaseSeconds: LEASE_SECONDS })
    for (const key of held) Object.assign(domains.get(key) ?? {}, { heldMs: nowMs })
    // Another process may have it, or the domain is disabled.
    for (const [key, domain] of domains)
      if (nowMs - domain.heldMs > LEASE_SECONDS * 1000 && !this.#stepping.has(key) && this.#domains.get(key) === domain)
        this.leave(key)
  }

  /** Another process evaluates the domain. */
  leave(domainKey: number): void {
    this.#domains.delete(domainKey)
  }

  #watching(): [number, Domain][] {
    return [...this.#domains.entries()].filter(([, { watches }]) => watches.size > 0)
  }

  /** One step of the domain, and of one of its rules that are behind. */
  async step(domainKey: number): Promise<StepOutcome> {
    const { journal, node } = this.#deps
    this.#stepping.add(domainKey)
    try {
      let moved: { windows: DomainWindows; place: Place }[] = []
      let isRepeated = false
      const outcome = await journal.change('system', async (tx, record) => {
        // After a deadlock the transaction begins again: what was added to the windows was not committed.
        if (isRepeated) this.#domains.delete(domainKey)
        isRepeated = true
        moved = []
        const begunMs = monotonicMs()
        const domain = await takeDomain(tx, domainKey, node)
        if (domain === undefined) return { ...NOTHING, isElsewhere: true }
        const known = await this.#know(tx, domain)
        const shared = { domain, known, record }
        const { served, looking, noted, silencing } = known
        const states = await stepStates(tx, this.#deps, { domain, record, rules: served, looking, noted, silencing })
        const together = await this.#stepTogether(tx, shared)
        if (known.windows !== undefined) moved.push({ windows: known.windows, place: together.place })
        const alone = await this.#stepAlone(tx, { ...shared, domain: { ...domain, place: together.place } })
        const ticks = await stepTicks(tx, this.#deps, { domain, record, rules: served, silencing })
        const functions = await this.#stepFunctions(tx, shared)
        await this.#hold(tx, { domain, known, begunMs })
        const windowsOfAlone = alone.moved === undefined ? undefined : known.alone.get(alone.moved.ruleKey)
        if (alone.moved !== undefined && windowsOfAlone !== undefined)
          moved.push({ windows: windowsOfAlone, place: alone.moved.place })
        return {
          isElsewhere: false,
          hasMore: states.hasMore || together.hasMore || alone.hasMore || functions.hasMore || ticks.hasMore,
          published:
            states.published || together.published || alone.published || functions.published || ticks.published,
          started: states.started || together.started || alone.started || functions.started || ticks.started,
          notified: states.notified || together.notified || alone.notified || functions.notified || ticks.notified,
        }
      })
      for (const { windows, place } of moved) windows.moved(place)
      return outcome
    } catch (error) {
      // What was added to the windows was not committed.
      this.#domains.delete(domainKey)
      throw error
    } finally {
      this.#stepping.delete(domainKey)
    }
  }

  /** At the end of a step: other processes leave the domain to this one, whatever time the step took. */
  async #hold(
    tx: Transaction,
    { domain: { domainKey, node: before }, known, begunMs }: { domain: StepDomain; known: Domain; begunMs: number },
  ): Promise<void> {
    const { node } = this.#deps
    const nowMs = monotonicMs()
    const isWatching = known.watches.size > 0
    const isLate = isWatching && (before !== node || nowMs - known.heldMs > HOLD_AGAIN_MS)
    const isLong = (isWatching || known.windows !== undefined) && nowMs - begunMs > HOLD_AGAIN_MS
    if (!isLate && !isLong) return
    await holdDomain(tx, domainKey, { node, leaseSeconds: LEASE_SECONDS })
    known.heldMs = nowMs
  }

  async #know(tx: Transaction, { domainKey, version, place, node }: StepDomain): Promise<Domain> {
    const known = this.#domains.get(domainKey)
    const isOurs = node === this.#deps.node
    if (known?.version === version) {
      // Another process evaluated messages meanwhile.
      if (known.windows?.standsAt(place) === false) known.windows = DomainWindows.of(known.served.filter(readsMessages))
      if (!isOurs) known.watches = await this.#watch(tx, domainKey, known.rules, NO_WATCHES)
      return known
    }
    const stored = await standApart(tx, domainKey, await listEnabled(tx, domainKey))
    const compiled = await compileAll(tx, { domainKey, place }, { stored, known: known?.rules })
    const served = stored.flatMap(({ key, isBehind, isPaused }) =>
      isBehind || isPaused ? [] : (compiled.get(key) ?? []),
    )
    const rules = { stored, compiled }
    const looking = new Set(
      stored.flatMap(({ key, isLooking, isBehind, isPaused }) => (isLooking && !isBehind && !isPaused ? [key] : [])),
    )
    const domain: Domain = {
      version,
      rules,
      served,
      index: new RuleIndex(served.filter(readsMessages), ({ filter }) => filter),
      windows: DomainWindows.of(served.filter(readsMessages)),
      alone: new Map(),
      channels: known?.channels,
      channelsOf: new Map(),
      watches: await this.#watch(tx, domainKey, rules, isOurs ? (known?.watches ?? NO_WATCHES) : NO_WATCHES),
      silencing: await Silencing.of(tx, domainKey),
      heldMs: known?.heldMs ?? -Infinity,
      looking,
      noted: looking.size === 0 ? 0n : await snapshotEnd(tx),
    }
    this.#domains.set(domainKey, domain)
    return domain
  }

  /** The clients of rules about silence. Those of a rule that is still the same wait on. */
  async #watch(
    tx: Transaction,
    domainKey: number,
    { stored, compiled }: Rules,
    before: ReadonlyMap<number, SilenceWatch>,
  ): Promise<ReadonlyMap<number, SilenceWatch>> {
    const watches = new Map<number, SilenceWatch>()
    for (const { key, isPaused } of stored) {
      const rule = compiled.get(key)
      if (rule?.silence === undefined || isPaused) continue
      const one = before.get(key)
      const isSame = one !== undefined && isDeepStrictEqual(one.rule.definition.source, rule.definition.source)
      watches.set(key, isSame ? one : new SilenceWatch(rule, domainKey, this.#clock))
    }
    await restoreAll(tx, watches)
    return watches
  }

  /** The channels that these rules read. */
  async #channelsOf(
    tx: Transaction,
    domainKey: number,
    known: Pick<Domain, 'version' | 'channels'>,
    rules: readonly CompiledRule[],
  ): Promise<ReadonlyMap<number, ChannelRow>> {
    const named = new Set(rules.flatMap(({ filter }) => filter.channels ?? []))
    const isAll = rules.some(({ filter }) => filter.channels === undefined)
    const mark = `${known.version} ${isAll ? await channelMark(tx, domainKey) : [...named].join(' ')}`
    if (known.channels?.mark === mark) return known.channels.byKey
    const rows = await listChannels(tx, domainKey, isAll ? undefined : [...named])
    const byKey = new Map(rows.map((row) => [row.key, row]))
    known.channels = { mark, byKey }
    return byKey
  }

  async #stepTogether(tx: Transaction, shared: Shared): Promise<StepOutcome & { place: Place }> {
    const { domain, known } = shared
    const { served } = known
    if (served.length === 0) return { ...NOTHING, place: domain.place }
    const reading = served.filter(readsMessages)
    const channels = await this.#channelsOf(tx, domain.domainKey, known, reading)
    const read = await readMessages(tx, { place: domain.place, channels, index: known.index, until: undefined })
    const found = await this.#evaluate(tx, shared, {
      rules: served.filter(isOfSeries),
      index: known.index,
      windows: known.windows,
      channels,
      read,
    })
    const { reached } = found
    const isNothing = read.messages.length === 0 && !domain.isBehind && !found.hasChanged
    if (!isNothing || read.passed >= UNSTORED_BATCHES || known.windows !== undefined)
      await storePlace(tx, domain.domainKey, {
        place: reached.place,
        behindSinceSeconds: reached.leftSeconds,
        node: this.#deps.node,
        leaseSeconds: LEASE_SECONDS,
      })
    return { ...found, hasMore: found.hasMore || !reached.isEnd, place: reached.place }
  }

  /** The rule that is furthest behind reads on by itself, up to the place of the others. */
  async #stepAlone(
    tx: Transaction,
    shared: Shared,
  ): Promise<StepOutcome & { moved?: { ruleKey: number; place: Place } }> {
    const { domain, known } = shared
    // Its place moves without a new version of the rules.
    const { stored, compiled: all } = known.rules
    const isAny = stored.some((one) => one.isBehind && !one.isPaused && all.get(one.key)?.conditionTask === undefined)
    const behind = isAny ? await listBehind(tx, domain.domainKey) : []
    const [next] = behind
    const compiled = next === undefined ? undefined : known.rules.compiled.get(next.key)
    if (next === undefined || compiled === undefined) return NOTHING
    const rule = { ...compiled, place: next.place }
    const until = known.served.length === 0 ? undefined : domain.place
    // The others begin at or before its place, such as those that were created while it was paused: its place is a floor. A rule about state reads no
    // messages.
    if (!readsMessages(rule) || (until !== undefined && comparePlaces(rule.place, until) >= 0)) {
      await storeOwnPlace(tx, rule.key, rule.place, false)
      await noteChange(tx, domain.domainKey)
      return { ...NOTHING, hasMore: true }
    }
    const index = new RuleIndex([rule], ({ filter }) => filter)
    const channels = await this.#channelsOf(tx, domain.domainKey, { ...known, channels: undefined }, [rule])
    const read = await readMessages(tx, { place: rule.place, channels, index, until })
    const found = await this.#evaluate(tx, shared, {
      rules: [rule],
      index,
      windows: windowsAlone(known, rule),
      channels,
      read,
      before: rule.place,
    })
    const { reached } = found
    // Paused meanwhile: its place was stored.
    if (found.paused.has(rule.key)) return { ...found, hasMore: behind.length > 1 }
    if (reached.isEnd && until === undefined)
      await storePlace(tx, domain.domainKey, {
        place: reached.place,
        behindSinceSeconds: null,
        node: this.#deps.node,
        leaseSeconds: LEASE_SECONDS,
      })
    await storeOwnPlace(tx, rule.key, reached.place, !reached.isEnd)
    // It goes on with the others.
    if (reached.isEnd) await noteChange(tx, domain.domainKey)
    return { ...found, hasMore: true, moved: { ruleKey: rule.key, place: reached.place } }
  }

  /** The rules that a function decides for stand by themselves. */
  async #stepFunctions(tx: Transaction, { domain, known, record }: Shared): Promise<Omit<StepOutcome, 'isElsewhere'>> {
    const { rules, silencing, version, channelsOf } = known
    if (!rules.compiled.values().some(isDecidedByTask)) return NOTHING
    return await stepFunctions(tx, this.#deps, {
      domain,
      record,
      rules: rules.compiled,
      silencing,
      channelsOf: async (rule) => {
        const own = channelsOf.getOrInsertComputed(rule.key, () => ({ version, channels: undefined }))
        return await this.#channelsOf(tx, domain.domainKey, own, [rule])
      },
    })
  }

  async #evaluate(
    tx: Transaction,
    shared: Shared,
    given: {
      rules: readonly CompiledRule[]
      index: RuleIndex<CompiledRule>
      windows: DomainWindows | undefined
      channels: ReadonlyMap<number, ChannelRow>
      read: Read
      before?: Place
    },
  ): Promise<StepOutcome & { hasChanged: boolean; paused: ReadonlySet<number>; reached: Reached }> {
    const { domain } = shared
    const { rules, windows, read } = given
    const nowMs = Date.now() - SETTLE_MS
    const due = await dueOfStep(tx, rules, { isEnd: read.isEnd, nowMs })
    // A rule that is behind does not know yet who was heard meanwhile.
    const watches = given.before === undefined && read.isEnd ? watchesOf(shared.known, rules) : []
    const isReading = await this.#refresh(tx, shared, watches)
    const falling = watches.flatMap(([{ key }, { isDue }]) => (isDue ? [key] : []))
    if (read.messages.length + due.length + falling.length === 0)
      return { ...NOTHING, hasMore: isReading, hasChanged: false, paused: new Set<number>(), reached: read }
    const clients = await clientsOf(tx, domain.domainKey, rules, { messages: read.messages, due })
    const met = await meetingsOf(read.messages, given.index, clients)
    const loaded = await windows?.load(tx, met.meetings, given.before ?? domain.place)
    const left = loaded?.left ?? met.left
    const meetings = loaded?.left === undefined ? met.meetings : meetingsBefore(met.meetings, loaded.left)
    const place = given.before ?? domain.place
    const acting = { meetings, due: new Set([...due.map(({ ruleKey }) => ruleKey), ...falling]), rules, place }
    const paused = await this.#pauseLacking(tx, domain, acting)
    const channels = await withChannelsOf(tx, due, given.channels)
    const silentClients = new Map<string, RuleClient>()
    const collected = new Collected(
      { domain, channels, client: (id) => clients.byId(id) ?? silentClients.get(id) },
      new Map(rules.map((rule) => [rule.key, rule])),
    )
    const evaluation = new Evaluation((caused) => collected.take(caused))
    const { watches: all } = shared.known
    await giveStates(tx, evaluation, rules, { meetings, due, watches: all })
    if (windows !== undefined) await this.#limitWindows(tx, { windows, loaded, meetings, paused })
    const stoppedAt =
      (await this.#meetAll(tx, { evaluation, collected, meetings, windows, paused, watches: all })) ?? left
    const judged = { domain, watches: stoppedAt === undefined ? watches : [], paused, clients: silentClients }
    const hasMoreSilent = await judgeSilence(tx, { evaluation, collected }, judged)
    // What is due is settled when no message before it is left.
    const turns = new StepTurns(tx, collected)
    const isDueLeft = stoppedAt === undefined && (await passDue(evaluation, turns, { due, paused, channels, nowMs }))
    const outcome = await storeEvaluation(tx, shared.record, { evaluation, collected }, this.#telling(shared, nowMs))
    await countErrors(
      tx,
      [...met.dropped].map(([{ id }, count]) => ({ ruleId: id, reason: reasonOfDropped(count), count })),
    )
    await addCounts(tx, evaluation.counts)
    if (paused.size > 0) await noteChange(tx, domain.domainKey)
    return {
      ...NOTHING,
      ...outcome,
      hasMore: isDueLeft || due.length >= MAX_DUE || paused.size > 0 || hasMoreSilent || isReading,
      hasChanged: true,
      paused: new Set(paused.keys()),
      reached: stoppedAt === undefined ? read : reachedBefore(stoppedAt),
    }
  }

  #telling({ domain, known }: Shared, nowMs: number): CausedDeps {
    return {
      silencing: known.silencing,
      coveredBy: (key) => known.watches.get(key)?.covered ?? [],
      nowMs,
      maxOpen: this.#deps.quotas.ofDomain(domain.domainKey, 'open_alarms'),
      contacts: this.#deps.contacts,
    }
  }

  /**
   * Evaluates the rules that each sample meets, in turns of the event loop, up to the places where they are paused. Returns the message at which it
   * stopped, because the messages before it took long enough.
   */
  async #meetAll(
    tx: Transaction,
    {
      evaluation,
      collected,
      meetings,
      windows,
      paused,
      watches,
    }: {
      evaluation: Evaluation
      collected: Collected
      meetings: readonly Meeting[]
      windows: DomainWindows | undefined
      paused: Map<number, Place>
      watches: ReadonlyMap<number, SilenceWatch>
    },
  ): Promise<LiveMessage | undefined> {
    const turns = new StepTurns(tx, collected)
    const spending = new Spending<CompiledRule>()
    let message: LiveMessage | undefined
    for (const { sample, rules } of meetings) {
      if (sample.message !== message) {
        if (message !== undefined && turns.isFull) return sample.message
        ;({ message } = sample)
        spending.begin()
      }
      windows?.add(sample)
      for (const rule of rules) {
        if (turns.isOver) await turns.next()
        const place = paused.get(rule.key)
        if (place !== undefined && comparePlaces(place, sample.place) <= 0) continue
        if (rule.silence !== undefined) {
          const { publisherId } = sample.series
          const watch = publisherId === '' ? undefined : watches.get(rule.key)
          if (watch !== undefined) hear(evaluation, rule, watch.heard(publisherId), sample)
          continue
        }
        if (publishes(rule) && sample.depth >= MAX_DEPTH) {
          paused.set(rule.key, sample.place)
          await this.#pauseLooping(tx, rule, sample)
          continue
        }
        const { chars } = collected
        const evaluatedMs = performance.now()
        evaluation.meet(rule, sample, windows?.readerOf(rule, sample))
        const costliest = spending.add(rule, { ms: performance.now() - evaluatedMs, chars: collected.chars - chars })
        if (costliest === undefined) continue
        paused.set(costliest.rule.key, sample.place)
        const reason = `the rule ${costliest.took} for ${nameOf(sample)}, most of all rules that it meets, and did not finish it`
        await pauseBehind(tx, costliest.rule, sample, { kind: 'costly', reason })
      }
    }
    return undefined
  }

  /** Pauses the rule with the longest windows, at the first message that it meets, if the windows of its domain take too much memory. */
  async #limitWindows(
    tx: Transaction,
    {
      windows,
      loaded,
      meetings,
      paused,
    }: {
      windows: DomainWindows
      loaded: Loaded | undefined
      meetings: readonly Meeting[]
      paused: Map<number, Place>
    },
  ): Promise<void> {
    const { isTooMuch, unused } = judgeWindows(windows, this.#allWindows(), monotonicMs())
    for (const known of this.#domains.values()) {
      if (known.windows !== undefined && unused.includes(known.windows))
        known.windows = DomainWindows.of(known.served.filter(readsMessages))
      for (const [key, one] of known.alone) if (unused.includes(one)) known.alone.delete(key)
    }
    if (!isTooMuch && loaded?.isTooMuch !== true) return
    let first: { rule: CompiledRule; place: Place } | undefined
    for (const { sample, rules } of meetings)
      for (const rule of rules)
        if (rule.windowMs > (first?.rule.windowMs ?? 0) && !paused.has(rule.key)) first = { rule, place: sample.place }
    if (first === undefined) return
    paused.set(first.rule.key, first.place)
    await pauseRule(tx, first.rule.key, { place: first.place, kind: 'costly', reason: TOO_MANY_VALUES })
  }

  *#allWindows(): Iterable<DomainWindows> {
    for (const { windows, alone } of this.#domains.values()) {
      if (windows !== undefined) yield windows
      yield* alone.values()
    }
  }

  /**
   * Pauses rules whose user lacks a right: at the first message that they meet, or at the place of the step where time alone would let them act.
   * Returns the places where they stop.
   */
  async #pauseLacking(
    tx: Transaction,
    { domainId }: StepDomain,
    {
      meetings,
      due,
      rules,
      place: begin,
    }: {
      meetings: readonly Meeting[]
      /** Keys of the rules that time alone lets act. */
      due: ReadonlySet<number>
      rules: readonly CompiledRule[]
      place: Place
    },
  ): Promise<Map<number, Place>> {
    const acting = new Map<CompiledRule, Place>()
    for (const { sample, rules: met } of meetings)
      for (const rule of met) if (!acting.has(rule)) acting.set(rule, sample.place)
    for (const rule of rules) if (due.has(rule.key) && !acting.has(rule)) acting.set(rule, begin)
    const paused = new Map<number, Place>()
    for (const [rule, place] of acting) {
      const reason = await lackOf(tx, this.#deps, rule.userKey, domainId, rule)
      if (reason === undefined) continue
      paused.set(rule.key, place)
      await pauseRule(tx, rule.key, { place, kind: 'right', reason })
    }
    return paused
  }

  /** Looks at which clients there are, one page for each rule. True: there are more. */
  async #refresh(tx: Transaction, { domain, known }: Shared, watches: readonly Watched[]): Promise<boolean> {
    const stale = watches.filter(([, { isStale }]) => isStale)
    let hasMore = stale.length > MAX_ASKED
    for (const [rule, watch] of stale.slice(0, MAX_ASKED)) {
      if (await watch.refresh(tx)) hasMore = true
      const total = known.watches.values().reduce((sum, { size }) => sum + size, 0)
      if (total <= MAX_WATCHED) continue
      await pauseRule(tx, rule.key, { place: domain.place, kind: 'costly', reason: TOO_MANY_CLIENTS })
      await noteChange(tx, domain.domainKey)
      break
    }
    return hasMore
  }

  async #pauseLooping(tx: Transaction, rule: CompiledRule, sample: Sample): Promise<void> {
    const reason = `${MAX_DEPTH} rules in a row caused ${nameOf(sample)}: the rule would cause itself without end`
    await pauseBehind(tx, rule, sample, { kind: 'loop', reason })
  }
}

/** A rule that does not compile, such as one of another version or with a time zone that is no longer known, is paused alone. */
async function compileAll(
  tx: Transaction,
  { domainKey, place }: Pick<StepDomain, 'domainKey' | 'place'>,
  { stored, known }: { stored: readonly StoredRule[]; known: Rules | undefined },
): Promise<Map<number, CompiledRule>> {
  const compiled = new Map<number, CompiledRule>()
  const broken: { rule: StoredRule; reason: string }[] = []
  // A domain may have thousands.
  await inTurns(stored, (rule) => {
    try {
      compiled.set(rule.key, compileAgain(rule, known?.compiled.get(rule.key)))
    } catch (error) {
      if (!rule.isPaused) broken.push({ rule, reason: `the rule cannot be evaluated: ${(error as Error).message}` })
    }
  })
  for (const { rule, reason } of broken)
    await pauseRule(tx, rule.key, { place: rule.isBehind ? rule.place : place, kind: 'invalid', reason })
  if (broken.length > 0) await noteChange(tx, domainKey)
  return compiled
}

/** Compiling takes much longer than the comparison, and most rules are as they were. */
function compileAgain(rule: StoredRule, before: CompiledRule | undefined): CompiledRule {
  if (before === undefined || !isDeepStrictEqual(before.definition, rule.definition)) return compileRule(rule)
  const { key, id, name, userKey, place } = rule
  return { ...before, key, id, name, userKey, place }
}

/**
 * A rule that a function decides for stands by itself. A build that does not know functions lets it go on with the others: it goes on by itself where
 * it joined them.
 */
async function standApart(
  tx: Transaction,
  domainKey: number,
  stored: readonly StoredRule[],
): Promise<readonly StoredRule[]> {
  const joined = stored.filter(({ definition, isBehind }) => definition.condition_task !== undefined && !isBehind)
  if (joined.length === 0) return stored
  for (const { key, place } of joined) await leaveOthers(tx, key, place)
  await noteChange(tx, domainKey)
  return stored.map((rule) => (joined.includes(rule) ? { ...rule, isBehind: true } : rule))
}

/** The windows of a rule that is behind, which were kept since its last step. */
function windowsAlone(known: Domain, rule: CompiledRule): DomainWindows | undefined {
  let windows = known.alone.get(rule.key)
  if (windows?.standsAt(rule.place) !== true) windows = DomainWindows.of([rule])
  if (windows !== undefined) known.alone.set(rule.key, windows)
  return windows
}

const TOO_MANY_VALUES =
  'its windows are the longest of rules that keep more values than there is memory for: shorten them, or restrict its source'

const meetingsBefore = (meetings: readonly Meeting[], left: LiveMessage): readonly Meeting[] =>
  meetings.slice(
    0,
    meetings.findIndex(({ sample }) => sample.message === left),
  )

const nameOf = ({ message }: Sample): string =>
  `the message of ${formatTime(new Date(message.receivedAtSeconds * 1000))}`

/** The message is behind the rule: it would pause it again. */
async function pauseBehind(
  tx: Transaction,
  rule: CompiledRule,
  { place }: Sample,
  why: { kind: 'loop' | 'costly'; reason: string },
): Promise<void> {
  await pauseRule(tx, rule.key, { place: { ...place, message: place.message + 1 }, ...why })
}

/** What time changes, when no message before it is left. */
async function dueOfStep(
  tx: Transaction,
  rules: readonly CompiledRule[],
  { isEnd, nowMs }: { isEnd: boolean; nowMs: number },
): Promise<StateRow[]> {
  if (!isEnd) return []
  const keys = rules.map(({ key }) => key)
  return await readDue(tx, keys, nowMs, MAX_DUE)
}

const watchesOf = ({ watches }: Domain, rules: readonly CompiledRule[]): Watched[] =>
  watches.size === 0
    ? []
    : rules.flatMap((rule): Watched[] => {
        const watch = watches.get(rule.key)
        return watch === undefined ? [] : [[rule, watch]]
      })

async function giveStates(
  tx: Transaction,
  evaluation: Evaluation,
  rules: readonly CompiledRule[],
  {
    meetings,
    due,
    watches,
  }: {
    meetings: readonly Meeting[]
    due: readonly StateRow[]
    watches: ReadonlyMap<number, SilenceWatch>
  },
): Promise<void> {
  const ofRules = new Map<number, Map<string, Series>>(rules.map(({ key }) => [key, new Map()]))
  await inTurns(meetings, ({ sample: { series }, rules: met }) => {
    const name = met.length === 0 ? '' : keyOf(series)
    for (const { key, silence } of met)
      if (silence === undefined) ofRules.get(key)?.set(name, series)
      else
        // Most clients are not silent, and have no state.
        for (const id of watches.get(key)?.statesOf(series.publisherId) ?? []) {
          const own = seriesOfClient(id)
          ofRules.get(key)?.set(keyOf(own), own)
        }
  })
  const wanted = [...ofRules].flatMap(([ruleKey, all]) => [...all.values()].map((series) => ({ ruleKey, series })))
  const byKey = new Map(rules.map((rule) => [rule.key, rule]))
  for (const row of [...due, ...(await readStates(tx, wanted))]) {
    const rule = byKey.get(row.ruleKey)
    if (rule !== undefined) evaluation.give(rule, row.series, row)
  }
}
