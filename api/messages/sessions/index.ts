export { startSessionStore } from './store.ts'
export type { SessionStore, SessionStoreOptions } from './store.ts'
export type {
  OpenedSession,
  OutboundFacts,
  OutboundState,
  SessionName,
  StoredOutbound,
  StoredSubscription,
  StoredWill,
} from './rows.ts'
