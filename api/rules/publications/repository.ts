/** SQL of the messages that rules publish. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/** The number of rows that a node takes at a time, of the domains that have waited longest. */
const MAX_ROWS = 500
const MAX_DOMAINS = 50
/** Each of these domains has an equal share, and this one at least. */
const MIN_SHARE = MAX_ROWS / MAX_DOMAINS
/** The time after which another node takes the rows of a dead one. */
const TAKEN_SECONDS = 30

export type QueuedPublication = {
  key: number
  domainKey: number
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
  /** The rule still is, and was not disabled. */
  isWanted: boolean
}

/**
 * Takes the publications that are due first, in insertion order among equals; concurrent nodes take other rows. No domain waits for all that
 * another one has published.
 */
export async function takePublications(db: Queryable): Promise<{ rows: QueuedPublication[]; isFull: boolean }> {
  // The domains are found one by one over the index: many rows of one cost no more than one.
  const { rows } = await sql<QueuedPublication>`
    WITH RECURSIVE domain (key) AS (
      (SELECT domain_key FROM rule_publications ORDER BY domain_key LIMIT 1)
      UNION ALL SELECT (SELECT p.domain_key FROM rule_publications p WHERE p.domain_key > domain.key ORDER BY p.domain_key LIMIT 1)
        FROM domain WHERE domain.key IS NOT NULL),
    chosen AS MATERIALIZED (
      SELECT domain.key FROM domain CROSS JOIN LATERAL (SELECT p.due_at FROM rule_publications p WHERE p.domain_key = domain.key
          ORDER BY p.due_at LIMIT 1) f WHERE f.due_at <= now() ORDER BY f.due_at LIMIT ${MAX_DOMAINS})
    UPDATE rule_publications p SET due_at = now() + make_interval(secs => ${TAKEN_SECONDS}), attempts = least(p.attempts + 1, 1000)
    FROM (SELECT w.key FROM chosen CROSS JOIN LATERAL (SELECT o.key FROM rule_publications o WHERE o.domain_key = chosen.key AND o.due_at <= now()
        ORDER BY o.due_at, o.key LIMIT (SELECT greatest(${MIN_SHARE}::bigint, ${MAX_ROWS}::bigint / count(*)) FROM chosen)
        FOR UPDATE SKIP LOCKED) w) due
    JOIN rule_publications q ON q.key = due.key JOIN domains d ON d.key = q.domain_key
    WHERE p.key = due.key
    RETURNING p.key, p.domain_key AS "domainKey", d.id AS "domainId", p.rule_id AS "ruleId", p.user_key AS "userKey", p.channel_id AS "channelId", p.subtopic,
      p.content_type AS "contentType", p.payload, p.depth, p.origin, p.attempts, p.created_at AS "createdAt",
      EXISTS (SELECT FROM rules r WHERE r.key = p.rule_key AND r.status = 'enabled') AS "isWanted"`.execute(db)
  return { rows: rows.toSorted((left, right) => left.key - right.key), isFull: rows.length >= MIN_SHARE }
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
