/**
 * Epochs of positions. The id of a transaction may be used again: after a failover or a crash that lost it, and in a database
 * that was restored into another server. So positions add an offset to ids, and each start of the database server begins an
 * epoch with an offset above every earlier position (`ensure_position_epoch` in the schema).
 */
import type pg from 'pg'
import { ServiceError } from '../errors/index.ts'
import { monotonicMs, sleep } from '../time.ts'

/** The maximum wait for another connection that begins the epoch. Its COMMIT may wait for a synchronous standby. */
const WAIT_DEADLINE_MS = 10_000
/** The pauses between two looks. */
const MIN_PAUSE_MS = 10
const MAX_PAUSE_MS = 200

/**
 * One connection begins the epoch; the others do not wait for it in the server. The server notices the end of a waiting connection
 * only when its wait is over: connections that time out and are made again would use up `max_connections`.
 */
const ENSURE_EPOCH = `
  SELECT CASE
    WHEN EXISTS (SELECT FROM position_epoch WHERE server_started_at = pg_postmaster_start_time()) THEN false
    WHEN pg_try_advisory_xact_lock(hashtextextended('position epoch', 0)) THEN ensure_position_epoch()
  END AS began`

/**
 * Called on each new connection before its first statement; the schema must exist. True when this call began an epoch. Throws
 * while the server is a standby that accepts no writes, and `unavailable` when another connection does not complete the beginning of
 * the epoch in time.
 */
export async function ensurePositionEpoch(client: pg.ClientBase): Promise<boolean> {
  const deadlineMs = monotonicMs() + WAIT_DEADLINE_MS
  for (let pauseMs = MIN_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)) {
    const { rows } = await client.query<{ began: boolean | null }>(ENSURE_EPOCH)
    const began = rows[0]?.began ?? null
    if (began !== null) return began
    if (monotonicMs() > deadlineMs)
      throw new ServiceError('unavailable', 'the database has not replicated the beginning of its epoch of positions')
    await sleep(pauseMs)
  }
}
