/** Stores when a backup was completed, for `GET /health/database`. */
import type pg from 'pg'

/** The row of `installation` about the last backup: its value is the size of the file in bytes, `updated_at` the time. */
export const LAST_BACKUP = 'last_backup'

/** Called after the file is complete, with its size in bytes. */
export async function recordBackup(client: pg.Client, bytes: number): Promise<void> {
  await client.query(
    `INSERT INTO installation (name, value) VALUES ($1, to_jsonb($2::bigint))
     ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = now()`,
    [LAST_BACKUP, bytes],
  )
}
