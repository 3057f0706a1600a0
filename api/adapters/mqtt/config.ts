/** Settings of the MQTT adapter (contract section 15). */
import { choice, integer, port } from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'

export const MQTT_SETTINGS = {
  mqttPort: port('SKEIN_MQTT_PORT', 1883, 'TCP port of MQTT; 0: off'),
  mqttsPort: port(
    'SKEIN_MQTTS_PORT',
    8883,
    'TCP port of MQTT over TLS, with SKEIN_TLS_CERT or a certificate of the own authority; 0: off',
  ),
  mqttProfile: choice(
    'SKEIN_MQTT_PROFILE',
    ['product', 'conformance'],
    'product',
    'conformance: a bare broker for public test suites (anonymous, free topics, nothing stored), on loopback only',
  ),
  mqttSessionsPerClient: integer(
    'SKEIN_MQTT_SESSIONS_PER_CLIENT',
    20,
    { min: 1, max: 100_000 },
    'MQTT sessions that one client may have, those without a connection included; the next CONNECT is refused',
  ),
} as const

export type MqttConfig = ConfigOf<typeof MQTT_SETTINGS>
