/** The managers that a worker may join: one at a time, and the next one when its session ends or cannot begin. */
export class Managers {
  readonly #addresses: readonly string[]
  #at: number
  #tried = 0

  /** Workers with the same list begin at different ones. `random` returns a number from 0 to below 1. */
  constructor(addresses: readonly string[], random: () => number = Math.random) {
    this.#addresses = addresses
    this.#at = Math.floor(random() * addresses.length)
  }

  /** host:port */
  get current(): string {
    return this.#addresses[this.#at] as string
  }

  /** A session has begun at the current one. */
  joined(): void {
    this.#tried = 0
  }

  /** Goes on to the next one; true when all were tried since the last session. */
  next(): boolean {
    this.#at = (this.#at + 1) % this.#addresses.length
    this.#tried += 1
    if (this.#tried < this.#addresses.length) return false
    this.#tried = 0
    return true
  }
}
