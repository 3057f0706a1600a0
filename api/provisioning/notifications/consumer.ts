/**
 * A consumer of the changelog of messages. It stores deliveries for matching subscriptions in the transaction that
 * advances its position.
 */
import { loadMessages, matchesSubtopic } from '#api/messages/index.ts'
import type { LiveMessage } from '#api/messages/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { beginAtEnd, startLogFollower } from '#core/changelog/index.ts'
import type { LogFollower, LogRow, LogTable } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { payloadOf } from './payload.ts'
import { insertDeliveries, listInterests } from './repository.ts'
import type { Interest, NewDelivery } from './repository.ts'

const BATCHES: LogTable = { name: 'ingest_batches', columns: ['arrived_at'] }
const CONSUMER = 'messages.notifications'
const INTERVAL_MS = 500
/** Maximum number of batches that one step reads. */
const MAX_BATCHES = 200
/** Maximum number of batches that one step skips without subscriptions. */
const MAX_PASSED = 5_000
/** Maximum number of waiting deliveries of one subscription. Further messages are dropped and counted in `missed`. */
const MAX_PENDING = 1000

export async function startNotificationConsumer(
  database: Database,
  logger: Logger,
  intervalMs = INTERVAL_MS,
): Promise<LogFollower> {
  await beginAtEnd(database.db, CONSUMER)
  return startLogFollower({
    database,
    table: BATCHES,
    consumer: CONSUMER,
    logger,
    intervalMs,
    maxRows: MAX_PASSED,
    apply: enqueueDeliveries,
  })
}

async function enqueueDeliveries(tx: Transaction, following: readonly LogRow[]): Promise<number> {
  const interests = await listInterests(tx)
  if (interests.length === 0) return following.length
  const rows = following.slice(0, MAX_BATCHES)
  const channels = new Map(interests.map(({ channelKey, channelId }) => [channelKey, channelId]))
  const batches = rows.map((row) => ({ seq: row.position.seq, arrivedAt: row['arrived_at'] as string }))
  const messages = await loadMessages(tx, batches, channels)
  const deliveries = deliveriesOf(messages, interests)
  if (deliveries.length > 0) await insertDeliveries(tx, deliveries, MAX_PENDING)
  return rows.length
}

/** Sorted by subscription, then in the order of the messages. */
function deliveriesOf(messages: readonly LiveMessage[], interests: readonly Interest[]): NewDelivery[] {
  const byChannel = Map.groupBy(messages, ({ channelKey }) => channelKey)
  return interests.flatMap(({ key, channelKey, filter }) =>
    (byChannel.get(channelKey) ?? [])
      .filter(({ subtopic }) => matchesSubtopic(filter, subtopic))
      .map((message) => ({ subscriptionKey: key, payload: payloadOf(message) })),
  )
}
