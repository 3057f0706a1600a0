/**
 * Samples how many clients and workers are online, in each five minutes on one node. The row of the platform decides which: it is
 * inserted first, and the transaction of the node that inserts it adds the rows of the domains.
 */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startPeriodicRounds } from '#core/rounds.ts'
import type { PeriodicRounds } from '#core/rounds.ts'
import { countAliveWorkers } from '#queues/index.ts'
import { SLOT_SECONDS, deleteOldSamples, insertPlatformSample, insertSamples } from './repository.ts'

/** The first sample follows soon after the start, with a delay that keeps it out of the start itself. */
const FIRST_PAUSE_MS = 10_000
const SLOT_MS = SLOT_SECONDS * 1000

/**
 * The time until the middle of the next slot. A clock that differs from that of the database by less than half a slot leaves no slot out.
 */
const untilNextSlot = (nowMs: number) => SLOT_MS - ((nowMs + SLOT_MS / 2) % SLOT_MS)

export function startSampling(database: Database, logger: Logger): PeriodicRounds {
  return startPeriodicRounds({
    firstPauseMs: FIRST_PAUSE_MS,
    pauseMs: () => untilNextSlot(Date.now()),
    round: () => sample(database),
    onFailure: (error) =>
      logger.warn(
        { err: error },
        'failed to sample clients and workers that are online; the next sample follows in five minutes',
      ),
  })
}

/** False when the present slot was sampled before. */
export async function sample(database: Database): Promise<boolean> {
  return await database.transaction(async (tx) => {
    const workers = await countAliveWorkers(tx)
    const ofPlatform = workers.find(({ domainKey }) => domainKey === null)?.workers ?? 0
    if (!(await insertPlatformSample(tx, ofPlatform))) return false
    await insertSamples(
      tx,
      workers.filter((row): row is { domainKey: number; workers: number } => row.domainKey !== null),
    )
    await deleteOldSamples(tx)
    return true
  })
}
