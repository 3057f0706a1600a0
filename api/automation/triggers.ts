/**
 * Starts tasks for messages: a consumer of the changelog of messages (mechanisms section 2). A message that matches a
 * trigger is passed to the task managers in the transaction that stores the consumer's position, so no message is lost
 * or passed twice.
 */
import { SENML_JSON, loadMessages } from '#api/messages/index.ts'
import type { LiveMessage, Messages } from '#api/messages/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { MAX_IDLE_FACTOR, beginAtEnd, startLogFollower } from '#core/changelog/index.ts'
import type { LogRow } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { handMatches, hintMessages, matchingRecords, readTriggerRules } from '#queues/index.ts'
import type { NewMessage, SenmlRecord, StoredTriggerRule } from '#queues/index.ts'

const CONSUMER = 'task triggers'
const TABLE = { name: 'ingest_batches', columns: ['arrived_at', 'envelopes'] } as const
/** Maximum number of batches that one transaction reads. */
const MAX_BATCHES = 50
/** Maximum number of batches that one transaction skips while there are no triggers: a few seconds of a busy system. */
const MAX_PASSED = 5_000

export async function startTriggers({
  database,
  messages,
  bus,
  logger,
  intervalMs,
}: {
  database: Database
  messages: Pick<Messages, 'onCommitted'>
  bus: Bus
  logger: Logger
  intervalMs: number
}): Promise<{ stop(): Promise<void> }> {
  await beginAtEnd(database.db, CONSUMER)
  let hasHanded = false
  const follower = startLogFollower({
    database,
    table: TABLE,
    consumer: CONSUMER,
    logger,
    intervalMs,
    maxIdlePauseMs: intervalMs * MAX_IDLE_FACTOR,
    // A busy node commits some hundred batches a second. They are read together.
    minPauseMs: intervalMs,
    maxRows: MAX_PASSED,
    async apply(tx, rows) {
      const { applied, handed } = await applyTriggers(tx, rows)
      hasHanded ||= handed > 0
      return applied
    },
    onApplied() {
      if (hasHanded) hintMessages(bus)
      hasHanded = false
    },
  })
  // Each node wakes its follower when it stores messages itself. Batches of another node wake that node's follower.
  const unsubscribe = messages.onCommitted(() => follower.wake())
  return {
    async stop() {
      unsubscribe()
      await follower.stop()
    },
  }
}

/** Returns the number of batches read and the number of messages that matched a trigger. */
async function applyTriggers(
  tx: Transaction,
  following: readonly LogRow[],
): Promise<{ applied: number; handed: number }> {
  const rules = await readTriggerRules(tx)
  if (rules.length === 0) return { applied: following.length, handed: 0 }
  const rows = following.slice(0, MAX_BATCHES)
  const channels = new Map(rules.map((rule) => [rule.channelKey, rule.channelId]))
  const batches = rows.map((row) => ({
    seq: row.position.seq,
    arrivedAt: row['arrived_at'] as string,
    envelopes: row['envelopes'] as string | null,
  }))
  const messages = await loadMessages(tx, batches, channels)
  const byChannel = Map.groupBy(rules, (rule) => rule.channelKey)
  const matches = messages.flatMap((message) => match(message, byChannel.get(message.channelKey) ?? []))
  for (const [rule, ofRule] of Map.groupBy(matches, ({ rule: one }) => one)) await handMatches(tx, rule, ofRule)
  return { applied: rows.length, handed: matches.length }
}

type Match = NewMessage & { rule: StoredTriggerRule }

function match(message: LiveMessage, rules: readonly StoredTriggerRule[]): Match[] {
  if (rules.length === 0 || message.contentType !== SENML_JSON) return []
  let records: SenmlRecord[]
  try {
    records = JSON.parse(message.payload.toString('utf8')) as SenmlRecord[]
  } catch {
    return []
  }
  return rules.flatMap((rule): Match[] => {
    // A task that is triggered by its own results would run forever.
    if (message.protocol === 'task' && message.subtopic === rule.publishesTo) return []
    const matching = matchingRecords(rule, message.subtopic, records)
    if (matching.length === 0) return []
    const given = {
      channel_id: message.channelId,
      subtopic: message.subtopic,
      publisher: message.publisherId,
      protocol: message.protocol,
      records: matching,
    }
    return [
      {
        rule,
        origin: `message ${message.batchSeq}/${message.index}`,
        message: given,
        traceparent: message.envelope?.traceparent,
      },
    ]
  })
}
