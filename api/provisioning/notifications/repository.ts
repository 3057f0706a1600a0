/** SQL of subscriptions and of what is still to be delivered. */
import { allOf } from '#api/identity/index.ts'
import { refusing } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { NotificationPayload } from './payload.ts'

export type SubscriptionRecord = {
  key: number
  id: string
  ownerKey: number
  ownerId: string
  channelKey: number
  topic: string
  filter: string
  contact: string
  pending: number
  missed: number
}

type Row = {
  key: number
  id: string
  owner_key: number
  owner_id: string
  channel_key: number
  topic: string
  filter: string
  contact: string
  pending: number
  missed: number
}

const COLUMNS = sql`n.key, n.id, n.user_key AS owner_key, u.id AS owner_id, n.channel_key, n.topic, n.filter, n.contact, n.missed,
  (SELECT count(*) FROM notification_deliveries w WHERE w.subscription_key = n.key AND w.next_attempt_at IS NOT NULL) AS pending`
const FROM = sql`notification_subscriptions n JOIN users u ON u.key = n.user_key`

const fromRow = (row: Row): SubscriptionRecord => ({
  key: row.key,
  id: row.id,
  ownerKey: row.owner_key,
  ownerId: row.owner_id,
  channelKey: row.channel_key,
  topic: row.topic,
  filter: row.filter,
  contact: row.contact,
  pending: row.pending,
  missed: row.missed,
})

export async function insertSubscription(
  tx: Transaction,
  row: { id: string; userKey: number; channelKey: number; topic: string; filter: string; contact: string },
): Promise<void> {
  await refusing(
    {
      notification_subscriptions_contact_key: () =>
        new ServiceError('conflict', 'a subscription of this contact to this topic exists'),
    },
    sql`INSERT INTO notification_subscriptions (id, user_key, channel_key, topic, filter, contact)
      VALUES (${row.id}, ${row.userKey}, ${row.channelKey}, ${row.topic}, ${row.filter}, ${row.contact})`.execute(tx),
  )
}

/** Counts those of a user; two creations of one user follow each other. */
export async function countSubscriptions(tx: Transaction, userKey: number): Promise<number> {
  await sql`SELECT pg_advisory_xact_lock(hashtextextended(${`subscriptions of ${userKey}`}, 0))`.execute(tx)
  const { rows } = await sql<{ total: number }>`
    SELECT count(*) AS total FROM notification_subscriptions WHERE user_key = ${userKey}`.execute(tx)
  return rows[0]?.total ?? 0
}

export async function findSubscription(
  db: Queryable,
  userKey: number,
  id: string,
): Promise<SubscriptionRecord | undefined> {
  const { rows } =
    await sql<Row>`SELECT ${COLUMNS} FROM ${FROM} WHERE n.id = ${id} AND n.user_key = ${userKey}`.execute(db)
  return rows[0] === undefined ? undefined : fromRow(rows[0])
}

export async function removeSubscription(tx: Transaction, key: number): Promise<boolean> {
  const { numAffectedRows } = await sql`DELETE FROM notification_subscriptions WHERE key = ${key}`.execute(tx)
  return numAffectedRows === 1n
}

export async function listSubscriptions(
  db: Queryable,
  userKey: number,
  query: { topic: string | undefined; contact: string | undefined; offset: number; limit: number },
): Promise<{ total: number; subscriptions: SubscriptionRecord[] }> {
  const conditions: Sql<boolean>[] = [sql`n.user_key = ${userKey}`]
  if (query.topic !== undefined) conditions.push(sql`n.topic = ${query.topic}`)
  if (query.contact !== undefined) conditions.push(sql`n.contact = ${query.contact}`)
  const where = allOf(conditions)
  const { rows: counted } = await sql<{ total: number }>`SELECT count(*) AS total FROM ${FROM} WHERE ${where}`.execute(
    db,
  )
  const { rows } = await sql<Row>`SELECT ${COLUMNS} FROM ${FROM} WHERE ${where}
    ORDER BY n.key OFFSET ${query.offset} LIMIT ${query.limit}`.execute(db)
  return { total: counted[0]?.total ?? 0, subscriptions: rows.map(fromRow) }
}

/** What a message is compared with. */
export type Interest = { key: number; channelKey: number; channelId: string; filter: string }

export async function listInterests(db: Queryable): Promise<Interest[]> {
  const { rows } = await sql<{ key: number; channel_key: number; channel_id: string; filter: string }>`
    SELECT n.key, n.channel_key, h.id AS channel_id, n.filter
      FROM notification_subscriptions n JOIN channels h ON h.key = n.channel_key ORDER BY n.key`.execute(db)
  return rows.map((row) => ({
    key: row.key,
    channelKey: row.channel_key,
    channelId: row.channel_id,
    filter: row.filter,
  }))
}

export type NewDelivery = { subscriptionKey: number; payload: NotificationPayload }

/**
 * Deliveries of subscriptions that still exist, as many as may wait for each; the rest is counted there. `deliveries` are
 * sorted by subscription.
 */
export async function insertDeliveries(
  tx: Transaction,
  deliveries: readonly NewDelivery[],
  maxPending: number,
): Promise<void> {
  await sql`
    WITH wanted AS (
      SELECT (item ->> 'subscriptionKey')::bigint AS subscription_key, item -> 'payload' AS payload, place,
             row_number() OVER (PARTITION BY item ->> 'subscriptionKey' ORDER BY place) AS number
        FROM jsonb_array_elements(${JSON.stringify(deliveries)}::jsonb) WITH ORDINALITY AS list (item, place)
    ), room AS (
      SELECT n.key, ${maxPending}::bigint - (SELECT count(*) FROM notification_deliveries w
               WHERE w.subscription_key = n.key AND w.next_attempt_at IS NOT NULL) AS free
        FROM notification_subscriptions n WHERE n.key IN (SELECT subscription_key FROM wanted)
       ORDER BY n.key FOR NO KEY UPDATE OF n
    ), inserted AS (
      INSERT INTO notification_deliveries (subscription_key, payload)
      SELECT w.subscription_key, w.payload FROM wanted w JOIN room r ON r.key = w.subscription_key
       WHERE w.number <= r.free ORDER BY w.subscription_key, w.place
    )
    UPDATE notification_subscriptions n SET missed = n.missed + lost.count
      FROM (SELECT w.subscription_key, count(*) AS count FROM wanted w JOIN room r ON r.key = w.subscription_key
             WHERE w.number > r.free GROUP BY w.subscription_key) lost WHERE n.key = lost.subscription_key`.execute(tx)
}

export type DueDelivery = {
  key: number
  attempts: number
  payload: NotificationPayload
  subscriptionId: string
  contact: string
  owner: { key: number; id: string; isPlatformAdmin: boolean; isEnabled: boolean }
  domainId: string
  channelId: string
}

/** Takes what is due, for so long: whoever dies with it leaves it to another one afterwards. */
export async function claimDeliveries(db: Queryable, limit: number, leaseSeconds: number): Promise<DueDelivery[]> {
  const { rows } = await sql<{
    key: number
    attempts: number
    payload: NotificationPayload
    subscription_id: string
    contact: string
    user_key: number
    user_id: string
    role: string
    status: string
    domain_id: string
    channel_id: string
  }>`
    WITH due AS (
      SELECT key FROM notification_deliveries WHERE next_attempt_at <= now()
       ORDER BY next_attempt_at, key LIMIT ${limit} FOR UPDATE SKIP LOCKED
    ), claimed AS (
      UPDATE notification_deliveries w SET next_attempt_at = now() + make_interval(secs => ${leaseSeconds}), attempts = w.attempts + 1
        FROM due WHERE w.key = due.key RETURNING w.key, w.attempts, w.payload, w.subscription_key
    )
    SELECT c.key, c.attempts, c.payload, n.id AS subscription_id, n.contact, u.key AS user_key, u.id AS user_id, u.role, u.status,
           d.id AS domain_id, h.id AS channel_id
      FROM claimed c JOIN notification_subscriptions n ON n.key = c.subscription_key JOIN users u ON u.key = n.user_key
      JOIN channels h ON h.key = n.channel_key JOIN domains d ON d.key = h.domain_key ORDER BY c.key`.execute(db)
  return rows.map((row) => ({
    key: row.key,
    attempts: row.attempts,
    payload: row.payload,
    subscriptionId: row.subscription_id,
    contact: row.contact,
    owner: {
      key: row.user_key,
      id: row.user_id,
      isPlatformAdmin: row.role === 'admin',
      isEnabled: row.status === 'enabled',
    },
    domainId: row.domain_id,
    channelId: row.channel_id,
  }))
}

export async function removeDelivery(db: Queryable, key: number): Promise<void> {
  await sql`DELETE FROM notification_deliveries WHERE key = ${key}`.execute(db)
}

/** The next attempt comes after the pause; undefined: it is given up. */
export async function postponeDelivery(
  db: Queryable,
  key: number,
  {
    pauseSeconds,
    error,
    countsAsAttempt,
  }: { pauseSeconds: number | undefined; error: string | null; countsAsAttempt: boolean },
): Promise<void> {
  const next = pauseSeconds === undefined ? sql`NULL` : sql`now() + make_interval(secs => ${pauseSeconds})`
  await sql`UPDATE notification_deliveries
      SET next_attempt_at = ${next}, last_error = coalesce(${error}::text, last_error), attempts = attempts - ${countsAsAttempt ? 0 : 1}::integer
    WHERE key = ${key}`.execute(db)
}

export type DeliveryRecord = {
  payload: NotificationPayload
  attempts: number
  lastError: string | null
  createdAt: string
}

/** What was given up for a subscription, the newest first. */
export async function listDeadLetters(
  db: Queryable,
  subscriptionKey: number,
  { offset, limit }: { offset: number; limit: number },
): Promise<{ total: number; letters: DeliveryRecord[] }> {
  const where = sql`subscription_key = ${subscriptionKey} AND next_attempt_at IS NULL`
  const { rows: counted } = await sql<{ total: number }>`
    SELECT count(*) AS total FROM notification_deliveries WHERE ${where}`.execute(db)
  const { rows } = await sql<{
    payload: NotificationPayload
    attempts: number
    last_error: string | null
    created_at: string
  }>`SELECT payload, attempts, last_error, created_at FROM notification_deliveries WHERE ${where}
      ORDER BY key DESC OFFSET ${offset} LIMIT ${limit}`.execute(db)
  return {
    total: counted[0]?.total ?? 0,
    letters: rows.map((row) => ({
      payload: row.payload,
      attempts: row.attempts,
      lastError: row.last_error,
      createdAt: row.created_at,
    })),
  }
}

export async function removeOldDeadLetters(db: Queryable, days: number): Promise<void> {
  await sql`DELETE FROM notification_deliveries
    WHERE next_attempt_at IS NULL AND created_at < now() - make_interval(days => ${days})`.execute(db)
}
