/** Addresses for devices and workers, where a proxy stands before the listeners. HTTP and WebSocket have SKEIN_PUBLIC_URL. */
import { optionalAddress, optionalUrl } from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'

export const CONNECT_SETTINGS = {
  mqttPublicUrl: optionalUrl(
    'SKEIN_MQTT_PUBLIC_URL',
    ['mqtt', 'mqtts'],
    'Address of MQTT for devices; if unset, the host of SKEIN_PUBLIC_URL with the ports of the listeners',
  ),
  coapPublicUrl: optionalUrl(
    'SKEIN_COAP_PUBLIC_URL',
    ['coap', 'coaps'],
    'Address of CoAP for devices; if unset, the host of SKEIN_PUBLIC_URL with the port of the listener',
  ),
  grpcPublicAddress: optionalAddress(
    'SKEIN_GRPC_PUBLIC_ADDRESS',
    'host:port of the task manager for workers; if unset, the host of SKEIN_PUBLIC_URL with SKEIN_MANAGER_GRPC_PORT',
  ),
} as const

export type ConnectConfig = ConfigOf<typeof CONNECT_SETTINGS>
