/**
 * Rules whose source is a schedule: evaluates them for the scheduled times that have come, and stores what they cause in the transaction that moves
 * their next time. So each time is evaluated once for each series, whatever fails. A time with many series is evaluated in pages, each in a step.
 */
import type { Quotas, Recorder } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { LATE_TICK_MS, planTicks } from '#core/ticks.ts'
import { formatTime } from '#core/time.ts'
import { createTurns } from '#core/turns.ts'
import type { CompiledRule } from '../../compile.ts'
import type { Contacts } from '../../contacts.ts'
import { LATENESS_MS, MAX_WINDOW_VALUES, RuleClient, WindowStore, coversSubtopic } from '../../engine/index.ts'
import type { SeriesKey, WindowReader } from '../../engine/index.ts'
import type { Silencing } from '../../maintenance/silencing.ts'
import { noteChange } from '../../repository.ts'
import { lackOf } from '../../rights.ts'
import type { RightsDeps } from '../../rights.ts'
import { nextTickOf } from '../../timetable.ts'
import type { ScheduleSource } from '../../timetable.ts'
import { Collected } from '../collected.ts'
import { TICK } from '../effects.ts'
import { Evaluation } from '../evaluation.ts'
import { addCounts, countErrors, pauseRule, readStates, readValues } from '../repository.ts'
import type { ChannelRow, StepDomain } from '../repository.ts'
import { NO_CLIENT } from '../samples.ts'
import type { Evaluated, Series } from '../samples.ts'
import { Spending } from '../spending.ts'
import { StepTurns } from '../step-turns.ts'
import { storeEvaluation } from '../stored-evaluation.ts'
import { listSeries, readDueTicks, storeTicks } from './repository.ts'
import type { DueTick, TickProgress, TickSeries } from './repository.ts'

/** Rules of one step. */
const MAX_TICKS = 500
/** Values that arrived before the time are stored after it. */
const SETTLE_MS = 500
/** Series of one page, and with windows the series that they read. */
const MAX_SERIES = 50
const MAX_WINDOWED = 20
/** Values that one page reads: more only where the windows of one series name many others. */
const MAX_READ = MAX_WINDOWED * MAX_WINDOW_VALUES
/** How far back the value of a series is looked for that has no window. */
const LOOKBACK_MS = 86_400_000

const TOO_MANY_VALUES =
  'the windows of one series have more values than one step reads: shorten them, or name fewer series in them'

type ScheduledRule = CompiledRule & { schedule: ScheduleSource }

const isScheduled = (rule: CompiledRule): rule is ScheduledRule => rule.schedule !== undefined

type Deps = RightsDeps & { quotas: Pick<Quotas, 'ofDomain'>; contacts: Pick<Contacts, 'record'> }

type Outcome = { hasMore: boolean; published: boolean; started: boolean; notified: boolean }

const NOTHING: Outcome = { hasMore: false, published: false, started: false, notified: false }

type Step = { domain: StepDomain; record: Recorder; rules: readonly CompiledRule[]; silencing: Silencing }

/** A time that is evaluated. */
type Tick = { rule: ScheduledRule; tickMs: number; after: number; next: Date | undefined; skipped: number }

/** What one page of a time is evaluated for, with the key of its series. */
type Sampled = { sample: Evaluated; windows: WindowReader | undefined; key: number }
type Page = { samples: readonly Sampled[]; lastKey: number; isLast: boolean }

export async function stepTicks(tx: Transaction, deps: Deps, step: Step): Promise<Outcome> {
  const rules = step.rules.filter(isScheduled)
  if (rules.length === 0) return NOTHING
  const due = await readDueTicks(tx, step.domain.domainKey, { settleMs: SETTLE_MS, limit: MAX_TICKS })
  if (due.length === 0) return NOTHING
  return await new Ticking(tx, deps, step, rules).run(due)
}

/** One step of a domain. */
class Ticking {
  readonly #tx: Transaction
  readonly #deps: Deps
  readonly #step: Step
  readonly #rules: ReadonlyMap<number, ScheduledRule>
  readonly #channels = new Map<number, ChannelRow>()
  readonly #clients = new Map<string, RuleClient>()
  readonly #collected: Collected
  readonly #evaluation: Evaluation
  readonly #turns: StepTurns
  readonly #spending = new Spending<CompiledRule>()
  readonly #progress: TickProgress[] = []
  readonly #errors: { ruleId: string; reason: string; count: number }[] = []
  /** What lacks, by what is required. */
  readonly #lacks = new Map<string, string | undefined>()
  #isAnyPaused = false

  constructor(tx: Transaction, deps: Deps, step: Step, rules: readonly ScheduledRule[]) {
    this.#tx = tx
    this.#deps = deps
    this.#step = step
    this.#rules = new Map(rules.map((rule) => [rule.key, rule]))
    const given = { domain: step.domain, channels: this.#channels, client: (id: string) => this.#clients.get(id) }
    this.#collected = new Collected(given, this.#rules)
    this.#evaluation = new Evaluation((caused) => this.#collected.take(caused))
    this.#turns = new StepTurns(tx, this.#collected)
  }

  async run(due: readonly DueTick[]): Promise<Outcome> {
    const { domain, record, silencing } = this.#step
    let isLeft = due.length === MAX_TICKS
    for (const [index, row] of due.entries()) {
      if (index > 0 && this.#turns.isFull) {
        isLeft = true
        break
      }
      if (this.#turns.isOver) await this.#turns.next()
      const tick = this.#begin(row)
      if (tick !== undefined && !(await this.#takePage(tick))) isLeft = true
    }
    const outcome = await storeEvaluation(
      this.#tx,
      record,
      { evaluation: this.#evaluation, collected: this.#collected },
      {
        silencing,
        coveredBy: () => [],
        nowMs: Date.now(),
        maxOpen: this.#deps.quotas.ofDomain(domain.domainKey, 'open_alarms'),
        contacts: this.#deps.contacts,
      },
    )
    await addCounts(this.#tx, this.#evaluation.counts)
    await countErrors(this.#tx, this.#errors)
    await storeTicks(this.#tx, this.#progress)
    if (this.#isAnyPaused) await noteChange(this.#tx, domain.domainKey)
    return { ...outcome, hasMore: isLeft || this.#isAnyPaused }
  }

  /** Undefined: nothing is evaluated for it. */
  #begin({ ruleKey, tickMs, after, nowMs }: DueTick): Tick | undefined {
    const rule = this.#rules.get(ruleKey)
    if (rule === undefined) return undefined
    const [first, now] = [new Date(tickMs), new Date(nowMs)]
    // What has begun goes on, however late it is: the times that came meanwhile are looked at after it.
    if (after !== null) return { rule, tickMs, after, next: undefined, skipped: 0 }
    const { start, latest, next, skipped } = planTicks(rule.schedule, first, now)
    if (start !== undefined) return { rule, tickMs: start.getTime(), after: 0, next, skipped }
    this.#progress.push({ ruleKey, tickMs: next?.getTime() ?? null, after: null, missed: skipped + 1 })
    const reason = `the rule was not evaluated within ${LATE_TICK_MS / 1000} s of ${formatTime(latest)}`
    this.#errors.push({ ruleId: rule.id, reason, count: 1 })
    return undefined
  }

  /** Evaluates the next page of the time. False: there are further ones. */
  async #takePage(tick: Tick): Promise<boolean> {
    const { rule, tickMs, skipped } = tick
    const lack = await this.#lackOf(rule)
    if (lack !== undefined) {
      await this.#pause(rule, 'right', lack)
      return true
    }
    const page = await this.#pageOf(tick)
    if (page === undefined) {
      await this.#pause(rule, 'costly', TOO_MANY_VALUES)
      return true
    }
    const taken = await this.#evaluate(rule, page)
    const isOver = taken === page.samples.length && page.isLast
    const lastKey = taken === page.samples.length ? page.lastKey : (page.samples[taken - 1]?.key ?? tick.after)
    this.#progress.push(
      isOver
        ? { ruleKey: rule.key, tickMs: this.#nextOf(tick), after: null, missed: skipped }
        : { ruleKey: rule.key, tickMs, after: lastKey, missed: skipped },
    )
    return isOver
  }

  /** Thousands of rules of one time look at the same rights. */
  async #lackOf(rule: ScheduledRule): Promise<string | undefined> {
    const { userKey, filter, schedule, usesClients, actions } = rule
    const published = actions.map((action) => (action.type === 'publish' ? action.channelId : action.type))
    const key = JSON.stringify([userKey, filter.channels, schedule.isOverSeries, usesClients, published])
    if (!this.#lacks.has(key))
      this.#lacks.set(key, await lackOf(this.#tx, this.#deps, userKey, this.#step.domain.domainId, rule))
    return this.#lacks.get(key)
  }

  #nextOf({ rule, tickMs, next, after }: Tick): number | null {
    if (after === 0) return next?.getTime() ?? null
    return nextTickOf(rule.definition, new Date(tickMs))?.getTime() ?? null
  }

  /** Returns how many were evaluated, at least one if there is any. What pauses the rule counts as evaluated: it would pause it again. */
  async #evaluate(rule: ScheduledRule, { samples }: Page): Promise<number> {
    const { hasCondition } = rule.schedule
    if (hasCondition) await this.#giveStates(rule, samples)
    for (const [index, { sample, windows }] of samples.entries()) {
      if (index > 0 && this.#turns.isFull) return index
      if (this.#turns.isOver) await this.#turns.next()
      this.#spending.begin()
      const { chars } = this.#collected
      const beganMs = performance.now()
      if (hasCondition) this.#evaluation.meet(rule, sample, windows)
      else this.#evaluation.report(rule, sample, windows)
      const spent = { ms: performance.now() - beganMs, chars: this.#collected.chars - chars }
      const costliest = this.#spending.add(rule, spent)
      if (costliest === undefined) continue
      await this.#pause(rule, 'costly', `the rule ${costliest.took} for one series, and did not finish it`)
      return index + 1
    }
    return samples.length
  }

  async #giveStates(rule: ScheduledRule, samples: readonly Sampled[]): Promise<void> {
    const lacking = samples.flatMap(({ sample }) => (this.#evaluation.has(rule, sample.series) ? [] : [sample.series]))
    const wanted = lacking.map((series) => ({ ruleKey: rule.key, series }))
    for (const row of await readStates(this.#tx, wanted)) this.#evaluation.give(rule, row.series, row)
  }

  /** Undefined: its windows have too many values. */
  async #pageOf({ rule, tickMs, after }: Tick): Promise<Page | undefined> {
    if (!rule.schedule.isOverSeries)
      return { samples: [{ sample: sampleOf(tickMs), windows: undefined, key: 0 }], lastKey: 0, isLast: true }
    const names = new Set(rule.windowNames)
    const limit = rule.windowMs === 0 ? MAX_SERIES : Math.max(1, Math.floor(MAX_WINDOWED / (1 + names.size)))
    const rows = await listSeries(this.#tx, this.#step.domain.domainKey, rule.filter, { after, limit })
    const { subtopic } = rule.filter
    const matching = rows.filter((row) => subtopic === undefined || coversSubtopic(subtopic, row.subtopic))
    const page = { lastKey: rows.at(-1)?.key ?? after, isLast: rows.length < limit }
    const values = matching.length === 0 ? NO_VALUES : await this.#valuesOf(rule, tickMs, matching)
    if (values === undefined) return undefined
    const samples: Sampled[] = []
    for (const row of matching) {
      const windows = values.readerOf(row)
      const value = windows.read({ function: 'last', series: undefined, durationMs: lookbackOf(rule) })
      // Nothing is reported of a series that has no value any more.
      if (value === undefined && !rule.schedule.hasCondition) continue
      samples.push({ sample: this.#seriesSample(tickMs, row, value), windows, key: row.key })
    }
    return { ...page, samples }
  }

  /** The values of the series, and of those that the windows name beside them. */
  async #valuesOf(rule: ScheduledRule, tickMs: number, rows: readonly TickSeries[]): Promise<Values | undefined> {
    const lookbackMs = lookbackOf(rule)
    const names = new Set(rule.windowNames)
    const wanted = new Map<string, Series & { sinceSeconds: number }>()
    const sinceSeconds = (tickMs - lookbackMs - LATENESS_MS) / 1000
    for (const { publisherId, channelKey, subtopic, name: own } of rows)
      for (const name of [own, ...names])
        wanted.set(JSON.stringify([publisherId, channelKey, subtopic, name]), {
          publisherId,
          channelKey,
          subtopic,
          name,
          sinceSeconds,
        })
    const found = await readValues(this.#tx, [...wanted.values()], {
      untilSeconds: tickMs / 1000,
      perSeries: rule.windowMs === 0 ? 1 : MAX_WINDOW_VALUES,
      limit: MAX_READ + 1,
    })
    if (found.length > MAX_READ) return undefined
    const store = new WindowStore(rule.windowTime, lookbackMs)
    const turns = createTurns()
    for (const { value, timeMs, arrivalMs, ...series } of found) {
      if (turns.isOver) await turns.next()
      store.add(seriesKeyOf(series), { timeMs, arrivalMs, value })
    }
    return { readerOf: (row) => store.reader(seriesKeyOf(row), { timeMs: tickMs, arrivalMs: tickMs }) }
  }

  #seriesSample(tickMs: number, row: TickSeries, value: number | undefined): Evaluated {
    const { channelKey, channelId, channelName, publisherId, subtopic, name, unit } = row
    this.#channels.set(channelKey, { key: channelKey, id: channelId, name: channelName })
    const client =
      publisherId === ''
        ? NO_CLIENT
        : new RuleClient(publisherId, row.clientName ?? '', row.tags ?? [], row.metadata ?? {})
    this.#clients.set(publisherId, client)
    const sample = sampleOf(tickMs)
    const ofUnit = unit === '' ? {} : { u: unit }
    return {
      ...sample,
      series: { publisherId, channelKey, subtopic, name },
      record: value === undefined ? undefined : { n: name, ...ofUnit, v: value, t: tickMs / 1000 },
      variables: {
        ...sample.variables,
        value,
        name,
        unit: unit === '' ? undefined : unit,
        channel: channelId,
        subtopic,
        client,
      },
    }
  }

  async #pause(rule: ScheduledRule, kind: 'right' | 'costly', reason: string): Promise<void> {
    this.#isAnyPaused = true
    await pauseRule(this.#tx, rule.key, { place: this.#step.domain.place, kind, reason })
  }
}

type Values = { readerOf(row: TickSeries): WindowReader }

const NO_VALUES: Values = { readerOf: () => ({ read: () => undefined }) }

/** A series without windows has the value of the last day. */
const lookbackOf = ({ windowMs }: CompiledRule): number => (windowMs === 0 ? LOOKBACK_MS : windowMs)

const seriesKeyOf = ({ publisherId, channelKey, subtopic, name }: Series): SeriesKey => ({
  client: publisherId,
  channel: String(channelKey),
  subtopic,
  name,
})

/** A scheduled time, without a series. */
function sampleOf(tickMs: number): Evaluated {
  return {
    cause: `${TICK}${tickMs}`,
    series: { publisherId: '', channelKey: 0, subtopic: '', name: '' },
    record: undefined,
    atMs: tickMs,
    timeMs: tickMs,
    variables: { time: new Date(tickMs), channel: '', subtopic: '', protocol: '', client: NO_CLIENT },
    protocol: '',
    depth: 0,
  }
}
