/**
 * Hands messages that many triggers match to these triggers in steps, each in a transaction of its own. Domains take turns. Meanwhile the
 * follower goes on with the messages of others, and with later ones of the same channel only here, so that each trigger gets them in their order.
 */
import type { FullDomains } from '#api/identity/index.ts'
import { loadBatchAt, startBacklogs } from '#api/messages/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Rounds } from '#core/rounds.ts'
import { hintMessages, listRemainders, lockRemainder, readTriggerFilters, storeRemainder } from '#queues/index.ts'
import { handToTriggers } from './hand-out.ts'
import { matchesOf } from './matches.ts'

/**
 * Triggers of a domain that one transaction serves. While it writes, later messages of all domains are not settled in their log, so it bounds what
 * others wait.
 */
export const MAX_TRIGGERS_AT_ONCE = 250

/** The table is also read without a wake: a process that noted a batch may have ended. */
const IDLE_PAUSE_MS = 5_000

export function startTriggerRemainders({
  database,
  bus,
  fullDomains,
  logger,
  onFallenBehind,
}: {
  database: Database
  bus: Bus
  fullDomains: FullDomains
  logger: Logger
  onFallenBehind: () => void
}): Rounds {
  return startBacklogs({
    database,
    logger,
    what: 'messages of many triggers',
    list: (limit) => listRemainders(database.db, limit),
    async goOn(tx, key) {
      const { handled, fell } = await handStep(tx, key, fullDomains)
      if (fell) onFallenBehind()
      return handled
    },
    onHandled: () => hintMessages(bus),
    busyPauseMs: 0,
    idlePauseMs: IDLE_PAUSE_MS,
  })
}

async function handStep(
  tx: Transaction,
  key: number,
  fullDomains: FullDomains,
): Promise<{ handled: number; fell: boolean }> {
  const remainder = await lockRemainder(tx, key)
  if (remainder === undefined) return { handled: 0, fell: false }
  const { channelKey, channelId, afterTaskKey } = remainder
  const messages = await loadBatchAt(tx, remainder, { key: channelKey, id: channelId })
  const limit = Math.max(1, Math.floor(MAX_TRIGGERS_AT_ONCE / Math.max(messages.length, 1)))
  const filters = await readTriggerFilters(tx, [channelKey], { afterTaskKey, limit })
  const since = filters.filter(({ sinceXid }) => sinceXid <= remainder.position.xid)
  const matches = messages.flatMap((message) => matchesOf(message, since))
  const fell = await handToTriggers(tx, matches, fullDomains)
  await storeRemainder(tx, key, filters.length < limit ? undefined : filters.at(-1)?.taskKey)
  return { handled: matches.length, fell }
}
