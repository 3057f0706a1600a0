/** SQL of the contacts of rules: rows beside those of subscriptions, so that their deliveries are made in the same way. */
import type { Queryable, Transaction } from '#core/database/index.ts'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { IS_CONFIRMED } from './repository.ts'

export type RuleContact = {
  key: number
  id: string
  contact: string
  isConfirmed: boolean
  pending: number
  deadLetters: number
  lastError: { at: string; reason: string; count: number } | null
}

/** Deliveries and dead letters that are counted, each. */
const MAX_COUNTED = 10_000

const counted = (condition: 'IS NULL' | 'IS NOT NULL') =>
  sql`(SELECT count(*) FROM (SELECT FROM notification_deliveries w WHERE w.subscription_key = n.key
    AND w.next_attempt_at ${condition === 'IS NULL' ? sql`IS NULL` : sql`IS NOT NULL`} LIMIT ${MAX_COUNTED}) c)`

export async function listRuleContacts(db: Queryable, ruleKey: number): Promise<RuleContact[]> {
  const { rows } = await sql<RuleContact>`SELECT n.key, n.id, n.contact, ${IS_CONFIRMED} AS "isConfirmed",
      ${counted('IS NOT NULL')} AS pending, ${counted('IS NULL')} AS "deadLetters",
      CASE WHEN n.error_count > 0 THEN json_build_object('at', n.error_at, 'reason', n.error_reason, 'count', n.error_count) END AS "lastError"
    FROM notification_subscriptions n WHERE n.rule_key = ${ruleKey} ORDER BY n.key`.execute(db)
  return rows
}

export async function listRuleContactKeys(db: Queryable, ruleKey: number): Promise<number[]> {
  const { rows } = await sql<{
    key: number
  }>`SELECT key FROM notification_subscriptions WHERE rule_key = ${ruleKey}`.execute(db)
  return rows.map(({ key }) => key)
}

/** Contacts of the rule that are not among these are removed, with what waits for them. */
export async function removeOtherContacts(
  tx: Transaction,
  ruleKey: number,
  contacts: readonly string[],
): Promise<void> {
  await sql`DELETE FROM notification_subscriptions WHERE rule_key = ${ruleKey} AND contact <> ALL (${[...contacts]}::text[])`.execute(
    tx,
  )
}

/** Removes the deliveries of a rule that wait, except those that were given up. Returns their number. */
export async function removeWaiting(tx: Transaction, ruleKey: number): Promise<number> {
  // Who ends a delivery locks its contact first.
  const { rows } = await sql<{ key: number }>`SELECT key FROM notification_subscriptions WHERE rule_key = ${ruleKey}
    ORDER BY key FOR NO KEY UPDATE`.execute(tx)
  const { numAffectedRows = 0n } = await sql`DELETE FROM notification_deliveries
    WHERE subscription_key = ANY (${rows.map(({ key }) => key)}::bigint[]) AND next_attempt_at IS NOT NULL`.execute(tx)
  return Number(numAffectedRows)
}

/**
 * Stores the contacts of a rule, each once. An address is confirmed if it is the verified one of the user, or was confirmed for that user before: with
 * another user, the confirmations of that one count. `memberKey`: the member whose verified address it is.
 */
export async function putRuleContacts(
  tx: Transaction,
  { ruleKey, ruleId, userKey }: { ruleKey: number; ruleId: string; userKey: number },
  contacts: readonly { contact: string; memberKey: number | undefined }[],
): Promise<void> {
  if (contacts.length === 0) return
  await sql`INSERT INTO notification_subscriptions AS n (id, user_key, rule_key, topic, filter, contact, confirmed_at, member_key)
    SELECT c.id, ${userKey}::bigint, ${ruleKey}::bigint, ${`rules/${ruleId}`}::text, '', c.contact,
        CASE WHEN position('://' in c.contact) > 0
          OR EXISTS (SELECT FROM users u WHERE u.key = ${userKey} AND u.verified_at IS NOT NULL AND lower(u.email) = lower(c.contact))
          OR EXISTS (SELECT FROM notification_subscriptions o
            WHERE o.user_key = ${userKey} AND lower(o.contact) = lower(c.contact) AND o.confirmed_at IS NOT NULL) THEN now() END, c.member
      FROM unnest(${contacts.map(() => newId())}::uuid[], ${contacts.map(({ contact }) => contact)}::text[],
        ${contacts.map(({ memberKey }) => memberKey ?? null)}::bigint[]) AS c (id, contact, member) ORDER BY c.contact
    ON CONFLICT (rule_key, contact) WHERE rule_key IS NOT NULL DO UPDATE SET user_key = excluded.user_key, member_key = excluded.member_key,
      confirmed_at = CASE WHEN excluded.confirmed_at IS NULL THEN NULL ELSE coalesce(n.confirmed_at, excluded.confirmed_at) END,
      error_at = NULL, error_reason = NULL, error_count = 0`.execute(tx)
  // They are claimed by owner.
  await sql`UPDATE notification_deliveries w SET user_key = ${userKey} FROM notification_subscriptions n
    WHERE n.rule_key = ${ruleKey} AND w.subscription_key = n.key AND w.user_key <> ${userKey}`.execute(tx)
}

/** The enabled users with these verified addresses, by address as it was given. */
export async function findUsersOfAddresses(
  db: Queryable,
  addresses: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  if (addresses.length === 0) return new Map()
  const { rows } = await sql<{ address: string; key: number }>`SELECT c.address, u.key
    FROM unnest(${[...addresses]}::text[]) AS c (address) JOIN users u ON lower(u.email) = lower(c.address)
    WHERE u.verified_at IS NOT NULL AND u.status = 'enabled'`.execute(db)
  return new Map(rows.map(({ address, key }) => [address, key]))
}

/** Contacts of a rule that wait for a confirmation, and to which no link was sent that is valid. */
export async function listUnasked(
  db: Queryable,
  ruleKey: number,
  linkSeconds: number,
): Promise<{ id: string; contact: string }[]> {
  const { rows } = await sql<{ id: string; contact: string }>`SELECT n.id, n.contact FROM notification_subscriptions n
    WHERE n.rule_key = ${ruleKey} AND NOT ${IS_CONFIRMED} AND NOT EXISTS (SELECT FROM notification_subscriptions o
      WHERE o.user_key = n.user_key AND lower(o.contact) = lower(n.contact)
        AND o.confirmation_sent_at > now() - make_interval(secs => ${linkSeconds})) ORDER BY n.key`.execute(db)
  return rows
}

export type ContactRoom = { key: number; ruleKey: number; contact: string; isConfirmed: boolean; waiting: number }

/** The contacts of these rules, and how many deliveries wait for each, at most `limit`. */
export async function readContactRooms(
  tx: Transaction,
  ruleKeys: readonly number[],
  limit: number,
): Promise<ContactRoom[]> {
  const { rows } =
    await sql<ContactRoom>`SELECT n.key, n.rule_key AS "ruleKey", n.contact, ${IS_CONFIRMED} AS "isConfirmed",
      (SELECT count(*) FROM (SELECT FROM notification_deliveries w WHERE w.subscription_key = n.key AND w.next_attempt_at IS NOT NULL
        LIMIT ${limit}) c) AS waiting
    FROM notification_subscriptions n WHERE n.rule_key = ANY (${[...ruleKeys]}::bigint[])`.execute(tx)
  return rows
}

export type RuleFailure = { ruleKey: number; at: string; reason: string; count: number; contact: string }

/** The last failure of a contact of each of these rules. */
export async function listRuleFailures(db: Queryable, ruleKeys: readonly number[]): Promise<RuleFailure[]> {
  if (ruleKeys.length === 0) return []
  const { rows } =
    await sql<RuleFailure>`SELECT DISTINCT ON (n.rule_key) n.rule_key AS "ruleKey", n.error_at AS at, n.error_reason AS reason,
      n.error_count AS count, n.contact FROM notification_subscriptions n
    WHERE n.rule_key = ANY (${[...ruleKeys]}::bigint[]) AND n.error_count > 0 ORDER BY n.rule_key, n.error_at DESC`.execute(
      db,
    )
  return rows
}
