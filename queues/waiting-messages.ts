/**
 * Which waiting messages are taken next: domains take turns, and each has a share of what is in progress. So a domain with thousands of waiting
 * messages leaves room for the next message of any other. Pure: it knows keys alone.
 */

/** The key of a domain; null: none. */
export type MessageShare = number | null

/** The next due messages of a domain, in their order. `isCut`: it has more. */
export type DueMessages = { share: MessageShare; keys: readonly number[]; isCut: boolean }

export type WaitingLimits = {
  /** Messages in progress, in all and of one domain. */
  maxInProgress: number
  maxOfDomain: number
  /** Messages of a step. */
  maxOfStep: number
}

type Domain = { waiting: Set<number>; isCut: boolean; inProgress: number }

export class WaitingMessages {
  readonly #limits: WaitingLimits
  /** The domain that was served last is at the end. */
  readonly #domains = new Map<MessageShare, Domain>()
  readonly #inProgress = new Map<number, Domain>()

  constructor(limits: WaitingLimits) {
    this.#limits = limits
  }

  /** More of a domain waits than is known, and all that was known of it is taken. */
  get lacksSome(): boolean {
    return this.#domains.values().some(({ waiting, isCut }) => isCut && waiting.size === 0)
  }

  /** Whether a step would take something. */
  get hasNext(): boolean {
    return this.#inProgress.size < this.#limits.maxInProgress && this.#next() !== undefined
  }

  /** Whether messages are known that no step has taken, also if their domains have their share in progress. */
  get hasWaiting(): boolean {
    return this.#domains.values().some(({ waiting }) => waiting.size > 0)
  }

  /** Adds what a look has found. `isWhole`: it has looked at all messages, and not at those alone that have become due since the last one. */
  add(found: readonly DueMessages[], isWhole: boolean): void {
    if (isWhole) for (const domain of this.#domains.values()) domain.isCut = false
    for (const { share, keys, isCut } of found) {
      const domain = this.#domains.getOrInsertComputed(share, () => ({
        waiting: new Set(),
        isCut: false,
        inProgress: 0,
      }))
      // Behind messages that are not known, newer ones wait for a look at all.
      if (!domain.isCut) for (const key of keys) if (!this.#inProgress.has(key)) domain.waiting.add(key)
      domain.isCut ||= isCut
    }
    this.#removeIdle()
  }

  /** Takes the messages of the next step: each is one of the domain with the fewest in progress, among equals of the one that was served longest ago. */
  take(): number[] {
    const { maxInProgress, maxOfStep } = this.#limits
    const step: number[] = []
    for (let room = Math.min(maxOfStep, maxInProgress - this.#inProgress.size); room > 0; room--) {
      const next = this.#next()
      if (next === undefined) break
      const { share, domain, key } = next
      domain.waiting.delete(key)
      domain.inProgress += 1
      this.#inProgress.set(key, domain)
      this.#domains.delete(share)
      this.#domains.set(share, domain)
      step.push(key)
    }
    return step
  }

  /** The messages are no longer in progress: they are settled, or were not there any more. */
  end(keys: readonly number[]): void {
    for (const key of keys) {
      const domain = this.#inProgress.get(key)
      if (domain === undefined) continue
      this.#inProgress.delete(key)
      domain.inProgress -= 1
    }
    this.#removeIdle()
  }

  #next(): { share: MessageShare; domain: Domain; key: number } | undefined {
    let chosen: { share: MessageShare; domain: Domain; key: number } | undefined
    for (const [share, domain] of this.#domains) {
      const [key] = domain.waiting
      if (key === undefined || domain.inProgress >= this.#limits.maxOfDomain) continue
      if (chosen === undefined || domain.inProgress < chosen.domain.inProgress) chosen = { share, domain, key }
    }
    return chosen
  }

  #removeIdle(): void {
    for (const [share, { waiting, isCut, inProgress }] of this.#domains)
      if (waiting.size === 0 && inProgress === 0 && !isCut) this.#domains.delete(share)
  }
}
