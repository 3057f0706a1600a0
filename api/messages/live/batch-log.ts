/** The changelog of batches, as used by live delivery. */
import { LOG_START } from '#core/changelog/index.ts'
import type { LogRow, LogSnapshot, LogTable } from '#core/changelog/index.ts'
import type { StoredBatch } from './stored.ts'
import type { LiveToken } from './token.ts'

export const BATCH_LOG: LogTable = { name: 'ingest_batches', columns: ['arrived_at', 'envelopes'] }

/** Converts a row with the columns of `BATCH_LOG`. */
export function batchOf(row: LogRow): StoredBatch {
  const { arrived_at: arrivedAt, envelopes } = row as { arrived_at: string; envelopes: string | null } & LogRow
  return { ...row.position, arrivedAt, envelopes }
}

/** The position of a follower that has received everything that the snapshot saw. */
export function tokenOf(snapshot: LogSnapshot): LiveToken {
  return { snapshot, position: LOG_START }
}
