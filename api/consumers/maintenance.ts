/**
 * Consumers that nobody reads: their places pass what is not for them, so that one for which nothing waits is never behind, and messages that
 * wait for too long are counted. Says a day before that messages expire, and gives up what nobody acknowledges.
 */
import { MAX_WAIT_DAYS } from '#api/messages/index.ts'
import type { Journal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startRounds } from '#core/rounds.ts'
import type { Rounds } from '#core/rounds.ts'
import { formatTime, monotonicMs } from '#core/time.ts'
import { buryExhausted, listExhausted, removeOldLetters } from './deliveries.ts'
import { CONSUMER_METRICS } from './metrics.ts'
import { listOverdue, unpackOverdue } from './pages.ts'
import { checkStep } from './reading.ts'
import { listUnread, lockConsumer, markSoonExpired } from './repository.ts'

const INTERVAL_MS = 5_000
const RETRY_MS = 5_000
/** A consumer that nobody reads is looked at as often. */
const CHECK_SECONDS = 30
/** Consumers of one round, and steps of one consumer in it. */
const MAX_CHECKED = 50
const MAX_STEPS = 20
const MAX_WARNED = 500
/** The interval between two checks for messages that expire soon, and for old dead letters. */
const RARE_INTERVAL_MS = 600_000

export function startConsumerMaintenance({
  database,
  journal,
  logger,
  checkSeconds = CHECK_SECONDS,
  intervalMs = INTERVAL_MS,
}: {
  database: Database
  journal: Pick<Journal, 'change'>
  logger: Logger
  /** Tests shorten them. */
  checkSeconds?: number | undefined
  intervalMs?: number | undefined
}): Rounds {
  let rareMs = -Infinity

  async function rarely(): Promise<void> {
    if (monotonicMs() - rareMs < RARE_INTERVAL_MS) return
    rareMs = monotonicMs()
    await warnOfExpiry(journal)
    await removeOldLetters(database.db)
  }

  return startRounds(async () => {
    try {
      await rarely()
      for (const key of await listOverdue(database.db, MAX_CHECKED))
        await database.transaction(async (tx) => {
          if ((await lockConsumer(tx, key)) !== undefined) await unpackOverdue(tx, key)
        })
      for (const key of await listExhausted(database.db, MAX_CHECKED))
        await database.transaction(async (tx) => {
          const consumer = await lockConsumer(tx, key)
          if (consumer !== undefined) await buryExhausted(tx, consumer)
        })
      const keys = await listUnread(database.db, { limit: MAX_CHECKED, checkSeconds, expiryDays: MAX_WAIT_DAYS })
      for (const key of keys) {
        let hasMore = true
        for (let step = 0; step < MAX_STEPS && hasMore; step++) {
          const checked = await database.transaction((tx) => checkStep(tx, key))
          CONSUMER_METRICS.expired.add({}, checked.expired)
          ;({ hasMore } = checked)
        }
      }
      return { pauseMs: keys.length === MAX_CHECKED ? 0 : intervalMs, isWakeable: true }
    } catch (error) {
      logger.warn({ err: error }, 'failed to maintain named consumers; retrying')
      return { pauseMs: RETRY_MS, isWakeable: false }
    }
  })
}

/** The journal of the domain says once a day that messages of a consumer expire within a day. */
export async function warnOfExpiry(journal: Pick<Journal, 'change'>): Promise<void> {
  await journal.change('system', async (tx, record) => {
    for (const { id, name, domainKey, since } of await markSoonExpired(tx, MAX_WAIT_DAYS, MAX_WARNED)) {
      const reason = `messages wait since ${formatTime(since)}, and expire after ${MAX_WAIT_DAYS} days`
      record({ operation: 'consumer.expire_soon', domainKey, entityKeys: [], attributes: { id, name, reason } })
    }
  })
}
