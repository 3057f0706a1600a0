/** How many tasks, workflows, schedules and triggers domains have, for their quotas (contract decision 98). */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

export const TASK_AMOUNTS = ['tasks', 'workflows', 'schedules', 'triggers'] as const
export type TaskAmount = (typeof TASK_AMOUNTS)[number]

/** Each is counted in an index that begins with the domain. */
const COUNTED: Readonly<Record<TaskAmount, Sql>> = {
  tasks: sql`SELECT count(*) AS used FROM tasks t WHERE t.domain_key = d.key`,
  workflows: sql`SELECT count(*) AS used FROM workflows f WHERE f.domain_key = d.key`,
  schedules: sql`SELECT count(*) AS used FROM tasks t WHERE t.domain_key = d.key AND t.schedule IS NOT NULL`,
  triggers: sql`SELECT count(*) AS used FROM tasks t WHERE t.domain_key = d.key AND t.trigger IS NOT NULL`,
}

/** What the domains have, by their ids. */
export async function countTaskAmount(
  db: Queryable,
  name: TaskAmount,
  domainIds: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const { rows } = await sql<{ id: string; used: number }>`
    SELECT d.id, c.used FROM domains d, LATERAL (${COUNTED[name]}) c WHERE d.id = ANY (${[...domainIds]}::uuid[])`.execute(
    db,
  )
  return new Map(rows.map(({ id, used }) => [id, used]))
}

/** Returns what one domain has, by its key. */
export async function countTaskAmountOf(db: Queryable, name: TaskAmount, domainKey: number): Promise<number> {
  const { rows } = await sql<{ used: number }>`
    SELECT c.used FROM (SELECT ${domainKey}::bigint AS key) d, LATERAL (${COUNTED[name]}) c`.execute(db)
  return rows[0]?.used ?? 0
}
