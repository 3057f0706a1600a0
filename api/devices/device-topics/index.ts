export { createDeviceTopics, noSuchTopic } from './device-topics.ts'
export { DEVICE_TOPIC_METRICS } from './metrics.ts'
export type {
  DeviceMessage,
  DeviceNoun,
  DeviceRepresentation,
  DeviceRequest,
  DeviceSink,
  DeviceSubscription,
  DeviceTopics,
  DropReason,
  ToDevice,
} from './device-topics.ts'
export { formatDeviceTopic, isDeviceTopic, parseDeviceTopic } from './topic.ts'
export type { DeviceTopic } from './topic.ts'
export { DeviceTurns } from './turns.ts'
export { ClientWaits } from './waits.ts'
