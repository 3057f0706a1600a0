/**
 * The worker's own countdown of its lease. It starts at the time when the answered heartbeat was sent, on a monotonic
 * clock, and is shortened by a margin, so that it expires here before it expires at the manager, for any delay of the
 * answer (mechanisms.md section 6).
 */

export type Clocks = {
  /** Monotonic milliseconds. */
  now: () => number
  /** Wall clock in milliseconds; it continues while the machine is suspended, the monotonic one may not. */
  wallNow: () => number
}

/** Leases of at least this length expire 2 s early; shorter ones a tenth early. */
const FULL_MARGIN_FROM_MS = 20_000
const MARGIN_MS = 2_000
/** The wall clock can be corrected a little; a larger jump means that the machine was suspended. */
const MAX_JUMP_MS = 2_000
/**
 * Before it, the clock of a machine was not set, as after the start of a device without a battery for its clock. Such a device may not know how long it was
 * suspended either: only a jump over this time is no sign of it.
 */
const FIRST_SET_MS = Date.UTC(2020, 0)
/** Limit of recorded heartbeats without an answer. */
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

  /** A heartbeat is being sent. */
  sent(sequence: bigint): void {
    this.#sentMs.set(sequence, this.#clocks.now())
    for (const oldest of this.#sentMs.keys()) {
      if (this.#sentMs.size <= MAX_UNANSWERED) break
      this.#sentMs.delete(oldest)
    }
  }

  /** The manager answered it. An answer to an unknown or already answered heartbeat has no effect. */
  renewed(sequence: bigint, ttlMs: number): void {
    const sentMs = this.#sentMs.get(sequence)
    if (sentMs === undefined || this.hasSlept()) return
    for (const older of this.#sentMs.keys()) if (older <= sequence) this.#sentMs.delete(older)
    const marginMs = ttlMs < FULL_MARGIN_FROM_MS ? ttlMs / 10 : MARGIN_MS
    this.#hasBegun = true
    this.#deadlineMs = Math.max(this.#deadlineMs, sentMs + ttlMs - marginMs)
  }

  /** A new session begins: sequences restart, and heartbeats of the old stream will not be answered. */
  restarted(): void {
    this.#sentMs.clear()
  }

  /** True while the worker can continue its runs. */
  isValid(): boolean {
    return !this.hasSlept() && this.#clocks.now() < this.#deadlineMs
  }

  /** How long the runs can continue; 0 if the lease has expired, undefined if there was none yet. */
  remainingMs(): number | undefined {
    if (!this.#hasBegun) return undefined
    return this.hasSlept() ? 0 : Math.max(0, this.#deadlineMs - this.#clocks.now())
  }

  /**
   * True if the wall clock ran ahead of the monotonic one: the machine was suspended, and other workers can have its
   * runs. False for a clock that was set for the first time.
   */
  hasSlept(): boolean {
    const expectedMs = this.#offsetMs + this.#clocks.now()
    const wallMs = this.#clocks.wallNow()
    const isFirstSet = expectedMs < FIRST_SET_MS && wallMs >= FIRST_SET_MS
    return !isFirstSet && wallMs - expectedMs > MAX_JUMP_MS
  }

  /**
   * Called after all runs were stopped. An answer in flight can begin a new lease, unless the machine was suspended: the
   * recorded times do not include that period.
   */
  end(): void {
    this.#deadlineMs = -Infinity
    if (this.hasSlept()) this.#sentMs.clear()
    this.#offsetMs = this.#offset()
  }

  /** Slow corrections of the wall clock must not add up to a jump; called at each check. */
  followClock(): void {
    if (!this.hasSlept()) this.#offsetMs = this.#offset()
  }

  #offset(): number {
    return this.#clocks.wallNow() - this.#clocks.now()
  }
}
