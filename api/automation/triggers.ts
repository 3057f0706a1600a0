/**
 * Messages that start tasks: a consumer of the message log (mechanisms section 2). A message that meets a trigger is handed
 * to the task managers in the transaction of the position: none is lost, none comes twice.
 */
import { SENML_JSON, loadMessages } from '#api/messages/index.ts'
import type { LiveMessage, Messages } from '#api/messages/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { QUIET_TIMES, beginAtEnd, startLogFollower } from '#core/changelog/index.ts'
import type { LogRow } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { handMatches, hintMessages, matchingRecords, readTriggerRules } from '#queues/index.ts'
import type { NewMessage, SenmlRecord, StoredTriggerRule } from '#queues/index.ts'

const CONSUMER = 'task triggers'
const TABLE = { name: 'ingest_batches', columns: ['arrived_at'] } as const
/** Batches that one transaction opens. */
const MAX_BATCHES = 50
/** Batches that one transaction passes over while there is no trigger: some seconds of a busy system. */
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
    quietMs: intervalMs * QUIET_TIMES,
    // A busy node commits some hundred batches a second, which are gone through together.
    restMs: intervalMs,
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
  // Each node looks when it has stored something itself: whatever another one stored, that one looks for.
  const unsubscribe = messages.onCommitted(() => follower.wake())
  return {
    async stop() {
      unsubscribe()
      await follower.stop()
    },
  }
}

/** How many batches were gone through, and how many messages met a trigger. */
async function applyTriggers(
  tx: Transaction,
  following: readonly LogRow[],
): Promise<{ applied: number; handed: number }> {
  const rules = await readTriggerRules(tx)
  if (rules.length === 0) return { applied: following.length, handed: 0 }
  const rows = following.slice(0, MAX_BATCHES)
  const channels = new Map(rules.map((rule) => [rule.channelKey, rule.channelId]))
  const batches = rows.map((row) => ({ seq: row.position.seq, arrivedAt: row['arrived_at'] as string }))
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
    // Its own results would start it again and again.
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
    return [{ rule, origin: `message ${message.batchSeq}/${message.index}`, message: given }]
  })
}
