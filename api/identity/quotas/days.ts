/** SQL of what domains use of their daily quotas. A day is one of UTC. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { DailyQuota } from './names.ts'

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

/** What these domains have used today. */
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

/** The same by the ids of domains. */
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
  { name, source, added }: { name: DailyQuota; source: string; added: readonly { domainId: string; added: number }[] },
): Promise<void> {
  await sql`
    INSERT INTO domain_quota_days AS q (domain_key, day, quota, source, used)
    SELECT d.key, ${TODAY}, ${name}, ${source}, a.added
      FROM unnest(${added.map(({ domainId }) => domainId)}::uuid[], ${added.map((one) => one.added)}::float8[]) AS a (id, added)
      JOIN domains d ON d.id = a.id ORDER BY d.key
    ON CONFLICT ON CONSTRAINT domain_quota_days_pkey DO UPDATE SET used = q.used + EXCLUDED.used`.execute(db)
}

export async function deleteOldQuotaDays({ db }: { db: Queryable }): Promise<void> {
  await sql`DELETE FROM domain_quota_days WHERE day < ${TODAY} - ${KEPT_DAYS}::integer`.execute(db)
}

/** Seconds until the next day begins; at least one. */
export function secondsOfToday(nowMs: number): number {
  return Math.max(1, Math.ceil(DAY_SECONDS - ((nowMs / 1000) % DAY_SECONDS)))
}
