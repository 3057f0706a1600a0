/** The address at which a worker serves modules to its site, from its settings. */
import { hostname } from 'node:os'
import { ServiceError } from '#core/errors/index.ts'
import { isLoopback } from '#proto/index.ts'
import type { WorkerConfig } from '../identity/config.ts'

/**
 * The listen address for workers of the site; undefined: it does not take part. Throws `malformed` with the setting to
 * change. Without TLS it listens only on loopback, unless SKEIN_GRPC_INSECURE allows more.
 */
export function checkPeerListener(config: WorkerConfig, isTls: boolean): { host: string; port: number } | undefined {
  const { host, peerPort: port, peerAddress, labels: known, insecure } = config
  if (port === undefined) return undefined
  if ((known['site'] ?? '') === '') {
    refuse('SKEIN_WORKER_PEER_PORT requires a site: add site=<name> to SKEIN_WORKER_LABELS')
  }
  if (peerAddress !== undefined && !/^[^\s]+:\d{1,5}$/.test(peerAddress)) {
    refuse(`SKEIN_WORKER_PEER_ADDRESS must be host:port, not "${peerAddress}"`)
  }
  if (!isTls && !insecure && !isLoopback(`${host}:${port}`)) {
    refuse(
      `SKEIN_HOST ${host} is not loopback and the connection to the manager has no TLS: workers of the site could not authenticate each other`,
    )
  }
  return { host, port }
}

/** The address that is advertised to other workers of the site. */
export function peerAddressOf({ host, peerAddress }: WorkerConfig, boundPort: number): string {
  if (peerAddress !== undefined) return peerAddress
  const isEverywhere = host === '0.0.0.0' || host === '::'
  const shown = isEverywhere ? hostname() : host
  return `${shown.includes(':') ? `[${shown}]` : shown}:${boundPort}`
}

function refuse(message: string): never {
  throw new ServiceError('malformed', message)
}
