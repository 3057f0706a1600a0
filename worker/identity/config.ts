/** The settings of a worker (contract section 15). */
import { join } from 'node:path'
import {
  bytes,
  choice,
  durationMs,
  flag,
  labels,
  optionalInteger,
  optionalText,
  secret,
  text,
} from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'
import { ISOLATION_LEVELS } from '../isolation/levels.ts'

export const WORKER_SETTINGS = {
  dataDir: text('SKEIN_DATA_DIR', './data', 'Folder of all data; a worker keeps its own in worker/ below it'),
  workerDir: optionalText(
    'SKEIN_WORKER_DATA_DIR',
    'Folder of this worker alone: its id, unsent results and modules; two workers on one machine need two',
    { defaultText: 'worker/ in SKEIN_DATA_DIR' },
  ),
  manager: text('SKEIN_WORKER_MANAGER', '127.0.0.1:7071', 'Manager to join, host:port; --manager overrides it'),
  token: secret('SKEIN_WORKER_TOKEN', 'Join token; required at the first start; --token overrides it'),
  name: optionalText('SKEIN_WORKER_NAME', 'Name shown to people', { defaultText: 'host name' }),
  labels: labels('SKEIN_WORKER_LABELS', 'Labels that tasks select workers by, such as zone=north,gpu=no'),
  slots: optionalInteger('SKEIN_WORKER_SLOTS', { min: 1, max: 1000 }, 'Runs that execute at a time', {
    defaultText: 'number of cores',
  }),
  cacheBytes: bytes('SKEIN_WORKER_CACHE_BYTES', '1GiB', 'Size of the module cache; the least recently used goes first'),
  spoolBytes: bytes('SKEIN_WORKER_SPOOL_BYTES', '256MiB', 'Unacknowledged results beyond which no new work is taken'),
  drainMs: durationMs('SKEIN_WORKER_DRAIN', '10s', 'Time that runs get to end when the worker is stopped'),
  isolation: choice(
    'SKEIN_WORKER_ISOLATION',
    ISOLATION_LEVELS,
    'process',
    'Weakest isolation of guests that this worker starts with: namespace (bubblewrap), uid (users of their own, as root) or process (permission model of Node); the strongest one that works is used',
  ),
  allowGc: flag('SKEIN_WORKER_ALLOW_GC', false, 'Accept modules with garbage-collected types, which no limit bounds'),
  host: text('SKEIN_HOST', '127.0.0.1', 'Address that every listener binds to'),
  peerPort: optionalInteger(
    'SKEIN_WORKER_PEER_PORT',
    { min: 0, max: 65_535 },
    'Port where this worker gives modules to workers with the same label site; 0 asks the system for a free one',
    { defaultText: 'none, every worker asks manager and proxy' },
  ),
  peerAddress: optionalText(
    'SKEIN_WORKER_PEER_ADDRESS',
    'host:port under which workers of the site reach SKEIN_WORKER_PEER_PORT',
    { defaultText: 'SKEIN_HOST, or the host name where that is every address, and the port' },
  ),
  tlsAuthority: optionalText(
    'SKEIN_GRPC_TLS_CA',
    'PEM file of the authority that signed the certificate of the manager',
  ),
  insecure: flag('SKEIN_GRPC_INSECURE', false, 'Allow gRPC without TLS on an address other than loopback'),
} as const

export type WorkerConfig = ConfigOf<typeof WORKER_SETTINGS>

/** Where the worker keeps what is its own. */
export function workerFolder({ workerDir, dataDir }: WorkerConfig): string {
  return workerDir ?? join(dataDir, 'worker')
}
