/** The settings of the platform, for programs that read them before they load it. */
export { COAP_SETTINGS } from './adapters/coap/config.ts'
export type { CoapConfig } from './adapters/coap/config.ts'
export { MQTT_SETTINGS } from './adapters/mqtt/config.ts'
export type { MqttConfig } from './adapters/mqtt/config.ts'
export { IDENTITY_SETTINGS } from './identity/config.ts'
export type { IdentityConfig } from './identity/config.ts'
export { PROVISIONING_SETTINGS } from './provisioning/config.ts'
export type { ProvisioningConfig } from './provisioning/config.ts'
