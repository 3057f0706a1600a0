/** The ports of the platform. */
import { SERVICE_PORTS } from '#api/config.ts'
import type { CoapConfig } from '#api/config.ts'
import type { HttpConfig } from '#http/settings.ts'
import type { ListenerPort } from '#http/index.ts'

type PortsConfig = {
  http: Pick<HttpConfig, 'httpPort' | 'servicePorts'>
  coap: CoapConfig
}

/** The TCP ports of HTTP, the base address first. */
export function apiPorts({ http, coap: { coapPort } }: PortsConfig): ListenerPort[] {
  const servicePorts = http.servicePorts ? [...SERVICE_PORTS.keys()] : []
  return [
    { port: http.httpPort, isOptional: false, setting: 'SKEIN_HTTP_PORT' },
    ...(coapPort === 0 ? [] : [{ port: coapPort, isOptional: true, setting: 'SKEIN_COAP_PORT' }]),
    ...servicePorts.map((port) => ({ port, isOptional: true, setting: 'SKEIN_SERVICE_PORTS' })),
  ]
}

/** The name of the service on a port; `base` on others. */
export function serviceOfPort(coapPort: number, base: string): (port: number | undefined) => string {
  return (port) => (port === coapPort ? 'coap' : (SERVICE_PORTS.get(port ?? 0) ?? base))
}
