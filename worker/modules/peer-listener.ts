/** Where a worker gives modules to others of its site, by its settings. */
import { hostname } from 'node:os'
import { ServiceError } from '#core/errors/index.ts'
import { isLoopback } from '#proto/index.ts'
import type { WorkerConfig } from '../identity/config.ts'

/**
 * Where the worker listens for others of its site; undefined: it takes no part. Throws `malformed` with what to change.
 * Without TLS only loopback is listened on, unless SKEIN_GRPC_INSECURE allows more.
 */
export function checkPeerListener(config: WorkerConfig, isTls: boolean): { host: string; port: number } | undefined {
  const { host, peerPort: port, peerAddress, labels: known, insecure } = config
  if (port === undefined) return undefined
  if ((known['site'] ?? '') === '') {
    refuse('SKEIN_WORKER_PEER_PORT is for workers of one site: add site=<name> to SKEIN_WORKER_LABELS')
  }
  if (peerAddress !== undefined && !/^[^\s]+:\d{1,5}$/.test(peerAddress)) {
    refuse(`SKEIN_WORKER_PEER_ADDRESS must be host:port, not "${peerAddress}"`)
  }
  if (!isTls && !insecure && !isLoopback(`${host}:${port}`)) {
    refuse(
      `SKEIN_HOST ${host} is not loopback and the manager is reached without TLS: workers of the site would not know each other`,
    )
  }
  return { host, port }
}

/** What others of the site are told. */
export function peerAddressOf({ host, peerAddress }: WorkerConfig, boundPort: number): string {
  if (peerAddress !== undefined) return peerAddress
  const isEverywhere = host === '0.0.0.0' || host === '::'
  const shown = isEverywhere ? hostname() : host
  return `${shown.includes(':') ? `[${shown}]` : shown}:${boundPort}`
}

function refuse(message: string): never {
  throw new ServiceError('malformed', message)
}
