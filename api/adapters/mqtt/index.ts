/** The MQTT adapter: 3.1, 3.1.1 and 5.0 over TCP, TLS and WebSocket (contract sections 7.3 and 7.6). */
export { BareExchange } from './bare.ts'
export { sessionRoutes } from './routes.ts'
export { MqttServer } from './server.ts'
export type { MqttServerOptions } from './server.ts'
export { startMqtt } from './start.ts'
export type { MqttOptions } from './start.ts'
export { createMqttUpgrades } from './websocket.ts'
export type { MqttUpgrades } from './websocket.ts'
