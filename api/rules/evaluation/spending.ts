/** How much time the evaluation of one message may take: while a step lasts, its transaction holds other readers of the changelog back. */

/** Of all rules that a message meets. Then the rule that took the most is paused. */
export const MAX_MESSAGE_MS = 3_000
/** An evaluation takes a few milliseconds at most: what exceeds that was not its own, but a pause of the process. */
const MAX_EVALUATION_MS = 20

export type Costliest<Rule> = { rule: Rule; seconds: number }

export class Spending<Rule> {
  readonly #ofRules = new Map<Rule, number>()
  #sum = 0

  /** A message begins. */
  begin(): void {
    this.#ofRules.clear()
    this.#sum = 0
  }

  /** Adds the time of one evaluation. Returns the rule that has to stop, if the message took too long; its time is taken off. */
  add(rule: Rule, ms: number): Costliest<Rule> | undefined {
    const own = Math.min(ms, MAX_EVALUATION_MS)
    this.#ofRules.set(rule, (this.#ofRules.get(rule) ?? 0) + own)
    this.#sum += own
    if (this.#sum <= MAX_MESSAGE_MS) return undefined
    const found = [...this.#ofRules].reduce((most, one) => (one[1] > most[1] ? one : most))
    this.#ofRules.delete(found[0])
    this.#sum -= found[1]
    return { rule: found[0], seconds: found[1] / 1000 }
  }
}
