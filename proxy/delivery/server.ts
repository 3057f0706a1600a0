/** The HTTP listener of the proxy. */
import { readFile } from 'node:fs/promises'
import { readBuildInfo } from '#core/build-info.ts'
import { ServiceError } from '#core/errors/index.ts'
import { createHttpApp, createMetrics, listen } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { ProxyAccess } from './access.ts'

export type Listener = { address: string; close(): Promise<void> }

/** Certificate and key in PEM. */
export type ListenerTls = { cert: Buffer; key: Buffer }

export type ListenerOptions = {
  host: string
  port: number
  /** Undefined: no TLS. */
  tls: ListenerTls | undefined
  access: ProxyAccess
  routes: RoutePlugin
  logger: Logger
}

/** Of what managers ask: a reference, digests, public keys. */
const MAX_BODY_BYTES = 256 * 1024

/** Binds and serves. Throws `unavailable` with what to do when the address cannot be bound. */
export async function startListener({ host, port, tls, access, routes, logger }: ListenerOptions): Promise<Listener> {
  const app = createHttpApp({
    logger,
    health: { build: readBuildInfo(), metrics: createMetrics(), serviceOf: () => 'proxy' },
    maxBodyBytes: MAX_BODY_BYTES,
    corsOrigins: [],
    trustProxy: [],
    authenticate: (request) => access.requireManager(request.headers.authorization),
  })
  await routes(app)
  const ports = [{ port, isOptional: false, setting: 'SKEIN_PROXY_PORT' }]
  const listeners = await listen(app, { host, ports, tls, logger })
  const shownHost = host.includes(':') ? `[${host}]` : host
  return { address: `${shownHost}:${listeners.ports[0]}`, close: () => listeners.stop() }
}

/** The files of the settings; undefined without any. Throws `malformed` for one that cannot be read. */
export async function readListenerTls(files: {
  tlsCert: string | undefined
  tlsKey: string | undefined
}): Promise<ListenerTls | undefined> {
  if (files.tlsCert === undefined || files.tlsKey === undefined) return undefined
  const [cert, key] = await Promise.all([
    readPem('SKEIN_GRPC_TLS_CERT', files.tlsCert),
    readPem('SKEIN_GRPC_TLS_KEY', files.tlsKey),
  ])
  return { cert, key }
}

async function readPem(variable: string, path: string): Promise<Buffer> {
  try {
    return await readFile(path)
  } catch (error) {
    throw new ServiceError('malformed', `${variable} names a file that cannot be read: ${path}`, { cause: error })
  }
}
