export { MessageGate } from './gate.ts'
export type {
  AccessQuestion,
  ChannelPath,
  DeviceCredentials,
  IdentifiedClient,
  IdentifiedDevice,
  ChannelAccess,
  MessageCredentials,
} from './gate.ts'
export { identifyRoutes } from './routes.ts'
