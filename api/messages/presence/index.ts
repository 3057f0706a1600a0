export { Presence } from './presence.ts'
export { findTelemetry } from './repository.ts'
export type { TelemetryRow } from './repository.ts'
