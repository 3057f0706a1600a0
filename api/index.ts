export { startApi } from './api.ts'
export type { Api, ApiOptions, DevicePorts } from './api.ts'
export {
  COAP_SETTINGS,
  CONNECT_SETTINGS,
  IDENTITY_SETTINGS,
  MQTT_SETTINGS,
  PROCESSES_SETTINGS,
  PROVISIONING_SETTINGS,
  PUBLISHED_SETTINGS,
  RULES_SETTINGS,
  ARCHIVE_SETTINGS,
} from './config.ts'
export type { CoapConfig, IdentityConfig, MqttConfig, ProvisioningConfig, RulesConfig } from './config.ts'
export { API_METRICS, apiGauges } from './metrics.ts'
export { SERVICE_PORTS } from './service-ports.ts'
export type { ConsumerTimes } from './consumers/index.ts'
export type { RuleTimes } from './rules/index.ts'
export type { NotificationTimes } from './provisioning/index.ts'
export { createChannelReader } from './automation/index.ts'
