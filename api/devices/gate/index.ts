export { createMessageGate } from './gate.ts'
export type {
  ChannelPath,
  DeviceCredentials,
  IdentifiedClient,
  IdentifiedDevice,
  MessageAccess,
  MessageCredentials,
  MessageGate,
} from './gate.ts'
export { identifyRoutes } from './routes.ts'
