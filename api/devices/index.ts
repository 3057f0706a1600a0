export { createDevices } from './devices.ts'
export type { DeviceServices, Devices } from './devices.ts'
export {
  DEVICE_TOPIC_METRICS,
  formatDeviceTopic,
  isDeviceTopic,
  noSuchTopic,
  parseDeviceTopic,
} from './device-topics/index.ts'
export type {
  DeviceMessage,
  DeviceNoun,
  DeviceRepresentation,
  DeviceRequest,
  DeviceSink,
  DeviceSubscription,
  DeviceTopic,
  DeviceTopics,
  DropReason,
  ToDevice,
} from './device-topics/index.ts'
export {
  DeviceReports,
  DeviceState,
  IfMatch,
  StateBody,
  StateConflict,
  StateName,
  parseIfMatch,
  parseStateName,
  presentState,
} from './state/index.ts'
export {
  Answered,
  COMMAND_METRICS,
  CommandResult,
  OfferedCommands,
  commandGauges,
  presentOffered,
} from './commands/index.ts'
export type { CommandDelivery } from './commands/index.ts'
export { openSecret as openClientSecret } from './secrets/index.ts'
export type {
  AccessQuestion,
  ChannelPath,
  DeviceCredentials,
  IdentifiedDevice,
  ChannelAccess,
  MessageCredentials,
  MessageGate,
} from './gate/index.ts'
export { MAX_BULK_BODY_BYTES, MAX_BULK_ITEMS, itemsOf } from './connectable/bulk.ts'
export { BOTH, MAX_PAIRS, pairsOf, parseConnectionPairs, requirePairLimit } from './connections/index.ts'
export { newerCreation } from './connectable/index.ts'
export { NewChannel } from './channels/schema.ts'
export { NewClient } from './clients/schema.ts'
