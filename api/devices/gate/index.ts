export { createMessageGate } from './gate.ts'
export type { ChannelPath, MessageAccess, MessageCredentials, MessageGate } from './gate.ts'
