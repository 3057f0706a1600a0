/**
 * Estimated number of queued runs per needs: a hint for when to claim. The table is authoritative; `refresh` reads it at
 * each sweep, including runs that other managers queued.
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

  /** Needs with queued runs; a copy, because claiming changes the counts. */
  get needs(): string[] {
    return [...this.#waiting.keys()]
  }

  add(needsHash: string, runs: number): void {
    const waiting = Math.max(this.waiting(needsHash) + runs, 0)
    this.#total += waiting - this.waiting(needsHash)
    if (waiting === 0) this.#waiting.delete(needsHash)
    else this.#waiting.set(needsHash, waiting)
  }

  /** No queued run was found for these needs. */
  empty(needsHash: string): void {
    this.add(needsHash, -this.waiting(needsHash))
  }

  refresh(counts: Iterable<readonly [string, number]>): void {
    this.#waiting.clear()
    this.#total = 0
    for (const [needsHash, runs] of counts) this.add(needsHash, runs)
  }
}
