/**
 * Consumers of messages that are behind (mechanisms section 2). One follower of the changelog serves all consumers of a kind at the end of the
 * log. A consumer that cannot take a message now leaves it there: it stores the place of the message, is skipped by the follower, and reads on
 * by itself, in its own transactions. It drops nothing, and a thousand waiting messages cost a place.
 */
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { LOG_START, MAX_IDLE_FACTOR, findPosition, holdPosition, readSettled } from '#core/changelog/index.ts'
import type { BehindPlace, LogRow, LogTable, Position } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { growingPauses, startRounds } from '#core/rounds.ts'
import type { Pause, Rounds } from '#core/rounds.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { LiveMessage } from './live-message.ts'
import type { Edge, StoredBatch } from './stored.ts'
import { loadBetween, loadMessages } from './stored.ts'

/** How long a message waits for a consumer that is behind; the changelog is kept a day longer. */
export const MAX_WAIT_DAYS = 7
const MAX_WAIT_SECONDS = MAX_WAIT_DAYS * 86_400
/** Batches of all channels that one step looks through: most steps find what they can take in the first ones. */
const LOOKS = [200, 1_800] as const
/** Batches whose channels are asked for at once. */
const MAX_BATCHES = 2_000
/** Batches that are loaded at a time. */
const LOADED_BATCHES = 50
/** Larger than the number of any message of a batch. */
const MAX_MESSAGE = 2 ** 31 - 1
/** Each further look is at as many times the batches of the last one, and each further load of as many times the messages. */
const LOOK_GROWTH = 4
/** Payloads of what one step takes, in bytes; the last may exceed it. */
const MAX_STEP_BYTES = 16 * 1024 * 1024
/** Consumers that go on in one round, a step each. */
const MAX_STEPS = 20
/** The pause after a failed round. */
const RETRY_MS = 1_000
const TABLE: LogTable = {
  name: 'ingest_batches',
  columns: ['extract(epoch FROM arrived_at)::float8 AS arrived', 'arrived_at', 'messages'],
}

/** The place of a message that was read from the changelog. */
export function placeOf({ xid, batchSeq, index, receivedAtSeconds }: LiveMessage): BehindPlace {
  if (xid === undefined) throw new Error('the message has no place in the changelog')
  return { xid, seq: batchSeq, message: index, arrivedAtSeconds: receivedAtSeconds }
}

export type BacklogReading<T> = {
  /** The follower that serves the consumers of the same kind that are not behind. */
  consumer: string
  place: BehindPlace
  channel: { key: number; id: string }
  /** Returns the part of a message that the consumer takes. Undefined: the message is not for it. */
  select: (message: LiveMessage) => T | undefined
  maxItems: number
}

export type BacklogStep<T> = {
  taken: T[]
  /** Messages for the consumer that waited for too long. */
  expired: number
  /**
   * The new place. Undefined: the follower continues with the next message, which it does not pass before the transaction ends.
   */
  next: BehindPlace | undefined
}

/** Reads on from the place, at most to where the follower stands. */
export async function readBacklog<T>(tx: Transaction, reading: BacklogReading<T>): Promise<BacklogStep<T>> {
  const { consumer, channel, select, maxItems } = reading
  const oldestSeconds = oldestArrival()
  const taken: T[] = []
  let [expired, bytes, place] = [0, 0, reading.place]
  for (const [look, limit] of LOOKS.entries()) {
    const { rows, isEnd } = await nextBatches(tx, consumer, { xid: place.xid, seq: place.seq - 1 }, limit)
    const left = await readThrough(tx, {
      rows,
      place,
      channels: new Map([[channel.key, channel.id]]),
      // One more message is read: the one at which the consumer goes on.
      firstMessages: look === 0 ? maxItems + 1 : Infinity,
      judge(message) {
        const item = select(message)
        if (item === undefined) return 'done'
        if (message.receivedAtSeconds < oldestSeconds) {
          expired++
          return 'done'
        }
        if (taken.length >= maxItems || bytes > MAX_STEP_BYTES) return 'left'
        taken.push(item)
        bytes += message.payload.length
        return 'done'
      },
    })
    if (left !== undefined) return { taken, expired, next: placeOf(left) }
    if (isEnd) return { taken, expired, next: undefined }
    place = placeAfter(rows, place)
    if (rows.length < limit) break
  }
  return { taken, expired, next: place }
}

/** Arrival, in epoch seconds, of the oldest message that still waits for consumers. */
export function oldestArrival(): number {
  return Date.now() / 1000 - MAX_WAIT_SECONDS
}

type Through = {
  rows: readonly LogRow[]
  place: Position & { message: number }
  channels: ReadonlyMap<number, string>
  /** `left`: this message and all later ones stay where they are. */
  judge: (message: LiveMessage) => 'done' | 'left'
  /** Messages of all channels that are loaded first. Infinity: it is asked first which batches have messages of the channels. */
  firstMessages: number
}

/**
 * Judges the messages of the channels in these batches from the place on, in order. Returns the message that is left, if any. Where the channels
 * have most of the messages, the first ones are enough; only then is it asked which of the others have any.
 */
async function readThrough(
  tx: Transaction,
  { rows, place, channels, judge, firstMessages }: Through,
): Promise<LiveMessage | undefined> {
  let from: Edge = place
  const readPart = async ({ rows: some, to }: Part): Promise<LiveMessage | undefined> => {
    const messages = await loadBetween(tx, await withEnvelopes(tx, some), channels, [from, to])
    from = to
    return messages.find((message) => judge(message) === 'left')
  }
  const first = partOf(rows, from, firstMessages)
  const hasFirst = firstMessages < Infinity && first.rows.length > 0
  const left = hasFirst ? await readPart(first) : undefined
  if (left !== undefined) return left
  let [size, messages] = [Math.max(first.rows.length, 1), firstMessages]
  for (let at = hasFirst ? first.end : 0; at < rows.length; at += size, size *= LOOK_GROWTH) {
    const some = rows.slice(at, at + size)
    const wanted = await batchesOf(tx, [...channels.keys()], some)
    let found = some.filter(({ position }) => wanted.has(position.seq))
    while (found.length > 0) {
      messages *= LOOK_GROWTH
      const part = partOf(found, from, messages)
      const leftHere = await readPart(part)
      if (leftHere !== undefined) return leftHere
      found = found.slice(part.end)
    }
  }
  return undefined
}

/** Rows of the log, up to an edge in the last of them. `end`: the number of the rows that are complete. */
type Part = { rows: readonly LogRow[]; to: Edge; end: number }

/** The first of these batches that have as many messages after the edge, of the last batch only those that are wanted; at most `LOADED_BATCHES`. */
function partOf(rows: readonly LogRow[], from: Edge, messages: number): Part {
  let [left, end, to] = [messages, 0, from]
  for (const { position, ...row } of rows.slice(0, LOADED_BATCHES)) {
    if (left === 0) break
    const begin = position.seq === from.seq ? from.message : 0
    const count = Math.max((row['messages'] as number) - begin, 0)
    if (count > left) return { rows: rows.slice(0, end + 1), to: { seq: position.seq, message: begin + left }, end }
    left -= count
    to = { seq: position.seq, message: MAX_MESSAGE }
    end++
  }
  return { rows: rows.slice(0, end), to, end }
}

export type ForwardReading = Omit<Through, 'rows'>

export type ForwardStep = {
  /** The message that is left, if one is. */
  left: LiveMessage | undefined
  /** The place where the next step begins. */
  place: Position & { message: number }
  /** Nothing follows that is settled. */
  isEnd: boolean
  /** Batches that were passed, of all channels. */
  passed: number
}

/** One step of a consumer that no follower serves: from its place on, at most to the settled end of the changelog. */
export async function readForward(tx: Transaction, reading: ForwardReading): Promise<ForwardStep> {
  let [place, passed] = [reading.place, 0]
  for (const [look, limit] of LOOKS.entries()) {
    const rows = await readSettled(tx, TABLE, { xid: place.xid, seq: place.seq - 1 }, limit)
    passed += rows.length
    const firstMessages = look === 0 ? reading.firstMessages : Infinity
    const left = await readThrough(tx, { ...reading, place, rows, firstMessages })
    if (left !== undefined) return { left, place: placeOf(left), isEnd: false, passed }
    const last = rows.at(-1)?.position
    if (last !== undefined) place = { xid: last.xid, seq: last.seq + 1, message: 0 }
    if (rows.length < limit) return { left, place, isEnd: true, passed }
  }
  return { left: undefined, place, isEnd: false, passed }
}

/** Channels among these with messages in the settled batches after the position, and the position after those batches. */
export async function channelsAfter(
  db: Queryable,
  after: Position,
  channelKeys: readonly number[],
): Promise<{ channelKeys: ReadonlySet<number>; position: Position }> {
  const rows = await readSettled(db, TABLE, after, MAX_BATCHES)
  const last = rows.at(-1)
  if (last === undefined) return { channelKeys: new Set(), position: after }
  const where = isInBatches(channelKeys, rows)
  const { rows: found } = await sql<{ channel_key: number }>`
    SELECT channel_key FROM records WHERE ${where} UNION SELECT channel_key FROM payloads WHERE ${where}`.execute(db)
  return { channelKeys: new Set(found.map((row) => row.channel_key)), position: last.position }
}

function placeAfter(rows: readonly LogRow[], place: BehindPlace): BehindPlace {
  const last = rows.at(-1)
  if (last === undefined) return place
  return { xid: last.position.xid, seq: last.position.seq + 1, message: 0, arrivedAtSeconds: last['arrived'] as number }
}

/** The batches after a position, at most `limit`. `isEnd`: the follower stands behind the last of them, and is held there. */
async function nextBatches(
  tx: Transaction,
  consumer: string,
  after: Position,
  limit: number,
): Promise<{ rows: LogRow[]; isEnd: boolean }> {
  const read = async (from: Position) =>
    await readSettled(tx, TABLE, from, limit, { until: (await findPosition(tx, consumer)) ?? LOG_START })
  const rows = await read(after)
  if (rows.length === limit || !(await holdPosition(tx, consumer))) return { rows, isEnd: false }
  // These are the batches that the follower passed until it was held.
  const more = await read(rows.at(-1)?.position ?? after)
  return { rows: [...rows, ...more], isEnd: more.length < limit }
}

/** The condition for rows of messages that these channels may have in these batches. */
function isInBatches(channelKeys: readonly number[], rows: readonly LogRow[]): Sql<boolean> {
  const numbers = rows.map(({ position }) => position.seq)
  const arrivals = rows.map((row) => row['arrived'] as number)
  return sql<boolean>`channel_key = ANY (${[...channelKeys]}::bigint[]) AND batch_seq BETWEEN ${Math.min(...numbers)} AND ${Math.max(...numbers)}
    AND arrived_at BETWEEN to_timestamp(${Math.min(...arrivals) - 1}::float8) AND to_timestamp(${Math.max(...arrivals) + 1}::float8)`
}

/** Returns the batches among these that have messages of the channels. */
async function batchesOf(
  db: Queryable,
  channelKeys: readonly number[],
  rows: readonly LogRow[],
): Promise<ReadonlySet<number>> {
  if (rows.length === 0 || channelKeys.length === 0) return new Set()
  const where = isInBatches(channelKeys, rows)
  const { rows: found } = await sql<{ batch_seq: number }>`
    SELECT batch_seq FROM records WHERE ${where} UNION SELECT batch_seq FROM payloads WHERE ${where}`.execute(db)
  return new Set(found.map(({ batch_seq: seq }) => seq))
}

/** Envelopes are read of these batches alone: they may be large. */
async function withEnvelopes(db: Queryable, rows: readonly LogRow[]): Promise<StoredBatch[]> {
  const numbers = rows.map(({ position }) => position.seq)
  const { rows: found } = await sql<{ seq: number; envelopes: string | null }>`
    SELECT seq, envelopes FROM ingest_batches WHERE seq = ANY (${numbers}::bigint[]) AND envelopes IS NOT NULL`.execute(
    db,
  )
  const envelopes = new Map(found.map((row) => [row.seq, row.envelopes]))
  return rows.map((row) => ({
    seq: row.position.seq,
    xid: row.position.xid,
    arrivedAt: row['arrived_at'] as string,
    envelopes: envelopes.get(row.position.seq) ?? null,
  }))
}

/** The messages of a channel in a batch whose place is known. */
export async function loadBatchAt(
  db: Queryable,
  { position, arrivedAt }: { position: Position; arrivedAt: string },
  channel: { key: number; id: string },
): Promise<LiveMessage[]> {
  const batches = await withEnvelopes(db, [{ position, arrived_at: arrivedAt }])
  return await loadMessages(db, batches, new Map([[channel.key, channel.id]]))
}

/**
 * Lets consumers of a kind go on that are behind: those that `list` returns, which are at most `limit`, each in a transaction of its own. `goOn`
 * returns how many messages it handled.
 */
export function startBacklogs({
  database,
  logger,
  what,
  list,
  goOn,
  onHandled,
  busyPauseMs,
  idlePauseMs,
}: {
  database: Database
  logger: Logger
  /** The consumers, for the log. */
  what: string
  list: (limit: number) => Promise<readonly number[]>
  goOn: (tx: Transaction, key: number) => Promise<number>
  /** Called after the commits of a round that handled messages. */
  onHandled?: () => void
  /** The pause between two rounds while consumers go on. */
  busyPauseMs: number
  /** The first pause while no consumer can go on. The pauses grow from it. */
  idlePauseMs: number
}): Rounds {
  const pauses = growingPauses(idlePauseMs, idlePauseMs * MAX_IDLE_FACTOR)
  async function round(): Promise<Pause> {
    try {
      const keys = await list(MAX_STEPS)
      let handled = 0
      for (const key of keys) handled += await database.transaction((tx) => goOn(tx, key))
      if (handled > 0) onHandled?.()
      const pauseMs = pauses.next(keys.length === 0)
      return { pauseMs: keys.length === 0 ? pauseMs : busyPauseMs, isWakeable: true }
    } catch (error) {
      logger.warn({ err: error }, `failed to resume ${what} that are behind; retrying`)
      return { pauseMs: RETRY_MS, isWakeable: false }
    }
  }
  return startRounds(round)
}
