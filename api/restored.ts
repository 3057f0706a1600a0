/**
 * What a database needs that was restored from a backup, before programs start on it. Devices have seen more than the backup has: one that compares
 * versions would take what it should become for older than what it knows, and never become it.
 */
export const AFTER_RESTORE: readonly string[] = [
  `UPDATE device_states
      SET version = greatest(version + 1, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint),
          notified_version = greatest(version + 1, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint)
    WHERE delta <> '{}'::jsonb`,
]
