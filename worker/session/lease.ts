/**
 * The worker's own countdown: until when may it go on with what it holds? Counted from the moment the answered
 * heartbeat was sent, on a clock that nobody can set, and shortened by a margin, so that it ends here before it ends at
 * the manager, however long the answer was under way (mechanisms.md section 6).
 */

export type Clocks = {
  /** Monotonic milliseconds. */
  now: () => number
  /** Wall clock in milliseconds; it goes on while the machine is suspended, the other one may not. */
  wallNow: () => number
}

/** Leases from this length on end 2 s early; shorter ones a tenth early. */
const FULL_MARGIN_FROM_MS = 20_000
const MARGIN_MS = 2_000
/** The wall clock may be set a little; beyond this the machine slept. */
const MAX_JUMP_MS = 2_000
/** Heartbeats without an answer that are remembered. */
const MAX_UNANSWERED = 100

export class Lease {
  readonly #clocks: Clocks
  readonly #sentMs = new Map<bigint, number>()
  #deadlineMs = -Infinity
  #hasBegun = false
  #offsetMs: number

  constructor(clocks: Clocks) {
    this.#clocks = clocks
    this.#offsetMs = this.#offset()
  }

  /** A heartbeat leaves now. */
  sent(sequence: bigint): void {
    this.#sentMs.set(sequence, this.#clocks.now())
    for (const oldest of this.#sentMs.keys()) {
      if (this.#sentMs.size <= MAX_UNANSWERED) break
      this.#sentMs.delete(oldest)
    }
  }

  /** The manager answered it. An answer to a heartbeat that was never sent, or was answered before, changes nothing. */
  renewed(sequence: bigint, ttlMs: number): void {
    const sentMs = this.#sentMs.get(sequence)
    if (sentMs === undefined || this.hasSlept()) return
    for (const older of this.#sentMs.keys()) if (older <= sequence) this.#sentMs.delete(older)
    const marginMs = ttlMs < FULL_MARGIN_FROM_MS ? ttlMs / 10 : MARGIN_MS
    this.#hasBegun = true
    this.#deadlineMs = Math.max(this.#deadlineMs, sentMs + ttlMs - marginMs)
  }

  /** A new session begins: sequences count anew, and what was sent on the old stream will not be answered. */
  restarted(): void {
    this.#sentMs.clear()
  }

  /** True while the worker may go on with what it holds. */
  isValid(): boolean {
    return !this.hasSlept() && this.#clocks.now() < this.#deadlineMs
  }

  /** How long what is held may go on; 0 when the lease is over, undefined when there was none yet. */
  remainingMs(): number | undefined {
    if (!this.#hasBegun) return undefined
    return this.hasSlept() ? 0 : Math.max(0, this.#deadlineMs - this.#clocks.now())
  }

  /** True when the wall clock ran ahead of the monotonic one: the machine was suspended and others may have our work. */
  hasSlept(): boolean {
    return this.#offset() - this.#offsetMs > MAX_JUMP_MS
  }

  /**
   * Called when everything was stopped that must be. An answer that is still under way may begin a new lease, unless the
   * machine slept: the sleep is missing in the moments that were noted before it.
   */
  end(): void {
    this.#deadlineMs = -Infinity
    if (this.hasSlept()) this.#sentMs.clear()
    this.#offsetMs = this.#offset()
  }

  /** A wall clock that is slowly corrected must not add up to a jump; called at each look. */
  followClock(): void {
    if (!this.hasSlept()) this.#offsetMs = this.#offset()
  }

  #offset(): number {
    return this.#clocks.wallNow() - this.#clocks.now()
  }
}
