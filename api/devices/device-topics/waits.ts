/**
 * Callers that wait for something of a client to change: devices for new commands, users for results and for the state of a device, sessions for
 * what to deliver. The journal tells of changes, in this process at once and in others when they learn of it. What it misses costs the rest of one
 * interval.
 */
import type { Journal } from '#api/identity/index.ts'
import { monotonicMs } from '#core/time.ts'

export type Wait = {
  /** Resolves when what is of the client may have changed, at the deadline, or when the signal is aborted. */
  next(deadlineMs: number, signal: AbortSignal): Promise<void>
  end(): void
}

/** `family`: the operations of the journal that change it. `lookAgainMs`: a waiting caller looks again by itself, whatever was missed. */
export type WaitsOptions = { family: string; lookAgainMs: number }

export class ClientWaits {
  readonly #lookAgainMs: number
  readonly #listeners = new Map<number, Set<() => void>>()

  constructor(journal: Pick<Journal, 'follow'>, { family, lookAgainMs }: WaitsOptions) {
    this.#lookAgainMs = lookAgainMs
    journal.follow(family, {
      invalidate: (clientKeys) => {
        for (const key of clientKeys) this.wake(key)
      },
      invalidateAll: () => this.#wakeAll(),
    })
  }

  /** Tells of a change that the journal does not record, to callers of this process. */
  wake(clientKey: number): void {
    for (const wake of this.#listeners.get(clientKey) ?? []) wake()
  }

  /** Calls the listener when what is of the client may have changed. It must not throw. Returns a function that ends it. */
  listen(clientKey: number, listener: () => void): () => void {
    const listeners = this.#listeners.get(clientKey) ?? new Set()
    listeners.add(listener)
    this.#listeners.set(clientKey, listeners)
    return () => {
      listeners.delete(listener)
      if (listeners.size === 0 && this.#listeners.get(clientKey) === listeners) this.#listeners.delete(clientKey)
    }
  }

  /** Begin before the first look: what is committed from now on wakes the caller. */
  begin(clientKey: number): Wait {
    const lookAgainMs = this.#lookAgainMs
    let isWoken = false
    let resolve: (() => void) | undefined
    const end = this.listen(clientKey, () => {
      isWoken = true
      resolve?.()
    })
    return {
      async next(deadlineMs, signal) {
        const waitMs = Math.max(0, Math.min(lookAgainMs, deadlineMs - monotonicMs()))
        if (!isWoken && !signal.aborted) {
          const woken = Promise.withResolvers<void>()
          const wake = () => woken.resolve()
          resolve = wake
          const timer = setTimeout(wake, waitMs)
          signal.addEventListener('abort', wake, { once: true })
          await woken.promise
          clearTimeout(timer)
          signal.removeEventListener('abort', wake)
          resolve = undefined
        }
        isWoken = false
      },
      end,
    }
  }

  /** Wakes all callers. */
  stop(): void {
    this.#wakeAll()
  }

  #wakeAll(): void {
    for (const listeners of this.#listeners.values()) for (const wake of listeners) wake()
  }
}
