/**
 * `trigger_remainders`: what triggers of a channel still get of a batch of messages. With many triggers that match, one transaction would hold up
 * the messages of all domains until every one of them has its message; it notes the batch instead, and steps of their own hand it out.
 */
import type { Queryable, Transaction } from '#core/database/index.ts'
import type { Position } from '#core/changelog/index.ts'
import { sql } from '#core/sql.ts'

/** A batch, and the channel whose triggers have not all got its messages. */
export type TriggerRemainder = {
  channelKey: number
  position: Position
  arrivedAt: string
}

export type StoredRemainder = TriggerRemainder & {
  channelId: string
  /** Tasks up to this one have the messages. */
  afterTaskKey: number
}

/** Adds batches, in their order. */
export async function storeRemainders(tx: Transaction, remainders: readonly TriggerRemainder[]): Promise<void> {
  if (remainders.length === 0) return
  const of = <T>(field: (remainder: TriggerRemainder) => T) => remainders.map(field)
  await sql`INSERT INTO trigger_remainders (channel_key, xid, seq, arrived_at)
    SELECT m.channel_key, m.xid::xid8, m.seq, m.arrived_at
      FROM unnest(${of(({ channelKey }) => channelKey)}::bigint[], ${of(({ position }) => position.xid.toString())}::text[],
        ${of(({ position }) => position.seq)}::bigint[], ${of(({ arrivedAt }) => arrivedAt)}::timestamptz[])
        WITH ORDINALITY AS m (channel_key, xid, seq, arrived_at, place)
      JOIN channels c ON c.key = m.channel_key ORDER BY m.place`.execute(tx)
}

/** The oldest of each channel, one of each domain at a time, in no particular order of the domains. */
export async function listRemainders(db: Queryable, limit: number): Promise<number[]> {
  const { rows } = await sql<{ key: number }>`
    SELECT o.key FROM (SELECT r.key, row_number() OVER (PARTITION BY c.domain_key ORDER BY r.key) AS turn
        FROM (SELECT min(key) AS key, channel_key FROM trigger_remainders GROUP BY channel_key) r
        JOIN channels c ON c.key = r.channel_key) o
     ORDER BY o.turn, random() LIMIT ${limit}`.execute(db)
  return rows.map(({ key }) => key)
}

/**
 * Locks a remainder until the transaction ends; undefined also while another process hands it out. It locks no row,
 * which would be a write: later messages of all domains are settled while the step reads.
 */
export async function lockRemainder(tx: Transaction, key: number): Promise<StoredRemainder | undefined> {
  const { rows: locks } = await sql<{ is_locked: boolean }>`
    SELECT pg_try_advisory_xact_lock(hashtextextended(${`trigger remainder ${key}`}, 0)) AS is_locked`.execute(tx)
  if (locks[0]?.is_locked !== true) return undefined
  // Another statement: it sees what the process before has handed out.
  const { rows } = await sql<Omit<StoredRemainder, 'position'> & { xid: string; seq: number }>`
    SELECT r.channel_key AS "channelKey", c.id AS "channelId", r.xid::text AS xid, r.seq, r.arrived_at AS "arrivedAt",
        r.after_task_key AS "afterTaskKey"
      FROM trigger_remainders r JOIN channels c ON c.key = r.channel_key WHERE r.key = ${key}`.execute(tx)
  const [row] = rows
  if (row === undefined) return undefined
  const { xid, seq, ...found } = row
  return { ...found, position: { xid: BigInt(xid), seq } }
}

/** Tasks up to this one have the messages; undefined: all of them. */
export async function storeRemainder(tx: Transaction, key: number, afterTaskKey: number | undefined): Promise<void> {
  if (afterTaskKey === undefined) await sql`DELETE FROM trigger_remainders WHERE key = ${key}`.execute(tx)
  else await sql`UPDATE trigger_remainders SET after_task_key = ${afterTaskKey} WHERE key = ${key}`.execute(tx)
}

/** Whether triggers of the channel that are not behind may still get messages that the follower has passed. */
export async function hasRemainders(tx: Transaction, channelKey: number): Promise<boolean> {
  const { rows } = await sql`SELECT FROM trigger_remainders WHERE channel_key = ${channelKey} LIMIT 1`.execute(tx)
  return rows.length > 0
}
