/** SQL of the messages that rules publish. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/** The number of rows that a node takes at a time. */
const MAX_ROWS = 500
/** The time after which another node takes the rows of a dead one. */
const TAKEN_SECONDS = 30

export type QueuedPublication = {
  key: number
  domainId: string
  ruleId: string
  userKey: number
  channelId: string
  subtopic: string
  contentType: string
  payload: string
  depth: number
  origin: string
  attempts: number
  createdAt: string
}

/** Takes the publications that are due first, in insertion order among equals; concurrent nodes take other rows. */
export async function takePublications(db: Queryable): Promise<{ rows: QueuedPublication[]; isFull: boolean }> {
  const { rows } = await sql<QueuedPublication>`
    UPDATE rule_publications p SET due_at = now() + make_interval(secs => ${TAKEN_SECONDS}), attempts = least(p.attempts + 1, 1000)
    FROM (SELECT key FROM rule_publications WHERE due_at <= now() ORDER BY due_at, key LIMIT ${MAX_ROWS} FOR UPDATE SKIP LOCKED) due
    JOIN rule_publications q ON q.key = due.key JOIN domains d ON d.key = q.domain_key
    WHERE p.key = due.key
    RETURNING p.key, d.id AS "domainId", p.rule_id AS "ruleId", p.user_key AS "userKey", p.channel_id AS "channelId", p.subtopic,
      p.content_type AS "contentType", p.payload, p.depth, p.origin, p.attempts, p.created_at AS "createdAt"`.execute(
    db,
  )
  return { rows: rows.toSorted((left, right) => left.key - right.key), isFull: rows.length === MAX_ROWS }
}

export async function removePublications(db: Queryable, keys: readonly number[]): Promise<void> {
  if (keys.length > 0) await sql`DELETE FROM rule_publications WHERE key = ANY (${[...keys]}::bigint[])`.execute(db)
}

export async function deferPublications(
  db: Queryable,
  rows: readonly { key: number; waitSeconds: number }[],
): Promise<void> {
  if (rows.length === 0) return
  await sql`UPDATE rule_publications p SET due_at = now() + make_interval(secs => c.wait)
    FROM unnest(${rows.map(({ key }) => key)}::bigint[], ${rows.map(({ waitSeconds }) => waitSeconds)}::float8[]) AS c (key, wait)
    WHERE p.key = c.key`.execute(db)
}
