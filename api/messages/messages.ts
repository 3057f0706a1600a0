/** Composes the slices of the messages room: a message is stored before it is acknowledged, and is in every later read. */
import type { ChannelAccess } from '#api/devices/index.ts'
import { DomainMeter } from '#api/identity/index.ts'
import type { Quotas } from '#api/identity/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { SnapshotSource } from '#core/database/index.ts'
import type { SharedLimits } from '#core/limits/index.ts'
import type { LivingNode } from '#core/nodes/index.ts'
import { isTracing } from '#core/tracing/index.ts'
import { createExporter } from './export/exporter.ts'
import type { ExportFormat, MessageExport } from './export/exporter.ts'
import { Ingest } from './ingest/ingest.ts'
import type { IngestDeps } from './ingest/ingest.ts'
import { MessageRates } from './ingest/message-rates.ts'
import { StoredRecords } from './ingest/stored-records.ts'
import { publishTraced } from './ingest/traced-publish.ts'
import type { IncomingMessage } from './model/message.ts'
import { createReader } from './reader/reader.ts'
import type { LatestQuery, MessagesPage, MessagesQuery, SeriesPage, SeriesQuery } from './reader/schema.ts'
import { Follower } from './live/follower.ts'
import type { Delivery, FollowerOptions } from './live/follower.ts'
import { LiveFanOut } from './live/fan-out.ts'
import { findLatest } from './live/latest.ts'
import type { LiveMessage } from './live/live-message.ts'
import type { LogMark } from './live/mark.ts'
import { formatToken, parseToken } from './live/token.ts'
import { Presence } from './presence/index.ts'
import { Projector } from './projections/projector.ts'
import { findStoredRecords } from './projections/usage.ts'
import type { RetainedMessage } from './retained/retained.ts'
import { createRetainedLookups } from './retained/lookups.ts'
import { startRetention } from './retention/maintenance.ts'
import type { StorableMessage } from './store/message-rows.ts'

/** See `IngestDeps`, and: */
export type MessagesDeps = Omit<IngestDeps, 'onCommitting' | 'onCommitted'> & {
  bus: Bus
  /** This process, which holds sessions. */
  node: LivingNode
  /** Default: no limits of messages and exports. */
  quotas?: MessageQuotas
  /** The limits that the processes share. */
  limits?: SharedLimits | undefined
  /** The source of reads and exports; defaults to the database. */
  history?: SnapshotSource
  /** Aborted when the process begins to stop: streams end before the listeners close. */
  signal?: AbortSignal
  /** The interval at which new batches are added to the projections; an override for tests. */
  projectorIntervalMs?: number
}

export type Messages = {
  /** Resolves after the commit. Errors: see `Ingest.publish`. */
  publish(message: IncomingMessage): Promise<void>
  /** See `Reader.read`. */
  read(access: ChannelAccess, query: MessagesQuery): Promise<MessagesPage>
  /** See `Exporter.open`. */
  export(access: ChannelAccess, query: MessagesQuery, format: ExportFormat): Promise<MessageExport>
  /** See `Reader.latest`. */
  readLatest(access: ChannelAccess, query: LatestQuery): Promise<MessagesPage>
  /** See `Reader.series`. */
  readSeries(access: ChannelAccess, query: SeriesQuery): Promise<SeriesPage>
  /**
   * Delivers the messages of a channel as they are committed by any protocol and process, or everything after the id of an event. Throws
   * `malformed` for an invalid id, and `unavailable` with too many followers.
   */
  follow(options: FollowerOptions, lastEventId?: string): Promise<{ close(): void }>
  /** The position of the live followers, for `lastEventId`; undefined without followers. */
  readonly position: string | undefined
  /** Resolves when everything that was committed before the call was delivered to the followers. Throws `timeout`. */
  mark(): Promise<LogMark>
  /** The message that arrived last among those of a filter from `parseSubtopicFilter`. Throws `timeout`. */
  latest(access: ChannelAccess, filter: string): Promise<LiveMessage | undefined>
  /** The position of a follower that received this last, for `lastEventId`; empty without a delivery. */
  tokenOf(delivery: Delivery | undefined): string
  /** The retained messages of a filter from `parseSubtopicFilter`. */
  retained(access: ChannelAccess, filter: string): Promise<RetainedMessage[]>
  /** Calls the listener after each batch that this process commits; it must not block. Returns a function that unsubscribes. */
  onCommitted(listener: () => void): () => void
  /** Adapters ask it before they publish. */
  readonly rates: MessageRates
  /** Adapters report the sessions of clients to it. */
  readonly presence: Presence
  /** Messages that wait for their commit. */
  readonly pending: number
  /** Sockets, streams and observations that are open. */
  readonly followers: number
  /** Rejects new messages, and resolves when all accepted messages are written. */
  close(): Promise<void>
}

type MessageQuotas = Pick<Quotas, 'ofDomain' | 'requireToday'>

const UNLIMITED: MessageQuotas = { ofDomain: () => undefined, requireToday: async () => undefined }

/** Resolves when the current partitions exist, so that the first message can be stored. */
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
  const quotas = deps.quotas ?? UNLIMITED
  const stored = new StoredRecords(
    new DomainMeter({
      limitOf: (domainKey) => quotas.ofDomain(domainKey, 'stored_records'),
      read: (domainKeys) => findStoredRecords(database.db, domainKeys),
      logger,
    }),
  )
  const rates = new MessageRates({ quotas, limits: deps.limits, stored })
  const presence = new Presence({ database, logger, node: deps.node })
  const retained = createRetainedLookups(database.db, logger)
  const history = deps.history ?? database
  const reader = createReader(history)
  const exporter = createExporter({
    database: history,
    requireExport: (domainKey) => quotas.requireToday(domainKey, 'exports_per_day'),
    signal: deps.signal,
  })
  return {
    publish: (message) =>
      isTracing() ? publishTraced(message, (traced) => ingest.publish(traced)) : ingest.publish(message),
    read: (access, query) => reader.read(access, query),
    export: (access, query, format) => exporter.open(access, query, format),
    readLatest: (access, query) => reader.latest(access, query),
    readSeries: (access, query) => reader.series(access, query),
    follow: (options, lastEventId) =>
      fanOut.follow(new Follower(options), lastEventId === undefined ? undefined : parseToken(lastEventId)),
    get position() {
      return fanOut.position === undefined ? undefined : formatToken(fanOut.position)
    },
    mark: () => fanOut.mark(),
    latest: (access, filter) => findLatest(database, access, filter),
    tokenOf: (delivery) => (delivery === undefined ? '' : formatToken(delivery.token)),
    retained: (access, filter) => retained({ channelKey: access.channelKey, filter }),
    onCommitted(listener) {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
    rates,
    presence,
    get pending() {
      return ingest.pending
    },
    get followers() {
      return fanOut.size
    },
    async close() {
      rates.stop()
      await fanOut.stop()
      await Promise.all([ingest.close(), projector.stop(), retention.stop(), presence.stop()])
    },
  }
}

function messagesOf(batch: readonly StorableMessage[]): IncomingMessage[] {
  return batch.map(({ message }) => message)
}
