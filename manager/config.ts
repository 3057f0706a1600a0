/** The settings of the task manager, and the rules between them (contract section 15). */
import { choice, durationMs, flag, optionalText, port, secret, text } from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'

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
    'Whether tasks need a token: on, off, or auto (tasks of no domain need none from this very machine; on with SKEIN_TRUST_PROXY or a SKEIN_PUBLIC_URL off loopback)',
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
  proxyToken: secret(
    'SKEIN_PROXY_TOKEN',
    'What managers and the module proxy know each other by; needed where they do not share SKEIN_DATA_DIR',
    { defaultText: 'the manager makes one, proxy-token in SKEIN_DATA_DIR' },
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
  keptRunsMs: durationMs(
    'SKEIN_TASK_RUN_RETENTION',
    '720h',
    'How long runs are kept after their end; the newest start of a task stays',
  ),
  tlsCert: optionalText(
    'SKEIN_GRPC_TLS_CERT',
    'PEM file with the certificate of the gRPC listeners; off loopback one is made where none is given',
  ),
  tlsKey: optionalText('SKEIN_GRPC_TLS_KEY', 'PEM file with the key of SKEIN_GRPC_TLS_CERT'),
  insecure: flag('SKEIN_GRPC_INSECURE', false, 'Allow gRPC without TLS on an address other than loopback'),
}

export type ManagerConfig = ConfigOf<typeof MANAGER_SETTINGS>
