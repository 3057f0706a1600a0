/** SQL of rules whose source is a schedule: which are due, how far they are, and the series that they look at. */
import type { Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { RuleFilter } from '../../engine/index.ts'

export type DueTick = {
  ruleKey: number
  tickMs: number
  /** Key of the last series that was evaluated for it. Null: it has not begun. */
  after: number | null
  /** The time of the database, like that of the ticks. */
  nowMs: number
}

/** Times of rules of the domain that are due: those that have not begun first, and then those that have come least far. */
export async function readDueTicks(
  tx: Transaction,
  domainKey: number,
  { settleMs, limit }: { settleMs: number; limit: number },
): Promise<DueTick[]> {
  const { rows } =
    await sql<DueTick>`SELECT key AS "ruleKey", (extract(epoch FROM next_tick_at) * 1000)::float8 AS "tickMs",
      tick_after AS after, (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS "nowMs"
    FROM rules WHERE domain_key = ${domainKey} AND next_tick_at <= clock_timestamp() - make_interval(secs => ${settleMs / 1000}::float8)
      AND status = 'enabled' AND paused_at IS NULL AND NOT is_behind
    ORDER BY tick_after NULLS FIRST, next_tick_at, key LIMIT ${limit}`.execute(tx)
  return rows
}

export type TickProgress = {
  ruleKey: number
  /** Null: there is no further time. */
  tickMs: number | null
  after: number | null
  missed: number
}

export async function storeTicks(tx: Transaction, ticks: readonly TickProgress[]): Promise<void> {
  if (ticks.length === 0) return
  await sql`UPDATE rules r SET next_tick_at = to_timestamp(n.tick), tick_after = n.after, missed_ticks = r.missed_ticks + n.missed
    FROM unnest(${ticks.map(({ ruleKey }) => ruleKey)}::bigint[],
      ${ticks.map(({ tickMs }) => (tickMs === null ? null : tickMs / 1000))}::float8[],
      ${ticks.map(({ after }) => after)}::bigint[], ${ticks.map(({ missed }) => missed)}::bigint[]) AS n (key, tick, after, missed)
    WHERE r.key = n.key`.execute(tx)
}

export type TickSeries = {
  key: number
  channelKey: number
  channelId: string
  channelName: string
  publisherId: string
  subtopic: string
  name: string
  unit: string
  /** Null: a user or a task sent its values. */
  clientName: string | null
  tags: string[] | null
  metadata: Record<string, unknown> | null
}

/**
 * Series with these names of the domain, of enabled clients that match, in the order of their keys. One that has several units has the key of the first
 * of them, so that it is found once whatever comes meanwhile.
 */
export async function listSeries(
  db: Queryable,
  domainKey: number,
  { channels, names = [], clients, groups, tags }: RuleFilter,
  { after, limit }: { after: number; limit: number },
): Promise<TickSeries[]> {
  const isOfClients = clients !== undefined || groups !== undefined || tags !== undefined
  const parts = [
    isOfClients ? sql`c.status = 'enabled'` : sql`(s.publisher_id = '' OR c.status = 'enabled')`,
    ...(clients === undefined ? [] : [sql`c.id = ANY (${[...clients]}::uuid[])`]),
    ...(tags === undefined ? [] : [sql`c.tags && ${[...tags]}::text[]`]),
    ...(groups === undefined
      ? []
      : [
          sql`c.parent_group_key IN (WITH RECURSIVE below (key) AS (
            SELECT g.key FROM groups g WHERE g.domain_key = ${domainKey} AND g.id = ANY (${[...groups]}::uuid[])
            UNION SELECT g.key FROM groups g JOIN below b ON g.parent_key = b.key) SELECT key FROM below)`,
        ]),
  ]
  const among = channels === undefined ? sql`` : sql`AND h.id = ANY (${[...channels]}::uuid[])`
  const { rows } = await sql<TickSeries>`WITH found AS MATERIALIZED (
      SELECT min(s.key) AS key, h.key AS channel_key, h.id AS channel_id, h.name AS channel_name, s.publisher_id, s.subtopic, s.name,
        (array_agg(s.unit ORDER BY s.key DESC))[1] AS unit
      FROM channels h JOIN series s ON s.channel_key = h.key
      WHERE h.domain_key = ${domainKey} ${among} AND s.name = ANY (${[...names]}::text[])
      GROUP BY h.key, s.publisher_id, s.subtopic, s.name HAVING min(s.key) > ${after})
    SELECT s.key, s.channel_key AS "channelKey", s.channel_id AS "channelId", s.channel_name AS "channelName", s.publisher_id AS "publisherId",
      s.subtopic, s.name, s.unit, c.name AS "clientName", c.tags, c.metadata
    FROM found s LEFT JOIN clients c ON c.domain_key = ${domainKey} AND c.id = nullif(s.publisher_id, '')::uuid
    WHERE ${sql.join(parts, sql` AND `)} ORDER BY s.key LIMIT ${limit}`.execute(db)
  return rows
}
