/** The settings of the platform. */
import { COAP_SETTINGS, IDENTITY_SETTINGS, MQTT_SETTINGS, PROVISIONING_SETTINGS } from '#api/config.ts'
import { HTTP_SETTINGS } from '#core/http/settings.ts'
import { INFRASTRUCTURE_SETTINGS } from '#core/infrastructure/settings.ts'

export const API_SETTINGS = {
  infrastructure: INFRASTRUCTURE_SETTINGS,
  http: HTTP_SETTINGS,
  identity: IDENTITY_SETTINGS,
  provisioning: PROVISIONING_SETTINGS,
  coap: COAP_SETTINGS,
  mqtt: MQTT_SETTINGS,
} as const
