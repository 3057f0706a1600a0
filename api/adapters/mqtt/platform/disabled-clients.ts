/** Ends the sessions of disabled and deleted clients; changes are looked up in batches. */
import type { SessionStore } from '#api/messages/index.ts'
import type { Logger } from '#core/logging/index.ts'

const REMOVE_AFTER_MS = 100

export class DisabledClients {
  readonly #store: SessionStore
  readonly #logger: Logger
  #changedKeys = new Set<number>()
  #removing: NodeJS.Timeout | undefined

  constructor(store: SessionStore, logger: Logger) {
    this.#store = store
    this.#logger = logger
  }

  /** Entities changed, of which some may be clients. */
  lookAt(entityKeys: readonly number[]): void {
    for (const key of entityKeys) if (key > 0) this.#changedKeys.add(key)
    if (this.#changedKeys.size > 0) this.#removing ??= setTimeout(() => this.#remove(), REMOVE_AFTER_MS)
  }

  stop(): void {
    clearTimeout(this.#removing)
  }

  #remove(): void {
    this.#removing = undefined
    const keys = [...this.#changedKeys]
    this.#changedKeys = new Set()
    this.#store
      .removeOfDisabled(keys)
      .catch((error: unknown) => this.#logger.warn({ err: error }, 'failed to end the sessions of disabled clients'))
  }
}
