/**
 * Triggers that are behind: their queue was full, or their rate was used up. Each goes on at the message where it stopped, in steps of its own,
 * when there is room; domains in turn, so that a backlog delays its own domain alone. At the end of the log it is served with the others again.
 */
import type { FullDomains } from '#api/identity/index.ts'
import { MAX_WAIT_DAYS, placeOf, readBacklog, startBacklogs } from '#api/messages/index.ts'
import type { Bus } from '#core/bus/index.ts'
import { findPosition } from '#core/changelog/index.ts'
import type { BehindPlace } from '#core/changelog/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Rounds } from '#core/rounds.ts'
import { formatTime, monotonicMs } from '#core/time.ts'
import {
  countExpired,
  handMatches,
  hasRemainders,
  hintMessages,
  listSoonExpired,
  listTriggersBehind,
  lockTriggerBehind,
  roomOf,
  storeTriggerPlace,
} from '#queues/index.ts'
import { waitsForRoom } from './hand-out.ts'
import { matchesOf } from './matches.ts'
import { recordInJournal } from './refusals.ts'

/** Name of the follower that serves the triggers that are not behind. */
export const TRIGGER_CONSUMER = 'task triggers'

/** The pause between two rounds while triggers go on: they must be refilled before the managers have emptied their queues. */
const BUSY_PAUSE_MS = 25
/** The interval between two checks for messages that expire soon. */
const WARNING_INTERVAL_MS = 600_000

export function startTriggersBehind({
  database,
  bus,
  fullDomains,
  logger,
  intervalMs,
}: {
  database: Database
  bus: Bus
  fullDomains: FullDomains
  logger: Logger
  intervalMs: number
}): Rounds {
  let warnedMs = -Infinity

  /** A day before messages expire, their tasks say so. */
  async function warn(): Promise<void> {
    if (monotonicMs() - warnedMs < WARNING_INTERVAL_MS) return
    warnedMs = monotonicMs()
    const soon = await listSoonExpired(database.db, MAX_WAIT_DAYS)
    if (soon.length === 0) return
    const refusals = soon.map(({ taskKey, since }) => ({
      taskKey,
      source: 'message' as const,
      reason: `messages wait since ${formatTime(since)}, and expire after ${MAX_WAIT_DAYS} days`,
      count: 1,
    }))
    await database.transaction(async (tx) => await recordInJournal(tx, refusals))
  }

  return startBacklogs({
    database,
    logger,
    what: 'triggers',
    async list(limit) {
      await warn()
      return await listTriggersBehind(database.db, {
        limit,
        expiryDays: MAX_WAIT_DAYS,
        fullDomains: fullDomains.known(),
      })
    },
    goOn: (tx, taskKey) => goOn(tx, taskKey, fullDomains),
    onHandled: () => hintMessages(bus),
    busyPauseMs: BUSY_PAUSE_MS,
    idlePauseMs: intervalMs,
  })
}

/** Messages that a step takes. */
const MAX_TAKEN = 2_000

/** One step of a trigger. Returns the number of messages that were handled. */
async function goOn(tx: Transaction, taskKey: number, fullDomains: FullDomains): Promise<number> {
  const rule = await lockTriggerBehind(tx, taskKey)
  if (rule?.behind === undefined) return 0
  const { taken, expired, next } = await readBacklog(tx, {
    consumer: TRIGGER_CONSUMER,
    place: rule.behind,
    channel: { key: rule.channelKey, id: rule.channelId },
    select: (message) => matchesOf(message, [rule])[0],
    maxItems: waitsForRoom(rule, fullDomains) ? 0 : Math.min(roomOf(rule), MAX_TAKEN),
  })
  if (expired > 0) {
    const reason = `${expired} messages waited for longer than ${MAX_WAIT_DAYS} days`
    await countExpired(tx, taskKey, expired)
    await recordInJournal(tx, [{ taskKey, source: 'message', reason, count: expired }])
  }
  const [handled = 0] = taken.length === 0 ? [] : await handMatches(tx, [{ rule, matches: taken }])
  const left = taken[handled]
  await storeTriggerPlace(
    tx,
    rule,
    left === undefined ? (next ?? (await endPlace(tx, rule.channelKey))) : placeOf(left.of),
  )
  return handled + expired
}

/**
 * Returns the place where a trigger goes on that has every message which the follower has passed. The follower is held at that place.
 * Undefined: the trigger goes on with the follower. While messages of its channel are handed out in steps, it would get those messages a
 * second time.
 */
async function endPlace(tx: Transaction, channelKey: number): Promise<BehindPlace | undefined> {
  const end = (await hasRemainders(tx, channelKey)) ? await findPosition(tx, TRIGGER_CONSUMER) : undefined
  return end && { xid: end.xid, seq: end.seq + 1, message: 0, arrivedAtSeconds: Date.now() / 1000 }
}
