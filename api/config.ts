/**
 * The settings and ports of the platform, the list of sealed columns, and what a restored database needs, for programs that need them before they load the
 * platform.
 */
import { COAP_SETTINGS } from './adapters/coap/config.ts'
import { MQTT_SETTINGS } from './adapters/mqtt/config.ts'
import { CONNECT_SETTINGS } from './connect/config.ts'
import { IDENTITY_SETTINGS } from './identity/config.ts'
import { ARCHIVE_SETTINGS } from './messages/archive/config.ts'
import { PROVISIONING_SETTINGS } from './provisioning/config.ts'
import { RULES_SETTINGS } from './rules/config.ts'

/** The settings of each part of the platform. Programs, their help and the documentation take them from here. */
export const PLATFORM_SETTINGS = {
  identity: IDENTITY_SETTINGS,
  provisioning: PROVISIONING_SETTINGS,
  coap: COAP_SETTINGS,
  connect: CONNECT_SETTINGS,
  rules: RULES_SETTINGS,
  archive: ARCHIVE_SETTINGS,
  mqtt: MQTT_SETTINGS,
} as const

export { IDENTITY_SETTINGS, PROVISIONING_SETTINGS }
export type { CoapConfig } from './adapters/coap/config.ts'
export type { MqttConfig } from './adapters/mqtt/config.ts'
export type { ConnectConfig } from './connect/config.ts'
export type { IdentityConfig } from './identity/config.ts'
export type { ArchiveConfig } from './messages/archive/config.ts'
export type { ProvisioningConfig } from './provisioning/config.ts'
export { PROCESSES_SETTINGS } from './processes.ts'
export { PUBLISHED_SETTINGS } from './published.ts'
export { AFTER_RESTORE } from './restored.ts'
export type { RulesConfig } from './rules/config.ts'
export { SEALED_COLUMNS } from './sealed.ts'
export { SERVICE_PORTS } from './service-ports.ts'
