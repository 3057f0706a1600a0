/** The MQTT adapter: 3.1, 3.1.1 and 5.0 over TCP, TLS and WebSocket (contract sections 7.3 and 7.6). */
export { createBareExchange } from './bare.ts'
export { MQTT_SETTINGS } from './config.ts'
export type { MqttConfig } from './config.ts'
export { startMqttServer } from './server.ts'
export type { MqttServer, MqttServerOptions } from './server.ts'
