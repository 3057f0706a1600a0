/**
 * Pages: messages that a step gave to a caller together. Most callers acknowledge them together too, so a page is one row until a caller answers
 * otherwise, or nobody does in time. Then it is unpacked: each of its messages becomes a row of its own, as if there had been no page.
 */
import { digestOf } from '#core/digest.ts'
import { hasOlderNodes } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { orderKey } from './order.ts'
import { comparePlaces, formatPlace } from './place.ts'
import type { Place } from './place.ts'
import type { Consumer } from './repository.ts'

/** Fewer messages are rows of their own. */
export const MIN_PAGE = 10

/** A message that a step has read: `attempts` 1 if it is delivered, 0 if it is held back. */
export type NewDelivery = Place & {
  channelKey: number
  publisherId: string
  arrivedAtSeconds: number
  attempts: number
}

/** A process of an earlier build is alive, which does not know pages. */
export const HAS_OLDER_NODES = hasOlderNodes('pages_of_consumers')

/** Sorts the places and removes duplicates. */
export const sorted = (given: readonly Place[]): Place[] =>
  given
    .toSorted(comparePlaces)
    .filter((place, index, all) => index === 0 || comparePlaces(place, all[index - 1] as Place) !== 0)

const digestOfPlaces = (places: readonly Place[]) => digestOf(Buffer.from(places.map(formatPlace).join(' ')))

/** What batches, channels and publishers have in common is written once, and each message is four numbers. */
type Content = {
  batches: [xid: string, seq: number, arrivedAtSeconds: number][]
  channels: number[]
  publishers: string[]
  /** For each message: its batch, its number in the batch, its channel, its publisher. */
  messages: number[]
}

function pack(rows: readonly NewDelivery[]): string {
  const batches = new Map<number, [string, number, number]>()
  const channels = new Set<number>()
  const publishers = new Set<string>()
  for (const { xid, seq, arrivedAtSeconds, channelKey, publisherId } of rows) {
    if (!batches.has(seq)) batches.set(seq, [xid.toString(), seq, arrivedAtSeconds])
    channels.add(channelKey)
    publishers.add(publisherId)
  }
  const [batchAt, channelAt, publisherAt] = [numbered(batches.keys()), numbered(channels), numbered(publishers)]
  const content: Content = {
    batches: [...batches.values()],
    channels: [...channels],
    publishers: [...publishers],
    messages: rows.flatMap(({ seq, message, channelKey, publisherId }) => [
      batchAt.get(seq) as number,
      message,
      channelAt.get(channelKey) as number,
      publisherAt.get(publisherId) as number,
    ]),
  }
  return JSON.stringify(content)
}

const numbered = <T>(values: Iterable<T>) => new Map([...values].map((value, index) => [value, index]))

function unpackContent(text: string): NewDelivery[] {
  const { batches, channels, publishers, messages } = JSON.parse(text) as Content
  return Array.from({ length: messages.length / 4 }, (_, index) => {
    const [batch, message, channel, publisher] = messages.slice(index * 4, index * 4 + 4) as [
      number,
      number,
      number,
      number,
    ]
    const [xid, seq, arrivedAtSeconds] = batches[batch] as Content['batches'][number]
    const [channelKey, publisherId] = [channels[channel] as number, publishers[publisher] as string]
    return { xid: BigInt(xid), seq, message, channelKey, publisherId, arrivedAtSeconds, attempts: 1 }
  })
}

/** A part of a statement: inserts a page of these messages, which are in order and due at the time. */
export function insertPage(consumer: Pick<Consumer, 'key' | 'order'>, rows: readonly NewDelivery[], dueAt: Sql): Sql {
  const [first, last] = [rows[0] as NewDelivery, rows.at(-1) as NewDelivery]
  const keys = consumer.order === 'none' ? [] : [...new Set(rows.map((row) => orderKey(consumer.order, row)))]
  return sql`INSERT INTO message_consumer_pages (consumer_key, xid, seq, message, last_xid, last_seq, last_message, messages, digest, order_keys,
      content, due_at)
    VALUES (${consumer.key}, ${first.xid.toString()}::xid8, ${first.seq}, ${first.message}, ${last.xid.toString()}::xid8, ${last.seq},
      ${last.message}, ${rows.length}, ${digestOfPlaces(rows)}, ${keys}::text[], ${pack(rows)}, ${dueAt})`
}

/** Acknowledges the messages if they are those of one page. Returns whether they are. */
export async function acknowledgePage(db: Queryable, key: number, given: readonly Place[]): Promise<boolean> {
  const places = given.length < MIN_PAGE ? [] : sorted(given)
  const [first] = places
  if (first === undefined) return false
  const { numAffectedRows = 0n } = await sql`DELETE FROM message_consumer_pages WHERE consumer_key = ${key}
    AND (xid, seq, message) = (${first.xid.toString()}::xid8, ${first.seq}::bigint, ${first.message}::int)
    AND digest = ${digestOfPlaces(places)}`.execute(db)
  return numAffectedRows > 0n
}

/** Unpacks the pages that may have one of these messages. */
export async function unpackPagesOf(tx: Transaction, key: number, given: readonly Place[]): Promise<void> {
  const places = sorted(given)
  const [first, last] = [places[0], places.at(-1)]
  if (first === undefined || last === undefined) return
  await unpack(
    tx,
    key,
    sql`(xid, seq, message) <= (${last.xid.toString()}::xid8, ${last.seq}::bigint, ${last.message}::int)
      AND (last_xid, last_seq, last_message) >= (${first.xid.toString()}::xid8, ${first.seq}::bigint, ${first.message}::int)`,
  )
}

/** Unpacks the pages that were not acknowledged in time. */
export const unpackOverdue = (tx: Transaction, key: number): Promise<void> =>
  unpack(tx, key, sql`due_at <= clock_timestamp()`)

/** The consumers with such pages. */
export async function listOverdue(db: Queryable, limit: number): Promise<number[]> {
  const { rows } = await sql<{ key: number }>`SELECT DISTINCT consumer_key AS key FROM message_consumer_pages
    WHERE due_at <= now() LIMIT ${limit}`.execute(db)
  return rows.map(({ key }) => key)
}

export const unpackAll = (tx: Transaction, key: number): Promise<void> => unpack(tx, key, sql`true`)

async function unpack(tx: Transaction, key: number, isMeant: Sql): Promise<void> {
  const { rows: pages } = await sql<{ content: string; dueAt: string }>`
    DELETE FROM message_consumer_pages WHERE ctid = ANY (ARRAY(SELECT ctid FROM message_consumer_pages
      WHERE consumer_key = ${key} AND ${isMeant} ORDER BY xid, seq, message FOR UPDATE))
    RETURNING content, due_at::text AS "dueAt"`.execute(tx)
  for (const { content, dueAt } of pages)
    await insertDeliveries(key, unpackContent(content), sql`${dueAt}::timestamptz`).execute(tx)
}

/** A statement: inserts a row for each message. Delivered ones are due at the time. */
export const insertDeliveries = (key: number, rows: readonly NewDelivery[], dueAt: Sql): Sql => sql`
  INSERT INTO message_consumer_deliveries (consumer_key, xid, seq, message, channel_key, publisher_id, arrived_at, attempts, due_at)
  SELECT ${key}, g.xid::xid8, g.seq, g.message, g.channel_key, g.publisher_id, to_timestamp(g.arrived_at), g.attempts,
      CASE WHEN g.attempts = 0 THEN '-infinity' ELSE ${dueAt} END
    FROM unnest(${rows.map(({ xid }) => xid.toString())}::text[], ${rows.map(({ seq }) => seq)}::bigint[],
      ${rows.map(({ message }) => message)}::int[], ${rows.map(({ channelKey }) => channelKey)}::bigint[],
      ${rows.map(({ publisherId }) => publisherId)}::text[], ${rows.map(({ arrivedAtSeconds }) => arrivedAtSeconds)}::float8[],
      ${rows.map(({ attempts }) => attempts)}::int[]) AS g (xid, seq, message, channel_key, publisher_id, arrived_at, attempts)`
