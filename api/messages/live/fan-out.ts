/**
 * Fan-out of committed messages to all followers of this process, on any protocol. Followers on other nodes receive a message too, also
 * when hints are lost. Each committed batch is delivered once to each follower, and the order of each publisher is kept.
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

/** The maximum wait for a stream to begin. */
const JOIN_DEADLINE_MS = 10_000
/** The interval at which the rights of all followers are checked; a revocation is in force within a second. */
const SWEEP_MS = 300

export type LiveFanOutDeps = { database: Database; bus: Bus; logger: Logger }

export class LiveFanOut {
  readonly #logger: Logger
  readonly #followers = new Followers()
  readonly #recent = new RecentBatches()
  readonly #reader: LogReader
  readonly #catchUp: CatchUp
  readonly #hints: LiveHints
  #sweeping: NodeJS.Timeout | undefined
  #isStopped = false

  constructor({ database, bus, logger }: LiveFanOutDeps) {
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

  /** The position of the live followers: everything before it was delivered. Undefined without followers. */
  get position(): LiveToken | undefined {
    return this.#reader.position
  }

  /**
   * Call it before this process commits a batch: the changelog may show the batch before the database has answered. A batch that is not
   * committed is never delivered.
   */
  committing(batchSeq: number, messages: readonly IncomingMessage[]): void {
    const followers = this.#followers
    if (followers.size === 0) return
    const followed = messages.flatMap((message, index) =>
      followers.channels.has(message.access.channelKey) ? [fromIncoming(message, batchSeq, index)] : [],
    )
    this.#recent.add(batchSeq, followed, followers.state)
  }

  /** Call it after this process has committed a batch. */
  committed(batchSeq: number, messages: readonly IncomingMessage[]): void {
    if (this.#followers.size > 0) this.#reader.wake()
    this.#hints.committed(batchSeq, messages)
  }

  /**
   * Delivers everything that is committed from now on, or after `after`, until `close` is called or the follower is ended. Resolves when
   * no later commit can be missed. Throws `unavailable` when there are too many followers.
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

  /** Resolves when everything that was committed before the call was delivered to the live followers. Throws `timeout`. */
  mark(): Promise<LogMark> {
    return withDeadline(this.#reader.mark(), JOIN_DEADLINE_MS, 'reading the messages')
  }

  /** Ends every stream and rejects new ones. */
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

  /** Ends the streams of followers that have lost their right. */
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
