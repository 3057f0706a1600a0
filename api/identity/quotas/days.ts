/** SQL of what domains use of their daily quotas. A day is one of UTC. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { KEPT_QUOTA } from './names.ts'
import type { CountedQuota, DailyQuota } from './names.ts'

export const DAY_SECONDS = 86_400
/** Days that are kept: only the present one is read. */
const KEPT_DAYS = 7

const TODAY = sql`(now() AT TIME ZONE 'UTC')::date`

/** Adds to what is used today, unless that exceeds the limit; returns whether it was added. */
export async function addToday(
  db: Queryable,
  { domainKey, name, added, limit }: { domainKey: number; name: DailyQuota; added: number; limit: number | undefined },
): Promise<boolean> {
  const { rows } = await sql`
    INSERT INTO domain_quota_days AS q (domain_key, day, quota, source, used)
    SELECT d.key, ${TODAY}, ${name}, '', ${added}::float8 FROM domains d
     WHERE d.key = ${domainKey} AND ${added}::float8 <= coalesce(${limit ?? null}::float8, 'Infinity')
    ON CONFLICT ON CONSTRAINT domain_quota_days_pkey DO UPDATE SET used = q.used + EXCLUDED.used
     WHERE q.used + EXCLUDED.used <= coalesce(${limit ?? null}::float8, 'Infinity')
    RETURNING q.domain_key`.execute(db)
  return rows.length > 0
}

/** Returns what these domains have used today, by their keys. */
export async function usedToday(
  db: Queryable,
  name: DailyQuota,
  domainKeys: readonly number[],
): Promise<Map<number, number>> {
  const { rows } = await sql<{ domain_key: number; used: number }>`
    SELECT domain_key, sum(used) AS used FROM domain_quota_days
     WHERE domain_key = ANY (${[...domainKeys]}::bigint[]) AND day = ${TODAY} AND quota = ${name} GROUP BY 1`.execute(
    db,
  )
  return new Map(rows.map((row) => [row.domain_key, row.used]))
}

/** Returns what these domains have used today, by their ids. */
export async function usedTodayByDomains(
  db: Queryable,
  name: DailyQuota,
  domainIds: readonly string[],
): Promise<Map<string, number>> {
  const { rows } = await sql<{ id: string; used: number }>`
    SELECT d.id, sum(q.used) AS used FROM domains d JOIN domain_quota_days q ON q.domain_key = d.key
     WHERE d.id = ANY (${[...domainIds]}::uuid[]) AND q.day = ${TODAY} AND q.quota = ${name} GROUP BY 1`.execute(db)
  return new Map(rows.map((row) => [row.id, row.used]))
}

/** Adds to what these domains have used today, whatever their limits are. `source`: who counts. */
export async function addOfDomains(
  db: Queryable,
  {
    name,
    source,
    added,
  }: { name: CountedQuota; source: string; added: readonly { domainId: string; added: number }[] },
): Promise<void> {
  await sql`
    INSERT INTO domain_quota_days AS q (domain_key, day, quota, source, used)
    SELECT d.key, ${TODAY}, ${name}, ${source}, a.added
      FROM unnest(${added.map(({ domainId }) => domainId)}::uuid[], ${added.map((one) => one.added)}::float8[]) AS a (id, added)
      JOIN domains d ON d.id = a.id ORDER BY d.key
    ON CONFLICT ON CONSTRAINT domain_quota_days_pkey DO UPDATE SET used = q.used + EXCLUDED.used`.execute(db)
}

export async function deleteOldQuotaDays({ db }: { db: Queryable }): Promise<void> {
  await sql`DELETE FROM domain_quota_days WHERE day < ${TODAY} - ${KEPT_DAYS}::integer AND quota <> ${KEPT_QUOTA}`.execute(
    db,
  )
}

/** Returns the usage of `KEPT_QUOTA` by these domains, by their ids. */
export async function keptByDomains(db: Queryable, domainIds: readonly string[]): Promise<Map<string, number>> {
  const { rows } = await sql<{ id: string; used: number }>`
    SELECT d.id, greatest(sum(q.used), 0) AS used FROM domains d JOIN domain_quota_days q ON q.domain_key = d.key
     WHERE d.id = ANY (${[...domainIds]}::uuid[]) AND q.quota = ${KEPT_QUOTA} GROUP BY 1`.execute(db)
  return new Map(rows.map((row) => [row.id, row.used]))
}

/** Returns the usage of `KEPT_QUOTA` by one domain, by its key. */
export async function keptByDomain(db: Queryable, domainKey: number): Promise<number> {
  const { rows } = await sql<{ used: number }>`SELECT coalesce(greatest(sum(used), 0), 0) AS used FROM domain_quota_days
     WHERE domain_key = ${domainKey} AND quota = ${KEPT_QUOTA}`.execute(db)
  return rows[0]?.used ?? 0
}

/** Nothing of these days is kept any longer. */
export async function forgetKept(db: Queryable, keptMs: number): Promise<void> {
  await sql`DELETE FROM domain_quota_days WHERE quota = ${KEPT_QUOTA}
    AND day < (now() AT TIME ZONE 'UTC' - make_interval(secs => ${keptMs / 1000}::float8))::date`.execute(db)
}

/** A part of a statement that removes what was kept. `removed` is a part with `domain_key`, `day` and `bytes`. */
export function releaseKept(removed: string): Sql {
  return sql`INSERT INTO domain_quota_days AS q (domain_key, day, quota, source, used)
    SELECT r.domain_key, r.day, ${KEPT_QUOTA}, 'removed', -sum(r.bytes) FROM ${sql.raw(removed)} r
     WHERE r.domain_key IS NOT NULL AND r.bytes > 0 GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT ON CONSTRAINT domain_quota_days_pkey DO UPDATE SET used = q.used + EXCLUDED.used`
}

/** Seconds until the next day begins; at least one. */
export function secondsOfToday(nowMs: number): number {
  return Math.max(1, Math.ceil(DAY_SECONDS - ((nowMs / 1000) % DAY_SECONDS)))
}
