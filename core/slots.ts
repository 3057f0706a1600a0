/**
 * A fair semaphore for expensive work. Each owner, usually a domain, holds at most its share of the slots. When all slots are
 * taken, the next free one goes to the waiting owner that holds the fewest.
 */
import { ServiceError } from './errors/index.ts'

export type SlotsOptions = {
  /** The name of the work in errors: `exports`. */
  what: string
  /** Slots of the process. */
  max: number
  /** Slots of one owner. */
  share: number
  /** The name of an owner in errors. */
  per?: string
  /** How long a caller waits for a slot; 0 rejects at once. */
  waitMs?: number
  /** How many callers of one owner wait at a time. */
  maxWaiting?: number
  retryAfterSeconds?: number
  /** The kind of error when the share is exceeded: services use `unavailable` among themselves. */
  shareKind?: 'rate_limited' | 'unavailable'
}

/** The key of an owner; null: the platform itself. */
export type SlotOwner = string | number | null

type Waiting = { begin: () => void }

export class Slots {
  readonly #options: Required<SlotsOptions>
  readonly #held = new Map<SlotOwner, number>()
  /** The callers of one owner, in order; the owner that was served last is at the end. */
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
   * A slot; the returned function releases it and may be called again. Throws `rate_limited` when the owner holds its share,
   * `unavailable` when all slots are taken, and the signal's reason when it is aborted.
   */
  async take(owner: SlotOwner, signal?: AbortSignal): Promise<() => void> {
    if (!this.#isFree(owner)) {
      const { waitMs, maxWaiting } = this.#options
      if (waitMs === 0 || (this.#waiting.get(owner)?.size ?? 0) >= maxWaiting) throw this.#refusal(owner)
      await this.#wait(owner, signal)
      // The release has already counted the slot for this caller.
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
    const release = await this.take(owner, signal)
    try {
      return await work()
    } finally {
      release()
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

  /** Serves the waiting owner that holds the fewest slots; among equals, the one that was served longest ago. */
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
      ? new ServiceError(shareKind, `one ${per} may have at most ${share} ${what} at a time; try again later`, {
          retryAfterSeconds,
        })
      : new ServiceError('unavailable', `this process runs at most ${max} ${what} at a time; try again later`, {
          retryAfterSeconds,
        })
  }
}
