/**
 * Sockets whose caller is not known yet, up to a limit of the process and of each address. Beyond it the oldest is dropped: a caller who
 * tells at once who they are is served, however many others stay silent, also behind one proxy.
 */

/** Sockets of this process, and of one address. */
const MAX_UNKNOWN = 1_000
const MAX_UNKNOWN_PER_ADDRESS = 250

type Unknown = { readonly address: string; readonly drop: () => void }

export class UnknownCallers {
  /** Each in the order in which its sockets came. */
  readonly #all = new Set<Unknown>()
  readonly #byAddress = new Map<string, Set<Unknown>>()
  readonly #max: number
  readonly #maxPerAddress: number

  constructor({ max = MAX_UNKNOWN, maxPerAddress = MAX_UNKNOWN_PER_ADDRESS } = {}) {
    this.#max = max
    this.#maxPerAddress = maxPerAddress
  }

  get size(): number {
    return this.#all.size
  }

  /** Returns what tells that the caller is known, or that the socket is closed; it may be called again. */
  add(address: string, drop: () => void): () => void {
    const ofAddress = this.#byAddress.get(address)
    if (ofAddress !== undefined && ofAddress.size >= this.#maxPerAddress) this.#dropOldest(ofAddress)
    if (this.#all.size >= this.#max) this.#dropOldest(this.#all)
    const added: Unknown = { address, drop }
    this.#all.add(added)
    const known = this.#byAddress.get(address)
    if (known === undefined) this.#byAddress.set(address, new Set([added]))
    else known.add(added)
    return () => this.#remove(added)
  }

  #dropOldest(sockets: ReadonlySet<Unknown>): void {
    const [oldest] = sockets
    if (oldest === undefined) return
    this.#remove(oldest)
    oldest.drop()
  }

  #remove(unknown: Unknown): void {
    this.#all.delete(unknown)
    const ofAddress = this.#byAddress.get(unknown.address)
    ofAddress?.delete(unknown)
    if (ofAddress?.size === 0) this.#byAddress.delete(unknown.address)
  }
}
