export { MessageGate } from './gate.ts'
export type {
  ChannelPath,
  DeviceCredentials,
  IdentifiedClient,
  IdentifiedDevice,
  MessageAccess,
  MessageCredentials,
} from './gate.ts'
export { identifyRoutes } from './routes.ts'
