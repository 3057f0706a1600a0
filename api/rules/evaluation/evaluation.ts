/**
 * Evaluates rules for samples, in order, over states that are in memory. It decides nothing about what is stored: a step of a domain and a trial
 * give it their states and take what it finds.
 */
import { EvaluationFailure, IDLE, STATE_VARIABLES, advance, advanceTime, dueAt } from '../engine/index.ts'
import type { Advanced, RuleEffect, RuleState, RuleVariables, WindowReader } from '../engine/index.ts'
import type { Severity } from '../alarms/schema.ts'
import type { CompiledRule } from '../compile.ts'
import { keyOf } from './samples.ts'
import type { Evaluated, Series } from './samples.ts'

/** The last sample for which the condition held, for what time alone causes later. */
export type LastSample = Pick<Evaluated, 'cause' | 'record' | 'timeMs'> & {
  protocol: string
  json?: unknown
  /** What a rule about state saw of it. */
  state?: StateVariables
  /** The depth of what it causes; that of a message that began to clear it counts too. Absent: 0. */
  depth?: number
  /** A function said so. */
  severity?: Severity
}

/** The severity of what is caused. */
export const severityOf = ({ rule, sample, last }: Caused): Severity =>
  sample?.severity ?? last?.severity ?? rule.severity

export type StateVariables = Pick<RuleVariables, (typeof STATE_VARIABLES)[number]>

/** How far the alarm of a state has escalated. */
export type Escalation = {
  /** The alarm that was raised then. */
  raisedMs: number
  /** Since when its time counts: since users can see it, and in no maintenance. */
  fromMs: number
  /** The escalations up to this time are done. */
  doneMs: number
}

/** Nobody acknowledged the alarm for `afterMs`. */
export type EscalationEffect = { kind: 'escalate'; atMs: number; cause: string; afterMs: number }

export type SeriesState = {
  rule: CompiledRule
  series: Series
  state: RuleState
  last: LastSample | undefined
  /** Nobody was notified that it raised, because of maintenance, which is looked at again then. Null: its contacts were. */
  silencedUntilMs: number | null
  /** It raised or cleared in this step: whether it is silenced is settled with that. */
  isTurned: boolean
  /** Null: there is no alarm, or it is not escalated. */
  escalation: Escalation | null
  /** When it is looked whether it is. Null: not by itself, such as while the alarm is acknowledged. */
  escalateAtMs: number | null
  isChanged: boolean
  isStored: boolean
}

export type RuleCounts = { seen: number; matched: number; unmatchable: number; raised: number; acted: number }

/** `variables` undefined: time alone caused it. */
export type Caused = {
  rule: CompiledRule
  series: Series
  effect: RuleEffect | EscalationEffect
  sample: Evaluated | undefined
  last: LastSample | undefined
  windows: WindowReader | undefined
  /** It raised before, and nobody was notified then. */
  isLate: boolean
  entry: SeriesState
}

/** Characters of a JSON object that is kept for what time causes. */
const MAX_KEPT_CHARS = 4_096
/** Escapes that PostgreSQL does not accept in JSON: the character 0, and halves of characters. */
const UNSTORABLE = /\\u(0000|d[89a-f])/i

export class Evaluation {
  readonly #states = new Map<string, SeriesState>()
  readonly #counts = new Map<number, RuleCounts>()
  readonly #onEffect: (caused: Caused) => void
  readonly #onFailure: (reason: string) => void

  /** `onFailure` gets why a condition has no result for a sample. */
  constructor(onEffect: (caused: Caused) => void, onFailure: (reason: string) => void = () => undefined) {
    this.#onEffect = onEffect
    this.#onFailure = onFailure
  }

  get states(): Iterable<SeriesState> {
    return this.#states.values()
  }

  get counts(): ReadonlyMap<number, RuleCounts> {
    return this.#counts
  }

  countsOf(rule: CompiledRule): RuleCounts {
    let counts = this.#counts.get(rule.key)
    if (counts === undefined)
      this.#counts.set(rule.key, (counts = { seen: 0, matched: 0, unmatchable: 0, raised: 0, acted: 0 }))
    return counts
  }

  has(rule: CompiledRule, series: Series): boolean {
    return this.#states.has(`${rule.key}\n${keyOf(series)}`)
  }

  /** Gives a state that was stored. */
  give(
    rule: CompiledRule,
    series: Series,
    given: Pick<SeriesState, 'state' | 'last' | 'silencedUntilMs' | 'escalation' | 'escalateAtMs'>,
  ): void {
    const { state, last, silencedUntilMs, escalation, escalateAtMs } = given
    const of = { state, last, silencedUntilMs, escalation, escalateAtMs }
    const stored = { ...of, rule, series, isTurned: false, isChanged: false, isStored: true }
    this.#states.set(`${rule.key}\n${keyOf(series)}`, stored)
  }

  meet(rule: CompiledRule, sample: Evaluated, windows: WindowReader | undefined): void {
    this.#evaluate(rule, sample, windows, false)
  }

  /** Does the same as `meet` for what has not changed: a condition that goes on to hold is no repetition. */
  look(rule: CompiledRule, sample: Evaluated): void {
    this.#evaluate(rule, sample, undefined, true)
  }

  /** Does the same as `meet` for a rule that a function decides for. Undefined: it said nothing that is understood. */
  decide(rule: CompiledRule, sample: Evaluated, verdict: { holds: boolean; severity?: Severity } | undefined): void {
    const counts = this.countsOf(rule)
    counts.seen++
    if (verdict === undefined) {
      counts.unmatchable++
      return
    }
    const { holds, severity } = verdict
    this.#advance(rule, severity === undefined ? sample : { ...sample, severity }, { holds, clears: undefined })
  }

  #evaluate(rule: CompiledRule, sample: Evaluated, windows: WindowReader | undefined, isLook: boolean): void {
    const counts = this.countsOf(rule)
    counts.seen++
    const { variables } = sample
    let holds: boolean
    let clears: boolean | undefined
    try {
      holds = rule.condition.evaluate(variables, windows) === true
      clears = holds || rule.clearWhen === undefined ? undefined : clearsNow(rule, variables, windows)
    } catch (error) {
      if (!(error instanceof EvaluationFailure)) throw error
      counts.unmatchable++
      this.#onFailure(error.message)
      return
    }
    this.#advance(rule, sample, { holds, clears, windows, isLook })
  }

  #advance(
    rule: CompiledRule,
    sample: Evaluated,
    {
      holds,
      clears,
      windows,
      isLook = false,
    }: { holds: boolean; clears: boolean | undefined; windows?: WindowReader | undefined; isLook?: boolean },
  ): void {
    const entry = this.#stateOf(rule, sample.series)
    if (holds) this.countsOf(rule).matched++
    if (isLook && holds && entry.state.status !== 'idle') return this.#store(entry, goingOn(entry.state))
    const { atMs, cause } = sample
    const before = entry.state
    const advanced = advance(rule.timing, before, { atMs, holds, clears, cause })
    // What was due before the sample has the values of the one that was the last then.
    if (holds) {
      const told = advanced.effects.at(-1)
      for (const effect of advanced.effects.slice(0, -1)) this.#tell(entry, effect, undefined, undefined)
      entry.last = lastOf(sample)
      if (told !== undefined) this.#tell(entry, told, sample, windows)
    } else {
      for (const effect of advanced.effects) this.#tell(entry, effect, sample, windows)
      if (entry.last !== undefined && sample.depth > (entry.last.depth ?? 0))
        entry.last = { ...entry.last, depth: sample.depth }
    }
    this.#store(entry, advanced)
  }

  /** A scheduled time of a rule without a condition, which has no state. */
  report(rule: CompiledRule, sample: Evaluated, windows: WindowReader | undefined): void {
    const counts = this.countsOf(rule)
    counts.seen++
    counts.matched++
    const { atMs, cause } = sample
    this.#tell(this.#stateOf(rule, sample.series), { kind: 'raise', atMs, cause }, sample, windows)
  }

  /** A client fell silent, or all of them did: a message of it is what ends this. */
  fall(rule: CompiledRule, series: Series, { atMs, last }: { atMs: number; last: LastSample }): void {
    this.countsOf(rule).matched++
    const entry = this.#stateOf(rule, series)
    entry.last = last
    const advanced = advance(rule.timing, entry.state, { atMs, holds: true, cause: last.cause })
    for (const effect of advanced.effects) this.#tell(entry, effect, undefined, undefined)
    this.#store(entry, advanced)
  }

  /** The silence is over: with a message, or because nobody waits for one any more. */
  rise(rule: CompiledRule, series: Series, { atMs, cause }: { atMs: number; cause: string }): void {
    const entry = this.#stateOf(rule, series)
    const advanced = advance(rule.timing, entry.state, { atMs, holds: false, cause })
    for (const effect of advanced.effects) this.#tell(entry, effect, undefined, undefined)
    this.#store(entry, advanced)
  }

  /** What the passed time changes. */
  pass(entry: SeriesState, nowMs: number): void {
    const advanced = advanceTime(entry.rule.timing, entry.state, nowMs)
    for (const effect of advanced.effects) this.#tell(entry, effect, undefined, undefined)
    this.#store(entry, advanced)
    this.#passSilence(entry, nowMs)
    this.#passEscalation(entry, nowMs)
    // What is not due yet waits for another time than it did, since its rule was changed.
    if (entry.isStored && dueOf(entry) !== null) entry.isChanged = true
  }

  /** Does the same as `pass` for what nobody waits for any more: nothing is raised, and nobody is notified who was not before. */
  leave(entry: SeriesState, nowMs: number): void {
    if (entry.state.status === 'pending') return this.forget(entry)
    if (entry.silencedUntilMs === null) return this.pass(entry, nowMs)
    this.rise(entry.rule, entry.series, { atMs: nowMs, cause: '' })
    if (entry.isTurned) return
    // While it waits to be cleared, it stays silenced.
    entry.silencedUntilMs = dueOf(entry)
    entry.isChanged = true
  }

  /** The maintenance may be over in which it raised. */
  #passSilence(entry: SeriesState, nowMs: number): void {
    const { rule, series, state, last, silencedUntilMs } = entry
    if (entry.isTurned || silencedUntilMs === null || silencedUntilMs > nowMs) return
    if (state.status === 'active') {
      const effect: RuleEffect = { kind: 'raise', atMs: state.sinceMs, cause: state.cause }
      this.#onEffect({ rule, series, effect, sample: undefined, last, windows: undefined, isLate: true, entry })
    } else {
      entry.silencedUntilMs = null
      entry.isChanged = true
    }
  }

  /** It is looked whether the alarm is still open, and not acknowledged, for each time that has passed. */
  #passEscalation(entry: SeriesState, nowMs: number): void {
    const { rule, series, state, last, silencedUntilMs, escalateAtMs } = entry
    if (escalateAtMs === null || escalateAtMs > nowMs) return
    if (state.status !== 'active' || rule.escalations.length === 0 || silencedUntilMs !== null)
      return escalate(entry, null)
    const { sinceMs } = state
    // The rule had no escalations when it raised, or a process did that does not know them.
    const isOurs = entry.escalation?.raisedMs === sinceMs
    if (!isOurs) entry.escalation = { raisedMs: sinceMs, fromMs: sinceMs, doneMs: 0 }
    const { fromMs, doneMs } = entry.escalation as Escalation
    const due = rule.escalations.filter((afterMs) => afterMs > doneMs && fromMs + afterMs <= nowMs)
    for (const afterMs of due) {
      const effect: EscalationEffect = { kind: 'escalate', atMs: fromMs + afterMs, cause: state.cause, afterMs }
      this.#onEffect({ rule, series, effect, sample: undefined, last, windows: undefined, isLate: false, entry })
    }
    if (due.length === 0) escalate(entry, entry.escalation)
  }

  /** Ends a wait without an effect. */
  forget(entry: SeriesState): void {
    this.#store(entry, { state: IDLE, effects: [] })
  }

  #stateOf(rule: CompiledRule, series: Series): SeriesState {
    const key = `${rule.key}\n${keyOf(series)}`
    return (
      this.#states.get(key) ?? {
        rule,
        series,
        state: IDLE,
        last: undefined,
        silencedUntilMs: null,
        isTurned: false,
        escalation: null,
        escalateAtMs: null,
        isChanged: false,
        isStored: false,
      }
    )
  }

  #store(entry: SeriesState, { state }: Advanced): void {
    if (state === entry.state) return
    entry.state = state
    entry.isChanged = true
    // Most series are idle before and after a record: they are not kept.
    this.#states.set(`${entry.rule.key}\n${keyOf(entry.series)}`, entry)
  }

  #tell(
    entry: SeriesState,
    effect: RuleEffect,
    sample: Evaluated | undefined,
    windows: WindowReader | undefined,
  ): void {
    const { rule, series, last } = entry
    if (effect.kind === 'raise') this.countsOf(rule).raised++
    entry.isTurned ||= effect.kind !== 'repeat'
    this.#onEffect({ rule, series, effect, sample, last, windows, isLate: false, entry })
  }
}

/** Sets which escalations of the alarm are done, and so when the next one is due. Null: it is not escalated. */
export function escalate(entry: SeriesState, escalation: Escalation | null): void {
  const next = entry.rule.escalations.find((afterMs) => escalation !== null && afterMs > escalation.doneMs)
  const atMs = escalation === null || next === undefined ? null : escalation.fromMs + next
  if (entry.escalation === escalation && entry.escalateAtMs === atMs) return
  entry.escalation = escalation
  entry.escalateAtMs = atMs
  entry.isChanged = true
}

/** The time of the alarm counts from now on. */
export function beginEscalation(entry: SeriesState, fromMs: number): void {
  const { rule, state } = entry
  const isOpen = state.status === 'active' && rule.escalations.length > 0
  escalate(entry, isOpen ? { raisedMs: state.sinceMs, fromMs, doneMs: 0 } : null)
}

/** An alarm is not cleared by an expression that has no result for the record. */
function clearsNow(rule: CompiledRule, variables: RuleVariables, windows: WindowReader | undefined): boolean {
  try {
    return rule.clearWhen?.evaluate(variables, windows) === true
  } catch (error) {
    if (error instanceof EvaluationFailure) return false
    throw error
  }
}

/** A wait to be cleared is broken. */
function goingOn(state: RuleState): Advanced {
  if (state.status !== 'active' || state.clearingSinceMs === undefined) return { state, effects: [] }
  const { sinceMs, cause, count } = state
  return { state: { status: 'active', sinceMs, cause, count }, effects: [] }
}

function isKept(value: unknown): boolean {
  const text = value === undefined ? '' : JSON.stringify(value)
  return text !== '' && text.length <= MAX_KEPT_CHARS && !UNSTORABLE.test(text)
}

function lastOf({ cause, record, timeMs, variables, protocol, depth, severity }: Evaluated): LastSample {
  const { json, online } = variables
  const state =
    online === undefined ? undefined : Object.fromEntries(STATE_VARIABLES.map((name) => [name, variables[name]]))
  return {
    cause,
    record,
    timeMs,
    protocol,
    ...(isKept(json) ? { json } : {}),
    ...(state === undefined ? {} : { state: isKept(state) ? state : { online } }),
    ...(depth > 0 ? { depth } : {}),
    ...(severity === undefined ? {} : { severity }),
  }
}

/** Epoch milliseconds; null: never. */
export const dueOf = ({ rule, state }: SeriesState): number | null => dueAt(rule.timing, state) ?? null

export const isIdle = ({ state }: SeriesState): boolean => state.status === 'idle' && state.quietUntilMs === undefined
