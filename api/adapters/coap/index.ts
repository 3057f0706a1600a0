/** The CoAP adapter: devices publish, read and observe over UDP (contract section 7.4). */
export { startCoapServer } from './server.ts'
export type { CoapServer, CoapServerDeps } from './server.ts'
