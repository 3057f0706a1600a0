/**
 * The clients that rules about silence watch, in the memory of the process that evaluates a domain. Who is silent is a stored state of the rule, and
 * since when the others were heard is not: with another process, after a pause of the rule and after a failed step their times begin again. So a time in
 * which nothing was evaluated counts for nobody.
 */
import type { Queryable } from '#core/database/index.ts'
import { monotonicMs } from '#core/time.ts'
import type { CompiledRule } from '../compile.ts'
import { SilenceTimers } from '../engine/index.ts'
import type { Silence } from '../engine/index.ts'
import type { Outage } from './effects.ts'
import type { Evaluation, LastSample } from './evaluation.ts'
import { listRaised, listWatched } from './repository.ts'
import type { RaisedRow, WatchedRow } from './repository.ts'
import { seriesOfClient } from './samples.ts'
import type { Sample } from './samples.ts'

/** The interval between two looks at which clients there are. */
const REFRESH_MS = 60_000
/** Messages are evaluated before a judgement, which is made soon after the clients were read, or they are read again. */
const SURE_MS = 5_000
/** Rows that one statement reads. */
const PAGE = 2_000
/** A longer time between two looks was a standstill. */
const MAX_TICK_MS = 5_000
/** A message may be stored, and readable, a moment after its arrival. */
export const LATE_MS = 1_000
/** Clients that the rules of a domain watch: each takes some 150 bytes. */
export const MAX_WATCHED = 100_000

export const TOO_MANY_CLIENTS = `the rules of the domain watch more than ${MAX_WATCHED} clients for silence: restrict its source`

export const OUTAGE = ''

/** The time in which this process looked at its rules. */
export class SilenceClock {
  #nowMs = 0
  #tickedMs = monotonicMs()

  get nowMs(): number {
    return this.#nowMs
  }

  /** `isHeld`: the time since the last call is not counted, for instance because its messages are stored and cannot be read yet. */
  tick(isHeld: boolean): void {
    const nowMs = monotonicMs()
    if (!isHeld) this.#nowMs += Math.min(nowMs - this.#tickedMs, MAX_TICK_MS)
    this.#tickedMs = nowMs
  }
}

export class SilenceWatch {
  /** The rule when the watch began; its source does not change. */
  readonly rule: CompiledRule
  readonly #domainKey: number
  readonly #clock: Pick<SilenceClock, 'nowMs'>
  readonly #timers: SilenceTimers
  /** The clients of the running refresh. */
  #found: Set<string> | undefined
  #after: WatchedRow | undefined
  #nextMs = -Infinity
  #isFirst = true
  /** So many clients fell silent that it is an outage if they are still watched: this is looked at first. */
  #isSuspected = false
  /** It was looked at, and what was found is taken for true until then. */
  #sureUntilMs = -Infinity
  /** States that end, because nobody is watched any more. */
  readonly #ending = new Set<string>()
  /** What was found and did not fit into its step. */
  #left: Silence[] = []

  constructor(rule: CompiledRule, domainKey: number, clock: Pick<SilenceClock, 'nowMs'>) {
    if (rule.silence === undefined) throw new Error('the rule is not about silence')
    this.rule = rule
    this.#domainKey = domainKey
    this.#clock = clock
    this.#timers = new SilenceTimers(rule.silence)
  }

  get size(): number {
    return this.#timers.total
  }

  /** Who was found silent is so until it is heard. An alarm that was cleared by hand is raised again after the whole time. */
  restore(ids: ReadonlySet<string>): void {
    const silent = new Set(ids)
    // These are not stored yet, and those are no more.
    for (const one of this.#left) silent.add(one.kind === 'outage' ? OUTAGE : one.id)
    for (const id of this.#ending) silent.delete(id)
    const isOutage = silent.delete(OUTAGE)
    this.#timers.restore({ silent, isOutage }, this.#clock.nowMs)
  }

  /** Whether a client of the rule is due, or something was left. */
  get isDue(): boolean {
    if (this.isHolding) return true
    const dueMs = this.#timers.dueMs()
    return dueMs !== undefined && dueMs <= this.#judgedMs
  }

  /** Whether something is left that did not fit into its step. */
  get isHolding(): boolean {
    return this.#ending.size > 0 || this.#left.length > 0
  }

  /** Whether it is time to look at which clients there are. */
  get isStale(): boolean {
    return this.#found !== undefined || this.#clock.nowMs >= this.#nextMs
  }

  /** The clients of its outage. */
  get covered(): readonly string[] {
    return this.#timers.covered
  }

  /** The states that a message of the client may end. */
  statesOf(id: string): string[] {
    return [...(this.#timers.isSilent(id) ? [id] : []), ...(this.#timers.isOutage ? [OUTAGE] : [])]
  }

  /** Reads some of the clients. True: there are more. */
  async refresh(db: Queryable): Promise<boolean> {
    this.#found ??= new Set()
    const rows = await listWatched(db, this.#domainKey, this.rule.filter, { after: this.#after, limit: PAGE })
    const last = rows.at(-1)
    for (const { id } of rows) {
      this.#found.add(id)
      this.#timers.watch(id, this.#clock.nowMs, this.#isFirst)
    }
    if (last !== undefined && rows.length === PAGE) {
      this.#after = last
      return true
    }
    this.#forget([...this.#timers.ids()].filter((id) => this.#found?.has(id) === false))
    if (this.#timers.complete()) this.#ending.add(this.#endOutage())
    this.#found = undefined
    this.#after = undefined
    this.#isFirst = false
    if (this.#isSuspected) this.#sureUntilMs = this.#clock.nowMs + SURE_MS
    this.#isSuspected = false
    this.#nextMs = this.#clock.nowMs + REFRESH_MS
    return false
  }

  /** Some of the states that end. They stay until they have `ended`. */
  ending(limit: number): string[] {
    return [...this.#ending.keys().take(limit)]
  }

  ended(ids: readonly string[]): void {
    for (const id of ids) this.#ending.delete(id)
  }

  /** Returns the states that the message ends. */
  heard(id: string): string[] {
    const was = this.#timers.heard(id, this.#clock.nowMs)
    return was === 'nothing' ? [] : [was === 'client' ? id : this.#endOutage()]
  }

  /**
   * Who fell silent, of those that are still watched, first those that were left. An outage is found when all clients were read again. Nothing is found
   * while states end.
   */
  async judge(db: Queryable, limit: number): Promise<Silence[]> {
    if (this.#ending.size > 0) return []
    const left = this.#left.splice(0, limit).filter((one) => this.#isSilent(one))
    const found = left.length > 0 || this.#left.length > 0 ? left : this.#findSilent(limit)
    const ids = found.flatMap((one) => (one.kind === 'client' ? [one.id] : []))
    if (ids.length === 0) return found
    const rows = await listWatched(db, this.#domainKey, this.rule.filter, { among: ids, limit })
    const watched = new Set(rows.map(({ id }) => id))
    // Nothing was raised for them yet.
    for (const id of ids)
      if (!watched.has(id) && this.#timers.forget(id) === 'outage') this.#ending.add(this.#endOutage())
    return found.filter((one) => one.kind === 'outage' || watched.has(one.id))
  }

  /** What was found and is not stored is found again, unless a message comes before. */
  putBack(found: readonly Silence[]): void {
    this.#left = [...found, ...this.#left]
  }

  /** When it was on the clock, as the time of the day. */
  timeOf(clockMs: number): number {
    return Date.now() - (this.#clock.nowMs - clockMs)
  }

  get #judgedMs(): number {
    return this.#clock.nowMs - LATE_MS
  }

  #isSilent(one: Silence): boolean {
    return one.kind === 'outage' ? this.#timers.isOutage : this.#timers.isSilent(one.id)
  }

  #findSilent(limit: number): Silence[] {
    if (this.#isSuspected) return []
    const found = this.#timers.judge(this.#judgedMs, limit, this.#clock.nowMs <= this.#sureUntilMs)
    if (this.#timers.suspectsOutage) this.#suspect()
    return found
  }

  /** What a running look found may be from before. */
  #suspect(): void {
    this.#isSuspected = true
    this.#nextMs = -Infinity
    this.#found = undefined
    this.#after = undefined
  }

  #forget(ids: readonly string[]): void {
    for (const id of ids) {
      const was = this.#timers.forget(id)
      if (was !== 'nothing') this.#ending.add(was === 'client' ? id : this.#endOutage())
    }
  }

  #endOutage(): string {
    this.#timers.endOutage(this.#clock.nowMs)
    return OUTAGE
  }
}

/** Reads who was found silent before, for all rules of a domain at once: each change of one of them does it. */
export async function restoreAll(db: Queryable, watches: ReadonlyMap<number, SilenceWatch>): Promise<void> {
  const found = new Map([...watches.keys()].map((key) => [key, new Set<string>()]))
  let after: RaisedRow | undefined
  for (;;) {
    const rows = await listRaised(db, [...watches.keys()], { after, limit: PAGE })
    for (const { ruleKey, publisherId } of rows) found.get(ruleKey)?.add(publisherId)
    after = rows.at(-1)
    if (after === undefined || rows.length < PAGE) break
  }
  for (const [key, watch] of watches) watch.restore(found.get(key) ?? new Set())
}

/** What a rule does about a finding. */
export function fall(
  evaluation: Evaluation,
  rule: CompiledRule,
  found: Silence,
  { atMs, sinceMs }: { atMs: number; sinceMs: number },
): void {
  const last: LastSample = { cause: '', record: undefined, timeMs: sinceMs, protocol: '' }
  const outage: Outage | undefined = found.kind === 'outage' ? { silent: found.silent, total: found.total } : undefined
  evaluation.fall(rule, seriesOfClient(found.kind === 'outage' ? OUTAGE : found.id), {
    atMs,
    last: outage === undefined ? last : { ...last, json: outage },
  })
}

/** What a rule does about a message of a client. */
export function hear(evaluation: Evaluation, rule: CompiledRule, ended: readonly string[], sample: Sample): void {
  evaluation.countsOf(rule).seen++
  for (const id of ended) evaluation.rise(rule, seriesOfClient(id), sample)
}
