/** The settings of the platform. */
import { PLATFORM_SETTINGS } from '#api/config.ts'
import { HTTP_SETTINGS } from '#http/settings.ts'
import type { ConfigsOf } from '#core/config/index.ts'
import { INFRASTRUCTURE_SETTINGS } from '#infrastructure/settings.ts'
import { MANAGER_SETTINGS } from '#manager/config.ts'

export const API_SETTINGS = {
  infrastructure: INFRASTRUCTURE_SETTINGS,
  http: HTTP_SETTINGS,
  ...PLATFORM_SETTINGS,
  connect: { ...PLATFORM_SETTINGS.connect, grpcPort: MANAGER_SETTINGS.grpcPort },
} as const

type Config = ConfigsOf<typeof API_SETTINGS>
/** The settings that are an option of the platform as they are. */
type PartConfigs = Omit<Config, 'infrastructure' | 'http' | 'identity' | 'coap' | 'mqtt' | 'connect'>

/** The options of the platform that come from its settings alone. A new part without a line here is an error of the compiler. */
export function configuredOf(config: Config) {
  const parts: PartConfigs = { provisioning: config.provisioning, rules: config.rules, archive: config.archive }
  return { ...parts, config: config.identity, connect: connectOf(config) }
}

/** What `GET /connect` answers from. */
function connectOf({ http, provisioning, coap, mqtt, connect }: Config) {
  const { grpcPort, ...settings } = connect
  const { mqttPort, mqttsPort } = mqtt
  const ownNames = http.tlsCert === undefined ? provisioning.tlsNames : undefined
  return { settings, listeners: { mqttPort, mqttsPort, coapPort: coap.coapPort, grpcPort, ownNames } }
}
