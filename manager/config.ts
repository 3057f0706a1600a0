/** The settings of the task manager, and the rules between them (contract section 15). */
import { readFileSync } from 'node:fs'
import { choice, durationMs, flag, optionalText, port, secret, text } from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'
import { ServiceError } from '#core/errors/index.ts'

export const MANAGER_SETTINGS = {
  host: text('SKEIN_HOST', '127.0.0.1', 'Address that every listener binds to'),
  httpPort: port('SKEIN_MANAGER_HTTP_PORT', 7070, 'Port of tasks and workers over HTTP'),
  grpcPort: port(
    'SKEIN_MANAGER_GRPC_PORT',
    7071,
    'Port on which workers dial in (gRPC); 0 asks the system for a free one',
  ),
  auth: choice(
    'SKEIN_MANAGER_AUTH',
    ['auto', 'on', 'off'],
    'auto',
    'Whether tasks need a token: on, off, or auto (off only for requests of this very machine)',
  ),
  workerToken: secret(
    'SKEIN_WORKER_TOKEN',
    'Join token of workers; made at the first start and kept in the database when it is not given',
  ),
  proxyAddress: text(
    'SKEIN_PROXY_ADDRESS',
    '127.0.0.1:7072',
    'host:port of the module proxy, as manager and workers reach it',
  ),
  heartbeatIntervalMs: durationMs(
    'SKEIN_WORKER_HEARTBEAT',
    '5s',
    'Time between two heartbeats of a worker while there are few of them',
  ),
  minLeaseMs: durationMs(
    'SKEIN_WORKER_LEASE',
    '20s',
    'Shortest lease of a worker; what it held is given to others when it ends',
  ),
  tlsCert: optionalText('SKEIN_GRPC_TLS_CERT', 'PEM file with the certificate of the gRPC listeners'),
  tlsKey: optionalText('SKEIN_GRPC_TLS_KEY', 'PEM file with the key of SKEIN_GRPC_TLS_CERT'),
  insecure: flag('SKEIN_GRPC_INSECURE', false, 'Allow gRPC without TLS on an address other than loopback'),
}

export type ManagerConfig = ConfigOf<typeof MANAGER_SETTINGS>

const LOOPBACK = /^(127(\.\d{1,3}){3}|::1|localhost)$/

/**
 * The certificate of the gRPC listener, or undefined for plaintext, which is for loopback alone unless it is asked for.
 * Throws `malformed` with a sentence that says which variable to change.
 */
export function loadGrpcTls(
  config: Pick<ManagerConfig, 'host' | 'tlsCert' | 'tlsKey' | 'insecure'>,
): { cert: Buffer; key: Buffer } | undefined {
  const { tlsCert, tlsKey } = config
  if ((tlsCert === undefined) !== (tlsKey === undefined)) {
    throw new ServiceError('malformed', 'SKEIN_GRPC_TLS_CERT and SKEIN_GRPC_TLS_KEY belong together')
  }
  if (tlsCert !== undefined && tlsKey !== undefined)
    return { cert: readPem(tlsCert, 'SKEIN_GRPC_TLS_CERT'), key: readPem(tlsKey, 'SKEIN_GRPC_TLS_KEY') }
  if (config.insecure || LOOPBACK.test(config.host)) return undefined
  throw new ServiceError(
    'malformed',
    `SKEIN_HOST ${config.host} is not loopback: set SKEIN_GRPC_TLS_CERT and SKEIN_GRPC_TLS_KEY, or SKEIN_GRPC_INSECURE=true where something else encrypts`,
  )
}

function readPem(path: string, setting: string): Buffer {
  try {
    return readFileSync(path)
  } catch (error) {
    throw new ServiceError('malformed', `${setting} ${path} cannot be read: ${(error as Error).message}`, {
      cause: error,
    })
  }
}
