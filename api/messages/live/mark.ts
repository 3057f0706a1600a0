/** A moment in the log of messages: it tells what had been committed then from what came later. */
import { saw } from '#core/changelog/index.ts'
import type { LogSnapshot } from '#core/changelog/index.ts'
import type { LiveMessage } from './live-message.ts'

export class LogMark {
  /** Undefined: nobody followed, so nothing can be delivered late. */
  readonly #snapshot: LogSnapshot | undefined

  constructor(snapshot: LogSnapshot | undefined) {
    this.#snapshot = snapshot
  }

  /** Whether the message was committed by then. */
  holds({ xid }: LiveMessage): boolean {
    return this.#snapshot !== undefined && xid !== undefined && saw(this.#snapshot, xid)
  }
}
