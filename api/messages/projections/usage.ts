/**
 * Counts of messages per domain, by minute, by day and by what is stored, and per client. They are updated with the rollups, in the
 * same transactions.
 */
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { arrivedOn } from './rollups.ts'

/**
 * Adds these rows `m` of `records` and of `payloads`; the caller holds the lock of the projections. Every message with records has
 * one first run, every other one first payload. Messages of deleted clients and domains are not counted.
 */
export async function addUsage(tx: Transaction, rows: Sql<unknown>): Promise<void> {
  await sql`
    WITH arrived AS MATERIALIZED (
      SELECT s.domain_key, s.publisher_key, m.arrived_at, m.retention_days, m.chunk = 0 AS is_first, cardinality(m.times) AS records
        FROM records m JOIN series s ON s.key = m.series_keys[1] WHERE ${rows}
      UNION ALL
      SELECT c.domain_key, m.publisher_key, m.arrived_at, m.retention_days, m.ordinal = 0, 1
        FROM payloads m JOIN channels c ON c.key = m.channel_key WHERE ${rows}
    ), of_clients AS (
      ${insertTelemetry(sql`
        SELECT c.key, min(a.arrived_at), max(a.arrived_at), count(*)
          FROM arrived a JOIN clients c ON c.key = a.publisher_key WHERE a.is_first GROUP BY c.key ORDER BY c.key`)}
    ), of_minutes AS (
      ${insertMinutes(sql`
        SELECT d.key, date_trunc('minute', a.arrived_at, 'UTC'), count(*) FILTER (WHERE a.is_first), sum(a.records)
          FROM arrived a JOIN domains d ON d.key = a.domain_key GROUP BY 1, 2 ORDER BY 1, 2`)}
    ), of_weeks AS (
      ${insertStored(sql`
        SELECT d.key, a.retention_days, ${arrivedOn(sql`a.arrived_at`)}, sum(a.records)
          FROM arrived a JOIN domains d ON d.key = a.domain_key GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`)}
    )
    ${insertUsage(sql`
      SELECT d.key, (a.arrived_at AT TIME ZONE 'UTC')::date, count(*) FILTER (WHERE a.is_first), sum(a.records)
        FROM arrived a JOIN domains d ON d.key = a.domain_key GROUP BY 1, 2 ORDER BY 1, 2`)}`.execute(tx)
}

/** Adds rows of client, first and last arrival, and messages; sorted by client. */
export function insertTelemetry(rows: Sql<unknown>): Sql<unknown> {
  return sql`
    INSERT INTO client_telemetry AS t (client_key, first_seen, last_seen, inbound_messages) ${rows}
    ON CONFLICT ON CONSTRAINT client_telemetry_pkey DO UPDATE SET
      first_seen = least(t.first_seen, EXCLUDED.first_seen), last_seen = greatest(t.last_seen, EXCLUDED.last_seen),
      inbound_messages = t.inbound_messages + EXCLUDED.inbound_messages`
}

/** Adds rows of domain, day, messages and records; sorted by domain and day. */
export function insertUsage(rows: Sql<unknown>): Sql<unknown> {
  return sql`
    INSERT INTO domain_usage AS u (domain_key, day, messages, records) ${rows}
    ON CONFLICT ON CONSTRAINT domain_usage_pkey DO UPDATE SET
      messages = u.messages + EXCLUDED.messages, records = u.records + EXCLUDED.records`
}

/** Adds rows of domain, minute, messages and records; sorted by domain and minute. */
export function insertMinutes(rows: Sql<unknown>): Sql<unknown> {
  return sql`
    INSERT INTO domain_minutes AS u (domain_key, minute, messages, records) ${rows}
    ON CONFLICT ON CONSTRAINT domain_minutes_pkey DO UPDATE SET
      messages = u.messages + EXCLUDED.messages, records = u.records + EXCLUDED.records`
}

/** Adds rows of domain, retention class, week and records; sorted by the first three. */
export function insertStored(rows: Sql<unknown>): Sql<unknown> {
  return sql`
    INSERT INTO domain_stored_records AS u (domain_key, retention_days, arrived_on, records) ${rows}
    ON CONFLICT ON CONSTRAINT domain_stored_records_pkey DO UPDATE SET records = u.records + EXCLUDED.records`
}

/**
 * Subtracts deleted records of a channel: rows of `retention_days`, `arrived_at` and `records`. The caller holds the lock of the
 * projections.
 */
export function subtractStored(channelKey: number, deleted: Sql<unknown>): Sql<unknown> {
  return sql`
    UPDATE domain_stored_records u SET records = greatest(0, u.records - d.records)
      FROM (SELECT retention_days, ${arrivedOn(sql`arrived_at`)} AS arrived_on, sum(records)::bigint AS records
              FROM (${deleted}) one GROUP BY 1, 2) d
     WHERE u.domain_key = (SELECT domain_key FROM channels WHERE key = ${channelKey})
       AND (u.retention_days, u.arrived_on) = (d.retention_days, d.arrived_on)`
}

/** How many records of these domains are stored, without those of pending batches. */
export async function findStoredRecords(db: Queryable, domainKeys: readonly number[]): Promise<Map<number, number>> {
  const { rows } = await sql<{ domain_key: number; records: number }>`
    SELECT domain_key, sum(records)::bigint AS records FROM domain_stored_records
     WHERE domain_key = ANY (${[...domainKeys]}::bigint[]) GROUP BY 1`.execute(db)
  return new Map(rows.map((row) => [row.domain_key, row.records]))
}

/** Minutes that rates can be asked of, with an hour to spare: retention runs once an hour. */
const KEPT_HOURS = 26

export async function deleteOldMinutes({ db }: Pick<Database, 'db'>): Promise<void> {
  await sql`DELETE FROM domain_minutes WHERE minute < now() - make_interval(hours => ${KEPT_HOURS})`.execute(db)
}

export type DayUsage = { day: string; messages: number; records: number }

/** The days of a domain with messages, newest first, at most `limit`; and the sums of all days. */
export async function findUsage(db: Queryable, domainKey: number, limit: number) {
  const { rows } = await sql<DayUsage & { all_messages: number; all_records: number }>`
    SELECT day::text AS day, messages, records, (sum(messages) OVER ())::bigint AS all_messages, (sum(records) OVER ())::bigint AS all_records
      FROM domain_usage WHERE domain_key = ${domainKey} ORDER BY domain_usage.day DESC LIMIT ${limit}`.execute(db)
  const days = rows.map(({ day, messages, records }): DayUsage => ({ day, messages, records }))
  return { messages: rows[0]?.all_messages ?? 0, records: rows[0]?.all_records ?? 0, days }
}
