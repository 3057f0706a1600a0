/**
 * The module proxy: a pull-through registry that delivers modules to workers, verified and cached, with one pull for all
 * of them.
 */
export { PROXY_SETTINGS } from './config.ts'
export type { ProxyConfig } from './config.ts'
export { PROXY_METRICS } from './metrics.ts'
export { PROXY_LIMITS, startProxy } from './proxy.ts'
export type { Uploads } from './source/index.ts'
export type { Proxy, ProxyLimits, ProxyOptions } from './proxy.ts'
