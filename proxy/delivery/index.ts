/** The proxy's face to workers and managers. */
export { createCallers } from './callers.ts'
export { moduleServiceHandlers } from './module-service.ts'
export type { DeliveryLimits } from './module-service.ts'
export { registryServiceHandlers } from './registry-service.ts'
export { listen, readTlsFiles } from './server.ts'
export type { Listener, ListenerTls } from './server.ts'
