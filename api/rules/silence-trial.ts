/** Tries a rule about silence: the clients of now, over the times at which messages arrived. Each of them begins to be watched with the range. */
import type { Database } from '#core/database/index.ts'
import { refusedField } from '#core/errors/index.ts'
import { createTurns } from '#core/turns.ts'
import type { CompiledRule } from './compile.ts'
import { RuleClient, SilenceTimers } from './engine/index.ts'
import type { Silence } from './engine/index.ts'
import type { Evaluation } from './evaluation/evaluation.ts'
import { listClientsById, listWatched } from './evaluation/repository.ts'
import type { WatchedRow } from './evaluation/repository.ts'
import type { Sample } from './evaluation/samples.ts'
import { OUTAGE, fall, hear } from './evaluation/silence.ts'

const PAGE = 2_000
export const MAX_TRIED_CLIENTS = 100_000

type Moment = { found: Silence; sample?: undefined } | { sample: Sample; ended: readonly string[]; found?: undefined }

export class TriedSilence {
  readonly #rule: CompiledRule
  readonly #evaluation: Evaluation
  readonly #timers: SilenceTimers
  /** What is not evaluated yet, in order. */
  #moments: Moment[] = []
  #nowMs: number

  private constructor(rule: CompiledRule, evaluation: Evaluation, timers: SilenceTimers, nowMs: number) {
    this.#rule = rule
    this.#evaluation = evaluation
    this.#timers = timers
    this.#nowMs = nowMs
  }

  /** Throws `malformed` for a rule with too many clients. Undefined: the rule is about something else. */
  static async of(
    { db }: Pick<Database, 'db'>,
    rule: CompiledRule,
    { domainKey, evaluation, fromMs }: { domainKey: number; evaluation: Evaluation; fromMs: number },
  ): Promise<TriedSilence | undefined> {
    if (rule.silence === undefined) return undefined
    const timers = new SilenceTimers(rule.silence)
    let after: WatchedRow | undefined
    for (;;) {
      const rows = await listWatched(db, domainKey, rule.filter, { after, limit: PAGE })
      for (const { id } of rows) timers.watch(id, fromMs)
      const last = rows.at(-1)
      if (timers.total > MAX_TRIED_CLIENTS)
        throw refusedField('/source', `watches more than ${MAX_TRIED_CLIENTS} clients, which is too much for a trial`)
      if (last === undefined || rows.length < PAGE) return new TriedSilence(rule, evaluation, timers, fromMs)
      after = last
    }
  }

  meet(sample: Sample): void {
    const { publisherId } = sample.series
    this.pass(sample.atMs)
    // A client of then that is not watched any more, a user or a task.
    if (!this.#timers.isWatched(publisherId)) return
    const was = this.#timers.heard(publisherId, this.#nowMs)
    if (was === 'outage') this.#timers.endOutage(this.#nowMs)
    this.#moments.push({ sample, ended: was === 'nothing' ? [] : [was === 'client' ? publisherId : OUTAGE] })
  }

  /** What the time up to now changes. */
  pass(nowMs: number): void {
    this.#nowMs = Math.max(this.#nowMs, nowMs)
    for (const found of this.#timers.judge(this.#nowMs, Infinity)) this.#moments.push({ found })
  }

  /** Evaluates what was found. `clients` gets those that fell silent. */
  async evaluate({ db }: Pick<Database, 'db'>, domainKey: number, clients: Map<string, RuleClient>): Promise<void> {
    const moments = this.#moments
    this.#moments = []
    const lacking = new Set(
      moments.flatMap(({ found }) => (found?.kind === 'client' && !clients.has(found.id) ? [found.id] : [])),
    )
    const ids = [...lacking]
    for (let from = 0; from < ids.length; from += PAGE)
      for (const row of await listClientsById(db, domainKey, ids.slice(from, from + PAGE)))
        clients.set(row.id, new RuleClient(row.id, row.name, row.tags, row.metadata))
    const turns = createTurns()
    for (const { found, sample, ended } of moments.map((one) => ({ ended: [], ...one }))) {
      if (turns.isOver) await turns.next()
      if (found === undefined) hear(this.#evaluation, this.#rule, ended, sample)
      else fall(this.#evaluation, this.#rule, found, found)
    }
  }
}
