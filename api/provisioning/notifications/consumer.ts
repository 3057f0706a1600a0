/**
 * A consumer of the changelog of messages. It stores deliveries for matching subscriptions in the transaction that
 * advances its position. A subscription with too many waiting deliveries falls behind, and goes on by itself when there is room.
 */
import type { FullDomains } from '#api/identity/index.ts'
import {
  MAX_WAIT_DAYS,
  loadMessages,
  matchesSubtopic,
  placeOf,
  readBacklog,
  startBacklogs,
} from '#api/messages/index.ts'
import type { LiveMessage } from '#api/messages/index.ts'
import { beginAtEnd, startLogFollower } from '#core/changelog/index.ts'
import type { LogRow, LogTable } from '#core/changelog/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { payloadOf } from './payload.ts'
import {
  countMissed,
  insertDeliveries,
  listInterests,
  listSubscriptionsBehind,
  lockSubscriptionBehind,
  roomsOf,
  storeSubscriptionPlace,
} from './repository.ts'
import type { Interest } from './repository.ts'

const BATCHES: LogTable = { name: 'ingest_batches', columns: ['arrived_at'] }
const CONSUMER = 'messages.notifications'
const INTERVAL_MS = 500
/** Maximum number of batches that one step reads. */
const MAX_BATCHES = 200
/** Maximum number of batches that one step skips without subscriptions. */
const MAX_PASSED = 5_000
/** Maximum number of waiting deliveries of one subscription: with more it falls behind. */
const MAX_PENDING = 1000
/** A subscription that is behind goes on when fewer wait. */
const REFILLED_BELOW = MAX_PENDING / 2

export async function startNotificationConsumer(
  database: Database,
  logger: Logger,
  fullDomains: FullDomains,
  intervalMs = INTERVAL_MS,
): Promise<{ stop(): Promise<void> }> {
  await beginAtEnd(database.db, CONSUMER)
  const behind = startBacklogs({
    database,
    logger,
    what: 'notifications',
    list: (limit) =>
      listSubscriptionsBehind(database.db, {
        limit,
        room: REFILLED_BELOW,
        expiryDays: MAX_WAIT_DAYS,
        fullDomains: fullDomains.known(),
      }),
    goOn: (tx, key) => goOn(tx, key, fullDomains),
    busyPauseMs: intervalMs,
    idlePauseMs: intervalMs,
  })
  let hasFallenBehind = false
  const follower = startLogFollower({
    database,
    table: BATCHES,
    consumer: CONSUMER,
    logger,
    intervalMs,
    maxRows: MAX_PASSED,
    async apply(tx, rows) {
      const { applied, fell } = await enqueueDeliveries(tx, rows, fullDomains)
      hasFallenBehind ||= fell
      return applied
    },
    onApplied() {
      if (hasFallenBehind) behind.wake()
      hasFallenBehind = false
    },
  })
  return {
    async stop() {
      await Promise.all([follower.stop(), behind.stop()])
    },
  }
}

async function enqueueDeliveries(
  tx: Transaction,
  following: readonly LogRow[],
  fullDomains: FullDomains,
): Promise<{ applied: number; fell: boolean }> {
  const interests = await listInterests(tx)
  if (interests.length === 0) return { applied: following.length, fell: false }
  const rows = following.slice(0, MAX_BATCHES)
  const channels = new Map(interests.map(({ channelKey, channelId }) => [channelKey, channelId]))
  const batches = rows.map(({ position, ...row }) => ({
    seq: position.seq,
    xid: position.xid,
    arrivedAt: row['arrived_at'] as string,
  }))
  const messages = await loadMessages(tx, batches, channels)
  const byChannel = Map.groupBy(messages, ({ channelKey }) => channelKey)
  const xids = new Map(batches.map(({ seq, xid }) => [seq, xid]))
  const wanted = interests.flatMap((interest) => {
    const found = (byChannel.get(interest.channelKey) ?? []).filter(
      (message) => interest.sinceXid <= (xids.get(message.batchSeq) ?? 0n) && isWanted(interest, message),
    )
    return found.length === 0 ? [] : [{ key: interest.key, domainKey: interest.domainKey, found }]
  })
  if (wanted.length === 0) return { applied: rows.length, fell: false }
  const rooms = await roomsOf(
    tx,
    wanted.map(({ key }) => key),
    { maxPending: MAX_PENDING, fullDomains: fullOf(wanted, fullDomains) },
  )
  let fell = false
  const deliveries = []
  for (const { key, found } of wanted) {
    // If a subscription was removed meanwhile, nothing is stored for it.
    const room = rooms.get(key) ?? 0
    deliveries.push(...found.slice(0, room).map((message) => deliveryOf(key, message)))
    const next = found[room]
    if (next === undefined || !rooms.has(key)) continue
    await storeSubscriptionPlace(tx, key, placeOf(next))
    fell = true
  }
  if (deliveries.length > 0) await insertDeliveries(tx, deliveries)
  return { applied: rows.length, fell }
}

const fullOf = (interests: readonly Pick<Interest, 'domainKey'>[], fullDomains: FullDomains): number[] => [
  ...new Set(interests.map(({ domainKey }) => domainKey).filter((domainKey) => fullDomains.has(domainKey))),
]

const isWanted = ({ filter }: Interest, { subtopic }: LiveMessage) => matchesSubtopic(filter, subtopic)
const deliveryOf = (subscriptionKey: number, message: LiveMessage) => ({ subscriptionKey, payload: payloadOf(message) })

/** One step of a subscription. Returns the number of messages that were handled. */
async function goOn(tx: Transaction, key: number, fullDomains: FullDomains): Promise<number> {
  const interest = await lockSubscriptionBehind(tx, key)
  if (interest === undefined) return 0
  const rooms = await roomsOf(tx, [key], { maxPending: MAX_PENDING, fullDomains: fullOf([interest], fullDomains) })
  const { taken, expired, next } = await readBacklog(tx, {
    consumer: CONSUMER,
    place: interest.behind,
    channel: { key: interest.channelKey, id: interest.channelId },
    select: (message) => (isWanted(interest, message) ? deliveryOf(key, message) : undefined),
    maxItems: rooms.get(key) ?? 0,
  })
  if (taken.length > 0) await insertDeliveries(tx, taken)
  if (expired > 0) await countMissed(tx, key, expired)
  await storeSubscriptionPlace(tx, key, next)
  return taken.length + expired
}
