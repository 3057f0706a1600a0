export { createMessageGate } from './gate.ts'
export type { ChannelPath, IdentifiedClient, MessageAccess, MessageCredentials, MessageGate } from './gate.ts'
export { identifyRoutes } from './routes.ts'
