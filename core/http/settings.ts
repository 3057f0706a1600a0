/** Settings of the HTTP listeners. */
import { bytes, flag, list, optionalText, port, text } from '../config/index.ts'
import type { ConfigOf } from '../config/index.ts'

export const HTTP_SETTINGS = {
  host: text('SKEIN_HOST', '127.0.0.1', 'Address that every listener binds to'),
  httpPort: port('SKEIN_HTTP_PORT', 8080, 'The base address: every HTTP path of every service of the process'),
  servicePorts: flag(
    'SKEIN_SERVICE_PORTS',
    true,
    'Answer on the per-service default ports too; a taken one is a warning',
  ),
  tlsCert: optionalText('SKEIN_TLS_CERT', 'PEM file with the certificate of every TCP listener'),
  tlsKey: optionalText('SKEIN_TLS_KEY', 'PEM file with the key of SKEIN_TLS_CERT'),
  tlsCa: optionalText('SKEIN_TLS_CA', 'PEM file with the authorities of client certificates'),
  corsOrigins: list('SKEIN_CORS_ORIGINS', [], 'Origins whose pages may call the API'),
  trustProxy: list('SKEIN_TRUST_PROXY', [], 'Addresses or subnets of reverse proxies whose X-Forwarded-For counts'),
  maxBodyBytes: bytes(
    'SKEIN_MAX_BODY_BYTES',
    '1MiB',
    'Largest request body; bulk calls and module uploads have limits of their own',
  ),
} as const

export type HttpConfig = ConfigOf<typeof HTTP_SETTINGS>
