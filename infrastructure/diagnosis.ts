/**
 * The facts that decide whether the database keeps what it acknowledged, and those that show what delays it. They are read when an operator
 * asks.
 */
import { diskSpace } from '#postgres/embedded/index.ts'
import type { Database } from '#core/database/index.ts'
import { IS_DEAD } from '#core/nodes/index.ts'
import { sql } from '#core/sql.ts'
import { LAST_BACKUP } from '#postgres/last-backup.ts'

export type DatabaseDiagnosis = {
  /** The version of the server, such as `18.1`. */
  version: string
  isEmbedded: boolean
  /** It follows another server and cannot be written to. */
  isReplica: boolean
  sizeBytes: number
  /** The space in the file system of the embedded server. */
  disk: { freeBytes: number; totalBytes: number } | undefined
  settings: {
    fsync: string
    fullPageWrites: string
    synchronousCommit: string
    synchronousStandbyNames: string
    dataChecksums: string
  }
  /** Servers that follow this one; those that our user may see. */
  standbys: readonly { name: string; state: string; syncState: string; lagBytes: number | null }[]
  /** The longest transaction that has written something and is open. */
  oldestWrite: { seconds: number; application: string } | undefined
  /** Numbers of migrations: the newest that this program knows, and the newest in the database. */
  migrations: { known: number; applied: number; newest: string }
  /** The time at which `npm run backup` last completed, and the state of archiving when the server archives its write-ahead log. */
  backups: {
    lastAt: string | undefined
    /** The time at which the first migration was applied: a new installation has no backup yet. */
    installedAt: string | null
    archive: { lastAt: string | null; lastFailureAt: string | null } | undefined
  }
  /** Programs that were seen in the last minute. */
  nodes: readonly { id: string; kind: string; version: string; migration: number }[]
}

type Facts = {
  database: Database
  knownMigrations: number
  /** The data folder of the embedded server. Undefined for a server elsewhere. */
  dataDir: string | undefined
}

const STATEMENT_DEADLINE_MS = 5000
const MAX_ROWS = 100

/** Throws `unavailable` and `timeout` as every query does. */
export async function diagnoseDatabase({ database, knownMigrations, dataDir }: Facts): Promise<DatabaseDiagnosis> {
  const disk = dataDir === undefined ? undefined : await diskSpace(dataDir).catch(() => undefined)
  return await database.snapshot(async (tx) => {
    const { rows: servers } = await sql<{
      version: string
      isReplica: boolean
      sizeBytes: number
      fsync: string
      fullPageWrites: string
      synchronousCommit: string
      synchronousStandbyNames: string
      dataChecksums: string
    }>`SELECT split_part(current_setting('server_version'), ' ', 1) AS version, pg_is_in_recovery() AS "isReplica",
        pg_database_size(current_database()) AS "sizeBytes", current_setting('fsync') AS fsync,
        current_setting('full_page_writes') AS "fullPageWrites", current_setting('synchronous_commit') AS "synchronousCommit",
        current_setting('synchronous_standby_names') AS "synchronousStandbyNames",
        current_setting('data_checksums') AS "dataChecksums"`.execute(tx)
    const { rows: standbys } = await sql<DatabaseDiagnosis['standbys'][number]>`
      SELECT application_name AS name, coalesce(state, 'unknown') AS state, coalesce(sync_state, 'unknown') AS "syncState",
        CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint END AS "lagBytes"
      FROM pg_stat_replication ORDER BY application_name LIMIT ${MAX_ROWS}`.execute(tx)
    const { rows: writes } = await sql<{ seconds: number; application: string }>`
      SELECT extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds, application_name AS application
      FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()
      ORDER BY xact_start LIMIT 1`.execute(tx)
    const { rows: migrations } = await sql<{ number: number; name: string }>`
      SELECT number, name FROM migrations ORDER BY number DESC LIMIT 1`.execute(tx)
    const { rows: nodes } = await sql<DatabaseDiagnosis['nodes'][number]>`
      SELECT id, kind, version, migration FROM nodes WHERE NOT (${IS_DEAD})
      ORDER BY kind, id LIMIT ${MAX_ROWS}`.execute(tx)
    const { rows: backups } = await sql<{
      lastAt: string | null
      installedAt: string | null
      isArchiving: boolean
      archivedAt: string | null
      failedAt: string | null
    }>`SELECT (SELECT updated_at FROM installation WHERE name = ${LAST_BACKUP}) AS "lastAt",
        (SELECT min(applied_at) FROM migrations) AS "installedAt", current_setting('archive_mode') <> 'off' AS "isArchiving", last_archived_time AS "archivedAt", last_failed_time AS "failedAt" FROM pg_stat_archiver`.execute(
      tx,
    )
    const [server] = servers
    const [backup] = backups
    if (server === undefined) throw new Error('a SELECT without FROM gave no row')
    const { version, isReplica, sizeBytes, ...settings } = server
    const newest = migrations[0]
    return {
      version,
      isEmbedded: dataDir !== undefined,
      isReplica,
      sizeBytes,
      disk,
      settings,
      standbys,
      oldestWrite: writes[0],
      migrations: {
        known: knownMigrations,
        applied: newest?.number ?? 0,
        newest: newest === undefined ? '' : `${newest.number} ${newest.name}`,
      },
      backups: {
        lastAt: backup?.lastAt ?? undefined,
        installedAt: backup?.installedAt ?? null,
        archive:
          backup?.isArchiving === true ? { lastAt: backup.archivedAt, lastFailureAt: backup.failedAt } : undefined,
      },
      nodes,
    }
  }, STATEMENT_DEADLINE_MS)
}
