/**
 * The settings and ports of the platform and the list of sealed columns, for programs that need them before they load the
 * platform.
 */
export { COAP_SETTINGS } from './adapters/coap/config.ts'
export type { CoapConfig } from './adapters/coap/config.ts'
export { ARCHIVE_SETTINGS } from './messages/archive/config.ts'
export type { ArchiveConfig } from './messages/archive/config.ts'
export { MQTT_SETTINGS } from './adapters/mqtt/config.ts'
export type { MqttConfig } from './adapters/mqtt/config.ts'
export { CONNECT_SETTINGS } from './connect/config.ts'
export type { ConnectConfig } from './connect/config.ts'
export { IDENTITY_SETTINGS } from './identity/config.ts'
export type { IdentityConfig } from './identity/config.ts'
export { PROVISIONING_SETTINGS } from './provisioning/config.ts'
export type { ProvisioningConfig } from './provisioning/config.ts'
export { PROCESSES_SETTINGS } from './processes.ts'
export { PUBLISHED_SETTINGS } from './published.ts'
export { RULES_SETTINGS } from './rules/config.ts'
export type { RulesConfig } from './rules/config.ts'
export { SEALED_COLUMNS } from './sealed.ts'
export { SERVICE_PORTS } from './service-ports.ts'
