/**
 * Hints between processes: "something was written, read now". A hint may be lost, delayed or repeated; the facts are in the
 * changelogs. There are two transports: memory for one machine, whose processes are peers, and Redis for several machines.
 */
/** Must not throw: the publisher does not receive the error. */
export type BusHandler = (payload: Uint8Array) => void

export type Bus = {
  /** Never rejects and never waits: a hint that cannot be sent is dropped and counted. */
  publish(topic: string, payload: Uint8Array): void
  /** Receives the hints of all processes, this one included. Returns a function that unsubscribes. */
  subscribe(topic: string, handler: BusHandler): () => void
  /** False while hints of other processes may be lost. */
  readonly isConnected: boolean
  /** Hints that could not be sent since the start. */
  readonly dropped: number
  close(): Promise<void>
}

/** The other processes of this machine, which receive hints without Redis. */
export type HintPeers = {
  /** Never waits. False when the hint was dropped for one of them, because too much waits for it. */
  send(topic: string, payload: Uint8Array): boolean
  /** Sets the handler of the hints of the others. */
  listen(handler: (topic: string, payload: Uint8Array) => void): void
  /** False when this process no longer receives them. */
  readonly isConnected: boolean
}

/** Larger hints are not sent: the receiver reads the changelog instead. */
export const MAX_HINT_BYTES = 16 * 1024

export class Subscriptions {
  readonly #handlers = new Map<string, Set<BusHandler>>()

  add(topic: string, handler: BusHandler): { isFirst: boolean; remove: () => boolean } {
    const handlers = this.#handlers.get(topic) ?? new Set()
    const isFirst = handlers.size === 0
    handlers.add(handler)
    this.#handlers.set(topic, handlers)
    return {
      isFirst,
      remove: () => {
        handlers.delete(handler)
        // A second call must not end a subscription that another caller made meanwhile.
        if (handlers.size > 0 || this.#handlers.get(topic) !== handlers) return false
        return this.#handlers.delete(topic)
      },
    }
  }

  deliver(topic: string, payload: Uint8Array): void {
    for (const handler of this.#handlers.get(topic) ?? []) handler(payload)
  }

  topics(): string[] {
    return [...this.#handlers.keys()]
  }
}
