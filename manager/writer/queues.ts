/**
 * How many runs wait, per needs, as far as this manager knows. A hint for when to claim: the truth is the table, and
 * `refresh` brings it in at each sweep, runs queued by other managers included.
 */
export class RunQueues {
  readonly #waiting = new Map<string, number>()
  #total = 0

  get total(): number {
    return this.#total
  }

  waiting(needsHash: string): number {
    return this.#waiting.get(needsHash) ?? 0
  }

  /** Needs of which something waits; a copy, because claiming changes the counts. */
  get needs(): string[] {
    return [...this.#waiting.keys()]
  }

  add(needsHash: string, runs: number): void {
    const waiting = Math.max(this.waiting(needsHash) + runs, 0)
    this.#total += waiting - this.waiting(needsHash)
    if (waiting === 0) this.#waiting.delete(needsHash)
    else this.#waiting.set(needsHash, waiting)
  }

  /** Nothing was found where something was expected. */
  empty(needsHash: string): void {
    this.add(needsHash, -this.waiting(needsHash))
  }

  refresh(counts: Iterable<readonly [string, number]>): void {
    this.#waiting.clear()
    this.#total = 0
    for (const [needsHash, runs] of counts) this.add(needsHash, runs)
  }
}
