/** The housekeeping of messages, each hour: partitions ahead, expired ones away, idempotency keys of yesterday and old batches away. */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sleep } from '#core/time.ts'
import { forgetExpiredKeys } from '../ingest/idempotency.ts'
import { replaceExpiredLatest } from '../projections/latest.ts'
import { forgetOldBatches } from './batches.ts'
import { createPartitions, maintainPartitions } from './partitions.ts'

const INTERVAL_MS = 60 * 60 * 1000

export type Keeper = { stop(): Promise<void> }

/** Resolves when the partitions of the present exist; from then on a round each hour. */
export async function startKeeper(database: Database, logger: Logger): Promise<Keeper> {
  await createPartitions(database)
  const stopping = new AbortController()

  async function loop(): Promise<void> {
    while (!stopping.signal.aborted) {
      try {
        await sleep(INTERVAL_MS, stopping.signal)
        await replaceExpiredLatest(database)
        await maintainPartitions(database, logger)
        await forgetExpiredKeys(database)
        await forgetOldBatches(database)
      } catch (error) {
        if (stopping.signal.aborted) return
        logger.warn({ err: error }, 'housekeeping of messages failed and is tried again')
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
