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
export { MAX_BULK_BODY_BYTES } from './bulk.ts'
export { NewChannel } from './channels/schema.ts'
export { NewClient } from './clients/schema.ts'
export { enterForCreation } from './connectable/index.ts'
