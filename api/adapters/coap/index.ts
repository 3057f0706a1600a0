/** The CoAP adapter: devices publish, read and observe over UDP (contract section 7.4). */
export { COAP_METRICS } from './metrics.ts'
export { CoapServer } from './server.ts'
export type { CoapServerDeps } from './server.ts'
