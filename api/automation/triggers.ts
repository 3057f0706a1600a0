/**
 * Starts tasks for messages: a consumer of the changelog of messages (mechanisms section 2). A message that matches a
 * trigger is passed to the task managers in the transaction that stores the consumer's position, so no message is lost
 * or passed twice. A trigger whose queue is full falls behind, and goes on by itself (triggers-behind.ts).
 */
import type { FullDomains } from '#api/identity/index.ts'
import { loadChannels, loadMessages, placeOf } from '#api/messages/index.ts'
import type { Messages } from '#api/messages/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { MAX_IDLE_FACTOR, beginAtEnd, startLogFollower } from '#core/changelog/index.ts'
import type { LogRow } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import {
  handMatches,
  hasTriggers,
  hintMessages,
  readTriggerFilters,
  readTriggerRules,
  storeTriggerPlace,
} from '#queues/index.ts'
import { matchesOf } from './matches.ts'
import { TRIGGER_CONSUMER, startTriggersBehind, waitsForRoom } from './triggers-behind.ts'

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
  const behind = startTriggersBehind({ database, bus, fullDomains, logger, intervalMs })
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
      const { applied, handed, fell } = await applyTriggers(tx, rows, fullDomains)
      hasHanded ||= handed > 0
      hasFallenBehind ||= fell
      return applied
    },
    onApplied() {
      if (hasHanded) hintMessages(bus)
      if (hasFallenBehind) behind.wake()
      hasHanded = hasFallenBehind = false
    },
  })
  // Each node wakes its follower when it stores messages itself. Batches of another node wake that node's follower.
  const unsubscribe = messages.onCommitted(() => follower.wake())
  return {
    async stop() {
      unsubscribe()
      await Promise.all([follower.stop(), behind.stop()])
    },
  }
}

/**
 * Returns the number of batches read, the number of messages that matched a trigger, and whether a trigger fell behind. Reads the triggers of
 * the batches' channels alone, and the state of those that match: others cost nothing.
 */
async function applyTriggers(
  tx: Transaction,
  following: readonly LogRow[],
  fullDomains: FullDomains,
): Promise<{ applied: number; handed: number; fell: boolean }> {
  if (!(await hasTriggers(tx))) return { applied: following.length, handed: 0, fell: false }
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
  const byChannel = Map.groupBy(filters, (filter) => filter.channelKey)
  const matches = messages.flatMap((message) => matchesOf(message, byChannel.get(message.channelKey) ?? []))
  const byTask = Map.groupBy(matches, ({ taskKey }) => taskKey)
  const rules = await readTriggerRules(tx, [...byTask.keys()])
  const given = rules.map((rule) => ({ rule, matches: byTask.get(rule.taskKey) ?? [] }))
  const open = given.filter(({ rule }) => !waitsForRoom(rule, fullDomains))
  const counts = open.length === 0 ? [] : await handMatches(tx, open)
  const handled = new Map(open.map(({ rule }, index) => [rule.taskKey, counts[index] ?? 0]))
  let fell = false
  for (const { rule, matches: ofRule } of given) {
    const next = ofRule[handled.get(rule.taskKey) ?? 0]
    if (next === undefined) continue
    await storeTriggerPlace(tx, rule, placeOf(next.of))
    fell = true
  }
  return { applied: rows.length, handed: matches.length, fell }
}
