/** The HTTP listener of the proxy. */
import { readFile } from 'node:fs/promises'
import { readBuildInfo } from '#core/build-info.ts'
import { ServiceError } from '#core/errors/index.ts'
import { createHttpApp, listen } from '#http/index.ts'
import type { Metrics, RoutePlugin } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Readiness } from '#core/readiness/index.ts'
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
  readiness: Readiness
  metrics: Metrics
  logger: Logger
}

/** Largest body of a manager's request: a reference, digests, public keys. */
const MAX_BODY_BYTES = 256 * 1024

/** Binds and serves. Throws `unavailable` with a remedy if the address cannot be bound. */
export async function startListener({
  host,
  port,
  tls,
  access,
  routes,
  readiness,
  metrics,
  logger,
}: ListenerOptions): Promise<Listener> {
  const app = createHttpApp({
    logger,
    health: { build: readBuildInfo(), metrics, readiness, serviceOf: () => 'proxy' },
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

/** The files of the settings; undefined without any. Throws `malformed` for an unreadable file. */
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
    throw new ServiceError('malformed', `cannot read ${path} of ${variable}`, { cause: error })
  }
}
