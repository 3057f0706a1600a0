/** The messages room. */
export {
  MAX_WAIT_DAYS,
  channelsAfter,
  loadBatchAt,
  oldestArrival,
  placeOf,
  readBacklog,
  readForward,
  startBacklogs,
} from './live/backlog.ts'
export type { ForwardStep } from './live/backlog.ts'
export {
  ARCHIVE_METRICS,
  NAMESPACE as ARCHIVE_NAMESPACE,
  TABLE as ARCHIVE_TABLE,
  History,
  HistoryCheck,
  VerifyQuery,
  archiveGauges,
  archiveState,
  ArchiveService,
  forgetArchiveRounds,
  s3TargetOf,
  startArchiver,
} from './archive/index.ts'
export type { ArchiveState } from './archive/index.ts'
export { removeDeadNodes } from './dead-nodes.ts'
export { DeletionQuery, MessageDeletion } from './deletion/index.ts'
export type { ExportFormat, MessageExport } from './export/exporter.ts'
export {
  JSON_TYPE,
  OCTET_STREAM,
  SENML_CBOR,
  SENML_JSON,
  TEXT_PLAIN,
  sniff,
  sniffContent,
  parseContent,
} from './ingest/content.ts'
export type { ContentFacts, Sniffed } from './ingest/content.ts'
export { idempotencyOf } from './ingest/idempotency.ts'
export { INGEST_METRICS } from './ingest/metrics.ts'
export { PROJECTOR_METRICS, projectorGauges } from './projections/metrics.ts'
export { PARTITION_METRICS, partitionGauges } from './store/metrics.ts'
export type { SeriesLimits } from './ingest/series-table.ts'
export type { Delivery, EndReason, FollowerOptions } from './live/follower.ts'
export { typeOfContent } from './live/live-message.ts'
export type { LiveMessage } from './live/live-message.ts'
export { messageJson } from './live/message-json.ts'
export type { LogMark } from './live/mark.ts'
export { loadChannels, loadMessages, loadPlaces } from './live/stored.ts'
export { formatToken } from './live/token.ts'
export type { Envelope } from './model/envelope.ts'
export type { RetainedMessage } from './retained/retained.ts'
export { MqttSessionQuery, MqttSessions, RetainedPage, SessionsService, startSessionStore } from './sessions/index.ts'
export type {
  CloseSession,
  GroupName,
  GroupPassed,
  GroupPosition,
  GroupRef,
  ServedGroup,
  OpenedSession,
  PassedMessage,
  SessionName,
  SessionPositions,
  SessionStore,
  SessionStoreOptions,
  StoredOutbound,
  StoredSubscription,
  StoredWill,
} from './sessions/index.ts'
export { startMessages } from './messages.ts'
export type { Messages, MessagesDeps } from './messages.ts'
export type { Idempotency, IncomingMessage, MessageContent, Protocol } from './model/message.ts'
export type { Presence } from './presence/index.ts'
export { packOfFields, packToCbor, packToJson } from './senml/index.ts'
export { createReader } from './reader/reader.ts'
export { liveFilter } from './live/live-filter.ts'
export {
  LACKABLE,
  LatestQuery,
  MessagesAnswer,
  MessagesPage,
  MessagesQuery,
  SeriesPage,
  SeriesQuery,
  StoredMessage,
  Without,
} from './reader/schema.ts'
export { ClientTelemetry, DomainUsage, UsageService } from './usage/index.ts'
export { RATE_STEPS, WINDOW_SECONDS, findRates } from './usage/index.ts'
export type { RatePoint, RateWindow } from './usage/index.ts'
export { removalsOf } from './retention/domain-removal.ts'
export { PROTOCOLS } from './model/message.ts'
export {
  createSubtopicMatcher,
  matchesSubtopic,
  parseMessagePath,
  parseSubtopic,
  parseSubtopicFilter,
} from './model/topics.ts'
export type { MessagePath } from './model/topics.ts'
