/** What the evaluation of one message may take: while a step lasts, its transaction holds other readers of the changelog back. */

/** Time of all rules that a message meets. Then the rule that took the most is paused. */
export const MAX_MESSAGE_MS = 3_000
/** An evaluation takes a few milliseconds at most: what exceeds that was not its own, but a pause of the process. */
const MAX_EVALUATION_MS = 20
/** Characters of what one message causes: alarms, publications and starts. */
const MAX_MESSAGE_CHARS = 32 * 1024 * 1024

/** A rule that has to stop, and what it took. */
export type Costliest<Rule> = { rule: Rule; took: string }

export class Spending<Rule> {
  readonly #time = new Budget<Rule>(MAX_MESSAGE_MS)
  readonly #chars = new Budget<Rule>(MAX_MESSAGE_CHARS)

  /** A message begins. */
  begin(): void {
    this.#time.begin()
    this.#chars.begin()
  }

  /** Adds one evaluation. Returns the rule that has to stop, if the message took too much; its part is taken off. */
  add(rule: Rule, { ms, chars }: { ms: number; chars: number }): Costliest<Rule> | undefined {
    const slow = this.#time.add(rule, Math.min(ms, MAX_EVALUATION_MS))
    const large = this.#chars.add(rule, chars)
    if (slow !== undefined) return { rule: slow.rule, took: `took ${(slow.amount / 1000).toFixed(1)} s` }
    if (large === undefined) return undefined
    return { rule: large.rule, took: `caused ${(large.amount / 1024 / 1024).toFixed(1)} MB of alarms and messages` }
  }
}

class Budget<Rule> {
  readonly #max: number
  readonly #ofRules = new Map<Rule, number>()
  #sum = 0

  constructor(max: number) {
    this.#max = max
  }

  begin(): void {
    this.#ofRules.clear()
    this.#sum = 0
  }

  add(rule: Rule, amount: number): { rule: Rule; amount: number } | undefined {
    this.#ofRules.set(rule, (this.#ofRules.get(rule) ?? 0) + amount)
    this.#sum += amount
    if (this.#sum <= this.#max) return undefined
    const found = [...this.#ofRules].reduce((most, one) => (one[1] > most[1] ? one : most))
    this.#ofRules.delete(found[0])
    this.#sum -= found[1]
    return { rule: found[0], amount: found[1] }
  }
}
