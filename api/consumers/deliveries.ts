/** SQL of what is in doubt: messages that were delivered or are held back, and dead letters. */
import { countLetters, isSelected } from '#core/changelog/index.ts'
import type { LetterBounds, LetterSelection } from '#core/changelog/index.ts'
import { Keyset, readPage } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { Order } from './order.ts'
import { HAS_OLDER_NODES, insertDeliveries, insertPage, sorted } from './pages.ts'
import type { NewDelivery } from './pages.ts'
import { comparePlaces, formatPlace } from './place.ts'
import type { Place } from './place.ts'
import type { Consumer } from './repository.ts'

/** The limit of one consumer. Above it, messages are delivered beyond `max_deliver` until some letters are retried or discarded. */
const MAX_DEAD_LETTERS = 10_000
const DEAD_LETTERS_KEPT_DAYS = 30
/** Rows that one statement deletes. */
const STEP_ROWS = 10_000

export type DeliveryRow = Place & {
  channelKey: number
  publisherId: string
  /** The time as the database shows it. */
  arrivedAt: string
  attempts: number
}

type Placed<T> = Omit<T, 'xid'> & { xid: string }

const fromRow = <T extends { xid: bigint }>(row: Placed<T>): T => ({ ...row, xid: BigInt(row.xid) }) as unknown as T

/** The column by which a message in doubt holds back others. A message of no order holds back itself alone. */
const KEYS: Readonly<Record<Order, Sql>> = {
  client: sql`publisher_id`,
  channel: sql`channel_key::text`,
  none: sql`''`,
}

export type Doubt = {
  /** Delivered and not acknowledged. */
  inFlight: number
  held: number
  /** Delivered as often as is allowed, and due. */
  exhausted: number
  /** Pages that were not acknowledged in time: they are to be unpacked first. */
  overduePages: number
  /** New messages may be stored as a page. */
  hasPages: boolean
  /** The time, in epoch seconds, at which the next message becomes due. */
  nextDueSeconds: number | null
  /** Keys of messages that are not due: their later messages are held back. */
  busy: string[]
  /** Messages to deliver again or for the first time, in order. */
  due: DeliveryRow[]
}

/** Returns the messages that are in doubt now. `due` has at most `limit` messages, of which at most `room` were held back. */
export async function findDoubt(
  tx: Transaction,
  { key, order, maxDeliver }: Pick<Consumer, 'key' | 'order' | 'maxDeliver'>,
  { limit, maxInFlight, isBounded }: { limit: number; maxInFlight: number; isBounded: boolean },
): Promise<Doubt> {
  const isExhausted = isBounded ? sql`attempts >= ${maxDeliver}` : sql`false`
  const isFree = order === 'none' ? sql`true` : sql`k NOT IN (SELECT k FROM busy)`
  const { rows } = await sql<Omit<Doubt, 'due'> & { due: Placed<DeliveryRow>[] }>`
    WITH open AS MATERIALIZED (
      SELECT xid, seq, message, channel_key, publisher_id, arrived_at, attempts, due_at, ${KEYS[order]} AS k, due_at > clock_timestamp() AS is_waiting
        FROM message_consumer_deliveries WHERE consumer_key = ${key} AND dead_at IS NULL),
    pages AS MATERIALIZED (SELECT messages, due_at, due_at > clock_timestamp() AS is_waiting, order_keys FROM message_consumer_pages
      WHERE consumer_key = ${key}),
    paged AS (SELECT coalesce(sum(messages), 0)::bigint AS messages, count(*) FILTER (WHERE NOT is_waiting) AS overdue, min(due_at) AS next_due FROM pages),
    counts AS (SELECT (SELECT messages FROM paged) + count(*) FILTER (WHERE attempts > 0) AS in_flight, count(*) FILTER (WHERE attempts = 0) AS held,
      count(*) FILTER (WHERE NOT is_waiting AND ${isExhausted}) AS exhausted,
      least(min(due_at) FILTER (WHERE is_waiting), (SELECT next_due FROM paged)) AS next_due FROM open),
    busy AS (SELECT k FROM open WHERE is_waiting AND ${order !== 'none'} UNION SELECT unnest(order_keys) FROM pages WHERE ${order !== 'none'}),
    free AS (SELECT *, count(*) FILTER (WHERE attempts = 0) OVER (ORDER BY xid, seq, message) AS fresh FROM open
      WHERE NOT is_waiting AND ${isFree}),
    due AS (SELECT * FROM free, counts WHERE attempts > 0 OR fresh <= ${maxInFlight} - counts.in_flight
      ORDER BY xid, seq, message LIMIT ${limit})
    SELECT in_flight AS "inFlight", held, exhausted, (SELECT overdue FROM paged) AS "overduePages", NOT ${HAS_OLDER_NODES} AS "hasPages", extract(epoch FROM next_due)::float8 AS "nextDueSeconds",
      (SELECT coalesce(json_agg(k), '[]') FROM busy) AS busy,
      (SELECT coalesce(json_agg(json_build_object('xid', xid::text, 'seq', seq, 'message', message, 'channelKey', channel_key,
        'publisherId', publisher_id, 'arrivedAt', arrived_at, 'attempts', attempts) ORDER BY xid, seq, message), '[]') FROM due) AS due
      FROM counts`.execute(tx)
  const [row] = rows
  if (row === undefined) throw new Error('the counts of a consumer have one row')
  return { ...row, due: row.due.map((one) => fromRow<DeliveryRow>(one)) }
}

/** Gives up what is due and was delivered as often as is allowed. Returns how many messages could not become dead letters. */
export async function buryExhausted(
  tx: Transaction,
  { key, maxDeliver }: Pick<Consumer, 'key' | 'maxDeliver'>,
): Promise<number> {
  const { rows } = await sql<{ left: number }>`
    WITH room AS (SELECT ${MAX_DEAD_LETTERS} - count(*) AS letters FROM message_consumer_deliveries
      WHERE consumer_key = ${key} AND dead_at IS NOT NULL),
    exhausted AS (SELECT ctid AS tid, xid, seq, message FROM message_consumer_deliveries
      WHERE consumer_key = ${key} AND dead_at IS NULL AND due_at <= clock_timestamp() AND attempts >= ${maxDeliver}
      ORDER BY xid, seq, message FOR UPDATE),
    buried AS (UPDATE message_consumer_deliveries SET dead_at = now(), due_at = 'infinity', letter_id = gen_random_uuid()
      WHERE ctid = ANY (ARRAY(SELECT tid FROM exhausted ORDER BY xid, seq, message LIMIT greatest((SELECT letters FROM room), 0))) RETURNING 1)
    SELECT (SELECT count(*) FROM exhausted) - (SELECT count(*) FROM buried) AS left`.execute(tx)
  return rows[0]?.left ?? 0
}

/** The consumers with messages that were delivered as often as is allowed, and are due. */
export async function listExhausted(db: Queryable, limit: number): Promise<number[]> {
  const { rows } = await sql<{ key: number }>`SELECT c.key FROM message_consumers c
    WHERE EXISTS (SELECT FROM message_consumer_deliveries d
      WHERE d.consumer_key = c.key AND d.dead_at IS NULL AND d.due_at <= now() AND d.attempts >= c.max_deliver)
      AND (SELECT count(*) FROM (SELECT FROM message_consumer_deliveries d
        WHERE d.consumer_key = c.key AND d.dead_at IS NOT NULL LIMIT ${MAX_DEAD_LETTERS}) counted) < ${MAX_DEAD_LETTERS}
    ORDER BY random() LIMIT ${limit}`.execute(db)
  return rows.map(({ key }) => key)
}

/**
 * The rows of these places, locked in their order. Each is found by its own search of the index: what the planner knows of a table that is filled
 * and emptied within minutes is wrong, and other plans compare each place with each row of the consumer.
 */
const rowsOf = (key: number, given: readonly Place[], isMeant: Sql): Sql => sql`
  (SELECT g.ordinal::int AS ordinal, d.tid, d.xid, d.seq, d.message
     FROM unnest(${xids(given)}::text[], ${column(given, ({ seq }) => seq)}::bigint[],
      ${column(given, ({ message }) => message)}::int[]) WITH ORDINALITY AS g (xid, seq, message, ordinal)
    CROSS JOIN LATERAL (SELECT d.ctid AS tid, d.xid, d.seq, d.message FROM message_consumer_deliveries d
      WHERE d.consumer_key = ${key} AND d.xid = g.xid::xid8 AND d.seq = g.seq AND d.message = g.message AND ${isMeant} FOR UPDATE) d)`

const column = <T>(rows: readonly T[], read: (row: T) => unknown) => rows.map(read)
const xids = (places: readonly Place[]) => column(places, ({ xid }) => xid.toString())
const places = (given: readonly Place[]) =>
  sql`unnest(${xids(given)}::text[], ${column(given, ({ seq }) => seq)}::bigint[], ${column(given, ({ message }) => message)}::int[])`

export type Progress = {
  /** Delivered again. */
  again: readonly Place[]
  /** Delivered for the first time. */
  fresh: readonly NewDelivery[]
  /** They are stored as a page. */
  isPage: boolean
  /** Held back by earlier messages. */
  held: readonly NewDelivery[]
  /** Messages in doubt that are no longer stored. */
  gone: readonly Place[]
  place: Place
  /** Arrival of the message at the place, if one waits. */
  behindSinceSeconds: number | null | 'as before'
  expired: number
}

/** Stores what a step delivered, held back and passed, in one statement. */
export async function storeProgress(
  tx: Transaction,
  consumer: Pick<Consumer, 'key' | 'ackWaitMs' | 'order'>,
  { again, fresh, isPage, held, gone, place, behindSinceSeconds, expired }: Progress,
): Promise<void> {
  const { key, ackWaitMs } = consumer
  const dueAt = sql`clock_timestamp() + ${ackWaitMs}::float8 * interval '1 millisecond'`
  await sql`
    WITH again AS (UPDATE message_consumer_deliveries SET attempts = attempts + 1, due_at = ${dueAt}
        WHERE ctid = ANY (ARRAY(SELECT tid FROM ${rowsOf(key, sorted(again), sql`true`)} AS found))),
      gone AS (DELETE FROM message_consumer_deliveries
        WHERE ctid = ANY (ARRAY(SELECT tid FROM ${rowsOf(key, sorted(gone), sql`true`)} AS found))),
      page AS (${isPage ? insertPage(consumer, fresh, dueAt) : sql`SELECT`}),
      made AS (${insertDeliveries(key, isPage ? held : [...fresh, ...held], dueAt)})
    UPDATE message_consumers SET (xid, seq, message) = ROW (${place.xid.toString()}::xid8, ${place.seq}::bigint, ${place.message}::integer),
      behind_since = ${behindSinceSeconds === 'as before' ? sql`behind_since` : sql`to_timestamp(${behindSinceSeconds}::float8)`}, expired = expired + ${expired}, checked_at = now(), error_at = NULL, error_reason = NULL
      WHERE key = ${key}`.execute(tx)
}

/**
 * Acknowledges these messages if each of them was delivered, or may lack. Returns the ones that were not: then nothing was acknowledged. Rows are
 * locked in their order.
 */
export const acknowledge = (
  db: Queryable,
  key: number,
  given: readonly Place[],
  mayLack: readonly Place[] = [],
): Promise<Place[]> =>
  changeDelivered(db, key, given, {
    isMeant: sql`d.attempts > 0`,
    mayLack,
    statement: sql`DELETE FROM message_consumer_deliveries`,
  })

/** Puts these messages back, to be delivered again after the delay, if each is in flight. Returns the others: then nothing was put back. */
export const putBack = (
  db: Queryable,
  key: number,
  given: readonly Place[],
  { delayMs, reason, maxDeliver }: { delayMs: number; reason: string | null; maxDeliver: number },
): Promise<Place[]> =>
  changeDelivered(db, key, given, {
    isMeant: sql`d.attempts > 0 AND d.dead_at IS NULL`,
    mayLack: [],
    statement: sql`UPDATE message_consumer_deliveries SET reason = ${reason}, due_at = clock_timestamp()
      + CASE WHEN attempts >= ${maxDeliver} THEN 0 ELSE ${delayMs}::float8 END * interval '1 millisecond'`,
  })

type Change = { isMeant: Sql; mayLack: readonly Place[]; statement: Sql }

/** All of these messages, or none. A row that another transaction changed while this one waited for it is not seen at once: it is changed by a further statement. */
async function changeDelivered(
  db: Queryable,
  key: number,
  given: readonly Place[],
  { isMeant, mayLack, statement }: Change,
): Promise<Place[]> {
  const optional = new Set(mayLack.map(formatPlace))
  for (let asked = sorted(given); asked.length > 0;) {
    const required = asked.flatMap((place, index) => (optional.has(formatPlace(place)) ? [] : [index + 1]))
    const { rows } = await sql<{ lacking: number[]; unseen: number[] }>`
      WITH found AS MATERIALIZED ${rowsOf(key, asked, isMeant)},
        lacking AS (SELECT ordinal FROM unnest(${required}::int[]) AS ordinal EXCEPT SELECT ordinal FROM found),
        done AS (${statement} WHERE ctid = ANY (ARRAY(SELECT tid FROM found)) AND NOT EXISTS (SELECT FROM lacking)
          RETURNING xid, seq, message)
      SELECT ARRAY(SELECT ordinal FROM lacking) AS lacking, ARRAY(SELECT ordinal FROM found
        WHERE (xid, seq, message) NOT IN (SELECT xid, seq, message FROM done)) AS unseen`.execute(db)
    const { lacking = [], unseen = [] } = rows[0] ?? {}
    const at = (ordinal: number) => asked[ordinal - 1] as Place
    if (lacking.length > 0) return lacking.map(at).toSorted(comparePlaces)
    asked = unseen.map(at).toSorted(comparePlaces)
  }
  return []
}

/** Returns those of these places that are messages of the consumer's channels which it has passed: they were acknowledged before. */
export async function findPassed(db: Queryable, key: number, given: readonly Place[]): Promise<Place[]> {
  const { rows } = await sql<{ xid: string; seq: number; message: number }>`
    SELECT b.xid::text AS xid, g.seq, g.message
      FROM ${places(given)} AS g (xid, seq, message) JOIN ingest_batches b ON b.seq = g.seq AND b.xid = g.xid::xid8
      JOIN message_consumers c ON c.key = ${key} AND (b.xid, b.seq, g.message) < (c.xid, c.seq, c.message)
     WHERE NOT EXISTS (SELECT FROM message_consumer_deliveries d
         WHERE d.consumer_key = c.key AND d.xid = b.xid AND d.seq = b.seq AND d.message = g.message)
       AND EXISTS (SELECT FROM message_consumer_channels m WHERE m.consumer_key = c.key
         AND (EXISTS (SELECT FROM records r WHERE r.batch_seq = b.seq AND r.message = g.message AND r.channel_key = m.channel_key AND r.arrived_at = b.arrived_at)
           OR EXISTS (SELECT FROM payloads p WHERE p.batch_seq = b.seq AND p.message = g.message AND p.channel_key = m.channel_key AND p.arrived_at = b.arrived_at)))`.execute(
    db,
  )
  return rows.map((row) => fromRow<Place>(row))
}

/** The tables whose rows count by their size in the quota `queued_bytes`. */
export const DOUBT_TABLES = ['message_consumer_deliveries', 'message_consumer_pages'] as const

/** Bytes of the rows of what is in doubt and of dead letters, by domain; a domain that is absent has none. Their messages are not copied. */
export async function readDoubtBytes(
  db: Queryable,
  domainKeys: readonly number[],
): Promise<ReadonlyMap<number, number>> {
  const { rows } = await sql<{ key: number; bytes: number }>`
    SELECT c.domain_key AS key, sum(d.bytes)::float8 AS bytes FROM message_consumers c CROSS JOIN LATERAL (
        SELECT pg_column_size(o) AS bytes FROM message_consumer_deliveries o WHERE o.consumer_key = c.key
        UNION ALL SELECT pg_column_size(p) FROM message_consumer_pages p WHERE p.consumer_key = c.key) d
     WHERE c.domain_key = ANY (${[...domainKeys]}::bigint[]) GROUP BY 1`.execute(db)
  return new Map(rows.map(({ key, bytes }) => [key, bytes]))
}

export type LetterRow = DeliveryRow & { id: string; at: string; reason: string | null }

/** The newest first. */
export async function listLetters(
  db: Queryable,
  key: number,
  range: PageRange,
): Promise<{ total: number; letters: LetterRow[]; next: PageEnd }> {
  const where = sql<boolean>`d.consumer_key = ${key} AND d.dead_at IS NOT NULL`
  const { rows: counted } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM message_consumer_deliveries d WHERE ${where}`.execute(db)
  const newestFirst = [
    { by: sql`d.dead_at`, type: 'time' as const },
    { by: sql`d.letter_id`, type: 'uuid' as const },
  ]
  const columns = sql`d.xid::text AS xid, d.seq, d.message, d.channel_key AS "channelKey", d.publisher_id AS "publisherId",
    d.arrived_at AS "arrivedAt", d.attempts, d.letter_id AS id, d.dead_at AS at, d.reason`
  const page = { columns, from: sql`message_consumer_deliveries d`, where, keyset: new Keyset(newestFirst, 'desc') }
  const { rows, next } = await readPage<Placed<LetterRow>>(db, page, range)
  return { total: counted[0]?.total ?? 0, letters: rows.map((row) => fromRow<LetterRow>(row)), next }
}

async function changeLetters(
  tx: Transaction,
  key: number,
  selection: LetterSelection,
  statement: Sql,
): Promise<number> {
  const isMeant = isSelected(selection, { id: sql`letter_id`, at: sql`dead_at` })
  const { numAffectedRows = 0n } = await sql`${statement}
    WHERE consumer_key = ${key} AND dead_at IS NOT NULL AND ${isMeant}`.execute(tx)
  return Number(numAffectedRows)
}

/** They are delivered again as if for the first time. Returns their number. */
export const retryLetters = (tx: Transaction, key: number, selection: LetterSelection): Promise<number> =>
  changeLetters(
    tx,
    key,
    selection,
    sql`UPDATE message_consumer_deliveries SET dead_at = NULL, letter_id = NULL, reason = NULL, attempts = 0, due_at = '-infinity'`,
  )

export const discardLetters = (tx: Transaction, key: number, selection: LetterSelection): Promise<number> =>
  changeLetters(tx, key, selection, sql`DELETE FROM message_consumer_deliveries`)

const DEAD = {
  table: sql`message_consumer_deliveries`,
  isLetter: sql`l.dead_at IS NOT NULL`,
  order: [sql`l.consumer_key`, sql`l.dead_at`],
} as const

/** A part of a statement: the named consumers of a domain that have dead letters, the newest first, as `kind`, `id`, `name` and `count`. */
// OFFSET 0: each is counted once, not for the condition and for the result.
export const consumersWithLetters = (domainKey: number, bounds: LetterBounds): Sql => sql`
  SELECT 'consumer' AS kind, c.id, c.name, c.count FROM (SELECT c.key, c.id, c.name, c.created_at, ${countLetters(DEAD, sql`c.key`, bounds)} AS count
      FROM message_consumers c WHERE c.domain_key = ${domainKey} OFFSET 0) c
   WHERE c.count > 0 ORDER BY c.created_at DESC, c.key DESC LIMIT ${bounds.sources}`

/** Removes letters that are older than their retention. */
export async function removeOldLetters(db: Queryable): Promise<void> {
  await sql`DELETE FROM message_consumer_deliveries WHERE ctid = ANY (ARRAY(SELECT ctid FROM message_consumer_deliveries
    WHERE dead_at < now() - make_interval(days => ${DEAD_LETTERS_KEPT_DAYS}) LIMIT ${STEP_ROWS}))`.execute(db)
}
