/** A point in the changelog of messages: distinguishes messages committed before it from later ones. */
import { sees } from '#core/changelog/index.ts'
import type { LogSnapshot } from '#core/changelog/index.ts'
import type { LiveMessage } from './live-message.ts'

export class LogMark {
  /** Undefined without followers: then no message can be delivered late. */
  readonly #snapshot: LogSnapshot | undefined

  constructor(snapshot: LogSnapshot | undefined) {
    this.#snapshot = snapshot
  }

  /** Whether the message was committed before the mark. */
  holds({ xid }: LiveMessage): boolean {
    return this.#snapshot !== undefined && xid !== undefined && sees(this.#snapshot, xid)
  }
}
