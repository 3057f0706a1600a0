export { MqttSessionQuery, MqttSessions, RetainedPage } from './schema.ts'
export { SessionsService } from './service.ts'
export { disconnectSessionsOf } from './dead-nodes.ts'
export type { SessionPositions } from './positions.ts'
export { SESSION_QUOTAS, countSessionUsage } from './session-quotas.ts'
export { startSessionStore } from './store.ts'
export type { SessionStore, SessionStoreOptions } from './store.ts'
export type {
  CloseSession,
  GroupName,
  GroupPosition,
  GroupRef,
  ServedGroup,
  OpenedSession,
  OutboundFacts,
  OutboundState,
  PassedMessage,
  SessionName,
  StoredOutbound,
  StoredSubscription,
  StoredWill,
} from './rows.ts'
export type { GroupPassed } from './writer.ts'
