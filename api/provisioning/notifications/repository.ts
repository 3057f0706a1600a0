/** SQL of subscriptions and their deliveries. */
import { allOf } from '#api/identity/index.ts'
import { behindColumn, behindOf, countLetters, isSelected, setBehind } from '#core/changelog/index.ts'
import type { BehindColumn, BehindPlace, LetterBounds, LetterSelection } from '#core/changelog/index.ts'
import { Keyset, readPage, refusing } from '#core/database/index.ts'
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { takenField } from '#core/errors/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
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
  isConfirmed: boolean
  pending: number
  missed: number
  behindSince: string | null
  lastError: { at: string; reason: string; count: number } | null
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
  is_confirmed: boolean
  pending: number
  missed: number
  behind_since: string | null
  last_error: SubscriptionRecord['lastError']
}

/** Condition: the contact of the subscription `n`, or of a rule, may get notifications. */
export const IS_CONFIRMED = sql<boolean>`(position('://' in n.contact) > 0 OR n.confirmed_at IS NOT NULL OR EXISTS (SELECT FROM users m
  WHERE m.key = n.member_key AND m.status = 'enabled' AND m.verified_at IS NOT NULL AND lower(m.email) = lower(n.contact)))`

const COLUMNS = sql`${IS_CONFIRMED} AS is_confirmed, n.key, n.id, n.user_key AS owner_key, u.id AS owner_id, n.channel_key, n.topic, n.filter, n.contact, n.missed, n.behind_since,
  CASE WHEN n.error_count > 0 THEN json_build_object('at', n.error_at, 'reason', n.error_reason, 'count', n.error_count) END AS last_error,
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
  isConfirmed: row.is_confirmed,
  pending: row.pending,
  missed: row.missed,
  behindSince: row.behind_since,
  lastError: row.last_error,
})

export async function insertSubscription(
  tx: Transaction,
  row: {
    id: string
    userKey: number
    channelKey: number
    topic: string
    filter: string
    contact: string
    isConfirmed: boolean
  },
): Promise<void> {
  await refusing(
    {
      notification_subscriptions_contact_key: () =>
        takenField('/contact', 'a subscription with this contact and topic already exists'),
    },
    sql`INSERT INTO notification_subscriptions (id, user_key, channel_key, topic, filter, contact, confirmed_at)
      VALUES (${row.id}, ${row.userKey}, ${row.channelKey}, ${row.topic}, ${row.filter}, ${row.contact},
        CASE WHEN ${row.isConfirmed}::boolean THEN now() END)`.execute(tx),
  )
}

/** True when the address is the verified one of the user, or has confirmed notifications of this user before. */
export async function isConfirmedAddress(tx: Transaction, userKey: number, address: string): Promise<boolean> {
  const { rows } = await sql<{ agreed: boolean }>`
    SELECT EXISTS (SELECT FROM users WHERE key = ${userKey} AND verified_at IS NOT NULL AND lower(email) = lower(${address}))
        OR EXISTS (SELECT FROM notification_subscriptions
                    WHERE user_key = ${userKey} AND lower(contact) = lower(${address}) AND confirmed_at IS NOT NULL) AS agreed`.execute(
    tx,
  )
  return rows[0]?.agreed === true
}

/** True when a link that has not expired was sent to the address for this user. */
export async function wasLinkSent(db: Queryable, userKey: number, address: string, seconds: number): Promise<boolean> {
  const { rows } = await sql<{ asked: boolean }>`
    SELECT EXISTS (SELECT FROM notification_subscriptions WHERE user_key = ${userKey} AND lower(contact) = lower(${address})
      AND confirmation_sent_at > now() - make_interval(secs => ${seconds})) AS asked`.execute(db)
  return rows[0]?.asked === true
}

export async function recordLinkSent(db: Queryable, id: string): Promise<void> {
  await sql`UPDATE notification_subscriptions SET confirmation_sent_at = now() WHERE id = ${id}`.execute(db)
}

/** Confirms the address for all subscriptions of the same user. Returns those that were pending. */
export async function confirmAddress(
  tx: Transaction,
  id: string,
): Promise<{ id: string; channelKey: number | null }[] | undefined> {
  const { rows: known } = await sql`SELECT FROM notification_subscriptions WHERE id = ${id}`.execute(tx)
  if (known.length === 0) return undefined
  const { rows } = await sql<{ id: string; channel_key: number | null }>`
    UPDATE notification_subscriptions n SET confirmed_at = now(), since_xid = position_xid() FROM notification_subscriptions o
     WHERE o.id = ${id} AND n.user_key = o.user_key AND lower(n.contact) = lower(o.contact) AND n.confirmed_at IS NULL
    RETURNING n.id, n.channel_key`.execute(tx)
  return rows.map((row) => ({ id: row.id, channelKey: row.channel_key }))
}

/** Counts the subscriptions of a user. Creations of one user are serialized. */
export async function countSubscriptions(tx: Transaction, userKey: number): Promise<number> {
  await sql`SELECT pg_advisory_xact_lock(hashtextextended(${`subscriptions of ${userKey}`}, 0))`.execute(tx)
  const { rows } = await sql<{ total: number }>`
    SELECT count(*) AS total FROM notification_subscriptions WHERE user_key = ${userKey} AND rule_key IS NULL`.execute(
    tx,
  )
  return rows[0]?.total ?? 0
}

/** The owner of subscriptions: a user, or a user with the domain that their token is bound to. */
export type SubscriptionOwner = { key: number; boundDomainKey: number | undefined }

const isOf = ({ key, boundDomainKey }: SubscriptionOwner): Sql<boolean> =>
  boundDomainKey === undefined
    ? sql<boolean>`(n.user_key = ${key} AND n.rule_key IS NULL)`
    : sql<boolean>`(n.user_key = ${key}
        AND EXISTS (SELECT FROM channels h WHERE h.key = n.channel_key AND h.domain_key = ${boundDomainKey}))`

export async function findSubscription(
  db: Queryable,
  owner: SubscriptionOwner,
  id: string,
): Promise<SubscriptionRecord | undefined> {
  const { rows } = await sql<Row>`SELECT ${COLUMNS} FROM ${FROM} WHERE n.id = ${id} AND ${isOf(owner)}`.execute(db)
  return rows[0] === undefined ? undefined : fromRow(rows[0])
}

export async function removeSubscription(tx: Transaction, key: number): Promise<boolean> {
  const { numAffectedRows } = await sql`DELETE FROM notification_subscriptions WHERE key = ${key}`.execute(tx)
  return numAffectedRows === 1n
}

export async function listSubscriptions(
  db: Queryable,
  owner: SubscriptionOwner,
  query: PageRange & { topic: string | undefined; contact: string | undefined },
): Promise<{ total: number; subscriptions: SubscriptionRecord[]; next: PageEnd }> {
  const conditions: Sql<boolean>[] = [isOf(owner)]
  if (query.topic !== undefined) conditions.push(sql`n.topic = ${query.topic}`)
  if (query.contact !== undefined) conditions.push(sql`n.contact = ${query.contact}`)
  const where = allOf(conditions)
  const { rows: counted } = await sql<{ total: number }>`SELECT count(*) AS total FROM ${FROM} WHERE ${where}`.execute(
    db,
  )
  const keyset = new Keyset([{ by: sql`n.key`, type: 'number' }])
  const joined = { alias: 'n', key: 'key' }
  const { rows, next } = await readPage<Row>(db, { columns: COLUMNS, from: FROM, where, keyset, joined }, query)
  return { total: counted[0]?.total ?? 0, subscriptions: rows.map(fromRow), next }
}

/** An active subscription, for matching messages. */
export type Interest = {
  key: number
  domainKey: number
  channelKey: number
  channelId: string
  filter: string
  /** First half of a position. Messages before it were stored before the subscription was, and are not for it. */
  sinceXid: bigint
}

type InterestRow = {
  key: number
  domain_key: number
  channel_key: number
  channel_id: string
  filter: string
  since_xid: string
}

const INTERESTS = sql`n.key, h.domain_key, n.channel_key, h.id AS channel_id, n.filter, coalesce(n.since_xid, '0')::text AS since_xid`

const interestOf = (row: InterestRow): Interest => ({
  key: row.key,
  domainKey: row.domain_key,
  channelKey: row.channel_key,
  channelId: row.channel_id,
  filter: row.filter,
  sinceXid: BigInt(row.since_xid),
})

/** Returns the subscriptions that are not behind. */
export async function listInterests(db: Queryable): Promise<Interest[]> {
  const { rows } = await sql<InterestRow>`
    SELECT ${INTERESTS} FROM notification_subscriptions n JOIN channels h ON h.key = n.channel_key
     WHERE ${IS_CONFIRMED} AND n.behind_since IS NULL ORDER BY n.key`.execute(db)
  return rows.map(interestOf)
}

/** How many further deliveries of each of these subscriptions may wait. They are locked until the transaction ends. */
export async function roomsOf(
  tx: Transaction,
  keys: readonly number[],
  { maxPending, fullDomains }: { maxPending: number; fullDomains: readonly number[] },
): Promise<ReadonlyMap<number, number>> {
  const { rows } = await sql<{ key: number; room: number }>`
    SELECT n.key, CASE WHEN h.domain_key = ANY (${[...fullDomains]}::bigint[]) THEN 0 ELSE greatest(${maxPending}::bigint - (SELECT count(*) FROM notification_deliveries w
             WHERE w.subscription_key = n.key AND w.next_attempt_at IS NOT NULL), 0) END AS room
      FROM notification_subscriptions n JOIN channels h ON h.key = n.channel_key WHERE n.key = ANY (${keys}::bigint[]) ORDER BY n.key FOR NO KEY UPDATE OF n`.execute(
    tx,
  )
  return new Map(rows.map(({ key, room }) => [key, room]))
}

/** The subscription, if it is behind, locked until the transaction ends; undefined also while another process has locked it. */
export async function lockSubscriptionBehind(
  tx: Transaction,
  key: number,
): Promise<(Interest & { behind: BehindPlace }) | undefined> {
  const { rows } = await sql<InterestRow & { behind: BehindColumn }>`
    SELECT ${INTERESTS}, ${behindColumn('n')} FROM notification_subscriptions n JOIN channels h ON h.key = n.channel_key
     WHERE n.key = ${key} AND n.behind_since IS NOT NULL FOR NO KEY UPDATE OF n SKIP LOCKED`.execute(tx)
  const [row] = rows
  const behind = behindOf(row?.behind ?? null)
  return row === undefined || behind === undefined ? undefined : { ...interestOf(row), behind }
}

/** Subscriptions that are behind and have room now, or messages that waited for too long: owners in turn, the longest behind of each first. */
export async function listSubscriptionsBehind(
  db: Queryable,
  {
    limit,
    room,
    expiryDays,
    fullDomains,
  }: { limit: number; room: number; expiryDays: number; fullDomains: readonly number[] },
): Promise<number[]> {
  const { rows } = await sql<{ key: number }>`
    WITH able AS (
      SELECT n.key, row_number() OVER (PARTITION BY n.user_key ORDER BY n.behind_since) AS place
        FROM notification_subscriptions n JOIN channels h ON h.key = n.channel_key
       WHERE n.behind_since IS NOT NULL AND (n.behind_since < now() - make_interval(days => ${expiryDays})
          OR (h.domain_key <> ALL (${[...fullDomains]}::bigint[]) AND (SELECT count(*) FROM (SELECT FROM notification_deliveries w
               WHERE w.subscription_key = n.key AND w.next_attempt_at IS NOT NULL LIMIT ${room}) AS counted) < ${room})))
    SELECT key FROM able ORDER BY place, random() LIMIT ${limit}`.execute(db)
  return rows.map(({ key }) => key)
}

/**
 * Stores the place where a subscription that is behind goes on. Undefined: it goes on together with the subscriptions that are not behind.
 */
export async function storeSubscriptionPlace(
  tx: Transaction,
  key: number,
  place: BehindPlace | undefined,
): Promise<void> {
  await sql`UPDATE notification_subscriptions SET ${setBehind(place)} WHERE key = ${key}`.execute(tx)
}

const EXPIRED = 'messages waited for longer than a week'

/** Counts messages that waited for too long. */
export async function countMissed(tx: Transaction, key: number, count: number): Promise<void> {
  await sql`UPDATE notification_subscriptions n SET missed = n.missed + ${count}, ${failure(EXPIRED, sql`${count}::bigint`)}
    WHERE n.key = ${key}`.execute(tx)
}

/** The columns that a failure changes in a subscription. Failures are counted since the last delivery. */
const failure = (reason: string, count: Sql<unknown>) =>
  sql`error_at = now(), error_reason = ${reason}, error_count = n.error_count + ${count}`

export type NewDelivery = { subscriptionKey: number; payload: NotificationPayload }

/** Inserts deliveries of existing subscriptions, in this order. One that follows a failed one of its client waits with it from its next failure on. */
export async function insertDeliveries(tx: Transaction, deliveries: readonly NewDelivery[]): Promise<void> {
  await sql`
    INSERT INTO notification_deliveries (subscription_key, user_key, payload)
    SELECT n.key, n.user_key, item -> 'payload'
      FROM jsonb_array_elements(${JSON.stringify(deliveries)}::jsonb) WITH ORDINALITY AS list (item, place)
      JOIN notification_subscriptions n ON n.key = (item ->> 'subscriptionKey')::bigint ORDER BY place`.execute(tx)
}

/** Condition: an earlier message of the same client waits for its delivery, or is being delivered. One that was given up does not. */
const IS_FOLLOWING = sql<boolean>`EXISTS (SELECT FROM notification_deliveries e WHERE e.subscription_key = w.subscription_key
  AND e.payload ->> 'publisher' = w.payload ->> 'publisher' AND e.next_attempt_at IS NOT NULL AND e.key < w.key)`

export type DueDelivery = {
  key: number
  /** The id is the same at each attempt and for the dead letter of the delivery. */
  id: string
  attempts: number
  payload: NotificationPayload
  subscriptionKey: number
  subscriptionId: string
  contact: string
  isConfirmed: boolean
  /** True if the subscription had failed since its last delivery, at the time of the claim. */
  hasFailed: boolean
  owner: { key: number; id: string; isPlatformAdmin: boolean; isEnabled: boolean }
  domainKey: number
  domainId: string
  /** Null for a contact of a rule. */
  channelKey: number | null
  /** Of a rule: the channel of the message; empty: no message caused it. */
  channelId: string
  /** Null for a subscription. */
  ruleId: string | null
  /** The member whose verified address the contact is; null: the contact was confirmed, or needs no confirmation. */
  memberKey: number | null
}

export type Claim = {
  /** Maximum number of deliveries. */
  limit: number
  /** Maximum number of concurrent deliveries of one owner, including running ones. */
  maxOfOwner: number
  /** Number of running deliveries of each owner in this process. */
  busy: ReadonlyMap<number, number>
  leaseSeconds: number
  /** The claim starts after this owner, so that each claim reads a bounded number of owners. */
  afterOwner: number
}

/** Maximum number of owners that one claim reads. */
const MAX_OWNERS = 1000

/**
 * Claims due deliveries for the time of a lease. After the lease of a process that died, another process claims them.
 * Owners alternate: the first delivery of each, then the second of each, including running ones. The index skips
 * further deliveries of one owner. The next claim starts after `nextOwner`.
 *
 * Of each client, a subscription delivers one message after another (decision 0119).
 */
export async function claimDeliveries(
  db: Queryable,
  { limit, maxOfOwner, busy, leaseSeconds, afterOwner }: Claim,
): Promise<{ due: DueDelivery[]; nextOwner: number }> {
  const { rows: seen } = await sql<{ user_key: number }>`
    WITH RECURSIVE owners (user_key) AS (
      SELECT min(user_key) FROM notification_deliveries WHERE next_attempt_at IS NOT NULL AND user_key > ${afterOwner}
      UNION ALL
      SELECT (SELECT min(w.user_key) FROM notification_deliveries w WHERE w.next_attempt_at IS NOT NULL AND w.user_key > o.user_key)
        FROM owners o WHERE o.user_key IS NOT NULL
    )
    SELECT user_key FROM owners WHERE user_key IS NOT NULL LIMIT ${MAX_OWNERS}`.execute(db)
  const nextOwner = seen.length === MAX_OWNERS ? (seen.at(-1)?.user_key ?? 0) : 0
  const owners = seen.map(({ user_key: owner }) => ({ owner, busy: busy.get(owner) ?? 0 }))
  const open = owners.filter((one) => one.busy < maxOfOwner)
  if (open.length === 0) return { due: [], nextOwner }
  const { rows } = await sql<{
    key: number
    id: string
    attempts: number
    payload: NotificationPayload
    subscription_key: number
    subscription_id: string
    contact: string
    is_confirmed: boolean
    has_failed: boolean
    user_key: number
    user_id: string
    role: string
    status: string
    domain_key: number
    domain_id: string
    channel_key: number | null
    channel_id: string | null
    rule_id: string | null
    member_key: number | null
  }>`
    WITH ranked AS (
      SELECT d.key, o.busy + row_number() OVER (PARTITION BY o.user_key ORDER BY d.next_attempt_at, d.key) AS place
        FROM unnest(${open.map((one) => one.owner)}::bigint[], ${open.map((one) => one.busy)}::integer[]) AS o (user_key, busy),
             LATERAL (SELECT w.key, w.next_attempt_at FROM notification_deliveries w
                       WHERE w.user_key = o.user_key AND w.next_attempt_at <= now() AND NOT ${IS_FOLLOWING}
                       ORDER BY w.next_attempt_at, w.key LIMIT ${maxOfOwner}::integer - o.busy) d
    ), chosen AS (
      SELECT key FROM ranked ORDER BY place, random() LIMIT ${limit}
    ), due AS (
      SELECT w.key FROM notification_deliveries w WHERE w.key IN (SELECT key FROM chosen) AND w.next_attempt_at <= now()
       ORDER BY w.key FOR UPDATE SKIP LOCKED
    ), claimed AS (
      UPDATE notification_deliveries w SET next_attempt_at = now() + make_interval(secs => ${leaseSeconds}), attempts = w.attempts + 1
        FROM due WHERE w.key = due.key RETURNING w.key, w.id, w.attempts, w.payload, w.subscription_key
    )
    SELECT c.key, c.id, c.attempts, c.payload, c.subscription_key, n.id AS subscription_id, n.contact, ${IS_CONFIRMED} AS is_confirmed, n.error_count > 0 AS has_failed,
           u.key AS user_key, u.id AS user_id, u.role, u.status, d.key AS domain_key, d.id AS domain_id, h.key AS channel_key, h.id AS channel_id,
           r.id AS rule_id, CASE WHEN n.confirmed_at IS NULL THEN n.member_key END AS member_key
      FROM claimed c JOIN notification_subscriptions n ON n.key = c.subscription_key JOIN users u ON u.key = n.user_key
      LEFT JOIN channels h ON h.key = n.channel_key LEFT JOIN rules r ON r.key = n.rule_key
      JOIN domains d ON d.key = coalesce(h.domain_key, r.domain_key) ORDER BY c.key`.execute(db)
  return { due: rows.map(dueFromRow), nextOwner }

  function dueFromRow(row: (typeof rows)[number]): DueDelivery {
    return {
      key: row.key,
      id: row.id,
      attempts: row.attempts,
      payload: row.payload,
      subscriptionKey: row.subscription_key,
      subscriptionId: row.subscription_id,
      contact: row.contact,
      isConfirmed: row.is_confirmed,
      hasFailed: row.has_failed,
      owner: {
        key: row.user_key,
        id: row.user_id,
        isPlatformAdmin: row.role === 'admin',
        isEnabled: row.status === 'enabled',
      },
      domainKey: row.domain_key,
      domainId: row.domain_id,
      channelKey: row.channel_key,
      channelId: row.channel_id ?? String(row.payload['channel'] ?? ''),
      ruleId: row.rule_id,
      memberKey: row.member_key,
    }
  }
}

/**
 * Locks the subscription until the transaction ends. Attempts of one subscription that end at the same time change each other's deliveries: without
 * this lock they would wait for each other, and the one that PostgreSQL ends would be tried again after its lease.
 */
async function lockSubscription(tx: Transaction, key: number): Promise<void> {
  await sql`SELECT FROM notification_subscriptions WHERE key = ${key} FOR NO KEY UPDATE`.execute(tx)
}

/**
 * Removes a delivery that was made, which ends the failures of its subscription. What waited behind a failed one is due, and so is what failed
 * because the host did not answer, with all its attempts. `leaseSeconds`: what waits for less may be with a process.
 */
export async function completeDelivery(
  database: Database,
  { key, subscriptionKey, attempts, payload, hasFailed }: DueDelivery,
  leaseSeconds: number,
): Promise<void> {
  // Nothing waits behind it.
  if (attempts === 1 && !hasFailed)
    return void (await removeDelivered(key, subscriptionKey, sql``).execute(database.db))
  const publisher = String(payload['publisher'] ?? '')
  const isUnanswered = sql`was_unanswered AND next_attempt_at > now() + make_interval(secs => ${leaseSeconds}::float8)`
  const followers = sql`, followers AS (UPDATE notification_deliveries SET next_attempt_at = now(), attempts = CASE WHEN ${isUnanswered} THEN 0 ELSE attempts END
          WHERE subscription_key = ${subscriptionKey} AND key <> ${key}
            AND ((payload ->> 'publisher' = ${publisher} AND key > ${key} AND next_attempt_at > now()) OR (${isUnanswered})))`
  await database.transaction(async (tx) => {
    await lockSubscription(tx, subscriptionKey)
    await removeDelivered(key, subscriptionKey, followers).execute(tx)
  })
}

const removeDelivered = (key: number, subscriptionKey: number, followers: Sql) =>
  sql`WITH removed AS (DELETE FROM notification_deliveries WHERE key = ${key})${followers}
    UPDATE notification_subscriptions SET error_at = NULL, error_reason = NULL, error_count = 0
     WHERE key = ${subscriptionKey} AND error_count > 0`

/**
 * Returns a delivery that may not be made, and delays all due deliveries of the subscription: they go on when the right is back. Those that have
 * waited for `expiryDays` become dead letters. True: it is the first failure of the subscription since its last delivery.
 */
export async function holdDeliveries(
  tx: Transaction,
  { key, subscriptionKey }: DueDelivery,
  { reason, pauseSeconds, expiryDays }: { reason: string; pauseSeconds: number; expiryDays: number },
): Promise<boolean> {
  await lockSubscription(tx, subscriptionKey)
  const { rows } = await sql<{ count: number }>`
    WITH waiting AS (SELECT key, created_at < now() - make_interval(days => ${expiryDays}) AS is_over FROM notification_deliveries
       WHERE subscription_key = ${subscriptionKey} AND (key = ${key} OR next_attempt_at <= now())),
    held AS (UPDATE notification_deliveries d SET attempts = d.attempts - (d.key = ${key})::integer,
        next_attempt_at = CASE WHEN NOT q.is_over THEN now() + make_interval(secs => ${pauseSeconds}::float8) END,
        given_up_at = CASE WHEN q.is_over THEN now() END, last_error = CASE WHEN q.is_over THEN ${reason} ELSE d.last_error END
      FROM waiting q WHERE d.key = q.key)
    UPDATE notification_subscriptions n SET ${failure(reason, sql`1`)} WHERE n.key = ${subscriptionKey}
    RETURNING n.error_count AS count`.execute(tx)
  return rows[0]?.count === 1
}

/**
 * Returns a delivery that was not attempted, and delays all due deliveries of the subscription: each by `spacingSeconds` more than the one before
 * it, the returned one first.
 */
export async function deferDeliveries(
  tx: Transaction,
  { key, subscriptionKey }: DueDelivery,
  pauseSeconds: number,
  spacingSeconds = 0,
): Promise<void> {
  await lockSubscription(tx, subscriptionKey)
  await sql`UPDATE notification_deliveries d
      SET next_attempt_at = now() + make_interval(secs => ${pauseSeconds}::float8 + ${spacingSeconds}::float8 * (q.place - 1)),
          attempts = d.attempts - (d.key = ${key})::integer
     FROM (SELECT key, row_number() OVER (ORDER BY key <> ${key}, next_attempt_at, key) AS place FROM notification_deliveries
            WHERE subscription_key = ${subscriptionKey} AND (key = ${key} OR next_attempt_at <= now())) q
    WHERE d.key = q.key AND (d.key = ${key} OR d.next_attempt_at <= now())`.execute(tx)
}

/**
 * Records a failed attempt. There is one retry delay per attempt; after the last one the delivery becomes a dead
 * letter. With `isForAll` the host did not respond, so all due deliveries of the subscription fail together. Otherwise
 * the later ones of the client wait with it, and lose no attempt.
 */
export async function failDeliveries(
  tx: Transaction,
  { key, subscriptionKey, payload }: DueDelivery,
  { retrySeconds, error, isForAll }: { retrySeconds: readonly number[]; error: string; isForAll: boolean },
): Promise<void> {
  await lockSubscription(tx, subscriptionKey)
  const publisher = String(payload['publisher'] ?? '')
  const others = isForAll
    ? sql`subscription_key = ${subscriptionKey} AND next_attempt_at <= now()`
    : sql`subscription_key = ${subscriptionKey} AND payload ->> 'publisher' = ${publisher} AND key > ${key} AND next_attempt_at <= now()`
  await sql`WITH failed AS (UPDATE notification_subscriptions n SET ${failure(error, sql`1`)} WHERE n.key = ${subscriptionKey}),
    due AS (SELECT key, key = ${key} OR ${isForAll} AS has_failed, attempts + (${isForAll} AND key <> ${key})::integer AS attempts,
        payload ->> 'publisher' AS publisher, (SELECT e.next_attempt_at FROM notification_deliveries e
          WHERE e.subscription_key = w.subscription_key AND e.payload ->> 'publisher' = w.payload ->> 'publisher'
            AND e.next_attempt_at IS NOT NULL AND e.key < w.key AND e.key <> ${key} ORDER BY e.key LIMIT 1) AS head_at
      FROM notification_deliveries w WHERE key = ${key} OR (${others})),
    -- An index beyond the array is NULL, which marks a dead letter.
    paused AS (SELECT *, CASE WHEN has_failed THEN (${[...retrySeconds]}::float8[])[attempts] END AS seconds FROM due),
    lanes AS (SELECT *, max(seconds) OVER (PARTITION BY publisher) AS lane_seconds FROM paused)
    UPDATE notification_deliveries w SET attempts = l.attempts, last_error = CASE WHEN l.has_failed THEN ${error} ELSE w.last_error END,
        was_unanswered = CASE WHEN l.has_failed THEN ${isForAll} ELSE w.was_unanswered END,
        next_attempt_at = CASE WHEN l.has_failed AND l.seconds IS NULL THEN NULL
          ELSE greatest(now() + make_interval(secs => l.seconds), now() + make_interval(secs => l.lane_seconds), l.head_at, now()) END,
        given_up_at = CASE WHEN l.has_failed AND l.seconds IS NULL THEN now() END
      FROM lanes l WHERE w.key = l.key`.execute(tx)
}

/** The table whose rows count by their size in the quota `queued_bytes`. */
export const NOTIFICATION_TABLE = 'notification_deliveries'

/** Bytes of the deliveries of domains that wait or were given up, as they are stored; a domain that is absent has none. */
export async function readNotificationBytes(
  db: Queryable,
  domainKeys: readonly number[],
): Promise<ReadonlyMap<number, number>> {
  const { rows } = await sql<{ key: number; bytes: number }>`
    SELECT o.domain_key AS key, sum(pg_column_size(w.payload))::float8 AS bytes
      FROM (SELECT h.domain_key, n.key FROM channels h JOIN notification_subscriptions n ON n.channel_key = h.key
             WHERE h.domain_key = ANY (${[...domainKeys]}::bigint[])
            UNION ALL SELECT r.domain_key, n.key FROM rules r JOIN notification_subscriptions n ON n.rule_key = r.key
             WHERE r.domain_key = ANY (${[...domainKeys]}::bigint[])) o
      JOIN notification_deliveries w ON w.subscription_key = o.key GROUP BY o.domain_key`.execute(db)
  return new Map(rows.map(({ key, bytes }) => [key, bytes]))
}

/** Condition: deliveries of these subscriptions. One is compared, so that the index has their order. */
const areOf = (subscriptionKeys: readonly number[]) =>
  subscriptionKeys.length === 1
    ? sql<boolean>`subscription_key = ${subscriptionKeys[0]}`
    : sql<boolean>`subscription_key = ANY (${[...subscriptionKeys]}::bigint[])`

export type DeliveryRecord = {
  id: string
  payload: NotificationPayload
  attempts: number
  lastError: string | null
  createdAt: string
  givenUpAt: string
  contact: string
}

/** A node of an earlier build notes no time. */
const GIVEN_UP_AT = sql`coalesce(given_up_at, created_at)`

/** Lists the dead letters of these subscriptions, newest first. */
export async function listDeadLetters(
  db: Queryable,
  subscriptionKeys: readonly number[],
  range: PageRange,
): Promise<{ total: number; letters: DeliveryRecord[]; next: PageEnd }> {
  const where = sql<boolean>`${areOf(subscriptionKeys)} AND next_attempt_at IS NULL`
  const { rows: counted } = await sql<{ total: number }>`
    SELECT count(*) AS total FROM notification_deliveries WHERE ${where}`.execute(db)
  const source = {
    columns: sql`id, payload, attempts, last_error, created_at, ${GIVEN_UP_AT} AS at,
      (SELECT n.contact FROM notification_subscriptions n WHERE n.key = subscription_key) AS contact`,
    from: sql`notification_deliveries`,
    where,
    keyset: new Keyset([{ by: sql`key`, type: 'number', dir: 'desc' }]),
  }
  type Found = {
    id: string
    payload: NotificationPayload
    attempts: number
    last_error: string | null
    created_at: string
    at: string
    contact: string
  }
  const { rows, next } = await readPage<Found>(db, source, range)
  return {
    next,
    total: counted[0]?.total ?? 0,
    letters: rows.map((row) => ({
      id: row.id,
      payload: row.payload,
      attempts: row.attempts,
      lastError: row.last_error,
      createdAt: row.created_at,
      givenUpAt: row.at,
      contact: row.contact,
    })),
  }
}

const GIVEN_UP = {
  table: sql`notification_deliveries`,
  isLetter: sql`l.next_attempt_at IS NULL`,
  order: [sql`l.subscription_key`, sql`l.key`],
} as const

/**
 * A part of a statement: the subscriptions of a user to channels of a domain that have dead letters, the newest first, as `kind`, `id`,
 * `name` (the contact) and `count`.
 */
// OFFSET 0: each is counted once, not for the condition and for the result.
export const subscriptionsWithLetters = (userKey: number, domainKey: number, bounds: LetterBounds): Sql => sql`
  SELECT 'subscription' AS kind, n.id, n.contact AS name, n.count
    FROM (SELECT n.key, n.id, n.contact, ${countLetters(GIVEN_UP, sql`n.key`, bounds)} AS count FROM notification_subscriptions n
           WHERE n.user_key = ${userKey}
             AND EXISTS (SELECT FROM channels h WHERE h.key = n.channel_key AND h.domain_key = ${domainKey}) OFFSET 0) n
   WHERE n.count > 0 ORDER BY n.key DESC LIMIT ${bounds.sources}`

/**
 * A part of a statement: the rules of a domain that have dead letters, the newest first, as `kind`, `id`, `name` and `count`. The letters of a
 * contact are counted up to the bound, and the sum of its contacts too.
 */
export const rulesWithLetters = (domainKey: number, bounds: LetterBounds): Sql => sql`
  SELECT 'rule' AS kind, r.id, r.name, r.count
    FROM (SELECT r.key, r.id, r.name, (SELECT least(coalesce(sum(${countLetters(GIVEN_UP, sql`n.key`, bounds)}), 0), ${bounds.letters}::bigint)::bigint
              FROM notification_subscriptions n WHERE n.rule_key = r.key) AS count
            FROM rules r WHERE r.domain_key = ${domainKey} OFFSET 0) r
   WHERE r.count > 0 ORDER BY r.key DESC LIMIT ${bounds.sources}`

/** Condition: dead letters of these subscriptions that are meant. */
const areMeant = (subscriptionKeys: readonly number[], selection: LetterSelection) =>
  sql<boolean>`${areOf(subscriptionKeys)} AND next_attempt_at IS NULL
    AND ${isSelected(selection, { id: sql`id`, at: GIVEN_UP_AT })}`

/** Makes dead letters of these subscriptions due, with all of their attempts. Returns their number. */
export async function retryDeadLetters(
  db: Queryable,
  subscriptionKeys: readonly number[],
  selection: LetterSelection,
): Promise<number> {
  const { numAffectedRows = 0n } =
    await sql`UPDATE notification_deliveries SET next_attempt_at = now(), attempts = 0, last_error = NULL, given_up_at = NULL
    WHERE ${areMeant(subscriptionKeys, selection)}`.execute(db)
  return Number(numAffectedRows)
}

/** Returns the number of removed dead letters. */
export async function discardDeadLetters(
  db: Queryable,
  subscriptionKeys: readonly number[],
  selection: LetterSelection,
): Promise<number> {
  const { numAffectedRows = 0n } = await sql`DELETE FROM notification_deliveries
    WHERE ${areMeant(subscriptionKeys, selection)}`.execute(db)
  return Number(numAffectedRows)
}

export async function removeOldDeadLetters(db: Queryable, days: number): Promise<void> {
  await sql`DELETE FROM notification_deliveries
    WHERE next_attempt_at IS NULL AND created_at < now() - make_interval(days => ${days})`.execute(db)
}
