export { createDevices } from './devices.ts'
export type { DeviceServices, Devices } from './devices.ts'
export { openSecret as openClientSecret } from './client-secrets.ts'
export type {
  ChannelPath,
  DeviceCredentials,
  IdentifiedDevice,
  MessageAccess,
  MessageCredentials,
  MessageGate,
} from './gate/index.ts'
