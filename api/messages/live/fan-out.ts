/**
 * Fan-out of committed messages to all followers of this process, whatever their protocol. A message reaches the followers of every
 * process, also when hints are lost. A batch that was committed is delivered once to each follower; what one publisher sent is
 * delivered in its order.
 */
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { withDeadline } from '#core/time.ts'
import type { IncomingMessage } from '../model/message.ts'
import { CatchUp } from './catch-up.ts'
import type { Follower } from './follower.ts'
import { Followers } from './followers.ts'
import { LiveHints } from './hints.ts'
import { fromIncoming } from './live-message.ts'
import { LogReader } from './log-reader.ts'
import type { LogMark } from './mark.ts'
import { RecentBatches } from './recent.ts'
import type { LiveToken } from './token.ts'

/** Nobody waits longer for a stream to begin. */
const JOIN_DEADLINE_MS = 10_000
/** How often the rights of every follower are looked at; a revocation is in force within a second. */
const SWEEP_MS = 300

export type LiveHubDeps = { database: Database; bus: Bus; logger: Logger }

export class LiveFanOut {
  readonly #logger: Logger
  readonly #followers = new Followers()
  readonly #recent = new RecentBatches()
  readonly #reader: LogReader
  readonly #catchUp: CatchUp
  readonly #hints: LiveHints
  #sweeping: NodeJS.Timeout | undefined
  #isStopped = false

  constructor({ database, bus, logger }: LiveHubDeps) {
    const [followers, recent] = [this.#followers, this.#recent]
    this.#logger = logger
    this.#reader = new LogReader({ database, logger, followers, recent })
    this.#catchUp = new CatchUp(database, this.#reader)
    this.#hints = new LiveHints({
      bus,
      channels: followers.channels,
      onCommitted: (batch) => {
        if (batch !== undefined) recent.add(batch.seq, batch.messages, followers.state)
        this.#reader.wake()
      },
    })
  }

  get size(): number {
    return this.#followers.size
  }

  /** Where those stand who follow live: everything before it was delivered. Undefined while nobody follows. */
  get position(): LiveToken | undefined {
    return this.#reader.position
  }

  /**
   * Tells the fan-out of a batch that this process is about to commit: the log may show it before the database has answered. What
   * is not committed in the end nobody reads of.
   */
  committing(batchSeq: number, messages: readonly IncomingMessage[]): void {
    const followers = this.#followers
    if (followers.size === 0) return
    const followed = messages.flatMap((message, index) =>
      followers.channels.has(message.access.channelKey) ? [fromIncoming(message, batchSeq, index)] : [],
    )
    this.#recent.add(batchSeq, followed, followers.state)
  }

  /** Tells the fan-out of a batch that this process committed. */
  committed(batchSeq: number, messages: readonly IncomingMessage[]): void {
    if (this.#followers.size > 0) this.#reader.wake()
    this.#hints.committed(batchSeq, messages)
  }

  /**
   * Delivers what is committed from now on, or everything after `after`, until `close` is called or the follower is
   * told its end. Resolves when nothing that commits from then on can be missed. Throws `unavailable` when there are too
   * many followers.
   */
  async follow(follower: Follower, after?: LiveToken): Promise<{ close(): void }> {
    if (this.#isStopped) throw new ServiceError('unavailable', 'the server is stopping', { retryAfterSeconds: 1 })
    this.#followers.add(follower)
    this.#hints.followed()
    this.#sweepLater()
    const close = () => {
      follower.end('closed')
      this.#followers.remove(follower)
    }
    if (after !== undefined) {
      this.#catchUp.run(follower, after).catch((error: unknown) => {
        this.#logger.warn({ err: error }, 'a follower of messages failed to catch up; ending its stream')
        follower.end('behind')
        this.#followers.remove(follower)
      })
      return { close }
    }
    try {
      await withDeadline(this.#reader.join(follower, undefined), JOIN_DEADLINE_MS, 'following the messages')
      return { close }
    } catch (error) {
      close()
      throw error
    }
  }

  /** Resolves when everything that was committed before the call was delivered to those who follow live. Throws `timeout`. */
  mark(): Promise<LogMark> {
    return withDeadline(this.#reader.mark(), JOIN_DEADLINE_MS, 'reading the messages')
  }

  /** Ends every stream and takes no new one. */
  endAll(): void {
    this.#isStopped = true
    this.#reader.endReading()
    this.#followers.endAll('stopping')
  }

  async stop(): Promise<void> {
    this.endAll()
    this.#hints.close()
    clearTimeout(this.#sweeping)
    await this.#reader.stop()
  }

  #sweepLater(): void {
    this.#sweeping ??= setTimeout(() => {
      void this.#sweep().finally(() => {
        this.#sweeping = undefined
        if (this.#followers.size > 0 && !this.#isStopped) this.#sweepLater()
      })
    }, SWEEP_MS)
  }

  /** Ends the streams of those who may not follow any more. */
  async #sweep(): Promise<void> {
    await Promise.all(
      this.#followers.all().map(async (follower) => {
        try {
          await follower.authorize()
        } catch (error) {
          const kind = kindOf(error)
          if (kind !== 'unauthenticated' && kind !== 'forbidden' && kind !== 'not_found') return
          follower.end('forbidden')
          this.#followers.remove(follower)
        }
      }),
    )
  }
}
