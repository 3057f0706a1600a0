/**
 * What rules about silence do about the clients that they watch: some at a time, and no more than one step can store. What does not fit is found
 * again by the next step.
 */
import type { Place } from '#api/consumers/index.ts'
import type { Transaction } from '#core/database/index.ts'
import type { CompiledRule } from '../compile.ts'
import { RuleClient } from '../engine/index.ts'
import type { Silence } from '../engine/index.ts'
import type { Evaluation } from './evaluation.ts'
import { listClientsById, readStates } from './repository.ts'
import type { StepDomain } from './repository.ts'
import { seriesOfClient } from './samples.ts'
import { OUTAGE, fall } from './silence.ts'
import type { SilenceWatch } from './silence.ts'
import { StepTurns } from './step-turns.ts'

/** Rules about silence for which one step asks which clients there are, or who is silent. */
export const MAX_ASKED = 50
/** Clients that fell silent, and those that are not watched any more, of one step. */
const MAX_JUDGED = 1_000
/** Clients that are read at once. Each may have a large document of metadata. */
const MAX_READ = 50

export type Watched = readonly [CompiledRule, SilenceWatch]

type Judged = {
  domain: StepDomain
  watches: readonly Watched[]
  paused: ReadonlyMap<number, Place>
  /** Gets those whose states change. */
  clients: Map<string, RuleClient>
}

/** Counts for all rules of a step. */
class Budget {
  readonly turns: StepTurns
  #count = 0

  constructor(turns: StepTurns) {
    this.turns = turns
  }

  get room(): number {
    return MAX_JUDGED - this.#count
  }

  /** At least one client is judged, so that each step gets somewhere. */
  get isOver(): boolean {
    return this.#count > 0 && (this.room <= 0 || this.turns.isFull)
  }

  async take(): Promise<void> {
    this.#count++
    if (this.turns.isOver) await this.turns.next()
  }
}

/** What the rules do about clients that fell silent, and those that nobody watches any more. True: there are more. */
export async function judgeSilence(
  tx: Transaction,
  { evaluation, collected }: { evaluation: Evaluation; collected: { readonly chars: number } },
  judged: Judged,
): Promise<boolean> {
  const budget = new Budget(new StepTurns(tx, collected))
  let rules = 0
  let hasMore = false
  for (const [rule, watch] of judged.watches) {
    if (!watch.isDue || judged.paused.has(rule.key)) continue
    if (rules >= MAX_ASKED || budget.isOver) return true
    const given = { ...judged, rule, budget }
    const ending = watch.ending(budget.room)
    const atMs = Date.now()
    const ended = await tellEach(tx, evaluation, ending, {
      ...given,
      idOf: (id) => id,
      tell: (id) => evaluation.rise(rule, seriesOfClient(id), { atMs, cause: '' }),
    })
    watch.ended(ending.slice(0, ended))
    const found = ending.length > 0 ? [] : await watch.judge(tx, budget.room)
    const fallen = await tellEach(tx, evaluation, found, {
      ...given,
      idOf: (one: Silence) => (one.kind === 'client' ? one.id : OUTAGE),
      tell: (one) => fall(evaluation, rule, one, { atMs, sinceMs: watch.timeOf(one.sinceMs) }),
    })
    watch.putBack(found.slice(fallen))
    // A rule that waits for the end of its minute asks nothing.
    if (ending.length + found.length > 0) rules++
    // An outage is suspected: who is still watched is read by the next step.
    hasMore ||= watch.isStale || watch.isHolding
  }
  return hasMore || budget.room <= 0
}

/** Tells of each in turn, with its state. Returns of how many: the step has no room for the others. */
async function tellEach<Item>(
  tx: Transaction,
  evaluation: Evaluation,
  items: readonly Item[],
  {
    rule,
    budget,
    domain,
    clients,
    idOf,
    tell,
  }: Pick<Judged, 'domain' | 'clients'> & {
    rule: CompiledRule
    budget: Budget
    idOf: (item: Item) => string
    tell: (item: Item) => void
  },
): Promise<number> {
  let count = 0
  for (let from = 0; from < items.length; from += MAX_READ) {
    if (budget.isOver) return count
    const page = items.slice(from, from + MAX_READ)
    const ids = page.map(idOf)
    for (const row of await listClientsById(
      tx,
      domain.domainKey,
      ids.filter((id) => id !== OUTAGE),
    ))
      clients.set(row.id, new RuleClient(row.id, row.name, row.tags, row.metadata))
    const lacking = ids.map(seriesOfClient).filter((series) => !evaluation.has(rule, series))
    for (const row of await readStates(
      tx,
      lacking.map((series) => ({ ruleKey: rule.key, series })),
    ))
      evaluation.give(rule, row.series, row)
    for (const item of page) {
      if (budget.isOver) return count
      await budget.take()
      tell(item)
      count++
    }
  }
  return count
}
