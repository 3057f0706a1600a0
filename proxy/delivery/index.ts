/** The API of the proxy for workers, managers and standard tools. */
export { ProxyAccess } from './access.ts'
export { createProxyToken } from './proxy-token.ts'
export type { ProxyToken } from './proxy-token.ts'
export { Registry } from './registry.ts'
export type { DeliveryLimits } from './registry.ts'
export { proxyRoutes } from './routes.ts'
export { readListenerTls, startListener } from './server.ts'
export type { Listener, ListenerTls } from './server.ts'
