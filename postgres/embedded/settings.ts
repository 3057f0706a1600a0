/**
 * The server's settings, all on its command line: `postgresql.conf` and ALTER SYSTEM cannot override them, and a new version of
 * Skein brings its own.
 */

export type SettingsChoice = {
  socketDir: string
  port: number
  clusterName: string
  /** Turns fsync and related settings off; for tests only. */
  isUnsafe: boolean
  /** Overrides of the tunable settings. */
  settings: Record<string, string>
}

/** Sized for a platform that runs beside its database within 400 MB. */
const TUNABLE: Record<string, string> = {
  max_connections: '100',
  shared_buffers: '64MB',
  wal_buffers: '8MB',
  work_mem: '8MB',
  maintenance_work_mem: '64MB',
  effective_cache_size: '512MB',
  // Group commit combines many small transactions into a large one; checkpoints stay rare and spread out.
  max_wal_size: '1GB',
  // Segments of the log are reused: commits wait while the server creates a new one.
  min_wal_size: '512MB',
  checkpoint_timeout: '15min',
  checkpoint_completion_target: '0.9',
  // There are no replicas; the processes of replication would have no use.
  wal_level: 'minimal',
  max_wal_senders: '0',
  max_logical_replication_workers: '0',
  max_worker_processes: '4',
  max_parallel_workers_per_gather: '1',
  autovacuum_max_workers: '2',
  io_method: 'sync',
  random_page_cost: '1.1',
  jit: 'off',
  log_checkpoints: 'off',
}

/** Settings on which the launcher and the guarantees of the platform depend. */
function fixed(choice: SettingsChoice): Record<string, string> {
  const durable = choice.isUnsafe ? 'off' : 'on'
  return {
    listen_addresses: '',
    // A list of names, quoted because a path may contain a comma or a space.
    unix_socket_directories: `"${choice.socketDir.replaceAll('"', '""')}"`,
    unix_socket_permissions: '0700',
    port: String(choice.port),
    cluster_name: choice.clusterName,
    update_process_title: 'on',
    shared_preload_libraries: '',
    fsync: durable,
    full_page_writes: durable,
    synchronous_commit: durable,
    ...(process.platform === 'darwin' && !choice.isUnsafe ? { wal_sync_method: 'fsync_writethrough' } : {}),
    timezone: 'UTC',
    log_timezone: 'UTC',
    lc_messages: 'C',
    logging_collector: 'off',
    log_destination: 'stderr',
    log_line_prefix: '[%b] ',
    // Statements and the values in DETAIL may contain secrets; the caller of a statement receives its error anyway.
    log_error_verbosity: 'terse',
    log_min_error_statement: 'panic',
    log_statement: 'none',
  }
}

/** The arguments after `postgres -D <cluster>`. */
export function serverArguments(choice: SettingsChoice): string[] {
  const settings = { ...TUNABLE, ...choice.settings, ...fixed(choice) }
  return Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
}
