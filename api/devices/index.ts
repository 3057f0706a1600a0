export { createDevices } from './devices.ts'
export type { Devices } from './devices.ts'
export type {
  ChannelPath,
  DeviceCredentials,
  IdentifiedDevice,
  MessageAccess,
  MessageCredentials,
  MessageGate,
} from './gate/index.ts'
