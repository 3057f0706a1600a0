/** The housekeeping of messages, each hour: partitions ahead, expired ones away, idempotency keys of yesterday and old batches away. */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sleep } from '#core/time.ts'
import { forgetExpiredKeys } from '../ingest/idempotency.ts'
import { replaceExpiredLatest } from '../projections/replace-latest.ts'
import { PRESENT_DAYS, createPartitions, maintainPartitions } from '../store/partitions.ts'
import { forgetOldBatches } from './batches.ts'

const INTERVAL_MS = 60 * 60 * 1000
/** The first round makes the partitions ahead of need, and gives way to the start. */
const FIRST_PAUSE_MS = 10_000

export type Retention = { stop(): Promise<void> }

/** Resolves when the partitions of the present exist; soon after, and then each hour, a round. */
export async function startRetention(database: Database, logger: Logger): Promise<Retention> {
  await createPartitions(database, PRESENT_DAYS)
  const stopping = new AbortController()

  async function loop(): Promise<void> {
    let pauseMs = FIRST_PAUSE_MS
    while (!stopping.signal.aborted) {
      try {
        await sleep(pauseMs, stopping.signal)
        pauseMs = INTERVAL_MS
        await replaceExpiredLatest(database)
        await maintainPartitions(database, logger)
        await forgetExpiredKeys(database)
        await forgetOldBatches(database)
      } catch (error) {
        if (stopping.signal.aborted) return
        logger.warn({ err: error }, 'failed to maintain the partitions of messages; retrying')
      }
    }
  }

  const running = loop()
  return {
    async stop() {
      stopping.abort()
      await running
    },
  }
}
