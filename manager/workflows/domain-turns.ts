/** Runs of workflows that are to be advanced: domains take turns, and the runs of a domain too. Pure. */

export class DomainTurns {
  /** The domains in the order of their turns. */
  readonly #waiting = new Map<string | null, Set<number>>()

  /** Adds a run once, however often it is added before its turn. */
  add(domainId: string | null, key: number): void {
    const runs = this.#waiting.get(domainId)
    if (runs === undefined) this.#waiting.set(domainId, new Set([key]))
    else runs.add(key)
  }

  /** The next run of the domain whose turn it is; undefined: none waits. */
  take(): { domainId: string | null; key: number } | undefined {
    for (const [domainId, runs] of this.#waiting) {
      this.#waiting.delete(domainId)
      const [key] = runs
      if (key === undefined) continue
      runs.delete(key)
      if (runs.size > 0) this.#waiting.set(domainId, runs)
      return { domainId, key }
    }
    return undefined
  }
}
