/**
 * A fair semaphore for expensive work. Each owner, usually a domain, holds at most its share of the slots. When all slots are
 * taken, the next free ones go to the waiting owner that holds the fewest. A slot is a unit of what is scarce: if pieces of work
 * differ, each takes as many as it needs, for example one for each byte in memory.
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
  /** How many callers of all owners wait at a time. */
  maxWaitingInAll?: number
  retryAfterSeconds?: number
  /** The kind of error when the share is exceeded: services use `unavailable` among themselves. */
  shareKind?: 'rate_limited' | 'unavailable'
}

/** The key of an owner; null: the platform itself. */
export type SlotOwner = string | number | null

type Waiting = { slots: number; begin: () => void }

export class Slots {
  readonly #options: Required<SlotsOptions>
  readonly #held = new Map<SlotOwner, number>()
  /** The callers of one owner, in order; the owner that was served last is at the end. */
  readonly #waiting = new Map<SlotOwner, Set<Waiting>>()
  #taken = 0
  #waitingCount = 0

  constructor(options: SlotsOptions) {
    this.#options = {
      per: 'domain',
      waitMs: 0,
      maxWaiting: options.share,
      maxWaitingInAll: Infinity,
      retryAfterSeconds: 5,
      shareKind: 'rate_limited',
      ...options,
    }
  }

  get taken(): number {
    return this.#taken
  }

  /** The number of callers that wait. */
  get waiting(): number {
    return this.#waitingCount
  }

  /**
   * A slot, or several; the returned function releases them and may be called again. Throws `rate_limited` when the owner holds its
   * share, `unavailable` when all slots are taken, and the signal's reason when it is aborted. A share must contain `slots`.
   */
  async take(owner: SlotOwner, signal?: AbortSignal, slots = 1): Promise<() => void> {
    // A smaller piece of work does not overtake a larger one, which would wait without end.
    if (!this.#isFree(owner, slots) || this.#next() !== undefined || this.#waiting.has(owner)) {
      const { waitMs, maxWaiting, maxWaitingInAll } = this.#options
      const mine = this.#waiting.get(owner)?.size ?? 0
      if (waitMs === 0 || mine >= maxWaiting || this.#waitingCount >= maxWaitingInAll) throw this.#refusal(owner, slots)
      await this.#wait(owner, slots, signal)
      // The release has already counted the slots for this caller.
    } else this.#count(owner, slots)
    let isHeld = true
    return () => {
      if (!isHeld) return
      isHeld = false
      this.#count(owner, -slots)
      this.#admit()
    }
  }

  /** Runs the work in a slot, or in several. */
  async run<T>(owner: SlotOwner, work: () => Promise<T>, signal?: AbortSignal, slots = 1): Promise<T> {
    const release = await this.take(owner, signal, slots)
    try {
      return await work()
    } finally {
      release()
    }
  }

  #isFree(owner: SlotOwner, slots: number): boolean {
    return this.#taken + slots <= this.#options.max && this.#isInShare(owner, slots)
  }

  #isInShare(owner: SlotOwner, slots: number): boolean {
    return this.#of(owner) + slots <= this.#options.share
  }

  #of(owner: SlotOwner): number {
    return this.#held.get(owner) ?? 0
  }

  #count(owner: SlotOwner, change: number): void {
    this.#taken += change
    const held = this.#of(owner) + change
    if (held > 0) this.#held.set(owner, held)
    else this.#held.delete(owner)
  }

  async #wait(owner: SlotOwner, slots: number, signal: AbortSignal | undefined): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const end = (error: Error) => {
        stopWaiting()
        reject(error)
        // Others may have waited behind this caller.
        this.#admit()
      }
      const onAbort = () => end(signal?.reason as Error)
      const mine = this.#waiting.get(owner) ?? new Set()
      const one: Waiting = {
        slots,
        begin: () => {
          stopWaiting()
          resolve()
        },
      }
      const timer = setTimeout(() => end(this.#refusal(owner, slots)), this.#options.waitMs)
      const stopWaiting = () => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', onAbort)
        if (mine.delete(one)) this.#waitingCount -= 1
        if (mine.size === 0) this.#waiting.delete(owner)
      }
      if (signal?.aborted === true) return onAbort()
      signal?.addEventListener('abort', onAbort, { once: true })
      mine.add(one)
      this.#waitingCount += 1
      this.#waiting.set(owner, mine)
    })
  }

  /** The waiting owner within its share that holds the fewest slots; among equals, the one that was served longest ago. */
  #next(): SlotOwner | undefined {
    let chosen: SlotOwner | undefined
    for (const [owner, [first]] of this.#waiting) {
      if (first === undefined || !this.#isInShare(owner, first.slots)) continue
      if (chosen === undefined || this.#of(owner) < this.#of(chosen)) chosen = owner
    }
    return chosen
  }

  /** Serves waiting callers in turns of their owners. If too few slots are free for the next one, the others wait, too. */
  #admit(): void {
    for (let owner = this.#next(); owner !== undefined; owner = this.#next()) {
      const waiting = this.#waiting.get(owner)
      const [first] = waiting ?? []
      if (waiting === undefined || first === undefined || !this.#isFree(owner, first.slots)) return
      this.#waiting.delete(owner)
      this.#waiting.set(owner, waiting)
      this.#count(owner, first.slots)
      first.begin()
    }
  }

  #refusal(owner: SlotOwner, slots: number): ServiceError {
    const { what, max, share, per, retryAfterSeconds, shareKind } = this.#options
    return this.#isInShare(owner, slots)
      ? new ServiceError('unavailable', `this process runs at most ${max} ${what} at a time; try again later`, {
          retryAfterSeconds,
        })
      : new ServiceError(shareKind, `one ${per} may have at most ${share} ${what} at a time; try again later`, {
          retryAfterSeconds,
        })
  }
}
