/** Puts the slices of messages together: what is published is stored before it is acknowledged, and then it is in the next read. */
import type { MessageAccess } from '#api/devices/index.ts'
import type { Bus } from '#core/bus/index.ts'
import { createExporter } from './export/exporter.ts'
import type { ExportFormat, MessageExport } from './export/exporter.ts'
import { Ingest } from './ingest/ingest.ts'
import type { IngestDeps } from './ingest/ingest.ts'
import type { IncomingMessage } from './model/message.ts'
import { createReader } from './reader/reader.ts'
import type { LatestQuery, MessagesPage, MessagesQuery } from './reader/schema.ts'
import { Follower } from './live/follower.ts'
import type { Delivery, FollowerOptions } from './live/follower.ts'
import { LiveFanOut } from './live/fan-out.ts'
import { findLatest } from './live/latest.ts'
import type { LiveMessage } from './live/live-message.ts'
import type { LogMark } from './live/mark.ts'
import { formatToken, parseToken } from './live/token.ts'
import { Presence } from './presence/index.ts'
import { Projector } from './projections/projector.ts'
import type { RetainedMessage } from './retained/retained.ts'
import { findRetained } from './retained/retained.ts'
import { startRetention } from './retention/maintenance.ts'
import type { StorableMessage } from './store/message-rows.ts'

/** A database, a logger, and `hasRoom`: false while the disk of the database is nearly full. */
export type MessagesDeps = Omit<IngestDeps, 'onCommitting' | 'onCommitted'> & {
  bus: Bus
  /** Aborted when the process begins to stop: streams end before the ports close. */
  signal?: AbortSignal
  /** How often new batches are added to the projections; tests shorten it. */
  projectorIntervalMs?: number
}

export type Messages = {
  /** Resolves after the commit. What it rejects with: see `Ingest.publish`. */
  publish(message: IncomingMessage): Promise<void>
  /** See `Reader.read`. */
  read(access: MessageAccess, query: MessagesQuery): Promise<MessagesPage>
  /** See `Exporter.open`. */
  export(access: MessageAccess, query: MessagesQuery, format: ExportFormat): Promise<MessageExport>
  /** See `Reader.latest`. */
  readLatest(access: MessageAccess, query: LatestQuery): Promise<MessagesPage>
  /**
   * Delivers the messages of a channel as they are committed, by whatever protocol and process they came; with the id of an
   * event everything after it. Throws `malformed` for an id that is none, `unavailable` with too many followers.
   */
  follow(options: FollowerOptions, lastEventId?: string): Promise<{ close(): void }>
  /** Where the followers stand who are handed messages as they come, for `lastEventId`; undefined while nobody follows. */
  readonly position: string | undefined
  /** Resolves when everything that was committed before the call was delivered to those who follow. Throws `timeout`. */
  mark(): Promise<LogMark>
  /** The message that arrived last of those that a filter of `parseSubtopicFilter` covers. Throws `timeout`. */
  latest(access: MessageAccess, filter: string): Promise<LiveMessage | undefined>
  /** Where a follower stands that was handed this last, for `lastEventId`; empty without a delivery. */
  tokenOf(delivery: Delivery | undefined): string
  /** What is kept of the subtopics that a filter of `parseSubtopicFilter` covers. */
  retained(access: MessageAccess, filter: string): Promise<RetainedMessage[]>
  /** Calls the listener after each batch that this process commits, which it must not hold up; returns the way to end it. */
  onCommitted(listener: () => void): () => void
  /** Adapters tell it of the sessions of clients. */
  readonly presence: Presence
  /** Messages that wait for their commit. */
  readonly pending: number
  /** Sockets, streams and observations that are open. */
  readonly followers: number
  /** Takes nothing more and resolves when everything taken is written. */
  close(): Promise<void>
}

/** Resolves when the partitions of the present exist, so that the first message finds its place. */
export async function startMessages(deps: MessagesDeps): Promise<Messages> {
  const { database, logger, bus } = deps
  const retention = await startRetention(database, logger)
  const projector = new Projector(database, logger, deps.projectorIntervalMs)
  const listeners = new Set<() => void>()
  const fanOut = new LiveFanOut({ database, bus, logger })
  deps.signal?.addEventListener('abort', () => fanOut.endAll(), { once: true })
  const ingest = new Ingest({
    ...deps,
    onCommitting: (batchSeq, batch) => fanOut.committing(batchSeq, messagesOf(batch)),
    onCommitted(batchSeq, batch) {
      fanOut.committed(batchSeq, messagesOf(batch))
      projector.committed(batchSeq, batch)
      for (const listener of listeners) listener()
    },
  })
  const presence = new Presence({ database, logger })
  const reader = createReader(database)
  const exporter = createExporter(database, deps.signal)
  return {
    publish: (message) => ingest.publish(message),
    read: (access, query) => reader.read(access, query),
    export: (access, query, format) => exporter.open(access, query, format),
    readLatest: (access, query) => reader.latest(access, query),
    follow: (options, lastEventId) =>
      fanOut.follow(new Follower(options), lastEventId === undefined ? undefined : parseToken(lastEventId)),
    get position() {
      return fanOut.position === undefined ? undefined : formatToken(fanOut.position)
    },
    mark: () => fanOut.mark(),
    latest: (access, filter) => findLatest(database, access, filter),
    tokenOf: (delivery) => (delivery === undefined ? '' : formatToken(delivery.token)),
    retained: (access, filter) => findRetained(database.db, access.channelKey, filter),
    onCommitted(listener) {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
    presence,
    get pending() {
      return ingest.pending
    },
    get followers() {
      return fanOut.size
    },
    async close() {
      await fanOut.stop()
      await Promise.all([ingest.close(), projector.stop(), retention.stop(), presence.stop()])
    },
  }
}

function messagesOf(batch: readonly StorableMessage[]): IncomingMessage[] {
  return batch.map(({ message }) => message)
}
