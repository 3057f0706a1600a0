/** SQL of named consumers: what they are, and where they stand. */
import { allOf, contains } from '#api/identity/index.ts'
import { Keyset, readPage, refusing } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import { takenField } from '#core/errors/index.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { Order } from './order.ts'
import type { Place } from './place.ts'

export type ConsumerChannel = { key: number; id: string }

/** The fields that users set. */
export type ConsumerFields = {
  name: string
  /** The result of `parseSubtopicFilter`. */
  subtopic: string
  publisherIds: string[] | null
  protocol: string | null
  order: Order
  maxInFlight: number
  ackWaitMs: number
  maxDeliver: number
}

/** A consumer with the fields that reading needs. */
export type Consumer = ConsumerFields & {
  key: number
  id: string
  domainKey: number
  channels: ConsumerChannel[]
  place: Place
  /** Epoch seconds: earlier messages are passed over. */
  notBeforeSeconds: number | null
  hasError: boolean
}

/** A consumer with the fields that users see. */
export type ConsumerRecord = Consumer & {
  behindSince: string | null
  expired: number
  inFlight: number
  held: number
  deadLetters: number
  lastError: { at: string; reason: string } | null
  createdBy: string
  createdAt: string
  updatedBy: string | null
  updatedAt: string | null
}

const CORE = sql`c.key, c.id, c.domain_key AS "domainKey", c.name, c.subtopic, c.publisher_ids AS "publisherIds", c.protocol, c.ordering AS "order",
  c.max_in_flight AS "maxInFlight", c.ack_wait_ms AS "ackWaitMs", c.max_deliver AS "maxDeliver", c.xid::text AS xid, c.seq, c.message,
  extract(epoch FROM c.not_before)::float8 AS "notBeforeSeconds", c.error_at IS NOT NULL AS "hasError",
  (SELECT coalesce(json_agg(json_build_object('key', h.key, 'id', h.id) ORDER BY h.key), '[]') FROM message_consumer_channels m
     JOIN channels h ON h.key = m.channel_key WHERE m.consumer_key = c.key) AS channels`

const SHOWN = sql`${CORE}, c.behind_since AS "behindSince", c.expired, c.created_by AS "createdBy", c.created_at AS "createdAt",
  c.updated_by AS "updatedBy", c.updated_at AS "updatedAt",
  CASE WHEN c.error_at IS NOT NULL THEN json_build_object('at', c.error_at, 'reason', c.error_reason) END AS "lastError",
  (SELECT count(*) FROM message_consumer_deliveries d WHERE d.consumer_key = c.key AND d.dead_at IS NULL AND d.attempts > 0)
    + (SELECT coalesce(sum(p.messages), 0)::bigint FROM message_consumer_pages p WHERE p.consumer_key = c.key) AS "inFlight",
  (SELECT count(*) FROM message_consumer_deliveries d WHERE d.consumer_key = c.key AND d.dead_at IS NULL AND d.attempts = 0) AS held,
  (SELECT count(*) FROM message_consumer_deliveries d WHERE d.consumer_key = c.key AND d.dead_at IS NOT NULL) AS "deadLetters"`

type Placed = { xid: string; seq: number; message: number }
type Row<T extends { place: Place }> = Omit<T, 'place'> & Placed

function fromRow<T extends { place: Place }>({ xid, seq, message, ...row }: Row<T>): T {
  return { ...row, place: { xid: BigInt(xid), seq, message } } as unknown as T
}

const CONFLICTS = {
  message_consumers_name_key: () => takenField('/name', 'a consumer with this name exists in the domain'),
}

const placeValues = ({ xid, seq, message }: Place) => sql`${xid.toString()}::xid8, ${seq}::bigint, ${message}::integer`

/** The place where reading begins. */
export type Start = { place: Place; notBeforeSeconds: number | null }

export async function insertConsumer(
  tx: Transaction,
  row: ConsumerFields & Start & { id: string; domainKey: number; createdBy: string },
): Promise<number> {
  const { rows } = await refusing(
    CONFLICTS,
    sql<{
      key: number
    }>`INSERT INTO message_consumers (id, domain_key, name, subtopic, publisher_ids, protocol, ordering, max_in_flight,
        ack_wait_ms, max_deliver, created_by, xid, seq, message, not_before)
      VALUES (${row.id}, ${row.domainKey}, ${row.name}, ${row.subtopic}, ${row.publisherIds}::text[], ${row.protocol}, ${row.order},
        ${row.maxInFlight}, ${row.ackWaitMs}, ${row.maxDeliver}, ${row.createdBy}, ${placeValues(row.place)},
        to_timestamp(${row.notBeforeSeconds}::float8)) RETURNING key`.execute(tx),
  )
  return (rows[0] as { key: number }).key
}

/** Replaces the channels. */
export async function setChannels(tx: Transaction, key: number, channelKeys: readonly number[]): Promise<void> {
  await sql`DELETE FROM message_consumer_channels WHERE consumer_key = ${key} AND channel_key <> ALL (${[...channelKeys]}::bigint[])`.execute(
    tx,
  )
  await sql`INSERT INTO message_consumer_channels (consumer_key, channel_key)
    SELECT ${key}, h.key FROM channels h WHERE h.key = ANY (${[...channelKeys]}::bigint[]) ORDER BY h.key
    ON CONFLICT ON CONSTRAINT message_consumer_channels_pkey DO NOTHING`.execute(tx)
}

export async function updateConsumer(
  tx: Transaction,
  key: number,
  row: ConsumerFields,
  updatedBy: string,
): Promise<void> {
  await refusing(
    CONFLICTS,
    sql`UPDATE message_consumers SET name = ${row.name}, subtopic = ${row.subtopic}, publisher_ids = ${row.publisherIds}::text[],
        protocol = ${row.protocol}, ordering = ${row.order}, max_in_flight = ${row.maxInFlight}, ack_wait_ms = ${row.ackWaitMs},
        max_deliver = ${row.maxDeliver}, updated_by = ${updatedBy}, updated_at = now() WHERE key = ${key}`.execute(tx),
  )
}

export async function deleteConsumer(tx: Transaction, key: number): Promise<void> {
  await sql`DELETE FROM message_consumers WHERE key = ${key}`.execute(tx)
}

/** A name, or an id: names have not the form of one. */
const isCalled = (nameOrId: string, isId: boolean): Sql<boolean> =>
  isId ? sql<boolean>`c.id = ${nameOrId}::uuid` : sql<boolean>`c.name = ${nameOrId}`

export type ConsumerRef = { domainKey: number; nameOrId: string; isId: boolean }

/** If `lock` is true, the row is locked until the transaction ends. */
export async function findConsumer(
  db: Queryable,
  { domainKey, nameOrId, isId }: ConsumerRef,
  lock = false,
): Promise<Consumer | undefined> {
  const { rows } = await sql<Row<Consumer>>`SELECT ${CORE} FROM message_consumers c
    WHERE c.domain_key = ${domainKey} AND ${isCalled(nameOrId, isId)} ${lock ? sql`FOR NO KEY UPDATE OF c` : sql``}`.execute(
    db,
  )
  return rows[0] === undefined ? undefined : fromRow<Consumer>(rows[0])
}

/** The consumer, locked until the transaction ends. */
export async function lockConsumer(tx: Transaction, key: number): Promise<Consumer | undefined> {
  const { rows } = await sql<
    Row<Consumer>
  >`SELECT ${CORE} FROM message_consumers c WHERE c.key = ${key} FOR NO KEY UPDATE OF c`.execute(tx)
  return rows[0] === undefined ? undefined : fromRow<Consumer>(rows[0])
}

export async function findShown(
  db: Queryable,
  { domainKey, nameOrId, isId }: ConsumerRef,
): Promise<ConsumerRecord | undefined> {
  const { rows } = await sql<Row<ConsumerRecord>>`SELECT ${SHOWN} FROM message_consumers c
    WHERE c.domain_key = ${domainKey} AND ${isCalled(nameOrId, isId)}`.execute(db)
  return rows[0] === undefined ? undefined : fromRow<ConsumerRecord>(rows[0])
}

export async function countConsumers(db: Queryable, domainKey: number): Promise<number> {
  const { rows } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM message_consumers WHERE domain_key = ${domainKey}`.execute(db)
  return rows[0]?.total ?? 0
}

const OLDEST_FIRST = new Keyset([
  { by: sql`c.created_at`, type: 'time' },
  { by: sql`c.key`, type: 'number' },
])

export async function listConsumers(
  db: Queryable,
  {
    domainKey,
    name,
    channel,
    ...range
  }: PageRange & { domainKey: number; name: string | undefined; channel: string | undefined },
): Promise<{ total: number; consumers: ConsumerRecord[]; next: PageEnd }> {
  const where = allOf([
    sql<boolean>`c.domain_key = ${domainKey}`,
    ...(name === undefined ? [] : [contains('c.name', name)]),
    ...(channel === undefined
      ? []
      : [
          sql<boolean>`EXISTS (SELECT FROM message_consumer_channels m JOIN channels h ON h.key = m.channel_key
            WHERE m.consumer_key = c.key AND h.id = ${channel}::uuid)`,
        ]),
  ])
  const { rows: counted } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM message_consumers c WHERE ${where}`.execute(db)
  const source = { columns: SHOWN, from: sql`message_consumers c`, where, keyset: OLDEST_FIRST }
  const { rows, next } = await readPage<Row<ConsumerRecord>>(db, source, range)
  return { total: counted[0]?.total ?? 0, consumers: rows.map((row) => fromRow<ConsumerRecord>(row)), next }
}

/** Moves a consumer. What was delivered and is in doubt is forgotten; dead letters stay. */
export async function moveConsumer(tx: Transaction, key: number, { place, notBeforeSeconds }: Start): Promise<void> {
  await sql`DELETE FROM message_consumer_pages WHERE consumer_key = ${key}`.execute(tx)
  await sql`DELETE FROM message_consumer_deliveries WHERE consumer_key = ${key} AND dead_at IS NULL`.execute(tx)
  await sql`UPDATE message_consumers SET (xid, seq, message) = ROW (${placeValues(place)}), not_before = to_timestamp(${notBeforeSeconds}::float8),
    behind_since = NULL, checked_at = '-infinity' WHERE key = ${key}`.execute(tx)
}

/** Stores where a consumer stands, and that it was looked at. `behindSinceSeconds`: arrival of the message there, if one waits. */
export async function storePlace(
  tx: Transaction,
  key: number,
  { place, behindSinceSeconds, expired }: { place: Place; behindSinceSeconds: number | null; expired: number },
): Promise<void> {
  await sql`UPDATE message_consumers SET (xid, seq, message) = ROW (${placeValues(place)}), behind_since = to_timestamp(${behindSinceSeconds}::float8),
    expired = expired + ${expired}, checked_at = now() WHERE key = ${key}`.execute(tx)
}

/** Says why a caller gets nothing, until the next delivery. */
export async function storeError(db: Queryable, key: number, reason: string): Promise<void> {
  await sql`UPDATE message_consumers SET error_at = now(), error_reason = ${reason} WHERE key = ${key} AND error_reason IS DISTINCT FROM ${reason}`.execute(
    db,
  )
}

/** Consumers that nobody reads: looked at longest ago first. Those that are known to be behind are left out until their messages expire. */
export async function listUnread(
  db: Queryable,
  { limit, checkSeconds, expiryDays }: { limit: number; checkSeconds: number; expiryDays: number },
): Promise<number[]> {
  const { rows } = await sql<{ key: number }>`SELECT key FROM message_consumers
     WHERE (behind_since IS NULL AND checked_at < now() - make_interval(secs => ${checkSeconds}))
        OR behind_since < now() - make_interval(days => ${expiryDays})
     ORDER BY checked_at, key LIMIT ${limit}`.execute(db)
  return rows.map(({ key }) => key)
}

/** Marks the consumers whose waiting messages expire within a day, once a day, and returns them. */
export async function markSoonExpired(
  tx: Transaction,
  expiryDays: number,
  limit: number,
): Promise<{ id: string; name: string; domainKey: number; since: string }[]> {
  const { rows } = await sql<{ id: string; name: string; domainKey: number; since: string }>`
    UPDATE message_consumers c SET warned_at = now() WHERE key IN (
      SELECT key FROM message_consumers WHERE behind_since < now() - make_interval(days => ${expiryDays - 1})
         AND (warned_at IS NULL OR warned_at < now() - interval '1 day') ORDER BY key LIMIT ${limit} FOR UPDATE SKIP LOCKED)
    RETURNING c.id, c.name, c.domain_key AS "domainKey", c.behind_since AS since`.execute(tx)
  return rows
}
