/**
 * Attempts whose passwords are being verified. Each has taken a token from its buckets in advance, so that concurrent
 * guesses are counted too. An attempt that finds an empty bucket waits for the running ones, which return their tokens
 * if their passwords are right.
 */

/** Maximum number of waiting attempts: each holds a connection. Above it attempts do not wait. */
const MAX_WAITING = 1000

export type Attempts = {
  /** Registers an attempt under these names. The caller calls the returned function when it ends. */
  begin(names: readonly string[]): () => void
  /**
   * Resolves to true when an attempt under one of the names has ended. Resolves to false without waiting when there is
   * none.
   */
  nextEnd(names: readonly string[]): Promise<boolean>
  stop(): void
}

type Running = { count: number; waiting: Set<() => void> }

export function createAttempts(): Attempts {
  const running = new Map<string, Running>()
  let waiting = 0
  return {
    begin(names) {
      for (const name of names) {
        const known = running.get(name)
        if (known === undefined) running.set(name, { count: 1, waiting: new Set() })
        else known.count += 1
      }
      return () => {
        for (const name of names) {
          const known = running.get(name)
          if (known === undefined) continue
          known.count -= 1
          if (known.count === 0) running.delete(name)
          for (const wake of known.waiting) wake()
        }
      }
    },
    async nextEnd(names) {
      const found = names.map((name) => running.get(name)).filter((one) => one !== undefined)
      if (found.length === 0 || waiting >= MAX_WAITING) return false
      const { promise, resolve } = Promise.withResolvers<void>()
      waiting += 1
      for (const one of found) one.waiting.add(resolve)
      await promise
      waiting -= 1
      for (const one of found) one.waiting.delete(resolve)
      return true
    },
    stop() {
      for (const one of running.values()) for (const wake of one.waiting) wake()
      running.clear()
    },
  }
}
