/**
 * Hints between processes: "something was written, look now". A hint may be lost, late or repeated; whoever needs a
 * fact reads the log. One interface, two transports: inside the process, and Redis when several processes run.
 */
/** Must not throw: nobody could tell the publisher. */
export type BusHandler = (payload: Uint8Array) => void

export type Bus = {
  /** Never rejects and never waits: a hint that cannot be sent is counted and dropped. */
  publish(topic: string, payload: Uint8Array): void
  /** Hints of other processes and of this one; returns the way to end it. */
  subscribe(topic: string, handler: BusHandler): () => void
  /** Hints that could not be sent since the start. */
  readonly dropped: number
  close(): Promise<void>
}

/** A hint above this is not worth sending; its receiver reads the log instead. */
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
        // A second call must not end what somebody else subscribed meanwhile.
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
