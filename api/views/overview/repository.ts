/** Totals over all domains, dead letters of one, and samples: how many clients and workers were online at one moment of each five minutes. */
import { consumersWithLetters } from '#api/consumers/index.ts'
import { RATE_STEPS, WINDOW_SECONDS } from '#api/messages/index.ts'
import type { RateWindow } from '#api/messages/index.ts'
import { rulesWithLetters, subscriptionsWithLetters } from '#api/provisioning/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { formatTime } from '#core/time.ts'
import { tasksWithLetters } from '#queues/index.ts'
import { LETTER_BOUNDS, MAX_LETTER_SOURCES } from './schema.ts'
import type { DeadLetters, LetterKind } from './schema.ts'

export type PlatformTotals = {
  users: number
  domains: number
  clients: number
  online: number
  channels: number
  groups: number
  now: string
}

/** Entities come from the counts that every change keeps, so that nothing large is counted. */
export async function findPlatformTotals(db: Queryable): Promise<PlatformTotals> {
  const counted = (type: string) =>
    sql`(SELECT coalesce(sum(amount), 0)::bigint FROM entity_counts WHERE entity_type = ${type})`
  const { rows } = await sql<PlatformTotals>`
    SELECT (SELECT count(*) FROM users WHERE status <> 'deleted') AS users,
           (SELECT count(*) FROM domains WHERE status <> 'deleted') AS domains,
           ${counted('client')} AS clients, (SELECT count(*) FROM client_telemetry WHERE is_online) AS online,
           ${counted('channel')} AS channels, ${counted('group')} AS groups, now() AS now`.execute(db)
  return rows[0] as PlatformTotals
}

/**
 * How many dead letters of these kinds a domain has, and where. Each room counts its own in a part of the one statement; subscriptions are
 * those of the user.
 */
export async function findDeadLetters(
  db: Queryable,
  { domainKey, userKey }: { domainKey: number; userKey: number },
  kinds: readonly LetterKind[],
): Promise<DeadLetters> {
  if (kinds.length === 0) return { total: 0, sources: [] }
  const parts = {
    task: tasksWithLetters(domainKey, LETTER_BOUNDS),
    consumer: consumersWithLetters(domainKey, LETTER_BOUNDS),
    subscription: subscriptionsWithLetters(userKey, domainKey, LETTER_BOUNDS),
    rule: rulesWithLetters(domainKey, LETTER_BOUNDS),
  }
  const found = kinds.map((kind) => sql`(${parts[kind]})`)
  type Row = DeadLetters['sources'][number] & { total: number; isWhole: boolean }
  const { rows } = await sql<Row>`
    SELECT s.kind, s.id, s.name, s.count, (sum(s.count) OVER ())::bigint AS total,
           bool_and(s.count < ${LETTER_BOUNDS.letters} AND s.of_kind < ${LETTER_BOUNDS.sources}) OVER () AS "isWhole"
      FROM (SELECT kind, id, name, count, count(*) OVER (PARTITION BY kind) AS of_kind
              FROM (${sql.join(found, sql` UNION ALL `)}) every) s
     ORDER BY s.count DESC, s.name, s.id LIMIT ${MAX_LETTER_SOURCES}`.execute(db)
  const [first] = rows
  return {
    total: first?.total ?? 0,
    ...(first?.isWhole === false ? { total_exact: false } : {}),
    sources: rows.map(({ total: _total, isWhole: _isWhole, ...source }) => ({
      ...source,
      ...(source.count === LETTER_BOUNDS.letters ? { count_exact: false } : {}),
    })),
  }
}

export const SLOT_SECONDS = 300
/** The longest window, with an hour to spare. */
const KEPT_HOURS = 25

/** The slot of the present moment, by the clock of the database. */
const SLOT = sql`to_timestamp(floor(extract(epoch FROM now()) / ${SLOT_SECONDS}::bigint) * ${SLOT_SECONDS}::bigint)`

/** False when the present slot was sampled before; waits for another node that does it at this moment. */
export async function insertPlatformSample(tx: Transaction, workers: number): Promise<boolean> {
  const { numAffectedRows } = await sql`
    INSERT INTO domain_samples (domain_key, slot, clients, workers) VALUES (NULL, ${SLOT}, 0, ${workers})
    ON CONFLICT ON CONSTRAINT domain_samples_slot_key DO NOTHING`.execute(tx)
  return numAffectedRows === 1n
}

/** Inserts the samples of the domains that have a client online or one of these workers. */
export async function insertSamples(
  tx: Transaction,
  workers: readonly { domainKey: number; workers: number }[],
): Promise<void> {
  await sql`
    INSERT INTO domain_samples (domain_key, slot, clients, workers)
    SELECT one.domain_key, ${SLOT}, sum(one.clients), sum(one.workers)
      FROM (SELECT c.domain_key, count(*) AS clients, 0 AS workers
              FROM client_telemetry t JOIN clients c ON c.key = t.client_key WHERE t.is_online GROUP BY 1
             UNION ALL
            SELECT w.domain_key, 0, w.workers
              FROM unnest(${workers.map(({ domainKey }) => domainKey)}::bigint[], ${workers.map((row) => row.workers)}::bigint[])
                AS w (domain_key, workers)) one
      JOIN domains d ON d.key = one.domain_key
     GROUP BY 1 ORDER BY 1`.execute(tx)
}

export async function deleteOldSamples(tx: Transaction): Promise<void> {
  await sql`DELETE FROM domain_samples WHERE slot < now() - make_interval(hours => ${KEPT_HOURS})`.execute(tx)
}

/** Null: nothing was sampled in the step. */
export type SampledStep = { time: string; clients: number | null; workers: number | null }

/**
 * Every step of the window, oldest first; the last one is the present one. A step has the lowest of its samples, so that an
 * interruption of five minutes is seen in a window of a day. Workers are those of the domain and of the platform.
 */
export async function findSamples(db: Queryable, domainKey: number, window: RateWindow): Promise<SampledStep[]> {
  const step = Math.max(SLOT_SECONDS, RATE_STEPS[window])
  const { rows } = await sql<{ at: string; clients: number | null; workers: number | null }>`
    WITH steps AS (
      SELECT to_timestamp(last.epoch - n * ${step}::bigint) AS at
        FROM (SELECT floor(extract(epoch FROM now()) / ${step}::bigint)::bigint * ${step}::bigint AS epoch) last,
             generate_series(0, ${WINDOW_SECONDS[window] / step - 1}::integer) n
    ), sampled AS (
      SELECT p.slot, coalesce(d.clients, 0) AS clients, p.workers + coalesce(d.workers, 0) AS workers
        FROM domain_samples p LEFT JOIN domain_samples d ON d.domain_key = ${domainKey} AND d.slot = p.slot
       WHERE p.domain_key IS NULL AND p.slot >= (SELECT min(at) FROM steps)
    )
    SELECT s.at, min(o.clients) AS clients, min(o.workers) AS workers
      FROM steps s LEFT JOIN sampled o ON o.slot >= s.at AND o.slot < s.at + make_interval(secs => ${step}::float8)
     GROUP BY s.at ORDER BY s.at`.execute(db)
  return rows.map(({ at, ...counts }) => ({ time: formatTime(at), ...counts }))
}
