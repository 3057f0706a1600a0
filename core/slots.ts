/**
 * Slots of the process, shared fairly: some work may run only a few times at once, and whoever asks for it must not keep
 * the others from it. Each owner, mostly a domain, holds a share at the most; where all slots are taken, the next one that is
 * free goes to the owner that holds the fewest.
 */
import { ServiceError } from './errors/index.ts'

export type SlotsOptions = {
  /** What they are for, as a refusal names it: `exports`. */
  what: string
  /** Of the process. */
  max: number
  /** Of one owner. */
  share: number
  /** What an owner is, as a refusal names it. */
  per?: string
  /** How long one waits for a slot; 0: not at all. */
  waitMs?: number
  /** How many of one owner wait at a time. */
  maxWaiting?: number
  retryAfterSeconds?: number
  /** What the refusal of a share is: services of ours tell each other `unavailable`. */
  shareKind?: 'rate_limited' | 'unavailable'
}

/** Whoever shares are counted for; null: the platform itself. */
export type SlotOwner = string | number | null

type Waiting = { begin: () => void }

export class Slots {
  readonly #options: Required<SlotsOptions>
  readonly #held = new Map<SlotOwner, number>()
  /** Those of one owner in the order in which they came; the owner that was served last stands last. */
  readonly #waiting = new Map<SlotOwner, Set<Waiting>>()
  #taken = 0

  constructor(options: SlotsOptions) {
    this.#options = {
      per: 'domain',
      waitMs: 0,
      maxWaiting: options.share,
      retryAfterSeconds: 5,
      shareKind: 'rate_limited',
      ...options,
    }
  }

  get taken(): number {
    return this.#taken
  }

  /**
   * A slot, and the way to give it back, which may be called again. Throws `rate_limited` where the owner holds its share,
   * `unavailable` where others hold all, and the signal's reason when that ends the waiting.
   */
  async take(owner: SlotOwner, signal?: AbortSignal): Promise<() => void> {
    if (!this.#isFree(owner)) {
      const { waitMs, maxWaiting } = this.#options
      if (waitMs === 0 || (this.#waiting.get(owner)?.size ?? 0) >= maxWaiting) throw this.#refusal(owner)
      await this.#wait(owner, signal)
      // Whoever gave its slot back has counted it for this one already.
    } else this.#count(owner, 1)
    let isHeld = true
    return () => {
      if (!isHeld) return
      isHeld = false
      this.#count(owner, -1)
      this.#next()
    }
  }

  /** Runs the work in a slot. */
  async run<T>(owner: SlotOwner, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const giveBack = await this.take(owner, signal)
    try {
      return await work()
    } finally {
      giveBack()
    }
  }

  #isFree(owner: SlotOwner): boolean {
    return this.#taken < this.#options.max && this.#of(owner) < this.#options.share
  }

  #of(owner: SlotOwner): number {
    return this.#held.get(owner) ?? 0
  }

  #count(owner: SlotOwner, change: 1 | -1): void {
    this.#taken += change
    const held = this.#of(owner) + change
    if (held > 0) this.#held.set(owner, held)
    else this.#held.delete(owner)
  }

  async #wait(owner: SlotOwner, signal: AbortSignal | undefined): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const end = (error: Error) => {
        stopWaiting()
        reject(error)
      }
      const onAbort = () => end(signal?.reason as Error)
      const mine = this.#waiting.get(owner) ?? new Set()
      const one: Waiting = {
        begin: () => {
          stopWaiting()
          resolve()
        },
      }
      const timer = setTimeout(() => end(this.#refusal(owner)), this.#options.waitMs)
      const stopWaiting = () => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', onAbort)
        mine.delete(one)
        if (mine.size === 0) this.#waiting.delete(owner)
      }
      if (signal?.aborted === true) return onAbort()
      signal?.addEventListener('abort', onAbort, { once: true })
      mine.add(one)
      this.#waiting.set(owner, mine)
    })
  }

  /** Of the owners that wait, the one that holds the fewest; among them the one that was served longest ago. */
  #next(): void {
    let chosen: SlotOwner | undefined
    for (const owner of this.#waiting.keys()) {
      if (this.#isFree(owner) && (chosen === undefined || this.#of(owner) < this.#of(chosen))) chosen = owner
    }
    const waiting = chosen === undefined ? undefined : this.#waiting.get(chosen)
    if (chosen === undefined || waiting === undefined) return
    const [first] = waiting
    this.#waiting.delete(chosen)
    this.#waiting.set(chosen, waiting)
    this.#count(chosen, 1)
    first?.begin()
  }

  #refusal(owner: SlotOwner): ServiceError {
    const { what, max, share, per, retryAfterSeconds, shareKind } = this.#options
    return this.#of(owner) >= share
      ? new ServiceError(shareKind, `one ${per} may have at most ${share} ${what} at a time: try again later`, {
          retryAfterSeconds,
        })
      : new ServiceError(
          'unavailable',
          `this process has ${max} ${what} at a time, and all are taken: try again later`,
          {
            retryAfterSeconds,
          },
        )
  }
}
