/** How many tasks, workflows, schedules and triggers domains have, and how much state their tasks, for their quotas (contract decision 98). */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

export const TASK_AMOUNTS = ['tasks', 'workflows', 'schedules', 'triggers', 'state_keys', 'state_bytes'] as const
export type TaskAmount = (typeof TASK_AMOUNTS)[number]

const STATE_OF = sql`task_state_sizes z JOIN tasks t ON t.key = z.task_key WHERE t.domain_key = d.key`

/** Each is counted in an index that begins with the domain. Each task has the sum of its state. */
const COUNTED: Readonly<Record<TaskAmount, Sql>> = {
  tasks: sql`SELECT count(*) AS used FROM tasks t WHERE t.domain_key = d.key`,
  workflows: sql`SELECT count(*) AS used FROM workflows f WHERE f.domain_key = d.key`,
  schedules: sql`SELECT count(*) AS used FROM tasks t WHERE t.domain_key = d.key AND t.schedule IS NOT NULL`,
  triggers: sql`SELECT count(*) AS used FROM tasks t WHERE t.domain_key = d.key AND t.trigger IS NOT NULL`,
  state_keys: sql`SELECT coalesce(sum(z.keys), 0)::bigint AS used FROM ${STATE_OF}`,
  state_bytes: sql`SELECT coalesce(sum(z.bytes), 0)::bigint AS used FROM ${STATE_OF}`,
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
