/** Settings of the CoAP adapter (contract section 15). */
import { port } from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'

export const COAP_SETTINGS = {
  coapPort: port('SKEIN_COAP_PORT', 5683, 'UDP port of CoAP, with /health and /metrics on the same TCP port; 0: off'),
} as const

export type CoapConfig = ConfigOf<typeof COAP_SETTINGS>
