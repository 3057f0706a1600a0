/**
 * Evaluates the rules of all domains: one follower of the changelog of messages for the process finds the domains that got messages, and each of these
 * goes on in steps of its own, in turn. Domains without rules cost nothing, and without any rule nothing is read.
 */
import type { Journal } from '#api/identity/index.ts'
import { loadChannels } from '#api/messages/index.ts'
import type { Bus } from '#core/bus/index.ts'
import { readSettled, settledEnd } from '#core/changelog/index.ts'
import type { Position } from '#core/changelog/index.ts'
import type { Database } from '#core/database/index.ts'
import { newId } from '#core/ids.ts'
import type { Logger } from '#core/logging/index.ts'
import { startPeriodicRounds, startRounds } from '#core/rounds.ts'
import type { Pause, PeriodicRounds, Rounds } from '#core/rounds.ts'
import { monotonicMs } from '#core/time.ts'
import { RULES_TOPIC, hintMessages, hintRuleCalls } from '#queues/index.ts'
import { compileRule } from '../compile.ts'
import type { CompiledRule } from '../compile.ts'
import { findEnabled, forgetWaits, lockDomain, noteChange } from '../repository.ts'
import type { StoredRule } from '../repository.ts'
import { lackOf } from '../rights.ts'
import {
  domainsOf,
  endLeases,
  endPause,
  isElsewhere,
  listDueDomains,
  listPaused,
  listServed,
  noteAlive,
  passDomains,
} from './repository.ts'
import { RULE_METRICS } from '../metrics.ts'
import { RuleSteps } from './step.ts'
import type { StepDeps } from './step.ts'

const TABLE = { name: 'ingest_batches', columns: ['arrived_at'] } as const
/** The interval between two looks without a commit in this process. */
const INTERVAL_MS = 200
/** Commits of this process within this time are looked at together. */
const MIN_PAUSE_MS = 10
const RETRY_MS = 1_000
/** Without any rule, it is asked as often whether there is one; a process that makes one says so. */
const IDLE_PAUSE_MS = 10_000
/** The interval between two looks for what time changes, and for rules that are behind. */
const DUE_INTERVAL_MS = 500
/** The interval between two renewals of the leases of domains with rules about silence. */
const HOLD_INTERVAL_MS = 1_500
/** Domains of another process are asked for again after this time: that process may be gone. */
const ELSEWHERE_INTERVAL_MS = 5_000
/** The interval between two rounds of what is rare: domains without messages pass them, and paused rules are looked at. */
const RARE_INTERVAL_MS = 10_000
const PAUSED_CHECK_SECONDS = 20
const MAX_CHECKED = 50
const MAX_PASSED = 500
/** Batches that are looked through at once. */
const MAX_BATCHES = 2_000
const MAX_DUE = 1_000
const NONE: ReadonlySet<number> = new Set()
/** A time without any process that counts for no rule. */
const LONGEST_GAP_SECONDS = 60

export type EvaluatorDeps = Omit<StepDeps, 'node'> & {
  database: Database
  bus: Bus
  journal: Journal
  logger: Logger
  onCommitted: (listener: () => void) => () => void
  /** Called when publications were recorded. */
  onPublished: () => void
  /** Called when mails or webhook requests were recorded. */
  onNotified: () => void
  /** Tests shorten it. */
  intervalMs?: number | undefined
}

export class Evaluator {
  readonly #deps: EvaluatorDeps
  readonly #node = newId()
  readonly #steps: RuleSteps
  readonly #rounds: Rounds
  /** Beside the rounds: a lease ends sooner than a round in which many domains have much to do. */
  readonly #holding: PeriodicRounds
  readonly #ends: (() => void)[]
  /** Domains that may have something to do. */
  readonly #waiting = new Set<number>()
  /** Domains that another process evaluated when it was asked last. */
  readonly #elsewhere = new Set<number>()
  /** Domains that got messages since the last rare round. */
  #seen = new Set<number>()
  #served: ReadonlySet<number> = new Set()
  #isServedKnown = false
  /** Batches up to it were looked through. Undefined: there are no rules. */
  #position: Position | undefined
  /** Where the last rare round stood. */
  #swept: Position | undefined
  #dueMs = -Infinity
  #elsewhereMs = -Infinity
  #rareMs = -Infinity

  constructor(deps: EvaluatorDeps) {
    this.#deps = deps
    this.#steps = new RuleSteps({ ...deps, node: this.#node })
    this.#rounds = startRounds(() => this.#round())
    this.#holding = startPeriodicRounds({
      firstPauseMs: HOLD_INTERVAL_MS,
      pauseMs: HOLD_INTERVAL_MS,
      round: () => this.#steps.holdSilent(deps.database.db),
      onFailure: (error) => deps.logger.warn({ err: error }, 'failed to hold the domains of rules; retrying'),
    })
    this.#ends = [
      deps.onCommitted(() => {
        if (this.#served.size > 0) this.#rounds.wake()
      }),
      deps.bus.subscribe(RULES_TOPIC, (payload) => this.#noteChange(Number(Buffer.from(payload).toString()))),
    ]
  }

  /** The rules of the domain were changed. */
  changed(domainKey: number): void {
    this.#noteChange(domainKey)
    this.#deps.bus.publish(RULES_TOPIC, Buffer.from(String(domainKey)))
  }

  async stop(): Promise<void> {
    for (const end of this.#ends) end()
    await this.#rounds.stop()
    await this.#holding.stop()
    await endLeases(this.#deps.database.db, this.#node).catch(() => undefined)
  }

  #noteChange(domainKey: number): void {
    this.#waiting.add(domainKey)
    this.#isServedKnown = false
    this.#rounds.wake()
  }

  async #round(): Promise<Pause> {
    const { logger, intervalMs = INTERVAL_MS } = this.#deps
    try {
      await this.#rarely()
      if (!this.#isServedKnown) await this.#readServed()
      if (this.#served.size === 0 && this.#waiting.size === 0) {
        this.#position = undefined
        this.#swept = undefined
        return { pauseMs: IDLE_PAUSE_MS, isWakeable: true }
      }
      // Before anything is evaluated: what waits for time waits longer by the time in which no process was there.
      if (this.#position === undefined) await this.#noteAlive()
      await this.#look()
      await this.#lookAtTime()
      const hasMore = await this.#stepInTurn()
      return { pauseMs: hasMore ? 0 : intervalMs, isWakeable: true, minPauseMs: MIN_PAUSE_MS }
    } catch (error) {
      logger.warn({ err: error }, 'failed to evaluate rules; retrying')
      return { pauseMs: RETRY_MS, isWakeable: false }
    }
  }

  async #readServed(): Promise<void> {
    this.#isServedKnown = true
    const before = this.#served
    this.#served = new Set(await listServed(this.#deps.database.db))
    // Their messages were not looked for.
    for (const key of this.#served) if (!before.has(key)) this.#waiting.add(key)
  }

  /** Finds the domains that got messages since the last look. */
  async #look(): Promise<void> {
    const { db } = this.#deps.database
    if (this.#position === undefined) {
      this.#position = await settledEnd(db)
      for (const key of this.#served) this.#waiting.add(key)
      return
    }
    const rows = await readSettled(db, TABLE, this.#position, MAX_BATCHES)
    const last = rows.at(-1)
    if (last === undefined) return
    const batches = rows.map((row) => ({ seq: row.position.seq, arrivedAt: row['arrived_at'] as string }))
    for (const key of await domainsOf(db, await loadChannels(db, batches))) {
      this.#seen.add(key)
      this.#waiting.add(key)
    }
    this.#position = last.position
    if (rows.length === MAX_BATCHES) this.#rounds.wake()
  }

  async #lookAtTime(): Promise<void> {
    if (monotonicMs() - this.#elsewhereMs >= ELSEWHERE_INTERVAL_MS) {
      this.#elsewhereMs = monotonicMs()
      for (const key of this.#elsewhere) this.#waiting.add(key)
      this.#elsewhere.clear()
    }
    if (monotonicMs() - this.#dueMs < DUE_INTERVAL_MS) return
    this.#dueMs = monotonicMs()
    for (const key of await this.#steps.lookForSilence(this.#deps.database.db)) this.#waiting.add(key)
    for (const key of await listDueDomains(this.#deps.database.db, Date.now() - DUE_INTERVAL_MS, MAX_DUE))
      this.#waiting.add(key)
  }

  /** One step of each domain that waits. True: there is more to do. */
  async #stepInTurn(): Promise<boolean> {
    const { bus, logger, onPublished, onNotified } = this.#deps
    let hasMore = false
    for (const domainKey of this.#waiting.union(NONE)) {
      const begunMs = monotonicMs()
      this.#waiting.delete(domainKey)
      try {
        const outcome = await this.#steps.step(domainKey)
        if (outcome.published) onPublished()
        if (outcome.notified) onNotified()
        if (outcome.started) {
          hintMessages(bus)
          hintRuleCalls(bus)
        }
        if (outcome.isElsewhere) await this.#leave(domainKey)
        if (outcome.hasMore) this.#waiting.add(domainKey)
        hasMore ||= outcome.hasMore
      } catch (error) {
        // Others go on meanwhile; this one is tried again when time or messages come to it.
        logger.warn({ err: error, domainKey }, 'failed to evaluate the rules of a domain; retrying')
        this.#seen.add(domainKey)
        this.#isServedKnown = false
        this.#served = new Set([...this.#served].filter((key) => key !== domainKey))
      }
      RULE_METRICS.steps.add({}, 1)
      RULE_METRICS.stepSeconds.add({}, (monotonicMs() - begunMs) / 1000)
    }
    return hasMore
  }

  /** Rules that are only locked, such as by who changes an alarm, are tried again after the usual pause. */
  async #leave(domainKey: number): Promise<void> {
    const isHeld = await isElsewhere(this.#deps.database.db, domainKey, this.#node)
    if (isHeld) this.#steps.leave(domainKey)
    ;(isHeld ? this.#elsewhere : this.#waiting).add(domainKey)
  }

  async #rarely(): Promise<void> {
    if (monotonicMs() - this.#rareMs < RARE_INTERVAL_MS) return
    this.#rareMs = monotonicMs()
    this.#isServedKnown = false
    const position = this.#position
    if (position !== undefined) await this.#noteAlive()
    if (position !== undefined && this.#swept !== undefined && position.seq < Number.MAX_SAFE_INTEGER)
      await this.#pass(this.#swept, position)
    this.#seen = new Set()
    this.#swept = position
    await this.#checkPaused()
  }

  /** Moves domains on that got no messages between the two positions. */
  async #pass(swept: Position, position: Position): Promise<void> {
    const passed = {
      // What came before was looked through in earlier rounds, whose domains are no longer known.
      from: { xid: swept.xid, seq: swept.seq + 1, message: 0 },
      to: { xid: position.xid, seq: position.seq + 1, message: 0 },
      seen: [...this.#seen, ...this.#waiting, ...this.#elsewhere],
      limit: MAX_PASSED,
    }
    // Few at a time: their steps wait for it.
    while ((await passDomains(this.#deps.database.db, passed)) === MAX_PASSED);
  }

  async #noteAlive(): Promise<void> {
    await this.#deps.database.transaction((tx) => noteAlive(tx, LONGEST_GAP_SECONDS))
  }

  /** Rules go on at their place when their right is back, or when they compile again. */
  async #checkPaused(): Promise<void> {
    const { database, logger } = this.#deps
    const { db } = database
    const paused = await listPaused(db, { afterSeconds: PAUSED_CHECK_SECONDS, limit: MAX_CHECKED })
    for (const { key, domainKey, domainId } of paused) {
      const stored = await findEnabled(db, key)
      if (stored === undefined) continue
      const compiled = compiledIfValid(stored)
      if (compiled === undefined) continue
      if ((await lackOf(db, this.#deps, stored.userKey, domainId, compiled)) !== undefined) continue
      const isEnded = await database.transaction(async (tx) => {
        await lockDomain(tx, domainKey)
        if (!(await endPause(tx, key))) return false
        // What changed meanwhile is not known: it looks at all clients, and `for` begins again.
        if (stored.definition.source.type === 'state') await forgetWaits(tx, key)
        await noteChange(tx, domainKey)
        return true
      })
      if (!isEnded) continue
      this.#noteChange(domainKey)
      logger.debug({ rule: stored.id }, 'a paused rule goes on')
    }
  }
}

function compiledIfValid(stored: StoredRule): CompiledRule | undefined {
  try {
    return compileRule(stored)
  } catch {
    return undefined
  }
}
