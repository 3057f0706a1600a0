export { startPresence } from './presence.ts'
export type { Presence } from './presence.ts'
export { findTelemetry } from './repository.ts'
export type { TelemetryRow } from './repository.ts'
