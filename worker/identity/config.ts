/** The settings of a worker (contract section 15). */
import { join } from 'node:path'
import {
  bytes,
  choice,
  durationMs,
  flag,
  labels,
  list,
  optionalBytes,
  optionalInteger,
  optionalText,
  secret,
  text,
} from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'
import { ISOLATION_LEVELS } from '../isolation/levels.ts'
import { MIN_WORKER_MEMORY_BYTES } from './memory.ts'

const MIN_BANDWIDTH_BYTES = 1024

export const WORKER_SETTINGS = {
  dataDir: text(
    'SKEIN_DATA_DIR',
    './data',
    'Folder of all data: embedded database, module cache, keys, first admin secret',
  ),
  workerDir: optionalText(
    'SKEIN_WORKER_DATA_DIR',
    'Folder of this worker: its id, unsent results and modules; every worker on a machine requires its own',
    { defaultText: 'worker/ in SKEIN_DATA_DIR' },
  ),
  programDir: optionalText(
    'SKEIN_PROGRAM_DIR',
    'Folder in which a program that is shipped as one file unpacks itself, once for each version; only the file reads it',
    { defaultText: '/var/lib/skein/programs as root, else skein/ in XDG_CACHE_HOME or ~/.cache' },
  ),
  managers: list(
    'SKEIN_WORKER_MANAGER',
    ['127.0.0.1:7071'],
    'Managers, host:port: the worker joins one of them, and another one when it is lost; --manager overrides it',
  ),
  token: secret('SKEIN_WORKER_TOKEN', 'Join token; required at the first start; --token-file names a file with it'),
  name: optionalText('SKEIN_WORKER_NAME', 'Display name of the worker', { defaultText: 'host name' }),
  labels: labels('SKEIN_WORKER_LABELS', 'Labels that tasks select workers by, such as zone=north,gpu=no'),
  slots: optionalInteger('SKEIN_WORKER_SLOTS', { min: 1, max: 1000 }, 'Number of runs that execute concurrently', {
    defaultText: 'number of cores',
  }),
  memoryBytes: optionalBytes(
    'SKEIN_WORKER_MEMORY',
    MIN_WORKER_MEMORY_BYTES,
    'Memory of the worker with its runners and runs, such as 256MiB: it takes runs only as far as their memory limits fit, and keeps no unused runner',
    { defaultText: 'not limited' },
  ),
  cacheBytes: bytes(
    'SKEIN_WORKER_CACHE_BYTES',
    '1GiB',
    'Size of the module cache; the least recently used module is evicted first',
  ),
  spoolBytes: bytes(
    'SKEIN_WORKER_SPOOL_BYTES',
    '256MiB',
    'Size of unacknowledged results above which the worker accepts no runs',
  ),
  bandwidthBytes: optionalBytes(
    'SKEIN_WORKER_BANDWIDTH',
    MIN_BANDWIDTH_BYTES,
    'Bytes per second of all downloads of modules together, such as 64KiB; modules from workers of the site are not limited',
    { defaultText: 'not limited' },
  ),
  drainMs: durationMs('SKEIN_WORKER_DRAIN', '10s', 'Grace period for runs when the worker is stopped'),
  isolation: choice(
    'SKEIN_WORKER_ISOLATION',
    ISOLATION_LEVELS,
    'process',
    'Weakest accepted isolation level of guests: namespace (bubblewrap), uid (separate users, requires root) or process (permission model of Node); the strongest available level is used',
  ),
  allowGc: flag(
    'SKEIN_WORKER_ALLOW_GC',
    false,
    'Accept modules with garbage-collected types, whose memory no limit covers',
  ),
  http: flag(
    'SKEIN_WORKER_HTTP',
    true,
    'Send HTTP requests of guests, to hosts that their task grants; false: tasks with such a grant run on other workers',
  ),
  httpHosts: list(
    'SKEIN_WORKER_HTTP_HOSTS',
    [],
    'Hosts (host or host:port) to which requests of guests can use plain HTTP, or which can have a private address; every task that grants them can reach them from this worker',
  ),
  host: text('SKEIN_HOST', '127.0.0.1', 'Address that every listener binds to'),
  peerPort: optionalInteger(
    'SKEIN_WORKER_PEER_PORT',
    { min: 0, max: 65_535 },
    'Port on which this worker serves modules to workers with the same label site; 0 selects a free port',
    { defaultText: 'none, modules come from manager and proxy' },
  ),
  peerAddress: optionalText(
    'SKEIN_WORKER_PEER_ADDRESS',
    'Advertised host:port of SKEIN_WORKER_PEER_PORT for workers of the site',
    { defaultText: 'SKEIN_HOST (the host name if that is every address) and the port' },
  ),
  tlsAuthority: optionalText(
    'SKEIN_GRPC_TLS_CA',
    'PEM file of the authority that signed the certificate of the manager',
  ),
  insecure: flag('SKEIN_GRPC_INSECURE', false, 'Allow gRPC without TLS on an address other than loopback'),
} as const

export type WorkerConfig = ConfigOf<typeof WORKER_SETTINGS>

/** The folder of the worker's own data. */
export function workerFolder({ workerDir, dataDir }: WorkerConfig): string {
  return workerDir ?? join(dataDir, 'worker')
}
