/** Hourly maintenance: creates partitions ahead, drops expired ones, deletes expired idempotency keys and old batches. */
import { deleteOldQuotaDays } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startPeriodicRounds } from '#core/rounds.ts'
import type { PeriodicRounds } from '#core/rounds.ts'
import { deleteExpiredKeys } from '../ingest/idempotency.ts'
import { deleteDroppedCounts, deleteDroppedWeeks } from '../projections/dropped-weeks.ts'
import { replaceExpiredLatest } from '../projections/replace-latest.ts'
import { deleteOldMinutes } from '../projections/usage.ts'
import { PRESENT_DAYS, createPartitions, maintainPartitions } from '../store/partitions.ts'
import { deleteOldBatches } from './batches.ts'

const INTERVAL_MS = 60 * 60 * 1000
/** The first round runs soon after the start, with a delay that keeps it out of the start itself. */
const FIRST_PAUSE_MS = 10_000

/** Resolves when the current partitions exist. The first round follows soon after, then one each hour. */
export async function startRetention(database: Database, logger: Logger): Promise<PeriodicRounds> {
  await createPartitions(database, PRESENT_DAYS)
  return startPeriodicRounds({
    firstPauseMs: FIRST_PAUSE_MS,
    pauseMs: INTERVAL_MS,
    async round() {
      await replaceExpiredLatest(database)
      await maintainPartitions(database, logger)
      await deleteDroppedWeeks(database)
      await deleteDroppedCounts(database)
      await deleteExpiredKeys(database)
      await deleteOldBatches(database)
      await deleteOldMinutes(database)
      await deleteOldQuotaDays(database)
    },
    onFailure: (error) => logger.warn({ err: error }, 'failed to maintain the partitions of messages; retrying'),
  })
}
