/** Settings of the HTTP listeners. */
import { bytes, durationMs, flag, list, optionalText, port, text } from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'

export const HTTP_SETTINGS = {
  host: text('SKEIN_HOST', '127.0.0.1', 'Address that every listener binds to'),
  httpPort: port('SKEIN_HTTP_PORT', 8080, 'Port of the base address, which serves every HTTP path of the process'),
  servicePorts: flag(
    'SKEIN_SERVICE_PORTS',
    true,
    'Also listen on the default port of each service; a port in use gives a warning',
  ),
  tlsCert: optionalText('SKEIN_TLS_CERT', 'PEM file with the certificate of every TCP listener'),
  tlsKey: optionalText('SKEIN_TLS_KEY', 'PEM file with the key of SKEIN_TLS_CERT'),
  tlsCa: optionalText('SKEIN_TLS_CA', 'PEM file with the certificate authorities of client certificates'),
  corsOrigins: list('SKEIN_CORS_ORIGINS', [], 'Origins whose pages may call the API'),
  trustProxy: list(
    'SKEIN_TRUST_PROXY',
    [],
    'Addresses or subnets of reverse proxies whose X-Forwarded-For is trusted, and on the MQTT ports their PROXY protocol header (version 2)',
  ),
  maxBodyBytes: bytes(
    'SKEIN_MAX_BODY_BYTES',
    '1MiB',
    'Largest request body; bulk requests and module uploads have limits of their own',
  ),
  stopDelayMs: durationMs(
    'SKEIN_STOP_DELAY',
    '0s',
    'How long a stop continues to serve while /ready answers 503, so that a load balancer sends its requests elsewhere; longer than two of its health checks',
  ),
} as const

export type HttpConfig = ConfigOf<typeof HTTP_SETTINGS>
