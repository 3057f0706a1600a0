/** The limit of the bytes per second of all downloads of modules together. */
import { monotonicMs, sleep } from '#core/time.ts'

const MIN_PART_BYTES = 32 * 1024
const MAX_PART_BYTES = 1024 * 1024

export class Bandwidth {
  readonly #bytesPerSecond: number
  /** When the bytes that have passed have had their time. */
  #freeMs = 0

  constructor(bytesPerSecond: number) {
    this.#bytesPerSecond = bytesPerSecond
  }

  /** The bytes of one request: those of a second. They arrive as fast as the network is, and then the next request waits. */
  get partBytes(): number {
    return Math.min(Math.max(this.#bytesPerSecond, MIN_PART_BYTES), MAX_PART_BYTES)
  }

  /** Resolves when these bytes, which have arrived, and all before them have had their time. */
  async pass(bytes: number, signal: AbortSignal): Promise<void> {
    const nowMs = monotonicMs()
    this.#freeMs = Math.max(this.#freeMs, nowMs) + (bytes / this.#bytesPerSecond) * 1000
    if (bytes > 0) await sleep(this.#freeMs - nowMs, signal)
  }
}
