/** The settings of the platform. */
import {
  ARCHIVE_SETTINGS,
  COAP_SETTINGS,
  CONNECT_SETTINGS,
  IDENTITY_SETTINGS,
  MQTT_SETTINGS,
  PROVISIONING_SETTINGS,
  RULES_SETTINGS,
} from '#api/config.ts'
import { HTTP_SETTINGS } from '#http/settings.ts'
import type { ConfigsOf } from '#core/config/index.ts'
import { INFRASTRUCTURE_SETTINGS } from '#infrastructure/settings.ts'
import { MANAGER_SETTINGS } from '#manager/config.ts'

export const API_SETTINGS = {
  infrastructure: INFRASTRUCTURE_SETTINGS,
  http: HTTP_SETTINGS,
  identity: IDENTITY_SETTINGS,
  provisioning: PROVISIONING_SETTINGS,
  rules: RULES_SETTINGS,
  archive: ARCHIVE_SETTINGS,
  coap: COAP_SETTINGS,
  mqtt: MQTT_SETTINGS,
  connect: { ...CONNECT_SETTINGS, grpcPort: MANAGER_SETTINGS.grpcPort },
} as const

/** What `GET /connect` answers from. */
export function connectOf({ http, provisioning, coap, mqtt, connect }: ConfigsOf<typeof API_SETTINGS>) {
  const { grpcPort, ...settings } = connect
  const { mqttPort, mqttsPort } = mqtt
  const ownNames = http.tlsCert === undefined ? provisioning.tlsNames : undefined
  return { settings, listeners: { mqttPort, mqttsPort, coapPort: coap.coapPort, grpcPort, ownNames } }
}
