/**
 * The clock that starts the ticks of offline tasks: the wall clock of the machine, unless that is certainly wrong. A device without a battery for
 * its clock begins in 1970: until it is set, the clock goes on from the last time that is known.
 */
import type { Clocks } from '../session/lease.ts'

/** The clocks of a manager and of this machine can differ by this. */
const MAX_BEHIND_MS = 600_000

/** What is known of earlier processes: the last time of a manager, and the last time of this clock. 0: none. */
export type KnownTimes = { managerMs: number; clockMs: number }

export class OfflineClock {
  readonly #clocks: Clocks
  #managerMs: number
  /** A time, and the monotonic one at which it was. */
  #base: { timeMs: number; atMs: number }

  constructor(clocks: Clocks, { managerMs, clockMs }: KnownTimes) {
    this.#clocks = clocks
    this.#managerMs = managerMs
    this.#base = { timeMs: Math.max(managerMs, clockMs), atMs: clocks.now() }
  }

  /** A manager has told its time, after which this machine cannot be. */
  told(managerMs: number): void {
    this.#managerMs = managerMs
    this.#base = { timeMs: managerMs, atMs: this.#clocks.now() }
  }

  /** Milliseconds since 1970. */
  nowMs(): number {
    const wallMs = this.#clocks.wallNow()
    if (wallMs >= this.#managerMs - MAX_BEHIND_MS) return wallMs
    return Math.round(this.#base.timeMs + this.#clocks.now() - this.#base.atMs)
  }

  /** For the clock of the next process. */
  get known(): KnownTimes {
    return { managerMs: this.#managerMs, clockMs: this.nowMs() }
  }
}
