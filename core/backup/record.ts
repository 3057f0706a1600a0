/** Stores when a backup was completed, for `GET /health/database`. */
import type pg from 'pg'
import { LAST_BACKUP } from '../infrastructure/index.ts'

/** Called after the file is complete, with its size in bytes. */
export async function recordBackup(client: pg.Client, bytes: number): Promise<void> {
  await client.query(
    `INSERT INTO installation (name, value) VALUES ($1, to_jsonb($2::bigint))
     ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = now()`,
    [LAST_BACKUP, bytes],
  )
}
