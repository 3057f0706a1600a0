/**
 * Starts tasks for messages: a consumer of the changelog of messages (mechanisms section 2). A message that matches a
 * trigger is passed to the task managers in the transaction that stores the consumer's position, so no message is lost
 * or passed twice. A trigger whose queue is full falls behind, and goes on by itself (triggers-behind.ts). Messages that
 * many triggers of a domain match are handed out in steps of their own (trigger-remainders.ts).
 */
import type { FullDomains } from '#api/identity/index.ts'
import { loadChannels, loadMessages } from '#api/messages/index.ts'
import type { LiveMessage, Messages } from '#api/messages/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { MAX_IDLE_FACTOR, beginAtEnd, startLogFollower } from '#core/changelog/index.ts'
import type { LogRow, Position } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { hintMessages, readServedTriggers, readTriggerFilters, storeRemainders } from '#queues/index.ts'
import type { ServedFilter, TriggerRemainder } from '#queues/index.ts'
import { handToTriggers } from './hand-out.ts'
import { matchesOf } from './matches.ts'
import type { Match } from './matches.ts'
import { MAX_TRIGGERS_AT_ONCE, startTriggerRemainders } from './trigger-remainders.ts'
import { TRIGGER_CONSUMER, startTriggersBehind } from './triggers-behind.ts'

const TABLE = { name: 'ingest_batches', columns: ['arrived_at', 'envelopes'] } as const
/** Maximum number of batches that one transaction reads. */
const MAX_BATCHES = 50
/** Maximum number of batches that one transaction skips while there are no triggers: a few seconds of a busy system. */
const MAX_PASSED = 5_000

export async function startTriggers({
  database,
  messages,
  bus,
  fullDomains,
  logger,
  intervalMs,
}: {
  database: Database
  messages: Pick<Messages, 'onCommitted'>
  bus: Bus
  /** Their messages wait in their channels. */
  fullDomains: FullDomains
  logger: Logger
  intervalMs: number
}): Promise<{ stop(): Promise<void> }> {
  await beginAtEnd(database.db, TRIGGER_CONSUMER)
  let hasHanded = false
  let hasFallenBehind = false
  let hasRemainders = true
  const behind = startTriggersBehind({ database, bus, fullDomains, logger, intervalMs })
  const remainders = startTriggerRemainders({
    database,
    bus,
    fullDomains,
    logger,
    onFallenBehind: () => behind.wake(),
  })
  const follower = startLogFollower({
    database,
    table: TABLE,
    consumer: TRIGGER_CONSUMER,
    logger,
    intervalMs,
    maxIdlePauseMs: intervalMs * MAX_IDLE_FACTOR,
    // A busy node commits some hundred batches a second. They are read together.
    minPauseMs: intervalMs,
    maxRows: MAX_PASSED,
    async apply(tx, rows) {
      const outcome = await applyTriggers(tx, rows, fullDomains)
      hasHanded ||= outcome.handed > 0
      hasFallenBehind ||= outcome.fell
      hasRemainders ||= outcome.remains
      return outcome.applied
    },
    onApplied() {
      if (hasHanded) hintMessages(bus)
      if (hasFallenBehind) behind.wake()
      if (hasRemainders) remainders.wake()
      hasHanded = hasFallenBehind = hasRemainders = false
    },
  })
  // Each node wakes its follower when it stores messages itself. Batches of another node wake that node's follower.
  const unsubscribe = messages.onCommitted(() => follower.wake())
  return {
    async stop() {
      unsubscribe()
      await Promise.all([follower.stop(), behind.stop(), remainders.stop()])
    },
  }
}

/**
 * Returns the number of batches read, the number of matches that were handed out, whether a trigger fell behind, and whether batches remain. Reads
 * the triggers of the batches' channels alone, and the state of those that match: others cost nothing.
 */
async function applyTriggers(
  tx: Transaction,
  following: readonly LogRow[],
  fullDomains: FullDomains,
): Promise<{ applied: number; handed: number; fell: boolean; remains: boolean }> {
  const served = await readServedTriggers(tx)
  if (served === undefined) return { applied: following.length, handed: 0, fell: false, remains: false }
  const rows = following.slice(0, MAX_BATCHES)
  const batches = rows.map((row) => ({
    seq: row.position.seq,
    xid: row.position.xid,
    arrivedAt: row['arrived_at'] as string,
    envelopes: row['envelopes'] as string | null,
  }))
  const filters = await readTriggerFilters(tx, await loadChannels(tx, batches))
  const channels = new Map(filters.map((filter) => [filter.channelKey, filter.channelId]))
  const messages = await loadMessages(tx, batches, channels)
  const arrivals = new Map(batches.map(({ seq, xid, arrivedAt }) => [seq, { position: { xid, seq }, arrivedAt }]))
  const { matches, remainders } = divide(messages, filters, served.remaining, arrivals)
  await storeRemainders(
    tx,
    remainders.flatMap(({ seq, channelKey }): TriggerRemainder[] => {
      const batch = arrivals.get(seq)
      return batch === undefined ? [] : [{ channelKey, ...batch }]
    }),
  )
  const fell = await handToTriggers(tx, matches, fullDomains)
  const remains = remainders.length + served.remaining.size > 0
  return { applied: rows.length, handed: matches.length, fell, remains }
}

/**
 * Separates batches of channels that are handed out in steps: more triggers of the domain match than one transaction serves, or earlier batches of
 * the channel remain.
 */
function divide(
  messages: readonly LiveMessage[],
  filters: readonly ServedFilter[],
  remaining: ReadonlySet<number>,
  arrivals: ReadonlyMap<number, { position: Position }>,
): { matches: Match[]; remainders: { seq: number; channelKey: number }[] } {
  const byChannel = Map.groupBy(filters, (filter) => filter.channelKey)
  const inSteps = new Set(remaining)
  const matched = new Map<number, Set<number>>()
  const matches: Match[] = []
  const remainders: { seq: number; channelKey: number }[] = []
  for (const [seq, ofBatch] of Map.groupBy(messages, ({ batchSeq }) => batchSeq)) {
    const xid = arrivals.get(seq)?.position.xid ?? 0n
    for (const [channelKey, ofChannel] of Map.groupBy(ofBatch, (message) => message.channelKey)) {
      const rules = (byChannel.get(channelKey) ?? []).filter(({ sinceXid }) => sinceXid <= xid)
      const domainKey = rules[0]?.domainKey
      if (domainKey === undefined) continue
      const found = inSteps.has(channelKey) ? [] : ofChannel.flatMap((message) => matchesOf(message, rules))
      const tasks = matched.get(domainKey) ?? new Set()
      const withThese = tasks.union(new Set(found.map(({ taskKey }) => taskKey)))
      if (inSteps.has(channelKey) || withThese.size > MAX_TRIGGERS_AT_ONCE) {
        inSteps.add(channelKey)
        remainders.push({ seq, channelKey })
        continue
      }
      matched.set(domainKey, withThese)
      for (const match of found) matches.push(match)
    }
  }
  return { matches, remainders }
}
