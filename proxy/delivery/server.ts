/** The gRPC listener of the proxy. */
import { readFile } from 'node:fs/promises'
import { Server, ServerCredentials, logVerbosity, setLogVerbosity } from '@grpc/grpc-js'
import { ServiceError } from '#core/errors/index.ts'
import { withDeadline } from '#core/time.ts'
import { ModuleService, RegistryService, serviceDefinition } from '#proto/index.ts'
import type { ServiceHandlers } from '#proto/index.ts'

export type Listener = { address: string; close(): Promise<void> }
export type ListenOptions = {
  host: string
  port: number
  /** Undefined: no TLS. */
  tls: ListenerTls | undefined
}

/** Certificate and key in PEM. */
export type ListenerTls = { cert: Buffer; key: Buffer }

/** A part of a push, and what is around it; other requests hold a reference, a digest and keys. */
const MAX_REQUEST_BYTES = 512 * 1024
const MAX_STREAMS_PER_CONNECTION = 256
/** A worker behind a dead link is noticed and its stream ended. */
const KEEPALIVE_MS = 30_000
const KEEPALIVE_TIMEOUT_MS = 10_000
/** Streams under way may end by themselves for so long; then they are cut, and workers resume elsewhere. */
const DRAIN_MS = 5_000

/** Binds and serves. Throws `unavailable` with what to do when the address cannot be bound. */
export async function listen(
  modules: ServiceHandlers<typeof ModuleService>,
  registries: ServiceHandlers<typeof RegistryService>,
  { host, port, tls }: ListenOptions,
): Promise<Listener> {
  // The library would write lines of its own to stderr beside the error that it reports.
  setLogVerbosity(logVerbosity.NONE)
  const server = new Server({
    'grpc.max_receive_message_length': MAX_REQUEST_BYTES,
    'grpc.max_concurrent_streams': MAX_STREAMS_PER_CONNECTION,
    'grpc.keepalive_time_ms': KEEPALIVE_MS,
    'grpc.keepalive_timeout_ms': KEEPALIVE_TIMEOUT_MS,
  })
  server.addService(serviceDefinition(ModuleService), modules)
  server.addService(serviceDefinition(RegistryService), registries)
  const credentials =
    tls === undefined
      ? ServerCredentials.createInsecure()
      : ServerCredentials.createSsl(null, [{ cert_chain: tls.cert, private_key: tls.key }])
  const shownHost = host.includes(':') ? `[${host}]` : host
  const bound = await new Promise<number>((resolve, reject) => {
    server.bindAsync(`${shownHost}:${port}`, credentials, (error, boundPort) => {
      if (error === null) return resolve(boundPort)
      server.forceShutdown()
      reject(
        new ServiceError(
          'unavailable',
          `the proxy cannot listen on ${shownHost}:${port}: is it taken? Set SKEIN_PROXY_PORT to another port`,
          {
            cause: error,
          },
        ),
      )
    })
  })
  return { address: `${shownHost}:${bound}`, close: () => close(server) }
}

async function close(server: Server): Promise<void> {
  const drained = new Promise<void>((resolve) => server.tryShutdown(() => resolve()))
  await withDeadline(drained, DRAIN_MS, 'draining').catch(() => server.forceShutdown())
}

/** The files of the settings; undefined without any. Throws `malformed` for one that cannot be read. */
export async function readTlsFiles(files: {
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
