/**
 * Attempts whose passwords are being looked at. Each has taken what a failure costs, so that guesses made at once are counted
 * too; one that finds nothing left waits for those before it, for their passwords may be right and give it back.
 */

/** Attempts that wait at once: each holds a connection. Beyond, nobody waits. */
const MAX_WAITING = 1000

export type Attempts = {
  /** An attempt under these names has begun; call what is returned when it ended. */
  begin(names: readonly string[]): () => void
  /** Resolves to true when one under one of the names ended; to false without waiting where there is none. */
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
