/** Removal of deleted users whose grace period is over, once a day, on one node at a time (decision 46). */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startPeriodicRounds } from '#core/rounds.ts'
import type { PeriodicRounds } from '#core/rounds.ts'
import type { Journal } from '../journal/index.ts'
import { purgeMailedTokens } from './mailed-tokens.ts'
import { purgeUsers, tryLockPurge } from './repository.ts'

/** Grace period of a deleted user. */
const GRACE_HOURS = 720
/** Interval between two rounds. The first round begins with the process. */
const PURGE_INTERVAL_MS = 86_400_000
/** Interval after a failed round. */
const RETRY_INTERVAL_MS = 600_000
/** Number of users in one transaction. Their sessions, grants and tokens are removed with them. */
const PURGE_BATCH = 100

export function startPurge(deps: { database: Database; journal: Journal; logger: Logger }): PeriodicRounds {
  const { database, journal, logger } = deps

  /** Returns the number of removed users. 0 also when another node holds the lock. */
  async function purgeBatch(): Promise<number> {
    return await journal.change('system', async (tx, record) => {
      if (!(await tryLockPurge(tx))) return 0
      const users = await purgeUsers(tx, GRACE_HOURS, PURGE_BATCH)
      for (const { key, id } of users) record({ operation: 'user.remove', entityKeys: [key], attributes: { id } })
      return users.length
    })
  }

  async function round(signal: AbortSignal): Promise<void> {
    await purgeMailedTokens(database.db)
    let total = 0
    for (let count = PURGE_BATCH; count === PURGE_BATCH && !signal.aborted; total += count) {
      count = await purgeBatch()
    }
    if (total > 0) logger.info({ users: total }, 'removed users who were deleted 30 days ago')
  }

  return startPeriodicRounds({
    firstPauseMs: 0,
    pauseMs: (hasFailed) => (hasFailed ? RETRY_INTERVAL_MS : PURGE_INTERVAL_MS),
    round,
    onFailure: (error) => logger.warn({ err: error }, 'failed to remove deleted users; retrying'),
  })
}
