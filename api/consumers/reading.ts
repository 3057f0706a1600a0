/**
 * One step of a consumer: takes the messages that are due again and the next ones after its place, and stores that they were delivered, in one
 * transaction that holds its row. What the caller gets is committed: after a crash it is delivered again when `ack_wait` has passed.
 */
import { createSubtopicMatcher, loadPlaces, oldestArrival, readForward } from '#api/messages/index.ts'
import type { ForwardStep, LiveMessage } from '#api/messages/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { buryExhausted, findDoubt, storeProgress } from './deliveries.ts'
import type { DeliveryRow, Doubt } from './deliveries.ts'
import { orderKey } from './order.ts'
import { MIN_PAGE, unpackOverdue } from './pages.ts'
import type { NewDelivery } from './pages.ts'
import { comparePlaces } from './place.ts'
import type { Place } from './place.ts'
import { lockConsumer, storePlace } from './repository.ts'
import type { Consumer } from './repository.ts'

/** Messages of one answer. */
export const MAX_TAKEN = 1_000
/** Payloads of one answer, in bytes; the last message may exceed it. */
const MAX_TAKEN_BYTES = 4 * 1024 * 1024
/** Messages that earlier ones of their client or channel hold back, at most: with more, the others wait too. */
const MAX_HELD = 10_000
/** Batches of other channels that are passed without storing it: the next step passes them again. */
const UNSTORED_BATCHES = 200
/** Messages in doubt that are loaded at a time. */
const LOADED_PLACES = 100

export type Taken = { place: Place; attempts: number; message: LiveMessage }

export type Step = {
  taken: Taken[]
  /** Further messages can be taken at once. */
  hasMore: boolean
  /** The time, in epoch seconds, at which the next message is due again. */
  nextDueSeconds: number | null
}

/** Whether the consumer wants a message, ready for many. */
function wantedBy({ subtopic, publisherIds, protocol, notBeforeSeconds }: Consumer): (m: LiveMessage) => boolean {
  const matches = createSubtopicMatcher(subtopic)
  const publishers = publisherIds === null ? undefined : new Set(publisherIds)
  return (message) =>
    // An empty message that cleared a retained one is not stored, so it could not be delivered again.
    message.envelope?.clears === undefined &&
    (notBeforeSeconds === null || message.receivedAtSeconds >= notBeforeSeconds) &&
    (protocol === null || message.protocol === protocol) &&
    (publishers === undefined || publishers.has(message.publisherId)) &&
    matches(message.subtopic)
}

const channelsOf = ({ channels }: Consumer) => new Map(channels.map(({ key, id }) => [key, id]))

/**
 * `isFull`: its domain may keep no more, so that only what is in doubt is delivered, and new messages wait in their channels. Undefined: the
 * consumer was deleted.
 */
export async function takeStep(
  tx: Transaction,
  key: number,
  { limit, isFull }: { limit: number; isFull: boolean },
): Promise<Step | undefined> {
  const consumer = await lockConsumer(tx, key)
  if (consumer === undefined) return undefined
  const doubt = await doubtOf(tx, consumer, limit)
  const { taken, gone } = await loadDue(tx, consumer, doubt.due)
  const heldTaken = doubt.due.filter(({ attempts }) => attempts === 0).length
  const room = Math.min(limit - doubt.due.length, consumer.maxInFlight - doubt.inFlight - heldTaken)
  const bytes = bytesOf(taken)
  const read =
    room > 0 && !isFull && bytes <= MAX_TAKEN_BYTES
      ? await readNew(tx, consumer, { room, bytes, busy: new Set(doubt.busy), held: doubt.held - heldTaken })
      : undefined
  const again = taken.map(({ place }) => place)
  const fresh = read?.fresh ?? []
  const step = read?.step
  const hasMore = gone.length > 0 || (step !== undefined && step.left === undefined && !step.isEnd)
  const isNothing = again.length + gone.length + fresh.length + (read?.held.length ?? 0) + (read?.expired ?? 0) === 0
  if (!isNothing || consumer.hasError || (step?.passed ?? 0) >= UNSTORED_BATCHES)
    await storeProgress(tx, consumer, {
      again,
      fresh: fresh.map(({ row }) => row),
      isPage: doubt.hasPages && fresh.length >= MIN_PAGE,
      held: read?.held ?? [],
      gone,
      place: step?.place ?? consumer.place,
      behindSinceSeconds: step === undefined ? 'as before' : (step.left?.receivedAtSeconds ?? null),
      expired: gone.length + (read?.expired ?? 0),
    })
  const all = [...taken, ...fresh.map(({ row, message }) => ({ place: placeOf(row), attempts: 1, message }))]
  return {
    taken: all.toSorted((left, right) => comparePlaces(left.place, right.place)),
    hasMore,
    nextDueSeconds: doubt.nextDueSeconds,
  }
}

/**
 * Returns the messages that are in doubt, after overdue pages were unpacked, and messages that were delivered as often as is allowed have become
 * dead letters.
 */
async function doubtOf(tx: Transaction, consumer: Consumer, limit: number): Promise<Doubt> {
  const bounds = { limit, maxInFlight: consumer.maxInFlight }
  let doubt = await findDoubt(tx, consumer, { ...bounds, isBounded: true })
  if (doubt.overduePages > 0) {
    await unpackOverdue(tx, consumer.key)
    doubt = await findDoubt(tx, consumer, { ...bounds, isBounded: true })
  }
  if (doubt.exhausted === 0) return doubt
  const left = await buryExhausted(tx, consumer)
  return await findDoubt(tx, consumer, { ...bounds, isBounded: left === 0 })
}

const placeOf = ({ xid, seq, message }: Place): Place => ({ xid, seq, message })
const nameOf = (seq: number, message: number) => `${seq} ${message}`

/** Loads messages that are in doubt; those that are no longer stored are `gone`. */
async function loadDue(
  tx: Transaction,
  consumer: Consumer,
  due: readonly DeliveryRow[],
): Promise<{ taken: Taken[]; gone: Place[] }> {
  const taken: Taken[] = []
  const gone: Place[] = []
  // The whole list is never in memory: messages may be large.
  for (let at = 0; at < due.length && bytesOf(taken) <= MAX_TAKEN_BYTES; at += LOADED_PLACES) {
    const rows = due.slice(at, at + LOADED_PLACES)
    const messages = await loadPlaces(tx, rows, channelsOf(consumer))
    const loaded = new Map(messages.map((message) => [nameOf(message.batchSeq, message.index), message]))
    for (const row of rows) {
      const message = loaded.get(nameOf(row.seq, row.message))
      if (message === undefined) gone.push(placeOf(row))
      else taken.push({ place: placeOf(row), attempts: row.attempts + 1, message })
    }
  }
  return { taken, gone }
}

function bytesOf(taken: readonly Taken[]): number {
  return taken.reduce((sum, { message }) => sum + message.payload.length, 0)
}

type Bounds = { room: number; bytes: number; busy: ReadonlySet<string>; held: number }
type Read = {
  fresh: { row: NewDelivery; message: LiveMessage }[]
  held: NewDelivery[]
  expired: number
  step: ForwardStep
}

/** The next messages after the place. Those of a key that is in doubt elsewhere are held back. */
async function readNew(tx: Transaction, consumer: Consumer, { room, busy, ...bounds }: Bounds): Promise<Read> {
  const isWanted = wantedBy(consumer)
  const oldestSeconds = oldestArrival()
  const fresh: Read['fresh'] = []
  const held: NewDelivery[] = []
  let [expired, { bytes }] = [0, bounds]
  const step = await readForward(tx, {
    place: consumer.place,
    channels: channelsOf(consumer),
    // One more message is read. Its arrival says since when the consumer is behind.
    firstMessages: room + 1,
    judge(message) {
      if (!isWanted(message)) return 'done'
      if (message.receivedAtSeconds < oldestSeconds) {
        expired++
        return 'done'
      }
      if (busy.has(orderKey(consumer.order, message))) {
        if (bounds.held + held.length >= MAX_HELD) return 'left'
        held.push(rowOf(message, 0))
        return 'done'
      }
      if (fresh.length >= room || bytes > MAX_TAKEN_BYTES) return 'left'
      fresh.push({ row: rowOf(message, 1), message })
      bytes += message.payload.length
      return 'done'
    },
  })
  return { fresh, held, expired, step }
}

function rowOf(message: LiveMessage, attempts: number): NewDelivery {
  const { xid, batchSeq, index, channelKey, publisherId, receivedAtSeconds } = message
  if (xid === undefined) throw new Error('the message has no place in the changelog')
  return {
    xid,
    seq: batchSeq,
    message: index,
    channelKey,
    publisherId,
    arrivedAtSeconds: receivedAtSeconds,
    attempts,
  }
}

/**
 * One step of a consumer that nobody reads: passes what is not for it, up to the first message that waits. Messages that waited for too long are
 * counted. Returns their number, and whether there is more to pass.
 */
export async function checkStep(tx: Transaction, key: number): Promise<{ expired: number; hasMore: boolean }> {
  const consumer = await lockConsumer(tx, key)
  if (consumer === undefined) return { expired: 0, hasMore: false }
  const isWanted = wantedBy(consumer)
  const oldestSeconds = oldestArrival()
  let expired = 0
  const step = await readForward(tx, {
    place: consumer.place,
    channels: channelsOf(consumer),
    firstMessages: 1,
    judge(message) {
      if (!isWanted(message)) return 'done'
      if (message.receivedAtSeconds >= oldestSeconds) return 'left'
      expired++
      return 'done'
    },
  })
  const behindSinceSeconds = step.left?.receivedAtSeconds ?? null
  await storePlace(tx, key, { place: step.place, behindSinceSeconds, expired })
  return { expired, hasMore: step.left === undefined && !step.isEnd }
}
