/** The module proxy: a pull-through registry that brings modules to workers, verified, cached, and once for all of them. */
export { PROXY_SETTINGS } from './config.ts'
export type { ProxyConfig } from './config.ts'
export { PROXY_LIMITS, startProxy } from './proxy.ts'
export type { Uploads } from './source/index.ts'
export type { Proxy, ProxyLimits, ProxyOptions } from './proxy.ts'
