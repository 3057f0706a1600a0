/** The folder: adds new batches to the rollups every two seconds. One of all processes works at a time. */
import type { Database } from '#core/database/index.ts'
import { startRounds } from '#core/log/index.ts'
import type { Rounds } from '#core/log/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { foldNext } from './fold.ts'

const INTERVAL_MS = 2_000
/** Backoff after a failed round doubles up to this. */
const MAX_BACKOFF_MS = 30_000

export function startFolder(database: Database, logger: Logger, intervalMs: number = INTERVAL_MS): Rounds {
  let backoffMs = intervalMs
  return startRounds(async () => {
    try {
      const folded = await foldNext(database)
      backoffMs = intervalMs
      return { pauseMs: folded?.hasMore === true ? 0 : intervalMs, isPokable: true }
    } catch (error) {
      logger.warn({ err: error }, 'folding messages into rollups failed and is tried again')
      backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS)
      return { pauseMs: backoffMs, isPokable: false }
    }
  })
}
